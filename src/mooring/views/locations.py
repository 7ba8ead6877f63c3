"""Where every CPU of a machine sits, from whichever description knows best.

The hardware's own description is preferred, because the kubelet's misses L3 groups, sockets and CPUs on many
machines (cAdvisor 0.60.5; spec: topology.md). What only the kubelet knows is added to it: its uncore cache ids, and
CPUs that no other source lists.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from mooring.engine.core.bits import mask_of
from mooring.engine.core.hardware import Hardware, HardwareCPU, HardwareNode
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo, NUMANode


@dataclass(frozen=True, slots=True)
class CPULocation:
    """Where one CPU sits. The keys of sockets, dies and L3 groups have no other meaning."""

    cpu: int
    core: int
    """Smallest CPU of the core."""
    socket: int | None = None
    numa: int | None = None
    """Id of the NUMA node; None when no node lists the CPU."""
    l3: int | None = None
    die: int | None = None
    """Only where the hardware's own description has it."""
    rank: int | None = None
    """Speed rank of the core kind, higher is faster; None on uniform machines."""


@dataclass(frozen=True, slots=True)
class CPULocations:
    """All CPUs and NUMA nodes of a machine."""

    by_cpu: Mapping[int, CPULocation]
    """CPU id -> place, ascending, online CPUs only."""
    memory: Mapping[int, int]
    """NUMA node id -> bytes, ascending, also of nodes without CPUs."""
    memory_kinds: Mapping[int, str]
    """NUMA node id -> kind of memory, only where it is known and not plain DRAM."""
    near: Mapping[int, int]
    """NUMA node without CPUs -> mask of the CPUs it is local to; 0 when unknown."""
    socket_ids: Mapping[int, int | None]
    """Socket key -> id as the kernel numbers it; None when that number says nothing."""
    l3_ids: Mapping[int, int | None]
    """L3 key -> cache id as the kubelet gets it; None when it gets none for this group."""
    offline: int
    """Mask of CPUs that exist but are not online."""

    def masks(self, key: Callable[[CPULocation], int | None]) -> dict[int, int]:
        """Return the CPUs of each element as a mask.

        Args:
            key: of the element that has a CPU, such as its L3; None for no element.
        """
        masks: dict[int, int] = {}
        for cpu, place in self.by_cpu.items():
            element = key(place)
            if element is not None:
                masks[element] = masks.get(element, 0) | 1 << cpu
        return masks


def locate_cpus(machine: Machine) -> CPULocations:
    """Return where everything sits."""
    told = _from_info(machine.info)
    if machine.hardware is None:
        return told
    return _from_hardware(machine.hardware, told)


def _from_info(info: MachineInfo) -> CPULocations:
    by_cpu: dict[int, CPULocation] = {}
    for node in info.topology:
        fallback = _only_l3(node)
        for core in node.cores:
            l3 = core.uncore_caches[0].id if core.uncore_caches else fallback
            # A thread listed in two places keeps the last one, as in the kubelet's own topology.
            for cpu in core.thread_ids:
                by_cpu[cpu] = CPULocation(cpu, min(core.thread_ids), core.socket_id, node.node_id, l3)
    with_cpus = {place.numa for place in by_cpu.values()}
    return CPULocations(
        by_cpu=dict(sorted(by_cpu.items())),
        memory={node.node_id: node.memory for node in sorted(info.topology, key=lambda node: node.node_id)},
        memory_kinds={},
        near={node.node_id: _nearest(node, info) for node in info.topology if node.node_id not in with_cpus},
        socket_ids={
            socket: socket if socket >= 0 else None for socket in _distinct(place.socket for place in by_cpu.values())
        },
        l3_ids={l3: l3 for l3 in _distinct(place.l3 for place in by_cpu.values())},
        offline=0,
    )


def _only_l3(node: NUMANode) -> int | None:
    """Return the id of the node's L3 when it has exactly one; with broken ids cAdvisor lists one cache many times."""
    ids = {cache.id for cache in node.caches if cache.level == 3}
    return ids.pop() if len(ids) == 1 else None


