"""Hints of machines with many NUMA nodes: families of node sets, described instead of listed.

"Every set of nodes with enough capacity" has 2^n members, and 64 nodes are not rare. Such a family is closed upwards:
it is given by its demands alone, and every question of the merge (is this set a member, what is the best member of
this size) is answered from them. Held against listed hints in the tests, on machines small enough to list.

Families of NUMA node sets as bit sets: bit *m* of a family is set when the node set with mask *m* belongs to it.

On a machine of n NUMA nodes a family is one integer of 2^n bits, and what merging needs (project a family onto a node
set, close it upwards, find its minimal members) is a handful of shifts. The kubelet instead folds the Cartesian
product of all hint lists, which takes minutes on 8 nodes with 4 providers (kubernetes/kubernetes#131738).

From what providers answer to the entries of a merge.

Source: kubelet v1.37.1, topologymanager policy.go (filterProvidersHints); spec: topology-manager.md section 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, cast

from mooring.engine.core.bits import NO_NODES, NUMAMask, members
from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class Demand:
    """An amount that the nodes of a set must have together."""

    need: int
    weights: tuple[int, ...]
    """What each node contributes, by node id."""
    sources: tuple[int, ...] | None = None
    """Where one thing can lie on several nodes, such as a device: the node mask of each. Each counts once; the weights
    are then what each node could contribute at most."""
    bonuses: tuple[tuple[int, int], ...] = ()
    """Node sets, and what comes on top for a set that holds all of their nodes."""

    def is_met(self, mask: int) -> bool:
        """Tell whether the nodes of ``mask`` have enough."""
        if self.sources is not None:
            return sum(1 for source in self.sources if source & mask) >= self.need
        bonus = sum(amount for own, amount in self.bonuses if not own & ~mask)
        return self.weight_of(mask) + bonus >= self.need

    def weight_of(self, mask: int) -> int:
        """Return the sum of the weights of the nodes of ``mask``."""
        total = 0
        while mask:
            lowest = mask & -mask
            total += self.weights[lowest.bit_length() - 1]
            mask ^= lowest
        return total

    @property
    def need_at_least(self) -> int:
        """What the weights of any set that meets the demand add up to at least."""
        return self.need - sum(amount for _, amount in self.bonuses)


@dataclass(frozen=True, slots=True)
class Family:
    """All sets of nodes that meet some demands, and a few more that are listed.

    Members lie inside the machine's nodes: every provider knows only these.
    """

    universe: NUMAMask
    """Members hold only these nodes (listed ones may hold others)."""
    demands: tuple[Demand, ...]
    smallest: int
    """Size of the preferred members."""
    required: NUMAMask = NO_NODES
    """Nodes that every member holds."""
    listed: tuple[NUMAMask, ...] = ()
    """Members that the demands do not describe."""
    barred: frozenset[NUMAMask] = field(default_factory=frozenset)
    """Sets that meet the demands and are no members all the same."""
    sockets: tuple[int, ...] = ()
    """For each socket the mask of the NUMA nodes that have CPUs on it; empty without align-by-socket."""
    span: int = 0
    """Number of sockets that members touch which align-by-socket prefers, too: as few as necessary."""

    def holds(self, mask: int) -> bool:
        """Tell whether a set is a member."""
        return mask in self.listed or (self.describes(mask) and mask not in self.barred)

    def describes(self, mask: int) -> bool:
        """Tell whether a set meets the demands inside the universe."""
        return (
            mask != 0
            and not mask & ~self.universe
            and mask & self.required == self.required
            and all(demand.is_met(mask) for demand in self.demands)
        )

    def prefers(self, mask: int) -> bool:
        """Tell whether a member is preferred."""
        if mask.bit_count() == self.smallest:
            return True
        return bool(self.sockets) and sum(1 for socket in self.sockets if socket & mask) == self.span

    def first_of_size_up(self) -> int | None:
        """Return the smallest member that the demands describe, or None."""
        return _first_of_size_up(self)

    def fewest(self, demand: Demand) -> int:
        """Return a size below which no set meets a demand: not even the heaviest nodes do."""
        missing = demand.need_at_least
        heaviest = sorted([demand.weights[node] for node in members(self.universe)], reverse=True)
        for size, weight in enumerate(heaviest):
            if missing <= 0:
                return size
            missing -= weight
        return len(heaviest) + (missing > 0)

    def narrowest(self) -> int:
        """Return the size of the narrowest member; 0 when there is none."""
        sizes = [mask.bit_count() for mask in self.listed]
        described = self.first_of_size_up()
        if described is not None:
            sizes.append(described.bit_count())
        return min(sizes, default=0)

    def of_size(self, size: int, around: int = 0) -> Iterator[int]:
        """Yield the described sets of one size that hold ``around``, by ascending number."""
        if (around | self.required) & ~self.universe:
            return
        yield from sets_of_size(self.universe, size, self.required | around, self.demands)

    def best_around(self, around: int) -> int | None:
        """Return the best member around some nodes: of the preferred size first, then the smallest, the lowest."""
        widest = max(self.universe.bit_count(), *(mask.bit_count() for mask in self.listed), 1)
        for size in (self.smallest, *range(1, widest + 1)):
            found = [mask for mask in self.listed if mask.bit_count() == size and mask & around == around]
            described = next((mask for mask in self.of_size(size, around) if mask not in self.barred), None)
            if described is not None:
                found.append(NUMAMask(described))
            if found:
                return min(found)
        return None

    def hints(self) -> Hints:
        """Return the family as a list; only for universes small enough to list."""
        masks = tuple(self.masks())
        return Hints(
            tuple(mask for mask in masks if self.prefers(mask)), tuple(mask for mask in masks if not self.prefers(mask))
        )

    def masks(self) -> Iterator[NUMAMask]:
        """Yield every member; only for universes small enough to list."""
        nodes = tuple(members(self.universe))
        subsets = [NUMAMask(mask) for mask in over_subsets([1 << node for node in nodes])]
        kept: Iterable[int] = range(1, len(subsets))
        for demand in self.demands:
            if demand.sources is not None or demand.bonuses:
                kept = [index for index in kept if demand.is_met(subsets[index])]
            else:
                sums = over_subsets([demand.weights[node] for node in nodes])
                kept = [index for index in kept if sums[index] >= demand.need]
        left_out = {*self.barred, *self.listed}
        for index in kept:
            mask = subsets[index]
            if mask & self.required == self.required and mask not in left_out:
                yield mask
        yield from self.listed


@lru_cache(maxsize=512)
def _first_of_size_up(family: Family) -> int | None:
    """Search; pods of one shape describe the same families again, and so do searches for the largest request."""
    for size in range(max(map(family.fewest, family.demands), default=1) or 1, family.universe.bit_count() + 1):
        found = next((mask for mask in family.of_size(size) if mask not in family.barred), None)
        if found is not None:
            return found
    return None


def over_subsets(values: Iterable[int]) -> list[int]:
    """Return the sum of ``values`` over every subset, indexed by the subset's mask of positions."""
    sums = [0]
    for value in values:
        sums += [total + value for total in sums]
    return sums


