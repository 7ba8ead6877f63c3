"""Merging families: the same answer as folding the product of all hints, where they cannot be listed.

Source of the rules: topologymanager policy*.go of kubelet v1.37.1; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from mooring.core.bits import NO_NODES, NUMAMask, members
from mooring.topologymanager.closest import closest_first
from mooring.topologymanager.distances import NUMAInfo, average_distance, best_of_size
from mooring.topologymanager.hints import Hints
from mooring.topologymanager.wide import Demand, Family, sets_of_size

Entry = Hints | Family


def best_preferred(entries: Sequence[Entry], info: NUMAInfo) -> int:
    """Return the best mask that every entry prefers; 0 when there is none.

    Entries with a preferred hint that has no mask agree with every mask.
    """
    binding = [entry for entry in entries if isinstance(entry, Family) or True not in entry.nil]
    listed = [entry for entry in binding if isinstance(entry, Hints)]
    families = [entry for entry in binding if isinstance(entry, Family)]
    if not families:
        raise ValueError("without a family the listed hints are merged as they are")
    if listed:
        candidates = set(listed[0].preferred).intersection(*(entry.preferred for entry in listed[1:]))
        agreed = [mask for mask in candidates if _all_prefer(families, mask)]
        return _best_of({mask & info.nodes for mask in agreed}, info)
    fewest = min(families, key=lambda family: len(family.listed))
    extras = {mask for family in families for mask in family.listed if _all_prefer(families, mask)}
    best = _best_of({mask & info.nodes for mask in extras}, info)
    for size in range(1, fewest.universe.bit_count() + 1):
        if best and size > best.bit_count():
            break
        found = _best_common(families, size, info)
        if found and best and best.bit_count() == size:
            return best_of_size(info, (best, found))
        if found:
            return found
    return best


def _all_prefer(families: Sequence[Family], mask: int) -> bool:
    return all(family.holds(mask) and family.prefers(mask) for family in families)


def _best_of(masks: set[int], info: NUMAInfo) -> int:
    masks.discard(0)
    if not masks:
        return 0
    size = min(mask.bit_count() for mask in masks)
    return best_of_size(info, tuple(mask for mask in masks if mask.bit_count() == size))


def _best_common(families: Sequence[Family], size: int, info: NUMAInfo) -> int:
    """Return the best set of one size that all families describe and prefer; 0 when there is none."""
    if any(family.sockets is None and family.smallest != size for family in families):
        return 0
    universe, required = info.nodes, 0
    demands: list[Demand] = []
    for family in families:
        universe &= family.universe
        required |= family.required
        demands.extend(family.demands)
    if required & ~universe:
        return 0

    def is_agreed(mask: int) -> bool:
        return _all_prefer(families, mask)

    if info.distances is not None:
        return closest_first(info, universe, size, required, demands, is_agreed)
    return next((mask for mask in sets_of_size(universe, size, required, demands) if is_agreed(mask)), 0)


def best_reachable(entries: Sequence[Entry], info: NUMAInfo, bound: int) -> int:
    """Return the best non-empty intersection of one mask of each entry; 0 when there is none.

    Args:
        entries: at least one of them a family.
        info: nodes and distances.
        bound: the largest of the narrowest hints.
    """
    rooms = _rooms(entries, info.nodes)
    universe = NO_NODES
    for room in rooms:
        universe |= room
    if info.distances is not None:
        average_distance(info, universe)  # without a distance that it needs the kubelet crashes
    forced = _forced(entries, universe, info.nodes)
    rooms = [room for room in rooms if not forced & ~room]
    width = max((room.bit_count() for room in rooms), default=0)

    def is_reachable(mask: int) -> bool:
        return reaches(entries, mask, info.nodes)

    for size in (*range(min(bound, width), 0, -1), *range(bound + 1, width + 1)):
        if size < forced.bit_count():
            continue
        found = {_best_inside(room, size, forced, is_reachable, info) for room in rooms} - {0}
        if found:
            return best_of_size(info, tuple(found))
    return 0


def _best_inside(room: int, size: int, forced: int, is_reachable: Callable[[int], bool], info: NUMAInfo) -> int:
    """Return the best reachable set of one size inside a room; 0 when there is none."""
    if info.distances is not None:
        return closest_first(info, room, size, forced, (), is_reachable)
    return next((mask for mask in sets_of_size(room, size, forced, ()) if is_reachable(mask)), 0)


def _rooms(entries: Sequence[Entry], nodes: int) -> list[int]:
    """Return the largest sets of nodes inside one of which every intersection of one mask of each entry lies.

    Where memory is given from single nodes no intersection has two, however many the CPUs need: the sets of that many
    nodes, too many to go through, are none of them reachable.
    """
    rooms = [nodes]
    for entry in entries:
        rooms = _largest({room & mask for room in rooms for mask in _widest(entry, nodes)})
    return rooms


def _widest(entry: Entry, nodes: int) -> list[int]:
    """Return the masks of an entry that lie in no other one; a family's universe stands for all that it describes."""
    if isinstance(entry, Hints):
        return _largest({nodes} if entry.nil else {*entry.preferred, *entry.others})
    described = {entry.universe} if entry.first_of_size_up() is not None else set()
    return _largest(described.union(entry.listed))