def _nearest(node: NUMANode, info: MachineInfo) -> int:
    """Return the mask of the CPUs of the nodes with CPUs that are nearest to ``node``."""
    # A node's distances are by ascending node id, with no entry for absent ids (cAdvisor 0.60.5).
    others = sorted(info.topology, key=lambda other: other.node_id)
    if node.distances is None or len(node.distances) != len(others):
        return 0
    reachable = [(distance, other) for distance, other in zip(node.distances, others, strict=True) if other.cores]
    least = min((distance for distance, _ in reachable), default=0)
    nearest = [other for distance, other in reachable if distance == least]
    return mask_of(cpu for other in nearest for core in other.cores for cpu in core.thread_ids)


def _from_hardware(hardware: Hardware, told: CPULocations) -> CPULocations:
    nodes = {node.id: node for node in hardware.nodes}
    # The two descriptions have different keys for sockets and caches: of a CPU that only the kubelet lists,
    # nothing but the node is kept.
    by_cpu = {
        cpu: replace(place, socket=None, l3=None) for cpu, place in told.by_cpu.items() if cpu not in hardware.offline
    }
    by_cpu |= {cpu.id: _place(cpu, nodes, told) for cpu in hardware.cpus}
    with_cpus = {place.numa for place in by_cpu.values()}
    memory = {node.id: node.memory_bytes for node in hardware.nodes}
    memory |= {node: told.memory[node] for node in told.memory if node in with_cpus and node not in memory}
    return CPULocations(
        by_cpu=dict(sorted(by_cpu.items())),
        memory=dict(sorted(memory.items())),
        memory_kinds={node.id: node.subtype for node in hardware.nodes if node.subtype not in {None, "DRAM"}},
        near={node.id: node.local_cpus.mask for node in hardware.nodes if node.id not in with_cpus},
        socket_ids=_socket_ids(hardware),
        l3_ids=_l3_ids(by_cpu, told),
        offline=hardware.offline.mask & ~mask_of(cpu.id for cpu in hardware.cpus),
    )


def _place(cpu: HardwareCPU, nodes: Mapping[int, HardwareNode], told: CPULocations) -> CPULocation:
    return CPULocation(
        cpu=cpu.id,
        core=cpu.id if cpu.core is None else cpu.core,
        socket=_socket_key(cpu),
        numa=_home(cpu, nodes, told),
        l3=cpu.l3,
        die=cpu.die,
        rank=None if cpu.efficiency is None or cpu.efficiency < 0 else cpu.efficiency,
    )


def _home(cpu: HardwareCPU, nodes: Mapping[int, HardwareNode], told: CPULocations) -> int | None:
    """Return the one node among those local to ``cpu`` in which it is drawn.

    The kernel's own list decides; where several nodes list the CPU, the kubelet's choice, then the smallest node.
    """
    local = [nodes[node] for node in cpu.numa if node in nodes]
    # Nodes of memory only are local to CPUs too, but their own list is empty.
    listing = [node for node in local if node.sysfs_cpulist is None or node.sysfs_cpulist.strip()] or local
    ids = {node.id for node in listing}
    chosen = told.by_cpu.get(cpu.id)
    if chosen is not None and chosen.numa in ids:
        return chosen.numa
    return min(listing, key=lambda node: (len(node.local_cpus), node.id)).id if listing else None


def _socket_ids(hardware: Hardware) -> dict[int, int | None]:
    packages: dict[int, int | None] = {}
    for cpu in hardware.cpus:
        key = _socket_key(cpu)
        if key is not None:
            packages.setdefault(key, cpu.package)
    # Firmware may number packages -1 or give two of them one number: such a number names nothing.
    uses = Counter(packages.values())
    return {key: None if id_ is None or id_ < 0 or uses[id_] > 1 else id_ for key, id_ in packages.items()}


def _socket_key(cpu: HardwareCPU) -> int | None:
    return cpu.package if cpu.package_first_cpu is None else cpu.package_first_cpu


def _l3_ids(by_cpu: Mapping[int, CPULocation], told: CPULocations) -> dict[int, int | None]:
    uncores: dict[int, set[int | None]] = {}
    for cpu, place in by_cpu.items():
        if place.l3 is not None:
            uncore = told.by_cpu[cpu].l3 if cpu in told.by_cpu else None
            uncores.setdefault(place.l3, set()).add(uncore)
    return {l3: next(iter(known)) if len(known) == 1 else None for l3, known in uncores.items()}


def _distinct(keys: Iterable[int | None]) -> list[int]:
    return sorted({key for key in keys if key is not None})
