"""Boxes in boxes: turning overlapping sets of CPUs into a tree.

No order of levels holds on every machine: a socket can hold several NUMA nodes or a node several sockets, an L3 can
hold nodes or be held by one, and firmware invents sets that cross. So nothing is assumed: larger sets are placed
first, a set goes into the smallest box that holds it, sets with the same CPUs share one box, and a set that crosses
a box is cut and its parts say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mooring.engine.core.bits import members
from mooring.views.devices import DeviceView, grouped
from mooring.views.locations import CPULocation, CPULocations
from mooring.views.view import BoxKind, BoxLabel, BoxView, CoreView, CPUView
from mooring.views.wording import core_kind_name, numbers

_ORDER = {kind: rank for rank, kind in enumerate(BoxKind)}


@dataclass(frozen=True, slots=True)
class _BoxSet:
    """One element of the machine as a set."""

    kind: BoxKind
    id: int | None
    mask: int
    """Members: CPUs, and above them one stand-in for every NUMA node without CPUs."""
    name: str = ""


@dataclass(slots=True)
class _Nest:
    mask: int
    labels: list[BoxLabel] = field(default_factory=list)
    children: list[_Nest] = field(default_factory=list)


def boxes_of(places: CPULocations, cpus: Mapping[int, CPUView]) -> tuple[BoxView, ...]:
    """Return the outermost boxes with all online CPUs of ``places``, drawn as ``cpus`` says."""
    groups = _groups_of(places)
    everything = 0
    for group in groups:
        everything |= group.mask
    for cpu in places.by_cpu:
        everything |= 1 << cpu
    root = _Nest(everything)
    for group in sorted(groups, key=lambda group: (-group.mask.bit_count(), _ORDER[group.kind], _lowest(group.mask))):
        _insert(root, group, group.mask)
    return _views(root, places.by_cpu, cpus)


def _groups_of(places: CPULocations) -> list[_BoxSet]:
    """Return the sets worth a box, in no particular order.

    Sockets and dies that only repeat the cores (every core its own socket, as hypervisors like to say) are left out.
    """
    stand_in = {node: 1 << (_top(places) + offset) for offset, node in enumerate(places.near)}
    bare = places.masks(lambda place: place.socket)
    sockets = {socket: mask | _memory_near(mask, places, stand_in) for socket, mask in bare.items()}
    whole = {mask: sockets[socket] for socket, mask in bare.items()}
    nodes = {**places.masks(lambda place: place.numa), **stand_in}
    # An L3 that is the whole socket stays the whole socket, so that both share one box.
    caches = {l3: whole.get(mask, mask) for l3, mask in places.masks(lambda place: place.l3).items()}
    ranks = places.masks(lambda place: place.rank)
    found = [_BoxSet(BoxKind.NUMA, node, mask) for node, mask in nodes.items()]
    if not _repeats_cores(sockets.values(), places):
        found += [_BoxSet(BoxKind.SOCKET, places.socket_ids.get(socket), mask) for socket, mask in sockets.items()]
    found += [_BoxSet(BoxKind.L3, places.l3_ids.get(l3), mask) for l3, mask in caches.items()]
    dies = places.masks(lambda place: place.die)
    # A socket with one die is that die.
    if not _repeats_cores(dies.values(), places) and not {*dies.values()} <= {*bare.values()}:
        found += [_BoxSet(BoxKind.DIE, number, mask) for number, mask in _numbered(dies, places)]
    if len(ranks) > 1:
        found += [
            _BoxSet(BoxKind.CORE_KIND, rank, mask, core_kind_name(rank, sorted(ranks))) for rank, mask in ranks.items()
        ]
    return found


def _numbered(dies: Mapping[int, int], places: CPULocations) -> Iterator[tuple[int, int]]:
    """Yield the dies with their numbers in their sockets, by ascending CPUs."""
    seen: Counter[int | None] = Counter()
    for mask in sorted(dies.values(), key=_lowest):
        socket = places.by_cpu[_lowest(mask)].socket
        yield seen[socket], mask
        seen[socket] += 1


def _memory_near(socket: int, places: CPULocations, stand_in: Mapping[int, int]) -> int:
    """Return the stand-ins of the NUMA nodes without CPUs that are local to CPUs of ``socket`` only."""
    near = (bit for node, bit in stand_in.items() if places.near[node] and places.near[node] & ~socket == 0)
    return sum(near)


def _repeats_cores(masks: Iterable[int], places: CPULocations) -> bool:
    sets = list(masks)
    if len(sets) < 2:
        return False
    return all(len({places.by_cpu[cpu].core for cpu in members(mask) if cpu in places.by_cpu}) == 1 for mask in sets)


def _top(places: CPULocations) -> int:
    return max(places.by_cpu, default=-1) + 1


def _insert(box: _Nest, group: _BoxSet, mask: int) -> None:
    """Put the part ``mask`` of ``group`` into ``box``, cutting it along the boxes that are there."""
    rest = mask
    for child in box.children:
        common = child.mask & rest
        if common == child.mask:
            child.labels.append(_label(group, common))
        elif common:
            _insert(child, group, common)
        rest &= ~common
    if rest:
        box.children.append(_Nest(rest, [_label(group, rest)]))


def _label(group: _BoxSet, mask: int) -> BoxLabel:
    return BoxLabel(group.kind, group.id, part=mask != group.mask, name=group.name)


def _views(nest: _Nest, places: Mapping[int, CPULocation], cpus: Mapping[int, CPUView]) -> tuple[BoxView, ...]:
    """Return the boxes inside ``nest``; CPUs outside all of them get a box without a label."""
    inner = sorted(nest.children, key=_rank)
    loose = nest.mask
    for child in inner:
        loose &= ~child.mask
    found = [_view(child, places, cpus) for child in inner]
    if loose:
        found.append(BoxView((), cores=_cores(loose, places, cpus)))
    return tuple(found)


def _rank(nest: _Nest) -> tuple[int, int, int]:
    """Return the place of a box among its siblings: ids as people count them, else by the smallest CPU."""
    first = min(nest.labels, key=lambda label: _ORDER[label.kind])
    lowest = _lowest(nest.mask)
    if first.id is None or first.kind is BoxKind.CORE_KIND:
        return (_ORDER[first.kind], lowest, lowest)
    return (_ORDER[first.kind], first.id, lowest)


def _view(nest: _Nest, places: Mapping[int, CPULocation], cpus: Mapping[int, CPUView]) -> BoxView:
    labels = tuple(sorted(nest.labels, key=lambda label: _ORDER[label.kind]))
    if nest.children:
        return BoxView(labels, children=_views(nest, places, cpus))
    return BoxView(labels, cores=_cores(nest.mask, places, cpus))


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
