"""Machines made from a handful of numbers: both views of a machine that need not exist.

A :class:`Shape` is regular: every NUMA node, socket and L3 has equally many cores. The hardware view says so directly;
the kubelet's view is made from the same places by cAdvisor's own rules
(:func:`mooring.inputs.machines.cadvisor.place_caches`), so that an L3 becomes a node cache or an uncore cache
exactly as it would on the real machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

from mooring.engine.core.bits import CPUMask, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import CPUKind, Hardware, HardwareCPU, HardwareNode, HardwarePages
from mooring.engine.core.machineinfo import Cache, Core, HugePages, MachineInfo, NUMANode
from mooring.inputs.machines.cadvisor import place_caches
from mooring.lazy import dataclass

CLUSTER_CORES: Final = 4
"""Efficiency cores that share one L2, as on Intel's hybrid processors."""
_TO_CPULESS: Final = 3
"""Added to the distance of the nodes between which a CPU-less node is reached; between two such nodes it is one
less."""

_Table = tuple[tuple[int, ...], ...]
"""From which nodes with CPUs a node is reached, and whether it has none itself."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A regular machine. All counts are totals of the machine unless told otherwise; all sizes are bytes."""

    sockets: int
    numa_nodes: int
    """NUMA nodes with CPUs, a multiple or a divisor of the sockets."""
    cores: int
    """Cores with ``threads`` threads each."""
    threads: int
    """Threads of each core."""
    l3_caches: int
    """L3 caches, a multiple of the sockets, and a multiple or a divisor of the NUMA nodes."""
    memory: int
    """Memory of the nodes with CPUs."""
    adjacent: bool = False
    """How the threads of a core are numbered: core *i* has CPUs 2i and 2i + 1 (POWER, hybrid laptops, many virtual
    machines), or else i, i + cores, i + 2 x cores (Linux on x86 servers)."""
    efficiency_cores: int = 0
    """Further cores with one thread each, slower than the others, sharing an L2 in fours and the same L3s."""
    cpuless_nodes: int = 0
    """Further NUMA nodes without CPUs (HBM, CXL), a multiple or a divisor of the NUMA nodes."""
    cpuless_memory: int = 0
    """Memory of the nodes without CPUs."""
    hugepages: tuple[HugePages, ...] = ()
    """Pools of the machine, spread evenly over the nodes with CPUs."""
    distances: tuple[int, int, int] = (10, 12, 32)
    """Local, within a socket and to other sockets (ACPI SLIT: 10 is local, 20 means twice as far)."""
    l2_size: int = 2**20
    """Size of one core's (or cluster's) L2."""
    l3_size: int = 32 * 2**20
    """Size of one L3."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one CPU sits: positions, counted over the machine from 0, except core_id."""

    core: int
    core_id: int
    """Counted within the socket, as kernels do."""
    socket: int
    node: int
    l2: int
    l3: int
    is_efficiency: bool


