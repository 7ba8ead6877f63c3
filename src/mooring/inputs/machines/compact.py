"""A machine in one line: ``sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi``.

| key | meaning | default |
|---|---|---|
| ``sockets`` | processor packages | 1 |
| ``numa`` | NUMA nodes with CPUs, in the whole machine | ``sockets`` |
| ``cores`` | cores in the whole machine | 4 for each NUMA node or L3, whichever are more |
| ``threads`` | threads of *each* core | 1 |
| ``l3`` | L3 caches in the whole machine | ``numa``, at least ``sockets`` |
| ``memory`` | memory of the nodes with CPUs | 4Gi for each |
| ``siblings`` | ``split``: CPUs i and i + cores; ``adjacent``: 2i and 2i + 1 | ``split`` |
| ``distances`` | local, same socket, other socket; with two figures: local, all others | ``10,12,32`` |
| ``hugepages-2Mi`` | pages of that size, spread over the nodes with CPUs; 0 lists the size without a page | none |
| ``efficiency-cores`` | further one-thread cores of a slower kind | none |
| ``cpuless`` | further NUMA nodes without CPUs (HBM, CXL) | none |
| ``cpuless-memory`` | their memory; 0 where the firmware keeps them for later | 4Gi for each |
| ``l2-size``, ``l3-size`` | size of one cache | ``1Mi``, ``32Mi`` |

Counts must divide evenly. Whether the kubelet treats an L3 as an uncore cache follows from ``l3`` and ``numa`` by
cAdvisor's rule: one L3 for each node is a node cache (the socket id replaces the uncore), several for each node
are uncore caches, and one that spans several nodes is an uncore cache whose id appears on all of them.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final, TypeAlias

from mooring.engine.core.bits import CPUMask, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import (
    Finding,
    Hardware,
    HardwareCPU,
    HardwareNode,
    HardwarePages,
    Machine,
    MachineOrigin,
)
from mooring.engine.core.machineinfo import Cache, Core, CPUKind, HugePages, MachineInfo, NUMANode
from mooring.inputs.decoding.quantities import HUGE_PAGES
from mooring.inputs.machines.cadvisor import place_caches
from mooring.inputs.machines.composition import PAGE, count_of, refusal, size_of
from mooring.inputs.machines.differences import differences
from mooring.inputs.machines.formats.description import ASSUMED_NODE_MEMORY, MAX_CPUS, MAX_NODES, OF_MEMORY
from mooring.lazy import dataclass, replace

_GIB: Final = 2**30
_MAX_TEXT: Final = 4096
_EXAMPLE: Final = "for example sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi"
_UNREAD: Final = "MOOR-411"
"""What no manager reads is worth a word only where a machine was measured."""
_KEYS: Final = (
    "sockets", "numa", "cores", "threads", "l3", "memory", "siblings", "distances", "hugepages-2Mi", "hugepages-1Gi",
    "efficiency-cores", "cpuless", "cpuless-memory", "l2-size", "l3-size",
)  # fmt: skip
CLUSTER_CORES: Final = 4
"""Efficiency cores that share one L2, as on Intel's hybrid processors."""
_TO_CPULESS: Final = 3
"""Added to the distance of the nodes between which a CPU-less node is reached; between two such nodes it is one
less."""

