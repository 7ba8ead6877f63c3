"""CPUs that come and go, in the field names of a replay (docs/reference/scenarios.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from mooring.core.bits import list_text
from mooring.documents.plan import BrokenSetPart, DisplacedSetPart
from mooring.extensions.offline import broken_sets, displaced_sets, effective_pool
from mooring.node import Node
from mooring.node.hotplug import CPUsChanged
from mooring.node.hotplug_findings import hotplug_findings

_Set = TypeVar("_Set")


def standing_fields(node: Node) -> dict[str, Any]:
    """Return what is offline, what it does to whom, and the findings; nothing on a node whose CPUs are all online."""
    offline = offline_fields(node)
    return {**offline, "findings": [one.fields() for one in hotplug_findings(node)]} if offline else {}


def has_offline(node: Node) -> bool:
    """Tell whether CPUs are offline, or others still replace some that were."""
    return bool(node.cpu.offline or node.cpu.displaced)


def usable_pool(node: Node) -> str:
    """Return where containers of the shared pool run."""
    return list_text(effective_pool(node.cpu))


def broken_parts(node: Node) -> dict[str, dict[str, BrokenSetPart]]:
    """Return the sets with offline CPUs."""
    return _by_owner(
        (one.pod, one.container, BrokenSetPart(list_text(one.cpus), list_text(one.lost)))
        for one in broken_sets(node.cpu)
    )


def displaced_parts(node: Node) -> dict[str, dict[str, DisplacedSetPart]]:
    """Return the sets in which CPUs replace others that are offline."""
    return _by_owner(
        (one.pod, one.container, DisplacedSetPart(list_text(one.cpus), list_text(one.original)))
        for one in displaced_sets(node.cpu)
    )


def offline_fields(node: Node) -> dict[str, Any]:
    """Return what is offline and which sets that changes; nothing on a node whose CPUs are all online."""
    if not has_offline(node):
        return {}
    return {
        "offline": list_text(node.cpu.offline),
        "usablePool": usable_pool(node),
        "broken": broken_parts(node),
        "displaced": displaced_parts(node),
    }


def change_fields(node: Node, change: CPUsChanged) -> dict[str, Any]:
    """Return what one step in which CPUs go or come led to, and how things stand."""
    standing = standing_fields(node) or {
        "offline": "",
        "usablePool": usable_pool(node),
        "broken": {},
        "displaced": {},
        "findings": [],
    }
    return {
        **standing,
        "refused": _by_owner((one.pod, one.container, one.why) for one in change.broken if one.why),
        "restored": _by_owner(
            (one.pod, one.container, {"cpus": list_text(one.cpus), "before": list_text(one.before)})
            for one in change.restored
        ),
    }


def hotplug_lines(node: Node) -> list[str]:
    """Return the sentences for under a picture: whose sets are not what they were, and what else there is to know."""
    return [f"{one.subject} {one.message}." for one in hotplug_findings(node)]


def _by_owner(found: Iterable[tuple[str, str, _Set]]) -> dict[str, dict[str, _Set]]:
    """Return owner -> container -> set; the partition of a whole pod is under the empty name."""
    sets: dict[str, dict[str, _Set]] = {}
    for pod, container, one in found:
        sets.setdefault(pod, {})[container] = one
    return sets