def views_of(shape: Shape) -> tuple[MachineInfo, Hardware]:
    """Return the machine as the kubelet would see it and as it is."""
    # The place of every CPU. Cores are dealt out in blocks: the first socket has the first ones
    cores, threads = shape.cores, shape.threads
    per_socket = cores // shape.sockets
    places: dict[int, _Place] = {}
    for core in range(cores):
        socket, node, l3 = (core * parts // cores for parts in (shape.sockets, shape.numa_nodes, shape.l3_caches))
        place = _Place(core, core % per_socket, socket, node, l2=core, l3=l3, is_efficiency=False)
        for thread in range(threads):
            cpu = core * threads + thread if shape.adjacent else core + thread * cores
            places[cpu] = place
    slow = shape.efficiency_cores
    blocks = max(shape.numa_nodes, shape.l3_caches)  # no L2 crosses the border of a node or an L3
    for index in range(slow):
        socket, node, l3 = (index * parts // slow for parts in (shape.sockets, shape.numa_nodes, shape.l3_caches))
        core_id = per_socket + index % (slow // shape.sockets)
        block, position = divmod(index, slow // blocks)
        l2 = cores + block * -(-slow // blocks // CLUSTER_CORES) + position // CLUSTER_CORES
        places[cores * threads + index] = _Place(cores + index, core_id, socket, node, l2, l3, is_efficiency=True)
    near = [_distances_of(shape, node) for node in range(shape.numa_nodes)]
    # Many nodes without CPUs are reached from the same nodes: such a group has its distances once.
    total = shape.numa_nodes + shape.cpuless_nodes
    cpuless = [tuple(_homes_of_cpuless(shape, node)) for node in range(shape.numa_nodes, total)]
    nearest = {
        homes: [min(column) for column in zip(*(near[home] for home in homes), strict=True)]
        for homes in dict.fromkeys(cpuless)
    }
    far: dict[tuple[int, ...], list[int]] = {}
    for homes, distances in nearest.items():
        between = {others: min(distances[home] for home in others) + _TO_CPULESS - 1 for others in nearest}
        far[homes] = [*(distance + _TO_CPULESS for distance in distances), *(between[others] for others in cpuless)]
    rows = [[*row, *(nearest[homes][node] + _TO_CPULESS for homes in cpuless)] for node, row in enumerate(near)]
    rows += [far[homes] for homes in cpuless]
    table = tuple((*row[:node], shape.distances[0], *row[node + 1 :]) for node, row in enumerate(rows))
    return _machine_info(shape, places, table), _hardware(shape, places, table)


def _hardware(shape: Shape, places: Mapping[int, _Place], table: _Table) -> Hardware:
    """Return the machine as hwloc would find it."""
    firsts: dict[str, dict[int, int]] = {"core": {}, "socket": {}, "l2": {}, "l3": {}}
    for cpu, place in sorted(places.items()):
        for kind, first in firsts.items():
            first.setdefault(getattr(place, kind), cpu)
    locals_ = _local_cpus(shape, places)
    homes: dict[int, list[int]] = defaultdict(list)
    for node, cpus in enumerate(locals_):
        for cpu in cpus:
            homes[cpu].append(node)
    online = CPUSet.from_ids(places)
    slow = CPUSet.from_ids(cpu for cpu, place in places.items() if place.is_efficiency)
    pools = sorted(shape.hugepages, key=lambda pool: pool.page_size)
    return Hardware(
        cpus=tuple(
            HardwareCPU(
                id=cpu,
                core=firsts["core"][place.core],
                package=place.socket,
                package_first_cpu=firsts["socket"][place.socket],
                numa=tuple(homes[cpu]),
                l2=firsts["l2"][place.l2],
                l3=firsts["l3"][place.l3],
                efficiency=int(not place.is_efficiency) if shape.efficiency_cores else None,
            )
            for cpu, place in sorted(places.items())
        ),
        online=online,
        offline=CPUSet(),
        allowed=online,
        isolated=CPUSet(),
        nodes=tuple(
            HardwareNode(
                node,
                _memory(shape, node),
                tuple(HardwarePages(one.page_size * 1024, _share_of(shape, node, one.num_pages)) for one in pools),
                local_cpus=cpus,
                sysfs_cpulist=str(cpus) if node < shape.numa_nodes else "",
            )
            for node, cpus in enumerate(locals_)
        ),
        # One node alone is no table, neither for the kernel nor for hwloc.
        distances=table if len(table) > 1 else None,
        distance_nodes=tuple(range(len(table))) if len(table) > 1 else (),
        # Slower ones first; a uniform machine has none, as in hwloc.
        kinds=(CPUKind(0, slow), CPUKind(1, online - slow)) if slow else (),
        num_cores=len(firsts["core"]),
        num_packages=len(firsts["socket"]),
        num_l3=len(firsts["l3"]),
    )


def _machine_info(shape: Shape, places: Mapping[int, _Place], table: _Table) -> MachineInfo:
    """Return the machine as cAdvisor would describe it: in text order of the kernel's names, caches by its rules."""
    # Return the caches of every CPU with the number of CPUs that share each
    sharers: dict[tuple[int, int], int] = defaultdict(int)
    for place in places.values():
        sharers[2, place.l2] += 1
        sharers[3, place.l3] += 1
    sizes = {2: shape.l2_size, 3: shape.l3_size}
    found = {
        (level, number): (Cache(number, sizes[level], "Unified", level), count)
        for (level, number), count in sharers.items()
    }
    caches = {cpu: (found[2, place.l2], found[3, place.l3]) for cpu, place in places.items()}
    cpus_of_node: dict[int, list[int]] = defaultdict(list)
    for cpu in sorted(places, key=str):
        cpus_of_node[places[cpu].node].append(cpu)
    nodes: list[NUMANode] = []
    for node in sorted(range(len(table)), key=str):
        threads: dict[int, list[int]] = defaultdict(list)
        for cpu in cpus_of_node[node]:
            threads[places[cpu].core].append(cpu)
        listed = [Core(places[own[0]].core_id, tuple(own), places[own[0]].socket) for own in threads.values()]
        cores, node_caches = place_caches(listed, caches.__getitem__)
        pools = tuple(HugePages(pool.page_size, _share_of(shape, node, pool.num_pages)) for pool in shape.hugepages)
        nodes.append(NUMANode(node, _memory(shape, node), pools, cores, table[node], node_caches))
    return MachineInfo(
        num_cores=len(places),
        num_sockets=shape.sockets,
        memory_capacity=shape.memory + shape.cpuless_memory,
        topology=tuple(nodes),
        hugepages=shape.hugepages,
        num_physical_cores=len({place.core_id for place in places.values()}),
    )


def _homes_of_cpuless(shape: Shape, node: int) -> Sequence[int]:
    """Return the nodes with CPUs to which a CPU-less node belongs: the first ones to the first, or several to each."""
    index = node - shape.numa_nodes
    if shape.cpuless_nodes >= shape.numa_nodes:
        return (index * shape.numa_nodes // shape.cpuless_nodes,)
    block = shape.numa_nodes // shape.cpuless_nodes
    return range(index * block, (index + 1) * block)


def _local_cpus(shape: Shape, places: Mapping[int, _Place]) -> list[CPUSet]:
    """Return, for every node in ascending id, the CPUs that it is local to."""
    own: dict[int, list[int]] = defaultdict(list)
    for cpu, place in places.items():
        own[place.node].append(cpu)
    masks = [mask_of(own[node]) for node in range(shape.numa_nodes)]
    total = shape.numa_nodes + shape.cpuless_nodes
    homes: list[Sequence[int]] = [(node,) for node in range(shape.numa_nodes)]
    homes += [_homes_of_cpuless(shape, node) for node in range(shape.numa_nodes, total)]
    # Disjoint masks: their sum is their union.
    return [CPUSet(CPUMask(sum(masks[home] for home in one))) for one in homes]


def _distances_of(shape: Shape, node: int) -> list[int]:
    """Return the distances between a node with CPUs and all of them."""
    in_socket = shape.numa_nodes // shape.sockets or 1
    first = node // in_socket * in_socket
    local, same_socket, remote = shape.distances
    found = [remote] * shape.numa_nodes
    found[first : first + in_socket] = [same_socket] * len(found[first : first + in_socket])
    found[node] = local
    return found


def _memory(shape: Shape, node: int) -> int:
    if node < shape.numa_nodes:
        return shape.memory // shape.numa_nodes
    return shape.cpuless_memory // shape.cpuless_nodes


def _share_of(shape: Shape, node: int, pages: int) -> int:
    return pages // shape.numa_nodes if node < shape.numa_nodes else 0
