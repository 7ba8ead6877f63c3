"""A migration to the agent (``mooring migrate -o json``): checks, the takeover, and the kubelet that is left.

Every outcome is an answer of the engine, the doctor or the agent's reactor about this node; nothing is executed. The
reactor is the agent's own. It receives the Synchronize that a runtime would send, in which every running container has
the CPUs and memory nodes that the kubelet gave it, and its state afterwards says what each gets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import reduce
from operator import or_
from typing import Annotated, Literal

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.placing import place
from mooring.agent.reactor.recovery import resume
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, make_plan
from mooring.answers.base.plan_document import placement_part
from mooring.answers.doctor.answer import DiagnosisDocument
from mooring.answers.doctor.diagnosis import diagnose
from mooring.documents import plan as parts
from mooring.engine.checkpoint.device_file import DeviceRecord
from mooring.engine.core.bits import CPUMask, members
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import Placement
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.engine.node.node import placements_of
from mooring.service.agent_configuration import FIXED_BY_DEFAULT


class MigrationCheckPart(parts.DocumentPart):
    """Something that must hold before the first step."""

    name: Annotated[str, parts.one_of("state files", "kubelet", "agent", "pods", "rollback")]
    passed: bool
    message: str


class MigrationStepPart(parts.DocumentPart):
    """One step."""

    title: str
    files: Annotated[dict[str, str], parts.told("Path -> text to write before the commands.")]
    commands: Annotated[list[str], parts.told("To be typed on the node or where kubectl is, in order.")]
    outcome: Annotated[list[str], parts.told("What happens, as computed for this node.")]


class MigratedContainerPart(parts.DocumentPart, kw_only=True):
    """A running container before and after the agent's start."""

    uid: str
    namespace: str
    name: str
    container: str
    outcome: Annotated[str, parts.one_of("kept", "moved", "shared", "waits")]
    before: Annotated[parts.PlacementPart, parts.told("What it has of its own by the kubelet.")]
    after: Annotated[parts.PlacementPart, parts.told("What it has of its own by the agent.")]
    runs_on: Annotated[parts.CPUList, parts.told("The CPUs of its cgroup afterwards.")]
    reason: Annotated[str, parts.told("Why its pod waits; else empty.")]


class MigrationDocument(parts.DocumentPart, kw_only=True):
    """What mooring migrate -o json prints: checks, steps with their outcomes, and the way back."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Migration"] = "Migration"
    node: Annotated[str, parts.told("The node's name; empty where it is not known.")]
    machine: str
    kubelet: parts.KubeletRelease
    way: Annotated[str, parts.one_of("in place", "drain")]
    passed: Annotated[bool, parts.told("Whether every check has passed.")]
    checks: list[MigrationCheckPart]
    containers: Annotated[
        list[MigratedContainerPart], parts.told("Running ones in order; empty if the agent does not start.")
    ]
    shared_pool: Annotated[parts.CPUList, parts.told("After the agent's start; empty if it does not start.")]
    steps: list[MigrationStepPart]
    rollback: list[MigrationStepPart]
    findings: list[parts.FindingPart]


class TakeoverOutcome(StrEnum):
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
class Migration:
    """What happens on a node on its way from its kubelet's managers to the agent."""

    question: Question
    """The node as it is."""
    drained: bool
    """Whether the pods of the node are evicted, and those that come afterwards placed anew; else they run on."""
    diagnosis: DiagnosisDocument
    without_managers: AnyPlan
    """The kubelet with policy none and no state files."""
    with_files: str
    """What that kubelet reports when the state files are not removed; empty if it starts."""
    agent: AgentState | None
    """The agent when it has taken over the pods; None where it does not start."""
    containers: tuple[MigratedContainerPart, ...]
    """All running containers, in order; none where it does not start."""
    rollback: AnyPlan
    """The old kubelet on a copy of its own state files."""
    checks: tuple[MigrationCheckPart, ...]

    @property
    def shared_pool(self) -> CPUSet:
        """The shared pool of the agent; empty where it does not start."""
        return CPUSet() if self.agent is None else DesiredSettings.now(self.agent).pool


