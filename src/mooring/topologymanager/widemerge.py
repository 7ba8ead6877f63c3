"""Merging families: the same answer as folding the product of all hints, where they cannot be listed.

Source of the rules: topologymanager policy*.go of kubelet v1.37.1; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from mooring.core.bits import NO_NODES, NUMAMask, members
from mooring.topologymanager.closest import closest_first
from mooring.topologymanager.distances import NUMAInfo, best_of_size
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
    universe = info.nodes
    for entry in entries:
        universe &= _span(entry, info.nodes)
    forced = _forced(entries, universe, info.nodes)
    width = universe.bit_count()
    for size in (*range(min(bound, width), 0, -1), *range(bound + 1, width + 1)):
        if size < forced.bit_count():
            continue

        def is_reachable(mask: int) -> bool:
            return reaches(entries, mask, info.nodes)

        if info.distances is not None:
            found = closest_first(info, universe, size, forced, (), is_reachable)
        else:
            found = next((mask for mask in sets_of_size(universe, size, forced, ()) if is_reachable(mask)), 0)
        if found:
            return found
    return 0


def _span(entry: Entry, nodes: int) -> int:
    """Return the union of all masks of an entry."""
    if isinstance(entry, Hints):
        if entry.nil:
            return nodes
        span = NO_NODES
        for mask in (*entry.preferred, *entry.others):
            span |= mask
        return span
    span = entry.universe if entry.first_of_size_up() is not None else NO_NODES
    for mask in entry.listed:
        span |= mask
    return span


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
