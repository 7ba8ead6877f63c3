"""Strategies of hypothesis: machines, configurations and pods, and the sequences of events of a node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machineinfo import Cache, Core, CoreKind, CPUFacts, MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.core.quantity import Quantity

try:
    from hypothesis import strategies as st
except ImportError:  # pragma: no cover - the suite has it
    raise MooringError(
        "mooring.plugintesting needs hypothesis, which is not installed; run pip install hypothesis"
    ) from None

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
OPTIONS = ("", "full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A pod is admitted."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class Departure:
    """One of those that run ends; counted from the oldest, around and around."""

    which: int


@dataclass(frozen=True, slots=True)
class KubeletRestart:
    """The kubelet, or the agent, starts again on its own state."""


Step = Arrival | Departure | KubeletRestart


@dataclass(frozen=True, slots=True)
class Course:
    """A node and what happens to it."""

    machine: str
    """What it is called."""
    info: MachineInfo
    config: KubeletConfig
    steps: tuple[Step, ...]


@st.composite
def courses(draw: st.DrawFn, machines: Mapping[str, MachineInfo], annotations: Mapping[str, Sequence[str]]) -> Course:
    """Draw a course.

    Args:
        draw: of hypothesis.
        machines: to choose from, by what they are called.
        annotations: name -> values that pods may have.
    """
    name = draw(st.sampled_from(sorted(machines)))
    config = KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=draw(st.sampled_from([{option: "true"} if option else {} for option in OPTIONS])),
        topology_manager_policy=draw(st.sampled_from(POLICIES)),
        topology_manager_scope=draw(st.sampled_from(["container", "pod"])),
        kube_reserved={"cpu": "1"},
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )
    kinds = draw(st.lists(st.integers(0, 9), min_size=1, max_size=7))
    steps: list[Step] = []
    for number, kind in enumerate(kinds):
        if kind < 6:
            steps.append(Arrival(draw(_pods(f"pod-{number}", annotations))))
        else:
            steps.append(Departure(number) if kind < 9 else KubeletRestart())
    return Course(name, machines[name], config, (*steps, KubeletRestart()))


@st.composite
def _pods(draw: st.DrawFn, uid: str, annotations: Mapping[str, Sequence[str]]) -> Pod:
    count = draw(st.integers(1, 2))
    kinds = [ContainerKind.INIT] * draw(st.integers(0, 1)) + [ContainerKind.APP] * count
    made = []
    for number, kind in enumerate(kinds):
        cpus = draw(st.sampled_from(["1", "2", "2", "3", "4", "6", "500m"]))
        amounts = {"cpu": Quantity.parse(cpus), "memory": Quantity.parse("64Mi")}
        made.append(Container(f"{kind.value}-{number}", kind, amounts, amounts))
    given = {name: draw(st.sampled_from(["", *values])) for name, values in sorted(annotations.items())}
    told = {name: value for name, value in given.items() if value}
    qos = draw(st.sampled_from([QoS.GUARANTEED, QoS.GUARANTEED, QoS.GUARANTEED, QoS.BURSTABLE]))
    return Pod(uid, uid, containers=tuple(made), qos=qos, annotations=told, priority=draw(st.integers(0, 2)))


GIB = 1 << 30


def _machine(
    nodes: int, cores: Sequence[int], *, caches: int = 1, node_of_socket: int = 1, facts: CPUFacts | None = None
) -> MachineInfo:
    """Return a machine of equal NUMA nodes.

    Args:
        nodes: how many.
        cores: number of threads of each core of a node.
        caches: uncore caches of each node.
        node_of_socket: NUMA nodes of each socket.
        facts: beyond the kubelet's view.
    """
    # First threads come first, as most firmware numbers them.
    total, next_cpu = nodes * len(cores), nodes * len(cores)
    made = []
    for node in range(nodes):
        own = []
        for position, threads in enumerate(cores):
            core, more = node * len(cores) + position, tuple(range(next_cpu, next_cpu + threads - 1))
            next_cpu += threads - 1
            cache = Cache(node * caches + position * caches // len(cores), 1 << 25, "Unified", 3)
            own.append(Core(core, (core, *more), node // node_of_socket, uncore_caches=(cache,)))
        row = tuple(10 if node == other else 20 + abs(node - other) for other in range(nodes))
        made.append(NUMANode(node, 8 * GIB, cores=tuple(own), distances=row))
    sockets = -(-nodes // node_of_socket)
    return MachineInfo(
        next_cpu, sockets, 8 * GIB * nodes, tuple(made), num_physical_cores=total, facts=facts or CPUFacts()
    )


_HYBRID = CPUFacts((CoreKind(1024, CPUSet.parse("0-2,8-10")), CoreKind(512, CPUSet.parse("3-7"))), CPUSet.parse("6-7"))

MACHINES: Mapping[str, MachineInfo] = {
    "one NUMA node, 4 cores of 2 threads": _machine(1, [2] * 4),
    "2 sockets of 4 cores with 2 threads": _machine(2, [2] * 4),
    "1 socket of 4 NUMA nodes, 2 caches in each, 1 thread a core": _machine(4, [1] * 4, caches=2, node_of_socket=4),
    "8 NUMA nodes of 2 cores with 2 threads": _machine(8, [2] * 2, node_of_socket=2),
    "hybrid: 3 cores of 2 threads and 5 of 1; 2 CPUs isolated": _machine(1, [2] * 3 + [1] * 5, facts=_HYBRID),
}
"""What each is -> the machine."""