def migration_of(question: Question, devices: DeviceRecord | None, *, drained: bool) -> Migration:
    """Migrate a node on paper.

    Args:
        question: the node with its running pods.
        drained: whether these are evicted.
        devices: the device manager's record; None where it is not known.

    Raises:
        InputError: its kubelet manages neither CPUs nor memory.
    """
    question = replace(question, mooring=MooringConfig(release=question.mooring.release), pods=())
    config = question.config
    if config.cpu_manager_policy == "none" and config.memory_manager_policy == "None":
        problem = "the kubelet of this node manages neither CPUs nor memory: there is nothing to migrate"
        raise InputError(problem, remedy="start the agent (docs/how-to/run-the-agent.md)")
    running = make_plan(question)
    diagnosis = diagnose(question, devices=devices)
    # The configuration of the kubelet beside the agent
    alone = replace(config, cpu_manager_policy="none", cpu_manager_policy_options={}, memory_manager_policy="None")
    beside = replace(question, config=alone, files=StateTexts())
    plan = make_plan(beside)
    refusal = refusal_of(start_kubelet(question.machine.info, alone, question.mooring, question.files))
    agent, problem = None, "not asked: what the running pods have is not known"
    containers: tuple[MigratedContainerPart, ...] = ()
    if not isinstance(running, RefusedPlan):
        # What the pods have is known by the files, or by the kubelet's decisions where there are none.
        before = running.kubelet if question.files == StateTexts() else running.began
        try:
            agent, problem = take_over(question, before, recreated=drained), ""
            containers = tuple(one for pod in question.active for one in _migrated(before, agent, pod))
        except InputError as error:
            problem = str(error)
    pods = []
    if agent is not None:
        outcomes = TakeoverOutcome.WAITS, TakeoverOutcome.MOVED, TakeoverOutcome.KEPT
        waiting, moved, kept = ([one for one in containers if one.outcome == outcome] for outcome in outcomes)
        names = ", ".join(dict.fromkeys(f"{one.namespace}/{one.name} ({one.reason})" for one in waiting))
        stay = f"{len(kept)} containers keep their CPUs and memory, {len(moved)} move"
        message = f"the agent cannot place {names}" if waiting else stay
        pods.append(MigrationCheckPart("pods", not waiting, message))
    problems = [one.message for one in diagnosis.all_problems if one.severity == "error"]
    faults = "; ".join(problems) or diagnosis.start_error
    checks = (
        MigrationCheckPart(
            "state files", diagnosis.sound, "mooring doctor finds nothing wrong" if diagnosis.sound else faults
        ),
        _start_check(
            "kubelet",
            plan,
            "does not start without its managers",
            "rejects {} at its restart",
            "starts without its managers and readmits every running pod",
        ),
        MigrationCheckPart("agent", agent is not None, problem or "its engine starts with the kubelet's policies"),
        *pods,
        _start_check(
            "rollback",
            running,
            "the kubelet does not start again",
            "a restart of the kubelet rejects {}",
            "the kubelet starts again on a copy of its state files",
        ),
    )
    with_files = refusal.message if refusal is not None else ""
    return Migration(question, drained, diagnosis, plan, with_files, agent, containers, running, checks)


def _start_check(name: str, plan: AnyPlan, fails: str, rejects: str, passes: str) -> MigrationCheckPart:
    """Check that a kubelet starts and readmits every running pod; in the words of each outcome."""
    if isinstance(plan, RefusedPlan):
        return MigrationCheckPart(name, passed=False, message=f"{fails}: {plan.refusal.message}")
    rejected = ", ".join(f"{one.pod.namespace}/{one.pod.name}" for one in plan.answers if not one.admitted)
    return MigrationCheckPart(name, passed=not rejected, message=rejects.format(rejected) if rejected else passes)


def take_over(question: Question, before: Kubelet, *, recreated: bool = False) -> AgentState:
    """Start the agent on a node; return its state when it has taken over the pods.

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
        pool = before.node.shared_pool if before.settings.cpu is not None else CPUSet()
        listed = []
        for pod in question.active:
            held, _ = placements_of(before.node.providers, pod)
            for name in (container.name for container in _running(pod)):
                own = held.get(name, Placement())
                resources = LinuxResources(cpus=str(own.cpus or pool), mems=",".join(map(str, own.mems)))
                id_ = f"{pod.uid}/{name}"
                listed.append(RuntimeContainer(id_, pod.uid, name, ContainerState.RUNNING, 1, resources=resources))
        state = synchronize(state, sandboxes, listed, pods, running=frozenset(one.id for one in listed)).state
    return state


def exclusive_cpus(agent: AgentState) -> CPUSet:
    """Return all CPUs that pods have alone, as ``mooring status`` prints them."""
    return _joined(mask for held in agent.kubelet.node.cpu.assignments.values() for mask in held.values())


def ended_containers(state: AgentState, pods: Iterable[Pod]) -> Iterator[tuple[str, CPUSet]]:
    """Yield ``NAMESPACE/POD/CONTAINER`` of init containers that have ended, and CPUs that the agent keeps for them.

    A pod that is taken over is decided about as a whole.
    """
    for pod in pods:
        held = state.kubelet.node.cpu.assignments.get(pod.uid, {})
        names = {one.name for one in _running(pod)}
        running = _joined(mask for name, mask in held.items() if name in names)
        for name, mask in held.items():
            alone = CPUSet(CPUMask(mask & ~running.mask))
            if name not in names and alone:
                yield f"{pod.namespace}/{pod.name}/{name}", alone


def _joined(masks: Iterable[CPUMask]) -> CPUSet:
    return CPUSet(CPUMask(reduce(or_, masks, 0)))


def _running(pod: Pod) -> Iterator[Container]:
    """Yield the containers that run beside one another: init containers have ended."""
    return (one for one in pod.containers if one.kind is not ContainerKind.INIT)


def _migrated(before: Kubelet, after: AgentState, pod: Pod) -> Iterator[MigratedContainerPart]:
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
        yield MigratedContainerPart(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            container=container.name,
            outcome=outcome,
            before=placement_part(had),
            after=placement_part(has),
            runs_on=str(setting.cpus),
            reason=reason,
        )
