"""A node of 8 CPUs in two NUMA nodes, pods and messages of a runtime, as short as can be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from tests.node.nodes import machine

from mooring.agent.effects import AgentReport, ClusterEvent, Occasion, ReportKind, WriteCPUSet
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerState,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RuntimeContainer,
)
from mooring.agent.pods.source import quota_of, shares_of
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, Refused
from mooring.agent.state import AgentState, Assigned, DevicesFound, Options, Setting
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import (
    ASSIGNED_CPUSET,
    EXCLUSIVE_RESIZE,
    SCALE_DOWN_DELAY,
    KubeletConfig,
    MooringConfig,
    ReservedMemory,
)
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity

GIB = 2**30
INFO = machine(2, 4, threads=1, sockets=1, memory=4 * GIB)
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
    eviction_hard={"memory.available": "100Mi"},
    topology_manager_policy="best-effort",
    reserved_system_cpus="0",
)
SMALL = (INFO, CONFIG)
STRICT = replace(CONFIG, cpu_manager_policy_options={"strict-cpu-reservation": "true"})


def small_state(config: KubeletConfig = CONFIG, options: Options | None = None) -> AgentState:
    return resume(INFO, config, MooringConfig(fixed_defects=frozenset({"pod-restart"})), None, options).state


def amounts(cpus: str, memory: str = "256Mi") -> dict[str, Quantity]:
    return {"cpu": Quantity.parse(cpus), "memory": Quantity.parse(memory)}


def guaranteed(
    uid: str, *cpus: str, kinds: tuple[ContainerKind, ...] = (), annotations: dict[str, str] | None = None
) -> Pod:
    """Return a Guaranteed pod with containers ``main``, ``c1``, ``c2`` ..."""
    made = tuple(
        Container(name_of(number), kinds[number] if kinds else ContainerKind.APP, amounts(amount), amounts(amount))
        for number, amount in enumerate(cpus or ("1",))
    )
    return Pod(uid, f"name-{uid}", containers=made, qos=QoS.GUARANTEED, annotations=annotations or {})


def shared(uid: str) -> Pod:
    return Pod(uid, f"name-{uid}", containers=(Container("main"),))


def name_of(number: int) -> str:
    return "main" if number == 0 else f"c{number}"


def sandbox(uid: str, number: int = 0) -> PodSandbox:
    return PodSandbox(
        f"sandbox-{uid}-{number}", uid, f"name-{uid}", "default", cgroup_parent=f"/pods/{uid}", cgroups_path="/s", pid=7
    )


def container(uid: str, name: str = "main", life: int = 0, **fields: Any) -> RuntimeContainer:
    made = RuntimeContainer(f"{uid}-{name}-{life}", f"sandbox-{uid}-0", name, resources=LinuxResources(quota=100_000))
    return replace(made, **fields)


def running(uid: str, name: str = "main", cpus: str = "", mems: str = "") -> RuntimeContainer:
    """Return a container as Synchronize lists it."""
    return container(
        uid, name, state=ContainerState.RUNNING, pid=99, resources=LinuxResources(cpus=cpus, mems=mems, quota=100_000)
    )


def adjustment_of(outcome: EventOutcome) -> ContainerAdjustment:
    """Return what the container of an event is created with."""
    assert isinstance(outcome.answer, Adjusted), outcome.answer
    return outcome.answer.adjustment


def updates_of(outcome: EventOutcome) -> Sequence[ContainerUpdate]:
    """Return what an answer updates of other containers."""
    assert isinstance(outcome.answer, Accepted | Adjusted), outcome.answer
    return outcome.answer.updates


def refusal_of(outcome: EventOutcome) -> str:
    """Return the words of a refusal."""
    assert isinstance(outcome.answer, Refused), outcome.answer
    return outcome.answer.text


Kind = TypeVar("Kind")


def effects_of(outcome: EventOutcome, kind: type[Kind]) -> list[Kind]:
    """Return what an event brings along of one kind."""
    return [one for one in outcome.effects if isinstance(one, kind)]


def writes(outcome: EventOutcome) -> list[tuple[str, str]]:
    """Return the cpusets that an event writes: pod and CPUs, in their order."""
    return [(one.container_id.partition("-")[0], str(one.cpus)) for one in effects_of(outcome, WriteCPUSet)]


def findings(outcome: EventOutcome) -> list[ReportKind]:
    """Return what an event reports to log and metrics."""
    return [one.finding for one in effects_of(outcome, AgentReport)]


def events(outcome: EventOutcome) -> list[str]:
    """Return the reasons of what an event reports to the cluster."""
    return [one.reason for one in effects_of(outcome, ClusterEvent)]


def told(outcome: EventOutcome) -> list[tuple[str, str]]:
    """Return the CPUs of an answer's updates: container and CPUs, in their order."""
    return [(one.container_id, one.resources.cpus) for one in updates_of(outcome)]


