"""A trial: one variant runs through the trace, and the CPUs that are stranded on the node at its end.

It decides exactly as a plan does, but explains nothing, because hundreds of trials are run.

CPUs are stranded when no container can use them: those left when the node is filled up, and those that ended init
containers hold. The node is filled with more pods of the shapes in the trace, the largest CPU requests first, each
shape until the kubelet refuses one. No pod of these shapes can use what is left then. The engine fills the node as in
any admission, with the node resources check except for ``maxPods``, which says nothing about CPUs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mooring.core.decision import StartRefusal
from mooring.core.pod import ContainerKind, Pod
from mooring.cpumanager.policy import available_cpus
from mooring.kubelet.admit import AdmitMode, AdmitResult, added, admit
from mooring.kubelet.adoption import opened
from mooring.kubelet.events import Readmit, after_event
from mooring.kubelet.kubelet import Kubelet
from mooring.kubelet.start import start_on
from mooring.manifest.steps import Admit, Restart
from mooring.memorymanager.state import Block
from mooring.node import Decision, Node
from mooring.node.isolation import Isolation, cpu_isolation
from mooring.node.resources import check_amounts, pod_requests
from mooring.planner.compare.trace import Trace
from mooring.planner.compare.variant import Variant

CRASH = "crash"
ENDLESS = "endless"
"""How a trial can end before the trace does, besides a kubelet that would not start: words for a pod's reason."""


@dataclass(frozen=True, slots=True)
class TrialAdmission:
    """The answer for one pod."""

    pod: Pod
    decision: Decision
    running: bool = False
    """Whether it ran already when the kubelet started, and was admitted again."""
    exclusive: tuple[str, ...] = ()
    """Containers that have CPUs to themselves as long as the pod runs: apps and sidecars."""
    memory: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Container -> memory that it was given, of an admitted pod."""
    crashes: bool = False
    """Whether the kubelet crashes on it; the trial goes on without it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a variant."""

    admissions: tuple[TrialAdmission, ...]
    kubelet: Kubelet | None
    """The kubelet in the end, after it has released what refused pods had been given; None when it does not run."""
    refusal: StartRefusal | None = None
    """Set when the kubelet would not start, at first or again."""
    ended: str = ""
    """:data:`CRASH` or :data:`ENDLESS` when the kubelet would not return from the admission after the last one."""


def run_trial(trace: Trace, variant: Variant) -> Trial:
    """Run a variant through the trace, to its end or to where the kubelet does not continue."""
    machine, devices = variant.machine, variant.devices
    start = opened(
        machine, variant.config, variant.mooring, trace.files, devices, active=trace.active, pods=trace.pods
    ).start
    if start.kubelet is None:
        return Trial((), None, start.refusal)
    kubelet, admissions = start.kubelet, list[TrialAdmission]()
    for event in (*(Readmit(pod) for pod in trace.active), *trace.steps_on(start.kubelet)):
        running = not isinstance(event, Admit)
        kubelet, result = after_event(kubelet, event)
        for one in result.admissions:
            if one.decision.endless is not None:
                return Trial(tuple(admissions), None, ended=ENDLESS)
            if one.crash and isinstance(event, Restart):
                return Trial(tuple(admissions), None, ended=CRASH)
            admissions.append(_admission(one, running=running))
        if result.is_last:
            return Trial(tuple(admissions), None, result.refusal, CRASH if result.crash else "")
    return Trial(tuple(admissions), kubelet.settled())


def run_starts(trace: Trace, variant: Variant) -> bool:
    """Tell whether the kubelet starts with a variant."""
    return start_on(variant.machine, variant.config, variant.mooring, trace.files).kubelet is not None


def _admission(result: AdmitResult, *, running: bool) -> TrialAdmission:
    pod, decision = result.pod, result.decision
    if not decision.admitted:
        return TrialAdmission(pod, decision, running, crashes=bool(result.crash))
    blocks = result.decided.node.memory.assignments.get(pod.uid, {})
    return TrialAdmission(pod, decision, running, tuple(_exclusive(result.decided, pod)), blocks)


def _exclusive(kubelet: Kubelet, pod: Pod) -> Iterator[str]:
    settings, providers = kubelet.settings, kubelet.node.providers
    for container in pod.containers:
        isolation = cpu_isolation(settings, providers, pod, container)
        if container.kind is not ContainerKind.INIT and isolation is Isolation.CONTAINER:
            yield container.name


NO_LIMIT = sys.maxsize


@dataclass(frozen=True, slots=True)
class Stranded:
    """CPUs that are stranded, by the reason."""

    init: int = 0
    """Held by running pods for init containers that have ended (kubernetes/kubernetes#112228)."""
    siblings: int = 0
    """Left over on cores of which another thread is exclusive."""
    fragments: int = 0
    """Left over elsewhere: too few together, or something else than CPUs is exhausted."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.init + self.siblings + self.fragments


def stranded_cpus(kubelet: Kubelet, shapes: Iterable[Pod]) -> Stranded:
    """Count the stranded CPUs of a node; none when its CPU manager gives nothing away.

    Args:
        kubelet: at the end of the trace.
        shapes: one pod of each shape, in the order in which the node is filled with them.
    """
    node, policy = kubelet.node, kubelet.settings.cpu
    if policy is None:
        return Stranded()
    full = filled(kubelet, shapes).node.cpu
    left = available_cpus(policy, full)
    taken = policy.topology.all_cpus & ~full.default & ~policy.reserved
    beside = left & policy.topology.core_siblings(taken)
    return Stranded(
        sum(_of_ended(node, pod).bit_count() for pod in node.active.values()),
        beside.bit_count(),
        (left & ~beside).bit_count(),
    )


def filled(kubelet: Kubelet, shapes: Iterable[Pod]) -> Kubelet:
    """Return the kubelet when no more pod of these shapes gets CPUs of its own there."""
    used, reservation = kubelet.used, kubelet.settings.reservation
    for number, shape in enumerate(shapes):
        wanted = pod_requests(shape)
        copies = 0
        while check_amounts(wanted, used, 0, reservation, NO_LIMIT) is None:
            copies += 1
            after, result = admit(kubelet, replace(shape, uid=f"filling-{number}-{copies}"), AdmitMode.MANAGERS)
            if not result.admitted or after.node.cpu.default == kubelet.node.cpu.default:
                break
            kubelet, used = after, added(used, wanted)
    return kubelet


def _of_ended(node: Node, pod: Pod) -> int:
    """Return the CPUs that a pod holds for init containers alone; a pod with a partition of its own shares them."""
    if pod.uid in node.cpu.pods:
        return 0
    ended = others = 0
    held = node.cpu.assignments.get(pod.uid, {})
    for container in pod.containers:
        if container.kind is ContainerKind.INIT:
            ended |= held.get(container.name, 0)
        else:
            others |= held.get(container.name, 0)
    return ended & ~others
