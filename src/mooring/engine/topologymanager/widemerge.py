"""Finding the closest set of nodes without looking at all of them.

Source of the order: numa_info.go of kubelet v1.37.1 (smaller average distance, then the smaller number).

Merging families: the same answer as folding the product of all hints, where they cannot be listed.

Source of the rules: topologymanager policy*.go of kubelet v1.37.1; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product, repeat, zip_longest
from math import prod

from mooring.engine.core.bits import NO_NODES, NUMAMask, members
from mooring.engine.topologymanager.hints import Hints, NUMAInfo, average_distance, best_of_size, narrowest, no_distance
from mooring.engine.topologymanager.wide import Demand, Family, sets_of_size


def closest_first(
    info: NUMAInfo, universe: int, size: int, around: int, demands: Sequence[Demand], is_wanted: Callable[[int], bool]
) -> int:
    """Return the closest wanted set of ``size`` nodes, of equally close ones the smallest number; 0 when there is none.

    Where distances do not count all are equally close. Sets are walked by ascending number, so that of several equally
    close ones the first found wins, and a branch is dropped when it cannot come below the best sum so far.
    """
    if info.distances is None:
        return next((mask for mask in sets_of_size(universe, size, around, demands) if is_wanted(mask)), 0)
    nodes = tuple(members(universe))
    if size > len(nodes) or size == 0:
        return 0
    pair = _pair_costs(info, nodes)
    cheapest = min((cost for (one, other), cost in pair.items() if one != other), default=0)
    best_sum: int | None = None
    best = 0

    def walk(position: int, left: int, chosen: int, costs: list[int], total: int) -> None:
        nonlocal best, best_sum
        if left == 0:
            if best_sum is not None and total >= best_sum:
                return
            wanted = chosen & around == around and all(demand.is_met(chosen) for demand in demands)
            if wanted and is_wanted(chosen):
                best, best_sum = chosen, total
            return
        if position < left:
            return
        if best_sum is not None:
            least = sum(sorted(costs[:position])[:left]) + cheapest * left * (left - 1) // 2
            if total + least >= best_sum:
                return
        node = nodes[position - 1]
        if not around >> node & 1:
            walk(position - 1, left, chosen, costs, total)
        nearer = [cost + pair[other, node] for other, cost in zip(nodes[: position - 1], costs, strict=False)]
        walk(position - 1, left - 1, chosen | 1 << node, nearer, total + costs[position - 1])

    walk(len(nodes), size, 0, [pair[node, node] for node in nodes], 0)
    return best


def _pair_costs(info: NUMAInfo, nodes: tuple[int, ...]) -> dict[tuple[int, int], int]:
    """Return what two nodes in one set add to the sum of distances: both directions, a node with itself once.

    Raises:
        KubeletCrashError: a distance is missing.
    """
    rows = info.distances or {}
    try:
        return {
            (one, other): rows[one][other] + (rows[other][one] if one != other else 0)
            for one in nodes
            for other in nodes
        }
    except (KeyError, IndexError):
        raise no_distance(nodes) from None


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
    return narrowest(info, tuple(masks)) if masks else 0


def _best_common(families: Sequence[Family], size: int, info: NUMAInfo) -> int:
    """Return the best set of one size that all families describe and prefer; 0 when there is none."""
    if any(not family.sockets and family.smallest != size for family in families):
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

    return closest_first(info, universe, size, required, demands, is_agreed)


def best_reachable(entries: Sequence[Entry], info: NUMAInfo, bound: int) -> int:
    """Return the best non-empty intersection of one mask of each entry; 0 when there is none.

    Args:
        entries: at least one of them a family.
        info: nodes and distances.
        bound: the largest of the narrowest hints.
    """
    meetings = _meetings(entries, info.nodes)
    universe = NO_NODES
    for room, _ in meetings:
        universe |= room.universe
    if info.distances is not None:
        average_distance(info, universe)  # without a distance that it needs the kubelet crashes
    width = max((room.universe.bit_count() for room, _ in meetings), default=0)
    for size in (*range(min(bound, width), 0, -1), *range(bound + 1, width + 1)):
        found = {
            closest_first(
                info, room.universe, size, room.required, room.demands, partial(_can_spare, met, room.universe)
            )
            for room, met in meetings
            if room.required.bit_count() <= size <= room.universe.bit_count()
        }
        if found - {0}:
            return best_of_size(info, tuple(found - {0}))
    return 0


def _meetings(entries: Sequence[Entry], nodes: int) -> list[tuple[Family, tuple[Family, ...]]]:
    """Return every way to choose from the entries that leaves some node, those of equal outcome once.

    Of each entry a listed mask is chosen, or a family as a whole, whose member is still open.

    Returns:
        For each way a family in which every intersection lies, though not all its members are intersections: it has the
        nodes that all chosen masks and families have. And the families that were chosen.
    """
    ways: dict[tuple[int, tuple[int, ...]], None] = {(nodes, ()): None}
    for index, entry in enumerate(entries):
        if isinstance(entry, Family):
            masks = set[int](entry.listed)
        else:
            masks = {*entry.preferred, *entry.others, *([nodes] if entry.nil else ())}
        grown = {(fixed & mask, chosen): None for fixed, chosen in ways for mask in masks if fixed & mask}
        if isinstance(entry, Family) and entry.first_of_size_up() is not None:
            grown.update({(fixed, (*chosen, index)): None for fixed, chosen in ways})
        ways = grown
    families = {index: entry for index, entry in enumerate(entries) if isinstance(entry, Family)}
    meetings: list[tuple[Family, tuple[Family, ...]]] = []
    for fixed, chosen in ways:
        met = tuple(families[index] for index in chosen)
        shared, forced = NUMAMask(fixed), NO_NODES
        for family in met:
            shared &= family.universe
        for node in members(shared):
            # A node that no family can leave out
            if not any(family.describes(family.universe & ~(1 << node)) for family in met):
                forced |= 1 << node
        room = Family(shared, tuple(_shared_demands(met, fixed)), 0, required=forced)
        if room.describes(shared):
            meetings.append((room, met))
    return meetings


def _shared_demands(families: Sequence[Family], fixed: int) -> Iterator[Demand]:
    """Yield amounts that every intersection must have, for one demand of each family after the other.

    Every node of the fixed mask outside the intersection is left out by one family at least, which so loses its weight.
    In units in which all families need the same, the weights that all families keep of a node are at most all of its
    weights, and outside the intersection at most all but the smallest: what the smallest weights of the intersection's
    nodes must add up to follows. For one family that is its own demand.
    """
    for chosen in product(*(family.demands for family in families)):
        needs = [demand.need_at_least for demand in chosen]
        if not needs or min(needs) <= 0:
            continue
        common = prod(needs)
        weights = [
            [
                amount * (common // need) if family.universe >> node & 1 else 0
                for node, amount in enumerate(demand.weights)
            ]
            for family, demand, need in zip(families, chosen, needs, strict=True)
        ]
        least = tuple(map(min, zip_longest(*weights, fillvalue=0)))
        kept_outside = sum(map(sum, weights)) - sum(least[node] for node in members(fixed) if node < len(least))
        yield Demand(common * len(needs) - kept_outside, least)


def _can_spare(families: Sequence[Family], room: int, target: int) -> bool:
    """Tell whether the families can leave out, among them, all nodes of the room but the target, and keep that.

    When one of them holds the target itself it leaves out everything. Otherwise each node is given to a family that
    can still spare it, the heavy ones first, with a return where that leads nowhere.
    """
    others = room & ~target
    if not others:
        return all(_keeps(family, family.universe, target) for family in families)
    if any(family.describes(target) and target not in family.barred for family in families):
        return True
    nodes = sorted(members(others), key=lambda node: -sum(d.weights[node] for f in families for d in f.demands))
    hopeless: set[tuple[int, tuple[int | tuple[int, ...], ...]]] = set()

    def place(position: int, kept: tuple[int, ...]) -> bool:
        if position == len(nodes):
            return all(_keeps(family, mask, target) for family, mask in zip(families, kept, strict=True))
        state = position, tuple(map(_what_counts, families, kept, repeat(target)))
        if state in hopeless:
            return False
        bit = 1 << nodes[position]
        for index, family in enumerate(families):
            if not family.universe & bit or not family.describes(kept[index] & ~bit):
                continue
            if place(position + 1, (*kept[:index], kept[index] & ~bit, *kept[index + 1 :])):
                return True
        hopeless.add(state)
        return False

    return place(0, tuple(family.universe for family in families))


def _what_counts(family: Family, kept: int, target: int) -> int | tuple[int, ...]:
    """Return what of the nodes that a family keeps decides which further ones it can spare."""
    plain = all(demand.sources is None and not demand.bonuses for demand in family.demands)
    if not plain or any(not target & ~mask for mask in family.barred):
        return kept
    return tuple(demand.weight_of(kept) for demand in family.demands)


def _keeps(family: Family, mask: int, target: int) -> bool:
    return mask & target == target and family.describes(mask) and mask not in family.barred