_Cores: TypeAlias = Sequence[tuple[Core, int, int, int]]
"""Cores, each with its NUMA node, L2 and L3, counted over the machine from 0."""
_Node: TypeAlias = tuple[tuple[int, ...], int, tuple[HugePages, ...]]
"""The nodes with CPUs to which a node belongs, memory and huge pages."""
_Table: TypeAlias = tuple[tuple[int, ...], ...]


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

    @staticmethod
    def of(text: str) -> Shape:
        """Return the shape that a line describes; errors as of :func:`parse_compact`."""
        if len(text) > _MAX_TEXT:
            raise InputError(f"is longer than {_MAX_TEXT} characters", source="machine", remedy=_EXAMPLE)
        values: dict[str, str] = {}
        for part in text.split():
            key, equals, value = part.partition("=")
            if not (key and equals and value):
                raise refusal(part, "is not a pair", "write key=value without spaces around the =")
            if key in values:
                raise refusal(key, "is given twice", "keep one")
            if key not in _KEYS and not key.startswith(HUGE_PAGES):
                close = difflib.get_close_matches(key, _KEYS, n=1)
                problem = "is not a key of a machine"
                raise refusal(key, problem, f"did you mean {close[0]}?" if close else f"keys are {', '.join(_KEYS)}")
            values[key] = value
        sockets = count_of(values, "sockets", 1)
        numa = count_of(values, "numa", sockets)
        l3_caches = count_of(values, "l3", max(numa, sockets))
        cpuless = count_of(values, "cpuless", 0)
        siblings = values.get("siblings", "split")
        if siblings not in ("split", "adjacent"):
            raise refusal("siblings", f"{siblings[:40]!r} is not a numbering", "write split or adjacent")
        shape = Shape(
            sockets=sockets,
            numa_nodes=numa,
            cores=count_of(values, "cores", 4 * max(numa, l3_caches)),
            threads=count_of(values, "threads", 1),
            l3_caches=l3_caches,
            memory=_size(values, "memory", 4 * _GIB * numa),
            adjacent=siblings == "adjacent",
            efficiency_cores=count_of(values, "efficiency-cores", 0),
            cpuless_nodes=cpuless,
            cpuless_memory=_size(values, "cpuless-memory", 4 * _GIB * cpuless),
            hugepages=_hugepages(values),
            distances=_distances(values.get("distances", "10,12,32")),
            l2_size=_size(values, "l2-size", 2**20),
            l3_size=_size(values, "l3-size", 32 * 2**20),
        )
        shape.check()
        return shape

    def check(self) -> None:
        """Refuse counts that make no regular machine, with the key that does not fit."""
        cpus = self.cores * self.threads + self.efficiency_cores
        if cpus > MAX_CPUS:
            raise refusal("cores", f"the machine would have {cpus} CPUs", f"Linux has at most {MAX_CPUS}")
        if self.numa_nodes + self.cpuless_nodes > MAX_NODES:
            nodes = self.numa_nodes + self.cpuless_nodes
            raise refusal("numa", f"the machine would have {nodes} NUMA nodes", f"Linux has at most {MAX_NODES}")
        for key, count in (("cores", self.cores), ("efficiency-cores", self.efficiency_cores)):
            for other, parts in (("sockets", self.sockets), ("numa", self.numa_nodes), ("l3", self.l3_caches)):
                if count % parts:
                    raise refusal(
                        key, f"{count} cannot be divided evenly by {other}={parts}", f"use a multiple of {parts}"
                    )
        if self.l3_caches % self.sockets:
            problem = f"{self.l3_caches} is not a multiple of sockets={self.sockets}"
            raise refusal("l3", problem, "no L3 spans two sockets")
        for key, count in (("sockets", self.sockets), ("l3", self.l3_caches), ("cpuless", self.cpuless_nodes)):
            if count % self.numa_nodes and (not count or self.numa_nodes % count):
                problem = f"{self.numa_nodes} is neither a multiple nor a divisor of {key}={count}"
                raise refusal("numa", problem, "make one divide the other")
        self._check_memory()

    def _check_memory(self) -> None:
        for key, size, nodes in (
            ("memory", self.memory, self.numa_nodes),
            ("cpuless-memory", self.cpuless_memory, self.cpuless_nodes),
        ):
            if nodes and size % (nodes * PAGE):
                problem = f"{size} bytes do not make whole pages on {nodes} nodes"
                raise refusal(key, problem, "use a size that divides evenly")
            if size and not nodes:
                raise refusal(key, "is given, but there are no CPU-less nodes", "add cpuless=1")
        reserved = 0
        for pool in self.hugepages:
            if pool.num_pages % self.numa_nodes:
                problem = f"{pool.num_pages} pages cannot be divided evenly by numa={self.numa_nodes}"
                raise refusal(f"hugepages of {pool.page_size}Ki", problem, f"use a multiple of {self.numa_nodes}")
            reserved += pool.page_size * 1024 * pool.num_pages
        if reserved > self.memory:
            problem = f"{self.memory} bytes cannot hold {reserved} bytes of huge pages"
            raise refusal("memory", problem, "give more memory or fewer pages")

    def views(self) -> tuple[MachineInfo, Hardware]:
        """Return the machine as the kubelet would see it, of its cores by cAdvisor's own rules, and as it is."""
        own, none = (
            tuple(replace(pool, num_pages=pool.num_pages // self.numa_nodes * used) for pool in self.hugepages)
            for used in (1, 0)
        )
        nodes: list[_Node] = [((node,), self.memory // self.numa_nodes, own) for node in range(self.numa_nodes)]
        block = max(self.numa_nodes // max(self.cpuless_nodes, 1), 1)
        for index in range(self.cpuless_nodes):
            # The first ones belong to the first node, or several nodes to each.
            first = index * self.numa_nodes // self.cpuless_nodes
            nodes.append((tuple(range(first, first + block)), self.cpuless_memory // self.cpuless_nodes, none))
        cores, table = self.placed_cores(), self.distance_table([homes for homes, _, _ in nodes[self.numa_nodes :]])
        return _machine_info(self, cores, nodes, table), _hardware(self, cores, nodes, table)

    def placed_cores(self) -> _Cores:
        """Return the cores, dealt out in blocks: the first socket has the first ones; threads are in text order."""
        cores, slow = self.cores, self.efficiency_cores
        parts = (self.sockets, self.numa_nodes, self.l3_caches)
        per_socket = cores // self.sockets
        found = []
        for index in range(cores):
            socket, node, l3 = (index * count // cores for count in parts)
            first, step = (index * self.threads, 1) if self.adjacent else (index, cores)
            threads = sorted(range(first, first + step * self.threads, step), key=str)
            found.append((Core(index % per_socket, tuple(threads), socket), node, index, l3))
        blocks = max(self.numa_nodes, self.l3_caches)  # no L2 crosses the border of a node or an L3
        for index in range(slow):
            socket, node, l3 = (index * count // slow for count in parts)
            block, position = divmod(index, slow // blocks)
            l2 = cores + block * -(-slow // blocks // CLUSTER_CORES) + position // CLUSTER_CORES
            core_id = per_socket + index % (slow // self.sockets)
            found.append((Core(core_id, (cores * self.threads + index,), socket), node, l2, l3))
        return found

    def distance_table(self, cpuless: Sequence[tuple[int, ...]]) -> _Table:
        """Return the distances; ``cpuless`` are the nodes from which each node without CPUs is reached."""
        local, same_socket, remote = self.distances
        in_socket = self.numa_nodes // self.sockets or 1
        near = []
        for node in range(self.numa_nodes):
            first = node // in_socket * in_socket
            row = [remote] * self.numa_nodes
            row[first : first + in_socket] = [same_socket] * in_socket
            row[node] = local
            near.append(row)
        # Many nodes without CPUs are reached from the same nodes: such a group has its distances once.
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
        return tuple((*row[:node], local, *row[node + 1 :]) for node, row in enumerate(rows))


def parse_compact(text: str) -> Machine:
    """Return the machine that a line of ``key=value`` pairs describes; its name is the line itself.

    Raises:
        InputError: a key is unknown or given twice, a value is malformed, or the counts do not fit together.

    >>> machine = parse_compact("sockets=2 cores=4 threads=2")
    >>> [core.thread_ids for node in machine.info.topology for core in node.cores]
    [(0, 4), (1, 5), (2, 6), (3, 7)]
    """
    info, hardware = Shape.of(text).views()
    machine = Machine(" ".join(text.split()), replace(info, facts=hardware.facts), hardware)
    # A typed machine without a word about memory says nothing about it.
    told = re.search(r"(?:^|\s)memory=", text) is not None
    origin = MachineOrigin("compact text", () if told else (OF_MEMORY,), () if told else (ASSUMED_NODE_MEMORY,))
    return replace(machine, origin=origin, findings=compact_findings(machine))


def compact_findings(machine: Machine) -> tuple[Finding, ...]:
    """Return how the views of a typed machine differ, apart from what no manager reads."""
    found = differences(machine.info, machine.hardware) if machine.hardware else ()
    return tuple(one for one in found if one.code != _UNREAD)


def _size(values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key)
    if text == "0" and key == "cpuless-memory":
        return 0
    return default if text is None else size_of(key, text)


def _distances(text: str) -> tuple[int, int, int]:
    parts = text.split(",")
    # ACPI has one byte for an entry, below 10 are reserved and 255 means unreachable.
    if len(parts) not in (2, 3) or not all(part.isascii() and part.isdigit() and len(part) < 4 for part in parts):
        raise refusal("distances", f"{text[:40]!r} is not a list of two or three numbers", "write 10,21 or 10,12,32")
    local, same_socket, remote = (int(part) for part in (*parts, parts[-1])[:3])
    if not 10 <= local <= same_socket <= remote <= 250:
        raise refusal("distances", f"{text!r} does not ascend from 10 to at most 250", "write 10,21 or 10,12,32")
    return local, same_socket, remote


def _hugepages(values: Mapping[str, str]) -> tuple[HugePages, ...]:
    pools: dict[int, HugePages] = {}
    for key in values:
        if not key.startswith(HUGE_PAGES):
            continue
        size = size_of(key, key.removeprefix(HUGE_PAGES))
        if size < 2 * PAGE or size & (size - 1):
            raise refusal(key, "is not a size of a huge page", "write hugepages-2Mi or hugepages-1Gi")
        if size in pools:
            raise refusal(key, "is given twice", "keep one")
        pools[size] = HugePages(size // 1024, count_of(values, key, 0))
    # cAdvisor lists pools in the text order of hugepages-<KiB>kB.
    return tuple(sorted(pools.values(), key=lambda pool: f"hugepages-{pool.page_size}kB"))


def _hardware(shape: Shape, cores: _Cores, nodes: Sequence[_Node], table: _Table) -> Hardware:
    """Return the machine as hwloc would find it."""
    firsts: dict[str, dict[int, int]] = {"socket": {}, "l2": {}, "l3": {}}
    own: dict[int, int] = defaultdict(int)
    for core, node, l2, l3 in cores:
        own[node] |= mask_of(core.thread_ids)
        for kind, number in (("socket", core.socket_id), ("l2", l2), ("l3", l3)):
            firsts[kind][number] = min(*core.thread_ids, firsts[kind].get(number, MAX_CPUS))
    # Disjoint masks: their sum is their union.
    local = [CPUSet(CPUMask(sum(own[home] for home in homes))) for homes, _, _ in nodes]
    near: dict[int, list[int]] = defaultdict(list)
    for node, (homes, _, _) in enumerate(nodes):
        for home in homes:
            near[home].append(node)
    online = CPUSet(CPUMask(sum(own.values())))
    slow = CPUSet.from_ids(range(shape.cores * shape.threads, len(online)))
    cpus = [
        HardwareCPU(
            id=cpu,
            core=min(core.thread_ids),
            package=core.socket_id,
            package_first_cpu=firsts["socket"][core.socket_id],
            numa=tuple(near[node]),
            l2=firsts["l2"][l2],
            l3=firsts["l3"][l3],
            efficiency=int(cpu not in slow) if slow else None,
        )
        for core, node, l2, l3 in cores
        for cpu in core.thread_ids
    ]
    return Hardware(
        cpus=tuple(sorted(cpus, key=lambda cpu: cpu.id)),
        online=online,
        offline=CPUSet(),
        allowed=online,
        isolated=CPUSet(),
        nodes=tuple(
            HardwareNode(
                node,
                memory,
                tuple(HardwarePages(*pool) for pool in sorted((one.page_size * 1024, one.num_pages) for one in pools)),
                local_cpus=local[node],
                sysfs_cpulist=str(local[node]) if node < shape.numa_nodes else "",
            )
            for node, (_, memory, pools) in enumerate(nodes)
        ),
        # One node alone is no table, neither for the kernel nor for hwloc.
        distances=table if len(table) > 1 else None,
        distance_nodes=tuple(range(len(table))) if len(table) > 1 else (),
        # Slower ones first; a uniform machine has none, as in hwloc.
        kinds=(CPUKind(0, slow), CPUKind(1, online - slow)) if slow else (),
        num_cores=len(cores),
        num_packages=len(firsts["socket"]),
        num_l3=len(firsts["l3"]),
    )


def _machine_info(shape: Shape, cores: _Cores, nodes: Sequence[_Node], table: _Table) -> MachineInfo:
    """Return the machine as cAdvisor would describe it: in text order of the kernel's names, caches by its rules."""
    sharers: Counter[tuple[int, int]] = Counter()
    for core, _, l2, l3 in cores:
        sharers.update({(2, l2): len(core.thread_ids), (3, l3): len(core.thread_ids)})

    def shared(level: int, number: int, size: int) -> tuple[Cache, int]:
        return Cache(number, size, "Unified", level), sharers[level, number]

    caches = {
        core.thread_ids[0]: (shared(2, l2, shape.l2_size), shared(3, l3, shape.l3_size)) for core, _, l2, l3 in cores
    }
    cores_of: dict[int, list[Core]] = defaultdict(list)
    for core, node, _, _ in sorted(cores, key=lambda one: str(one[0].thread_ids[0])):
        cores_of[node].append(core)
    listed: list[NUMANode] = []
    for node in sorted(range(len(nodes)), key=str):
        placed, of_node = place_caches(cores_of[node], caches.__getitem__)
        _, memory, pools = nodes[node]
        listed.append(NUMANode(node, memory, pools, placed, table[node], of_node))
    return MachineInfo(
        num_cores=shape.cores * shape.threads + shape.efficiency_cores,
        num_sockets=shape.sockets,
        memory_capacity=shape.memory + shape.cpuless_memory,
        topology=tuple(listed),
        hugepages=shape.hugepages,
        num_physical_cores=len({core.core_id for core, *_ in cores}),
    )
