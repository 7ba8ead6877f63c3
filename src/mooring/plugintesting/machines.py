"""Small machines, each with something that plugins stumble over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mooring.core.cpuset import CPUSet
from mooring.core.machineinfo import Cache, Core, CoreKind, CPUFacts, MachineInfo, Node

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
        made.append(Node(node, 8 * GIB, cores=tuple(own), distances=row))
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