# Events of pods, as a runtime and a kubelet bring them about.


def place_of(pod: Pod) -> PodSandbox:
    """Return the sandbox of a pod, with its annotations."""
    return replace(sandbox(pod.uid), annotations=pod.annotations)


def create(
    state: AgentState,
    pod: Pod,
    name: str = "main",
    life: int = 0,
    devices: DevicesFound | None = None,
    **fields: Any,
) -> EventOutcome:
    """Create a container of a pod with the sizes that the kubelet asks for."""
    spec = pod.container(name)
    limit = None if spec is None else spec.limits.get("cpu")
    asked = LinuxResources(shares=2) if limit is None else sizes(limit.milli / 1000)
    made = container(pod.uid, name, life, **{"resources": asked, **fields})
    return create_container(state, place_of(pod), made, pod, devices=devices)


STARTS = (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER)


def started(state: AgentState, pod: Pod, name: str = "main", **fields: Any) -> AgentState:
    """Return the state with one more container that runs."""
    made = create(state, pod, name, **fields)
    state, record = made.state, adjustment_of(made).resources
    asked = state.containers[f"{pod.uid}-{name}-0"].asked
    has = replace(asked, cpus=record.cpus, mems=record.mems, quota=record.quota or asked.quota)
    for event in STARTS:
        live = container(pod.uid, name, pid=99, **{**fields, "resources": has})
        state = state_change(state, event, place_of(pod), live).state
    return state


def tell(state: AgentState, event: Event, made: RuntimeContainer, pod: Pod | None = None) -> EventOutcome:
    """Report an event of a container."""
    return state_change(state, event, sandbox(made.pod_sandbox_id.split("-")[1]), made, pod)


def ended(state: AgentState, uid: str) -> EventOutcome:
    """Stop the sandbox of a pod."""
    return state_change(state, Event.STOP_POD_SANDBOX, sandbox(uid), None)


def stored(state: AgentState) -> Stored:
    """Return what an agent that starts finds in the journal of a state."""
    return read_journal(JournalWriter().text(state))


# A node of 8 CPUs whose containers are resized: the clock stands still until it is moved.


CPU_GATE = "InPlacePodVerticalScalingExclusiveCPUs"
GATES = {
    "CPUManagerPolicyAlphaOptions": True,
    CPU_GATE: True,
    "InPlacePodVerticalScalingExclusiveMemory": True,
    "InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay": True,
}
RESIZING = replace(CONFIG, feature_gates=GATES)
"""CPUs go back at once unless the pod says otherwise."""
DELAYING = replace(RESIZING, cpu_manager_policy_options={"scale-delay-time": "5s"})
EXTENDED = MooringConfig(frozenset({EXCLUSIVE_RESIZE, SCALE_DOWN_DELAY, ASSIGNED_CPUSET}), frozenset({"pod-restart"}))
START = Moment(100 * SECOND, "boot-1")
LATE = START.plus(5 * SECOND)


def resizable(
    config: KubeletConfig = DELAYING,
    stored: Stored | None = None,
    options: Options | None = None,
    mooring: MooringConfig = EXTENDED,
) -> AgentState:
    return resume(INFO, config, mooring, stored, options).state


def sizes(cpus: float, memory: int = GIB // 4) -> LinuxResources:
    """Return a container's numbers as the kubelet sends them."""
    milli = int(cpus * 1000)
    return LinuxResources(shares=shares_of(milli), quota=quota_of(milli), period=100_000, memory_limit=memory)


# Values of the reactor from CPU lists as people write them.


cpus = CPUSet.parse


def nodes(text: str) -> NUMAMask:
    return NUMAMask(cpus(text).mask)


def setting(cpu_list: str = "", mems: str = "", quota: int | None = None) -> Setting:
    return Setting(cpus(cpu_list), nodes(mems), quota)


def assigned(cpu_list: str = "", mems: str = "", shared: str | None = None) -> Assigned:
    return Assigned(cpus(cpu_list), nodes(mems), None if shared is None else cpus(shared))


def cpuset_write(
    container_id: str, pid: int, cgroup: str, cpu_list: str, mems: str, occasion: Occasion = Occasion.DECISION
) -> WriteCPUSet:
    return WriteCPUSet(container_id, pid, cgroup, cpus(cpu_list), nodes(mems), occasion)
