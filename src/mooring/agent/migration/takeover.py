"""What the agent does with the running pods of a node at its first start: its reactor, asked with what the kubelet did.

The reactor is the agent's own. It receives the Synchronize that a runtime would send, in which every running container
has the CPUs and memory nodes that the kubelet gave it, and its state afterwards says what each gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from mooring.agent.configuration import FIXED_BY_DEFAULT
from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.placing import place
from mooring.agent.reactor.resume import resume
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.answers.base.question import Question
from mooring.engine.core.bits import CPUMask, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.node import placements_of


class TakeoverOutcome(Enum):
    """What becomes of a running container."""

    KEPT = "kept"
    """It keeps the CPUs and memory nodes that are its own."""
    MOVED = "moved"
    """It gets others of its own while it runs."""
    SHARED = "shared"
    """It has none of its own, before and afterwards."""
    WAITS = "waits"
    """The agent does not admit its pod: it runs in the shared pool until there is room."""


@dataclass(frozen=True, slots=True)
class MigratedContainer:
    """A running container before and after the agent's start."""

    pod: Pod
    container: str
    outcome: TakeoverOutcome
    before: Placement
    """What the kubelet gave it alone."""
    after: Placement
    """What the agent gives it alone."""
    runs_on: CPUSet
    """The CPUs of its cgroup afterwards."""
    reason: str = ""
    """Why the pod waits, in the kubelet's words."""


@dataclass(frozen=True, slots=True)
class Takeover:
    """All running containers, in order."""

    containers: tuple[MigratedContainer, ...]
    shared_pool: CPUSet
    exclusive: CPUSet
    """All CPUs that pods have alone, as ``mooring status`` prints them."""
    ended: Mapping[str, CPUSet]
    """``NAMESPACE/POD/CONTAINER`` of init containers that have ended -> CPUs that the agent keeps for them besides."""

    def with_outcome(self, outcome: TakeoverOutcome) -> tuple[MigratedContainer, ...]:
        """Return the containers of which this becomes."""
        return tuple(one for one in self.containers if one.outcome is outcome)


def take_over(question: Question, before: Kubelet, *, recreated: bool = False) -> Takeover:
    """Start the agent on a node.

    Args:
        question: machine, pods, and the configuration that the agent gets: the policies of the kubelet.
        before: the kubelet that gave the running pods what they have.
        recreated: whether the pods were evicted and come anew, in the same order; else they run beside it.

    Raises:
        InputError: the engine does not start with this configuration.
    """
    mooring = replace(question.mooring, fixed_defects=question.mooring.fixed_defects | FIXED_BY_DEFAULT)
    state = resume(question.machine.info, question.config, mooring).state
    pods = {pod.uid: pod for pod in question.active}
    sandboxes = [PodSandbox(pod.uid, pod.uid, pod.name, pod.namespace) for pod in question.active]
    if recreated:
        for pod in question.active:
            state = place(state, pod).state
    else:
        listed = [one for pod in question.active for one in _listed(before, pod)]
        state = synchronize(state, sandboxes, listed, pods, running=frozenset(one.id for one in listed)).state
    found = tuple(one for pod in question.active for one in _taken_over(before, state, pod))
    cpus = state.kubelet.node.cpu.assignments
    exclusive = CPUSet()
    for held in cpus.values():
        exclusive |= _joined(held.values())
    return Takeover(found, DesiredSettings.now(state).pool, exclusive, dict(_ended(state, question.active)))


def _ended(state: AgentState, pods: Iterable[Pod]) -> Iterator[tuple[str, CPUSet]]:
    """Yield what init containers of running pods hold alone: a pod that is taken over is decided about as a whole."""
    for pod in pods:
        held = state.kubelet.node.cpu.assignments.get(pod.uid, {})
        names = {one.name for one in _running(pod)}
        running = _joined(mask for name, mask in held.items() if name in names)
        for name, mask in held.items():
            alone = CPUSet(CPUMask(mask & ~running.mask))
            if name not in names and alone:
                yield f"{pod.namespace}/{pod.name}/{name}", alone


def _joined(masks: Iterable[CPUMask]) -> CPUSet:
    joined = CPUSet()
    for mask in masks:
        joined |= CPUSet(mask)
    return joined


def _running(pod: Pod) -> Iterator[Container]:
    """Yield the containers that run beside one another: init containers have ended."""
    return (one for one in pod.containers if one.kind is not ContainerKind.INIT)


def _listed(before: Kubelet, pod: Pod) -> Iterable[RuntimeContainer]:
    held, _ = placements_of(before.node.providers, pod)
    pool = before.node.shared_pool if before.settings.cpu is not None else CPUSet()
    for container in _running(pod):
        own = held.get(container.name, Placement())
        cpus = str(own.cpus or pool)
        resources = LinuxResources(cpus=cpus, mems=",".join(map(str, own.mems)))
        yield RuntimeContainer(
            f"{pod.uid}/{container.name}", pod.uid, container.name, ContainerState.RUNNING, 1, resources=resources
        )


def _taken_over(before: Kubelet, after: AgentState, pod: Pod) -> Iterator[MigratedContainer]:
    held: Mapping[str, Placement] = placements_of(before.node.providers, pod)[0]
    wanted, waiting = DesiredSettings.now(after), after.held.get(pod.uid)
    for container in _running(pod):
        had, setting = held.get(container.name, Placement()), wanted.of(pod.uid, container.name)
        own = after.kubelet.node.cpu.assignments.get(pod.uid, {}).get(container.name, 0)
        has = Placement(CPUSet(CPUMask(own)), tuple(members(setting.mems)))
        outcome = TakeoverOutcome.KEPT if has == had else TakeoverOutcome.MOVED
        if has == had == Placement():
            outcome = TakeoverOutcome.SHARED
        if waiting is not None:
            outcome = TakeoverOutcome.WAITS
        reason = "" if waiting is None else f"{waiting.rejection.reason}: {waiting.rejection.message}"
        yield MigratedContainer(pod, container.name, outcome, had, has, setting.cpus, reason)
