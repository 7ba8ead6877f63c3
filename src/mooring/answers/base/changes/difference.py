"""Two plans side by side: the pods that are admitted in each, and those that get something else."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import Plan
from mooring.answers.base.pod_names import pods_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod
from mooring.explain.alignment import Extent, extents

ADMITTED = "admitted"
REJECTED = "rejected"
LEFT = "left"
ENDLESS = "endless"
CRASH = "crash"
UNASKED = "unasked"
ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """What one container holds."""

    container: str
    """Empty for what the pod holds as a whole (KEP-5526)."""
    cpus: CPUSet
    """Exclusive CPUs; empty for the shared pool."""
    mems: tuple[int, ...]
    """NUMA nodes of its memory; empty for any."""
    devices: tuple[str, ...] = ()
    """Ids of its devices."""
    extents: tuple[Extent, ...] = ()
    """On how many NUMA nodes, sockets and L3 caches it lies; empty for a pod as a whole."""


@dataclass(frozen=True, slots=True)
class PodOutcome:
    """What becomes of a pod in one of the plans."""

    state: str
    """One of: ``admitted``; ``rejected``; ``left``, admitted and ended; ``endless`` and ``crash``, the kubelet does not
    come back from it; ``unasked``, no kubelet runs; ``absent``, no part of the plan."""
    reason: str = ""
    """The kubelet's, of a rejected pod."""
    code: str = ""
    """Of what became of the pod, such as ``MOOR-101``; empty for pods that were not asked."""
    why: str = ""
    """One sentence in plain words; empty for admitted pods, whose placement says it."""
    places: tuple[ContainerPlace, ...] = ()
    """Of an admitted pod."""

    @property
    def runs(self) -> bool:
        """Tell whether the pod runs on the node in the end."""
        return self.state == ADMITTED


@dataclass(frozen=True, slots=True)
class PodDifference:
    """A pod before and after."""

    pod: Pod
    """As it is after, where it is there."""
    before: PodOutcome
    after: PodOutcome

    @property
    def is_none(self) -> bool:
        """Tell whether nothing changes for the pod; why it is rejected may read differently."""
        one, other = self.before, self.after
        return (one.state, one.reason, one.places) == (other.state, other.reason, other.places)


def differences(before: Plan, after: Plan) -> tuple[PodDifference, ...]:
    """Return all pods of both plans, in the order of the first and then of the second."""
    old, new = _outcomes(before), _outcomes(after)
    absent = PodOutcome(ABSENT)
    pods = {pod.uid: pod for pod in (*pods_of(before), *pods_of(after))}
    latest = {pod.uid: pod for pod in pods_of(after)}
    return tuple(
        PodDifference(latest.get(uid, pod), old.get(uid, absent), new.get(uid, absent)) for uid, pod in pods.items()
    )


def _outcomes(plan: Plan) -> dict[str, PodOutcome]:
    found = {answer.pod.uid: _outcome(plan, answer) for answer in plan.answers}
    return found | {pod.uid: PodOutcome(UNASKED) for pod in plan.unasked}


def _outcome(plan: Plan, answer: Answer) -> PodOutcome:
    if answer.crash:
        return PodOutcome(CRASH, code=answer.code, why=answer.why)
    if answer.decision.endless is not None:
        return PodOutcome(ENDLESS, code=answer.code, why=answer.why)
    if not answer.admitted:
        return PodOutcome(REJECTED, answer.decision.reason, answer.code, answer.why)
    return PodOutcome(LEFT if answer.pod.uid in plan.left else ADMITTED, code=answer.code, places=_places(answer))


def _places(answer: Answer) -> tuple[ContainerPlace, ...]:
    decision = answer.decision
    extents_ = extents(answer.decided, answer.pod, decision)
    whole = (
        (ContainerPlace("", decision.pod.cpus, decision.pod.mems),) if decision.pod.cpus or decision.pod.mems else ()
    )
    return whole + tuple(
        ContainerPlace(
            name,
            placement.cpus,
            placement.mems,
            tuple(sorted(device.id for devices in decision.devices.get(name, {}).values() for device in devices)),
            extents_.get(name, ()),
        )
        for name, placement in decision.containers.items()
    )
