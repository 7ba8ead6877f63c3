"""Decisions in the field names of the recordings, which are also those of ``mooring plan -o json``.

Source: the format of the conformance recordings (docs/reference/scenarios.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any

from mooring.core.bits import list_text, members
from mooring.core.decision import Placement
from mooring.core.moment import Moment
from mooring.kubelet.kubelet import StateTexts
from mooring.node import Decision
from mooring.node.resize import Resize
from mooring.topologymanager.entries import AnyHints, ResourceHints
from mooring.topologymanager.hints import Hint, Hints
from mooring.topologymanager.wide import Family

LONGEST_LIST = 64
"""Longer lists of hints are given as a count and a digest."""

WIDEST_UNIVERSE = 16
"""Up to this many NUMA nodes the order of all their subsets is made once and remembered."""


def decision_fields(decision: Decision) -> dict[str, Any]:
    """Return the fields of an admit result, without the texts of state files."""
    fields: dict[str, Any] = {
        "admitted": decision.admitted,
        "reason": decision.reason,
        "message": decision.message,
        "containers": {name: placement_fields(placement) for name, placement in decision.containers.items()},
        "pod": placement_fields(decision.pod),
        "affinity": {name: hint_fields(hint) for name, hint in decision.affinity.items()},
        "sharedPool": str(decision.shared_pool),
    }
    if decision.hints is not None:
        fields["hints"] = {name: resource_fields(hints) for name, hints in decision.hints.items()}
    if decision.pod_hints is not None:
        fields["podHints"] = resource_fields(decision.pod_hints)
    return fields


def state_fields(files: StateTexts, before_start: StateTexts | None = None) -> dict[str, str]:
    """Return the texts of the state files after a step.

    Args:
        files: after the step.
        before_start: before the containers of an admitted pod started; told only where that changed something.
    """
    fields = {"cpuManagerState": files.cpu or "", "memoryManagerState": files.memory or ""}
    if before_start is not None and before_start.memory != files.memory:
        fields["memoryManagerStateAdmitted"] = before_start.memory or ""
    return fields


def resize_fields(answer: Resize, now: Moment) -> dict[str, Any]:
    """Return how things stand with the resize of a pod, without the shared pool and the texts of state files."""
    return {
        "resize": {"condition": answer.condition, "reason": answer.reason, "message": answer.message},
        "containers": {name: placement_fields(placement) for name, placement in answer.containers.items()},
        "pending": {
            name: {"cpus": str(release.cpus), "after": span_text(release.left(now))}
            for name, release in answer.releases.items()
        },
        "baseline": {name: str(cpus) for name, cpus in sorted(answer.baseline.items())},
    }


def span_text(nanoseconds: int) -> str:
    """Return a span of time in the largest unit that says it exactly.

    >>> span_text(5_000_000_000), span_text(2_500_000_000), span_text(0)
    ('5s', '2500ms', '0s')
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("us", 10**3)):
        if nanoseconds % size == 0:
            return f"{nanoseconds // size}{unit}"
    return f"{nanoseconds}ns"


def device_fields(decision: Decision) -> dict[str, Any]:
    """Return the devices of each container: ids, and the NUMA nodes of each device."""
    return {
        container: {
            resource: {
                "ids": [device.id for device in devices],
                # Sorted as text, as the recordings have it.
                "numa": sorted((sorted(device.numa or ()) for device in devices), key=str),
            }
            for resource, devices in resources.items()
        }
        for container, resources in decision.devices.items()
    }


def placement_fields(placement: Placement) -> dict[str, str]:
    """Return CPUs and NUMA nodes as texts, empty for none."""
    return {"cpus": str(placement.cpus), "mems": ",".join(map(str, placement.mems))}


def hint_fields(hint: Hint) -> dict[str, Any]:
    """Return one hint; ``numa`` is None when there is no mask."""
    return {"numa": None if hint.numa is None else list(hint.numa), "preferred": hint.preferred}


def resource_fields(hints: ResourceHints) -> dict[str, Any]:
    """Return the hints of each resource: null, a list, or for a long list its count and digest."""
    return {resource: list_fields(found) for resource, found in hints.items()}


def list_fields(hints: AnyHints | None) -> Any:
    """Return the hints of one resource: null, a list, or for a long list its count and digest."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        if hints.universe.bit_count() > WIDEST_UNIVERSE:
            return _described_fields(hints)
        hints = hints.hints()
    if len(hints) <= LONGEST_LIST:
        return [hint_fields(hint) for hint in hints]
    return {
        "count": len(hints),
        "preferredCount": len(hints.preferred) + sum(hints.nil),
        "sha256": sha256(_digest_text(hints).encode()).hexdigest(),
    }


def _described_fields(family: Family) -> dict[str, Any]:
    """Return what is worth saying of hints that nobody can list."""
    return {
        "nodes": list_text(family.universe),
        "smallest": family.narrowest(),
        "preferredSize": family.smallest,
        "listed": [list(members(mask)) for mask in family.listed],
    }


def _digest_text(hints: Hints) -> str:
    """Return ``<nodes>:<true|false>;`` for each hint in order."""
    words = ["null:true;" if flag else "null:false;" for flag in hints.nil]
    flags: Mapping[int, str] = {
        **dict.fromkeys(hints.others, "false"),
        **dict.fromkeys(hints.preferred, "true"),
    }
    universe = 0
    for mask in flags:
        universe |= mask
    if universe.bit_count() > WIDEST_UNIVERSE:
        ordered = sorted((len(hint.numa or ()), hint.numa or (), hint.mask or 0) for hint in hints if hint.mask)
        words += [f"{','.join(map(str, nodes))}:{flags[mask]};" for _, nodes, mask in ordered]
    else:
        words += [f"{text}:{flags[mask]};" for mask, text in _ordered_sets(universe) if mask in flags]
    return "".join(words)


@lru_cache(maxsize=8)
def _ordered_sets(universe: int) -> tuple[tuple[int, str], ...]:
    """Return all non-empty subsets of a node set with their texts, by size and then lexicographic."""
    sized: list[tuple[int, tuple[int, ...], int]] = []
    subset = universe
    while subset:
        nodes = tuple(members(subset))
        sized.append((len(nodes), nodes, subset))
        subset = (subset - 1) & universe
    return tuple((mask, ",".join(map(str, nodes))) for _, nodes, mask in sorted(sized))
