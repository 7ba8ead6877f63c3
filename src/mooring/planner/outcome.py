"""Decisions in the field names of the recordings, with the parts of documents in them.

Source: the format of the conformance recordings (docs/reference/scenarios.md).
"""

from __future__ import annotations

from typing import Any

from mooring.core.decision import Placement
from mooring.core.moment import Moment
from mooring.documents.hints import hint_lists, hint_part
from mooring.documents.parts import HeldDevicesPart, HeldDeviceTable, PlacementPart
from mooring.kubelet.kubelet import StateTexts
from mooring.node import Decision
from mooring.node.resize import Resize


def decision_fields(decision: Decision) -> dict[str, Any]:
    """Return the fields of an admit result, without the texts of state files."""
    fields: dict[str, Any] = {
        "admitted": decision.admitted,
        "reason": decision.reason,
        "message": decision.message,
        "containers": {name: placement_part(placement) for name, placement in decision.containers.items()},
        "pod": placement_part(decision.pod),
        "affinity": {name: hint_part(hint) for name, hint in decision.affinity.items()},
        "sharedPool": str(decision.shared_pool),
    }
    if decision.hints is not None:
        fields["hints"] = {name: hint_lists(hints) for name, hints in decision.hints.items()}
    if decision.pod_hints is not None:
        fields["podHints"] = hint_lists(decision.pod_hints)
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
        "containers": {name: placement_part(placement) for name, placement in answer.containers.items()},
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


def held_devices(decision: Decision) -> HeldDeviceTable:
    """Return the devices of each container: ids, and the NUMA nodes of each device."""
    return {
        container: {
            resource: HeldDevicesPart(
                [device.id for device in devices],
                # Sorted as text, as the recordings have it.
                sorted((sorted(device.numa or ()) for device in devices), key=str),
            )
            for resource, devices in resources.items()
        }
        for container, resources in decision.devices.items()
    }


def placement_part(placement: Placement) -> PlacementPart:
    """Return CPUs and NUMA nodes as texts, empty for none."""
    return PlacementPart(str(placement.cpus), ",".join(map(str, placement.mems)))
