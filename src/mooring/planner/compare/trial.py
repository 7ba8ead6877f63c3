"""A trial: one variant lives through the trace.

It decides exactly as a plan does, the node resources check included, but explains nothing, because hundreds of trials
are run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mooring.core.decision import Rejection, StartRefusal
from mooring.core.errors import KubeletCrashError
from mooring.core.pod import ContainerKind, Pod
from mooring.devicemanager.state import DeviceState
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.scenario import Admit, Remove, Step
from mooring.memorymanager.state import Block
from mooring.node import Decision
from mooring.node.isolation import Isolation, cpu_isolation
from mooring.node.resources import check_amounts, pod_requests, total_requests
from mooring.planner.compare.amounts import added
from mooring.planner.compare.trace import Trace
from mooring.planner.compare.variant import Variant
from mooring.planner.held import adopted, held_by_others
from mooring.planner.plan import started

CRASH = "crash"
ENDLESS = "endless"
"""How a trial can end before the trace does, besides a kubelet that would not start: words for a pod's reason."""


@dataclass(frozen=True, slots=True)
class Admission:
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

    admissions: tuple[Admission, ...]
    kubelet: Kubelet | None
    """The kubelet in the end, when it has given back what refused pods had been given; None when it does not run."""
    refusal: StartRefusal | None = None
    """Set when the kubelet would not start, at first or again."""
    ended: str = ""
    """:data:`CRASH` or :data:`ENDLESS` when the kubelet would not return from the admission after the last one."""


def run_trial(trace: Trace, variant: Variant) -> Trial:
    """Run a variant through the trace, to its end or to where the kubelet does not go on."""
    start = started(variant.machine, variant.config, variant.mooring, trace.files)
    if start.kubelet is None:
        return Trial((), None, start.refusal)
    kubelet = start.kubelet.with_devices(DeviceState(variant.devices))
    others = held_by_others(kubelet.node, {pod.uid for pod in trace.active})
    given = {pod.uid: pod for pod in trace.pods}
    run = _Run(replace(kubelet, node=kubelet.node.adopt(adopted(others, given))))
    try:
        run.readmit(trace.active)
        for step in trace.steps:
            refusal = run.take(step)
            if refusal is not None:
                return Trial(tuple(run.admissions), None, refusal)
    except KubeletCrashError:
        return Trial(tuple(run.admissions), None, ended=CRASH)
    except _EndlessError:
        return Trial(tuple(run.admissions), None, ended=ENDLESS)
    return Trial(tuple(run.admissions), run.kubelet.settled())


class _EndlessError(Exception):
    """The kubelet would never return; ends the run from within."""


class _Run:
    """A trial while it runs."""

    def __init__(self, kubelet: Kubelet) -> None:
        self.kubelet = kubelet
        self.admissions: list[Admission] = []
        self._used: dict[str, int] | None = None
        """What the active pods ask of the node together; None when that is to be added up."""

    def take(self, step: Step) -> StartRefusal | None:
        """Let one step happen; return why the kubelet did not start again, if it was a restart."""
        if not isinstance(step, Admit) or step.pod.uid in self.kubelet.node.active:
            self._used = None
        if isinstance(step, Admit):
            self.kubelet, decision = self.kubelet.decide(step.pod)
            if self._settled(step.pod, decision, running=False):
                self.kubelet = self.kubelet.start_containers(step.pod.uid)
        elif isinstance(step, Remove):
            self.kubelet, _ = self.kubelet.remove(step.uid)
        else:
            running = tuple(self.kubelet.node.active.values())
            start = self.kubelet.restarted()
            if start.kubelet is None:
                return start.refusal
            self.kubelet = start.kubelet
            self.readmit(running)
        return None

    def readmit(self, pods: Iterable[Pod]) -> None:
        """Admit the pods that run already when the kubelet starts."""
        for pod in pods:
            self._used = None
            self.kubelet, readmission = self.kubelet.readmit([pod])
            self._settled(pod, readmission.decisions[0], running=True)

    def _settled(self, pod: Pod, decision: Decision, *, running: bool) -> bool:
        """Add the node resources check to the managers' decision, keep the answer, and tell whether the pod runs."""
        if decision.endless is not None:
            raise _EndlessError
        kubelet = self.kubelet
        refused = self._out_of(pod) if decision.admitted else None
        if refused is not None:
            decision = replace(decision, admitted=False, rejection=refused)
            self.kubelet = replace(kubelet, node=kubelet.node.withdraw(pod.uid, refused))
        if not decision.admitted:
            self.admissions.append(Admission(pod, decision, running))
            return False
        blocks = kubelet.node.memory.assignments.get(pod.uid, {})
        self.admissions.append(Admission(pod, decision, running, tuple(_exclusive(kubelet, pod)), blocks))
        return True

    def _out_of(self, pod: Pod) -> Rejection | None:
        """Make the node resources check for a pod that the managers have admitted."""
        others = [other for uid, other in self.kubelet.node.active.items() if uid != pod.uid]
        used = total_requests(others) if self._used is None else self._used
        wanted, settings = pod_requests(pod), self.kubelet.settings
        refused = check_amounts(wanted, used, len(others), settings.reservation, settings.config.max_pods)
        self._used = used if refused is not None else added(used, wanted)
        return refused


def _exclusive(kubelet: Kubelet, pod: Pod) -> Iterator[str]:
    settings, providers = kubelet.settings, kubelet.node.providers
    for container in pod.containers:
        isolation = cpu_isolation(settings, providers, pod, container)
        if container.kind is not ContainerKind.INIT and isolation is Isolation.CONTAINER:
            yield container.name
