"""A trial: one variant lives through the trace.

It decides exactly as a plan does, but explains nothing, because hundreds of trials are run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from mooring.core.decision import StartRefusal
from mooring.core.pod import ContainerKind, Pod
from mooring.kubelet.admit import AdmitResult
from mooring.kubelet.adoption import opened
from mooring.kubelet.events import Readmit, after_event
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.scenario import Admit
from mooring.memorymanager.state import Block
from mooring.node import Decision
from mooring.node.isolation import Isolation, cpu_isolation
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


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a variant."""

    admissions: tuple[TrialAdmission, ...]
    kubelet: Kubelet | None
    """The kubelet in the end, when it has given back what refused pods had been given; None when it does not run."""
    refusal: StartRefusal | None = None
    """Set when the kubelet would not start, at first or again."""
    ended: str = ""
    """:data:`CRASH` or :data:`ENDLESS` when the kubelet would not return from the admission after the last one."""


def run_trial(trace: Trace, variant: Variant) -> Trial:
    """Run a variant through the trace, to its end or to where the kubelet does not go on."""
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
            if one.never_returns:
                return Trial(tuple(admissions), None, ended=CRASH if one.crash else ENDLESS)
            admissions.append(_admission(one, running=running))
        if result.is_last:
            return Trial(tuple(admissions), None, result.refusal, CRASH if result.crash else "")
    return Trial(tuple(admissions), kubelet.settled())


def _admission(result: AdmitResult, *, running: bool) -> TrialAdmission:
    pod, decision = result.pod, result.decision
    if not decision.admitted:
        return TrialAdmission(pod, decision, running)
    blocks = result.decided.node.memory.assignments.get(pod.uid, {})
    return TrialAdmission(pod, decision, running, tuple(_exclusive(result.decided, pod)), blocks)


def _exclusive(kubelet: Kubelet, pod: Pod) -> Iterator[str]:
    settings, providers = kubelet.settings, kubelet.node.providers
    for container in pod.containers:
        isolation = cpu_isolation(settings, providers, pod, container)
        if container.kind is not ContainerKind.INIT and isolation is Isolation.CONTAINER:
            yield container.name