def as_ids(found: list[int], nodes: tuple[int, ...]) -> list[NUMAMask]:
    """Return masks of positions in a list of nodes as masks of their ids; a node -1 is in no mask."""
    if nodes == tuple(range(len(nodes))):
        return cast("list[NUMAMask]", found)  # positions are ids here
    table = _id_masks(nodes)
    return [table[index] for index in found]


@lru_cache(maxsize=16)
def _id_masks(nodes: tuple[int, ...]) -> tuple[NUMAMask, ...]:
    return tuple(map(NUMAMask, over_subsets(1 << node if node >= 0 else 0 for node in nodes)))


def sets_of_size(universe: int, size: int, around: int, demands: Sequence[Demand]) -> Iterator[int]:
    """Yield the sets of ``size`` nodes of ``universe`` that hold ``around`` and meet the demands, by ascending number.

    Nodes are decided from the highest down, and left out first. A branch is dropped when even the best remaining nodes
    cannot meet a demand, which for a single demand without shared sources is exact.
    """
    nodes = tuple(members(universe))
    tables = [_best_sums(nodes, demand.weights, size) for demand in demands]
    # How many of the nodes to hold lie below each position.
    held = [0]
    for node in nodes:
        held.append(held[-1] + (around >> node & 1))

    def walk(position: int, left: int, chosen: int, missing: tuple[int, ...]) -> Iterator[int]:
        if held[position] > left:
            return
        if left == 0:
            if all(demand.is_met(chosen) for demand in demands):
                yield chosen
            return
        if position < left:
            return
        if any(table[position][left] < need for table, need in zip(tables, missing, strict=True)):
            return
        node = nodes[position - 1]
        if not around >> node & 1:
            yield from walk(position - 1, left, chosen, missing)
        rest = tuple(need - demand.weights[node] for demand, need in zip(demands, missing, strict=True))
        yield from walk(position - 1, left - 1, chosen | 1 << node, rest)

    if size <= len(nodes) and not around & ~universe:
        yield from walk(len(nodes), size, 0, tuple(demand.need_at_least for demand in demands))


def _best_sums(nodes: tuple[int, ...], weights: tuple[int, ...], most: int) -> list[list[int]]:
    """Return, for each number of lowest nodes, the largest sums of 0 to ``most`` of their weights."""
    best: list[int] = []
    table = [[0] * (most + 1)]
    for node in nodes:
        best = sorted([*best, weights[node]], reverse=True)[:most]
        sums = [0]
        for weight in best:
            sums.append(sums[-1] + weight)
        table.append(sums + [sums[-1]] * (most + 1 - len(sums)))
    return table


