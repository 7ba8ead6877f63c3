"""CPUs that come and go, in the field names of a replay (docs/reference/scenarios.md)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from mooring.core.bits import list_text
from mooring.extensions.offline import broken_sets, displaced_sets, effective_pool
from mooring.node import Node
from mooring.node.hotplug import CPUsChanged
from mooring.node.hotplug_findings import hotplug_findings

Sets: TypeAlias = dict[str, dict[str, dict[str, str]]]
"""Owner -> container -> fields; the partition of a whole pod is under the empty name."""


def standing_fields(node: Node) -> dict[str, Any]:
    """Return what is offline, what it does to whom, and the findings; nothing on a node whose CPUs are all online."""
    offline = offline_fields(node)
    return {**offline, "findings": [one.fields() for one in hotplug_findings(node)]} if offline else {}


def offline_fields(node: Node) -> dict[str, Any]:
    """Return what is offline and what it does to whom; nothing on a node whose CPUs are all online.

    ``broken`` are sets with offline CPUs, ``displaced`` those in which others stand in.
    """
    state = node.cpu
    if not state.offline and not state.displaced:
        return {}
    return {
        "offline": list_text(state.offline),
        "usablePool": list_text(effective_pool(state)),
        "broken": _by_owner(
            (one.pod, one.container, {"cpus": list_text(one.cpus), "lost": list_text(one.lost)})
            for one in broken_sets(state)
        ),
        "displaced": _by_owner(
            (one.pod, one.container, {"cpus": list_text(one.cpus), "original": list_text(one.original)})
            for one in displaced_sets(state)
        ),
    }


def change_fields(node: Node, change: CPUsChanged) -> dict[str, Any]:
    """Return what one step in which CPUs go or come led to, and how things stand."""
    standing = standing_fields(node) or {
        "offline": "",
        "usablePool": list_text(effective_pool(node.cpu)),
        "broken": {},
        "displaced": {},
        "findings": [],
    }
    unhelped = [(one.pod, one.container, {"why": one.why}) for one in change.broken if one.why]
    return {
        **standing,
        "refused": {pod: {name: one["why"] for name, one in mine.items()} for pod, mine in _by_owner(unhelped).items()},
        "restored": _by_owner(
            (one.pod, one.container, {"cpus": list_text(one.cpus), "before": list_text(one.before)})
            for one in change.restored
        ),
    }


def hotplug_lines(node: Node) -> list[str]:
    """Return the sentences for under a picture: whose sets are not what they were, and what else there is to know."""
    return [f"{one.subject} {one.message}." for one in hotplug_findings(node)]


def _by_owner(found: Iterable[tuple[str, str, dict[str, str]]]) -> Sets:
    sets: Sets = {}
    for pod, container, fields in found:
        sets.setdefault(pod, {})[container] = fields
    return sets
