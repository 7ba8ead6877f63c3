"""A node of 8 CPUs in two NUMA nodes, pods and messages of a runtime, as short as can be written."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.nri.types import ContainerState, LinuxResources, PodSandbox, RuntimeContainer
from mooring.agent.reactor.recovery import resume
from mooring.agent.state import AgentState, Options
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity

GIB = 2**30
INFO = MachineInfo(
    8,
    1,
    8 * GIB,
    tuple(
        NUMANode(
            node,
            4 * GIB,
            cores=tuple(Core(core, (core,), 0) for core in range(4 * node, 4 * node + 4)),
            distances=(10, 20) if node == 0 else (20, 10),
        )
        for node in (0, 1)
    ),
)
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


def container(uid: str, name: str = "main", life: int = 0, **fields: object) -> RuntimeContainer:
    made = RuntimeContainer(f"{uid}-{name}-{life}", f"sandbox-{uid}-0", name, resources=LinuxResources(quota=100_000))
    return replace(made, **fields)  # type: ignore[arg-type]


def running(uid: str, name: str = "main", cpus: str = "", mems: str = "") -> RuntimeContainer:
    """Return a container as Synchronize lists it."""
    return container(
        uid, name, state=ContainerState.RUNNING, pid=99, resources=LinuxResources(cpus=cpus, mems=mems, quota=100_000)
    )
