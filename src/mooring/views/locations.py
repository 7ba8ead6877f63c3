"""Where every CPU of a machine sits, from whichever description knows best.

The hardware's own description is preferred, because the kubelet's misses L3 groups, sockets and CPUs on many
machines (cAdvisor 0.60.5; spec: topology.md). What only the kubelet knows is added to it: its uncore cache ids, and
CPUs that no other source lists.

Boxes in boxes: turning overlapping sets of CPUs into a tree.

No order of levels holds on every machine: a socket can hold several NUMA nodes or a node several sockets, an L3 can
hold nodes or be held by one, and firmware invents sets that cross. So nothing is assumed: larger sets are placed
first, a set goes into the smallest box that holds it, sets with the same CPUs share one box, and a set that crosses
a box is cut and its parts say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TypeAlias

from mooring.engine.core.bits import mask_of, members
from mooring.engine.core.machine import Hardware, HardwareCPU, HardwareNode, Machine
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.lazy import dataclass, replace
from mooring.views.devices import DeviceView, grouped
from mooring.views.view import BoxKind, BoxLabel, BoxView, CoreView, CPUView
from mooring.views.wording import core_kind_name, numbers


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
    return told if machine.hardware is None else _from_hardware(machine.hardware, told)


def _from_info(info: MachineInfo) -> CPULocations:
    by_cpu: dict[int, CPULocation] = {}
    for node in info.topology:
        # Of a node with exactly one L3 its id; with broken ids cAdvisor lists one cache many times.
        ids = {cache.id for cache in node.caches if cache.level == 3}
        fallback = ids.pop() if len(ids) == 1 else None
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
    by_cpu |= {
        cpu.id: CPULocation(
            cpu=cpu.id,
            core=cpu.id if cpu.core is None else cpu.core,
            socket=_socket_key(cpu),
            numa=_home(cpu, nodes, told),
            l3=cpu.l3,
            die=cpu.die,
            rank=None if cpu.efficiency is None or cpu.efficiency < 0 else cpu.efficiency,
        )
        for cpu in hardware.cpus
    }
    with_cpus = {place.numa for place in by_cpu.values()}
    memory = {node.id: node.memory_bytes for node in hardware.nodes}
    memory |= {node: told.memory[node] for node in told.memory if node in with_cpus and node not in memory}
    uncores: dict[int, set[int | None]] = {}
    for cpu, place in by_cpu.items():
        if place.l3 is not None:
            uncore = told.by_cpu[cpu].l3 if cpu in told.by_cpu else None
            uncores.setdefault(place.l3, set()).add(uncore)
    # A socket has the number that its first CPU tells.
    packages = {_socket_key(cpu): cpu.package for cpu in reversed(hardware.cpus)}
    # Firmware may number packages -1 or give two of them one number: such a number names nothing.
    uses = Counter(packages.values())
    return CPULocations(
        by_cpu=dict(sorted(by_cpu.items())),
        memory=dict(sorted(memory.items())),
        memory_kinds={node.id: node.subtype for node in hardware.nodes if node.subtype not in {None, "DRAM"}},
        near={node.id: node.local_cpus.mask for node in hardware.nodes if node.id not in with_cpus},
        socket_ids={
            key: None if id_ is None or id_ < 0 or uses[id_] > 1 else id_
            for key, id_ in packages.items()
            if key is not None
        },
        l3_ids={l3: next(iter(known)) if len(known) == 1 else None for l3, known in uncores.items()},
        offline=hardware.offline.mask & ~mask_of(cpu.id for cpu in hardware.cpus),
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


def _socket_key(cpu: HardwareCPU) -> int | None:
    return cpu.package if cpu.package_first_cpu is None else cpu.package_first_cpu


def _distinct(keys: Iterable[int | None]) -> list[int]:
    return sorted({key for key in keys if key is not None})


_ORDER = {kind: rank for rank, kind in enumerate(BoxKind)}


_Group: TypeAlias = tuple[BoxLabel, int]
"""One element of the machine, with its members as a mask: CPUs, and above them one stand-in for every NUMA node without
CPUs."""


def boxes_of(places: CPULocations, cpus: Mapping[int, CPUView]) -> tuple[BoxView, ...]:
    """Return the outermost boxes with all online CPUs of ``places``, drawn as ``cpus`` says."""
    groups = sorted(
        _groups_of(places), key=lambda group: (-group[1].bit_count(), _ORDER[group[0].kind], _lowest(group[1]))
    )
    everything = reduce(or_, (mask for _, mask in groups), mask_of(places.by_cpu))
    return _boxes(everything, groups, places.by_cpu, cpus)


def _groups_of(places: CPULocations) -> list[_Group]:
    """Return the sets worth a box, in no particular order.

    Sockets and dies that only repeat the cores (every core its own socket, as hypervisors like to say) are left out.
    """
    top = max(places.by_cpu, default=-1) + 1
    stand_in = {node: 1 << (top + offset) for offset, node in enumerate(places.near)}
    bare = places.masks(lambda place: place.socket)
    sockets = {
        # With the NUMA nodes without CPUs that are local to CPUs of the socket only.
        socket: mask | sum(bit for node, bit in stand_in.items() if (near := places.near[node]) and not near & ~mask)
        for socket, mask in bare.items()
    }
    whole = {mask: sockets[socket] for socket, mask in bare.items()}
    nodes = {**places.masks(lambda place: place.numa), **stand_in}
    # An L3 that is the whole socket stays the whole socket, so that both share one box.
    caches = {l3: whole.get(mask, mask) for l3, mask in places.masks(lambda place: place.l3).items()}
    ranks = places.masks(lambda place: place.rank)
    found = [(BoxLabel(BoxKind.NUMA, node), mask) for node, mask in nodes.items()]
    if not _repeats_cores(sockets.values(), places):
        found += [(BoxLabel(BoxKind.SOCKET, places.socket_ids.get(socket)), mask) for socket, mask in sockets.items()]
    found += [(BoxLabel(BoxKind.L3, places.l3_ids.get(l3)), mask) for l3, mask in caches.items()]
    dies = places.masks(lambda place: place.die)
    # A socket with one die is that die.
    if not _repeats_cores(dies.values(), places) and not {*dies.values()} <= {*bare.values()}:
        # Numbered in their sockets, by ascending CPUs.
        seen: Counter[int | None] = Counter()
        for mask in sorted(dies.values(), key=_lowest):
            socket = places.by_cpu[_lowest(mask)].socket
            found.append((BoxLabel(BoxKind.DIE, seen[socket]), mask))
            seen[socket] += 1
    if len(ranks) > 1:
        found += [
            (BoxLabel(BoxKind.CORE_KIND, rank, name=core_kind_name(rank, sorted(ranks))), mask)
            for rank, mask in ranks.items()
        ]
    return found


def _repeats_cores(masks: Iterable[int], places: CPULocations) -> bool:
    sets = list(masks)
    if len(sets) < 2:
        return False
    return all(len({places.by_cpu[cpu].core for cpu in members(mask) if cpu in places.by_cpu}) == 1 for mask in sets)


def _boxes(
    room: int, groups: Sequence[_Group], places: Mapping[int, CPULocation], cpus: Mapping[int, CPUView]
) -> tuple[BoxView, ...]:
    """Return what is in a room of CPUs: a box for each group, or what earlier ones left of it, and one for all others.

    Later groups that fill a box are labels of it, and smaller ones boxes inside it.
    """
    found: dict[int, BoxView] = {}
    rest = room
    for number, (_, whole) in enumerate(groups):
        mask = whole & rest
        if not mask:
            continue
        rest &= ~mask
        labels = [replace(label, part=mask != one) for label, one in groups[number:] if not mask & ~one]
        labels.sort(key=lambda label: _ORDER[label.kind])
        smaller = [(label, one) for label, one in groups[number + 1 :] if one & mask and mask & ~one]
        inner = _boxes(mask, smaller, places, cpus) if smaller else ()
        found[mask] = BoxView(tuple(labels), inner, () if inner else _cores(mask, places, cpus))

    def rank(box: tuple[int, BoxView]) -> tuple[int, int, int]:
        # Among its siblings: ids as people count them, else by the smallest CPU.
        first, lowest = box[1].labels[0], _lowest(box[0])
        is_counted = first.id is not None and first.kind is not BoxKind.CORE_KIND
        return _ORDER[first.kind], first.id if is_counted and first.id is not None else lowest, lowest

    boxes = [box for _, box in sorted(found.items(), key=rank)]
    return (*boxes, BoxView((), cores=_cores(rest, places, cpus))) if rest else tuple(boxes)


def _cores(mask: int, places: Mapping[int, CPULocation], cpus: Mapping[int, CPUView]) -> tuple[CoreView, ...]:
    cores: dict[int, list[CPUView]] = {}
    for cpu in members(mask):
        if cpu in cpus:
            cores.setdefault(places[cpu].core, []).append(cpus[cpu])
    return tuple(CoreView(tuple(core)) for core in cores.values())


def _lowest(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def offline_box(cpus: Sequence[CPUView]) -> BoxView:
    """Return the box of the CPUs that are not online: the kernel does not say where they sit."""
    return BoxView((BoxLabel(BoxKind.OFFLINE),), cores=tuple(CoreView((cpu,)) for cpu in cpus))


def boxes_with_devices(boxes: Sequence[BoxView], devices: Sequence[DeviceView]) -> tuple[BoxView, ...]:
    """Return the boxes with every device in the smallest box that has all its NUMA nodes.

    Devices without such a box are in boxes of their own, those of the same NUMA nodes in one.
    """
    waiting = list(devices)
    found = [_with_devices(box, waiting) for box in boxes]
    for nodes in sorted({device.numa for device in waiting}, key=lambda nodes: (not nodes, nodes)):
        label = BoxLabel(BoxKind.DEVICES, name=f"Devices of NUMA {numbers(nodes)}" if nodes else "")
        found.append(BoxView((label,), devices=grouped(device for device in waiting if device.numa == nodes)))
    return tuple(found)


def _with_devices(box: BoxView, waiting: list[DeviceView]) -> BoxView:
    """Return the box with what of ``waiting`` belongs in it, which is no longer waiting then."""
    if not waiting:
        return box
    children = tuple(_with_devices(child, waiting) for child in box.children)
    nodes = _numa_nodes(box)
    here = [device for device in waiting if device.numa and nodes.issuperset(device.numa)]
    waiting[:] = [device for device in waiting if device not in here]
    return replace(box, children=children, devices=grouped(here))


def _numa_nodes(box: BoxView) -> set[int]:
    """Return the ids of the NUMA nodes that are the box or lie in it."""
    own = {label.id for label in box.labels if label.kind is BoxKind.NUMA and label.id is not None}
    return own.union(*(_numa_nodes(child) for child in box.children))
