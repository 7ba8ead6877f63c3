"""Resizing a pod in place: the answer to one request, and the pods that wait for room.

Source: kubelet v1.37.1, pkg/kubelet/allocation; KEP-1287; spec: resize.md sections 1 and 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement, Rejection
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node.resources import pod_requests

PENDING = "PodResizePending"
IN_PROGRESS = "PodResizeInProgress"
DEFERRED = "Deferred"
INFEASIBLE = "Infeasible"


@dataclass(frozen=True, slots=True)
class Waiting:
    """A resize that was not taken: the pod as it wants to be, and what its condition says."""

    pod: Pod
    rejection: Rejection
    """Who refused it, and in which words."""
    reason: str
    """``Deferred``: it is tried again when something changes. ``Infeasible``: only another request helps."""
    since: Moment
    """When the condition got this reason."""


@dataclass(frozen=True, slots=True)
class DelayedRelease:
    """CPUs that a container releases when its delay is over."""

    cpus: CPUSet
    """What it is going to have."""
    apply_at: Moment

    def left(self, now: Moment) -> int:
        """Return the nanoseconds until the delay is over; 0 when it is, or when the time is of another boot."""
        return max(self.apply_at.since_boot - now.since_boot, 0) if self.apply_at.boot == now.boot else 0


@dataclass(frozen=True, slots=True)
class Resize:
    """The answer to one resize."""

    uid: str
    accepted: bool
    """Whether the pod has been given the resources; a reverted resize is neither accepted nor refused."""
    condition: str
    """``PodResizePending``, ``PodResizeInProgress``, or empty when nothing is left to do."""
    reason: str
    message: str
    rejection: Rejection | None
    """The reason that the refusing check gave, such as ``OutOfcpu``."""
    containers: Mapping[str, Placement]
    """What each container holds now."""
    releases: Mapping[str, DelayedRelease]
    """CPUs that go back later, by container."""
    baseline: Mapping[str, CPUSet]
    """What each container got at first; it never has less."""
    shared_pool: CPUSet
    events: tuple[str, ...] = field(default=())
    """Names of the kubelet's events that it would record."""


def releases_of(state: CPUState, uid: str) -> dict[str, DelayedRelease]:
    """Return what a pod's containers release later."""
    return {
        name: DelayedRelease(CPUSet(pre.cpus), pre.apply_at)
        for name, pre in sorted(state.pre_assignments.get(uid, {}).items())
    }


def retry_order(waiting: Iterable[Waiting], active: Mapping[str, Pod]) -> list[Waiting]:
    """Return the deferred resizes in the order in which the kubelet tries them again.

    First those that raise neither CPU nor memory requests, then by priority, then Guaranteed pods before others, then
    those that wait longest.
    """
    deferred = [one for one in waiting if one.reason == DEFERRED]
    return sorted(
        deferred,
        key=lambda one: (
            _raises(active[one.pod.uid], one.pod),
            -one.pod.priority,
            one.pod.qos is not QoS.GUARANTEED,
            one.since,
        ),
    )


def _raises(before: Pod, after: Pod) -> bool:
    old, new = pod_requests(before), pod_requests(after)
    return any(new.get(resource, 0) > old.get(resource, 0) for resource in ("cpu", "memory"))