WIDEST = 16
"""Largest number of nodes for which families are kept as bit sets (65536 bits): what the largest machines of today have
(a two-socket Xeon Max 9460 in SNC4 flat mode)."""


def family_of(masks: Iterable[int], width: int) -> int:
    """Return the family of the given node sets.

    Args:
        masks: node sets, each below 2^width.
        width: number of NUMA node positions.

    >>> bin(family_of([1, 3], 2))
    '0b1010'
    """
    flags = bytearray(b"0") * (1 << width)
    for mask in masks:
        flags[mask] = 49  # "1"
    flags.reverse()
    return int(flags, 2)


@lru_cache(maxsize=WIDEST + 1)
def families_by_size(width: int) -> tuple[int, ...]:
    """Return, for each size k from 0 to ``width``, the family of all node sets with k nodes."""
    by_size: list[list[int]] = [[] for _ in range(width + 1)]
    for mask in range(1 << width):
        by_size[mask.bit_count()].append(mask)
    return tuple(family_of(masks, width) for masks in by_size)


@lru_cache(maxsize=WIDEST + 1)
def _without(width: int) -> tuple[int, ...]:
    """Return, for each node, the family of all node sets that lack it."""
    return tuple(
        family_of((mask for mask in range(1 << width) if not mask >> node & 1), width) for node in range(width)
    )


def project(family: int, onto: int, width: int) -> int:
    """Return the family of the intersections of each member with the node set ``onto``."""
    without = _without(width)
    for node in range(width):
        if not onto >> node & 1:
            family = (family | family >> (1 << node)) & without[node]
    return family


def upward_closure(family: int, universe: int, width: int) -> int:
    """Return the family of all subsets of ``universe`` that contain a member of ``family``."""
    without = _without(width)
    for node in members(universe):
        family |= (family & without[node]) << (1 << node)
    return family


def minimal_members(family: int, width: int) -> int:
    """Return the members of an upward-closed family that contain no other member."""
    without = _without(width)
    above = 0
    for node in range(width):
        above |= (family & without[node]) << (1 << node)
    return family & ~above


def intersections(left: int, right: int, width: int) -> int:
    """Return the family of all intersections of a member of ``left`` with a member of ``right``.

    When both families are closed upwards inside their universes, as "every node set with enough capacity" is, so is
    the result, and it is spanned by the intersections of minimal members: for a subset t of both universes that
    contains a & b, the sets a | t and b | t belong to the families and meet in t.
    """
    if not left or not right:
        return 0
    left_universe = _universe(left)
    right_universe = _universe(right)
    if _is_closed(left, left_universe, width) and _is_closed(right, right_universe, width):
        left = minimal_members(left, width)
        right = minimal_members(right, width)
        spanned = _all_intersections(left, right, width)
        return upward_closure(spanned, left_universe & right_universe, width)
    return _all_intersections(left, right, width)


def _all_intersections(left: int, right: int, width: int) -> int:
    if left.bit_count() < right.bit_count():
        left, right = right, left
    result = 0
    for onto in members(right):
        result |= project(left, onto, width)
    return result


def _universe(family: int) -> int:
    """Return the largest mask of the family: of an upward-closed one it is the union of all members."""
    return family.bit_length() - 1


def _is_closed(family: int, universe: int, width: int) -> bool:
    """Tell whether the family holds every set between one of its members and ``universe``, and nothing outside it."""
    without = _without(width)
    for node in range(width):
        if universe >> node & 1:
            if (family & without[node]) << (1 << node) & ~family:
                return False
        elif family & ~without[node]:
            return False
    return True


AnyHints: TypeAlias = Hints | Family
"""Hints as a list, or described where there are too many to list."""

ResourceHints: TypeAlias = Mapping[str, AnyHints | None]
"""Resource -> hints of one provider; a None value is the kubelet's null list."""


def merge_entries(providers: Sequence[ResourceHints | None]) -> list[AnyHints]:
    """Flatten the hints of all providers into the entries of the merge, one for each resource.

    A provider without resources and a resource with a null list count as one "don't care"; an empty list counts as one
    hint that can never be preferred. Resources are taken in sorted order where the kubelet iterates over a map; the
    result of the merge does not depend on it.
    """
    entries: list[AnyHints] = []
    for provider in providers:
        if not provider:
            entries.append(DONT_CARE)
            continue
        for resource in sorted(provider) if len(provider) > 1 else provider:
            hints = provider[resource]
            if hints is None:
                entries.append(DONT_CARE)
            else:
                entries.append(hints or NOT_POSSIBLE)
    return entries