def _largest(masks: Iterable[int]) -> list[int]:
    """Return the non-empty masks that lie in no other one."""
    kept: list[int] = []
    for mask in sorted(masks, key=lambda mask: (-mask.bit_count(), mask)):
        if mask and not any(mask & ~wider == 0 for wider in kept):
            kept.append(mask)
    return kept


def _forced(entries: Sequence[Entry], universe: int, nodes: int) -> int:
    """Return the nodes that no entry can leave out."""
    forced = 0
    for node in members(universe):
        if not any(_can_leave_out(entry, node, nodes) for entry in entries):
            forced |= 1 << node
    return forced


def _can_leave_out(entry: Entry, node: int, nodes: int) -> bool:
    if isinstance(entry, Hints):
        if any(not mask >> node & 1 for mask in (*entry.preferred, *entry.others)):
            return True
        return bool(entry.nil) and not nodes >> node & 1
    if any(not mask >> node & 1 for mask in entry.listed):
        return True
    return entry.describes(entry.universe & ~(1 << node))


def reaches(entries: Sequence[Entry], target: int, nodes: int) -> bool:
    """Tell whether one mask of each entry can be chosen so that they meet in exactly ``target``.

    Each node outside the target has to be left out by one entry at least. A family leaves out what it can spare.
    """
    choices = [list(_choices(entry, target, nodes)) for entry in entries]
    if not all(choices):
        return False
    for chosen in product(*choices):
        families = [choice for choice in chosen if isinstance(choice, Family)]
        meeting = nodes
        for choice in chosen:
            meeting &= choice.universe if isinstance(choice, Family) else choice
        if _can_spare(families, target, meeting & ~target):
            return True
    return False


def _choices(entry: Entry, target: int, nodes: int) -> Iterator[int | Family]:
    """Yield what an entry can offer around the target: listed masks, smallest first, and the family as a whole."""
    if isinstance(entry, Hints):
        masks = {mask & nodes for mask in (*entry.preferred, *entry.others) if mask & target == target}
        if entry.nil:
            masks.add(NUMAMask(nodes))
        yield from sorted(masks, key=lambda mask: mask.bit_count())
        return
    if entry.describes(entry.universe) and not target & ~entry.universe:
        yield entry
    yield from sorted((mask for mask in entry.listed if mask & target == target), key=lambda mask: mask.bit_count())


def _can_spare(families: Sequence[Family], target: int, others: int) -> bool:
    """Tell whether the families can leave out all nodes of ``others`` among them and keep the target.

    When one of them holds the target itself it leaves out everything. Otherwise each node is given to a family that
    can still spare it, the heavy ones first, with a return where that leads nowhere.
    """
    if not others:
        return all(_keeps(family, family.universe, target) for family in families)
    if any(family.describes(target) and target not in family.barred for family in families):
        return True
    nodes = sorted(members(others), key=lambda node: -sum(d.weights[node] for f in families for d in f.demands))

    def place(position: int, kept: tuple[int, ...]) -> bool:
        if position == len(nodes):
            return all(_keeps(family, mask, target) for family, mask in zip(families, kept, strict=True))
        bit = 1 << nodes[position]
        for index, family in enumerate(families):
            if not family.universe & bit or not family.describes(kept[index] & ~bit):
                continue
            if place(position + 1, (*kept[:index], kept[index] & ~bit, *kept[index + 1 :])):
                return True
        return False

    return place(0, tuple(family.universe for family in families))


def _keeps(family: Family, mask: int, target: int) -> bool:
    return mask & target == target and family.describes(mask) and mask not in family.barred
