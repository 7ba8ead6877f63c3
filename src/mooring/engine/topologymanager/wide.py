"""Hints of machines with many NUMA nodes: families of node sets, described instead of listed.

"Every set of nodes with enough capacity" has 2^n members, and 64 nodes are not rare. Such a family is closed upwards:
it is given by its demands alone, and every question of the merge (is this set a member, what is the best member of
this size) is answered from them. Held against listed hints in the tests, on machines small enough to list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from mooring.engine.core.bits import NO_NODES, NUMAMask, members
from mooring.engine.topologymanager.hints import Hints


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
class SocketRule:
    """The further preference of align-by-socket: sets that touch as few sockets as necessary."""

    nodes: tuple[int, ...]
    """For each socket, the mask of the NUMA nodes that have CPUs on it."""
    span: int
    """Number of sockets that a preferred set touches."""

    def prefers(self, mask: int) -> bool:
        """Tell whether a set touches exactly the span."""
        return sum(1 for socket in self.nodes if socket & mask) == self.span


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
    sockets: SocketRule | None = None

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
        return mask.bit_count() == self.smallest or (self.sockets is not None and self.sockets.prefers(mask))

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
            tuple(mask for mask in masks if self.prefers(mask)),
            tuple(mask for mask in masks if not self.prefers(mask)),
        )

    def masks(self) -> Iterator[NUMAMask]:
        """Yield every member; only for universes small enough to list."""
        nodes = tuple(members(self.universe))
        subsets = [NUMAMask(mask) for mask in _over_subsets([1 << node for node in nodes])]
        kept: Iterable[int] = range(1, len(subsets))
        for demand in self.demands:
            if demand.sources is not None or demand.bonuses:
                kept = [index for index in kept if demand.is_met(subsets[index])]
            else:
                sums = _over_subsets([demand.weights[node] for node in nodes])
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


def _over_subsets(values: list[int]) -> list[int]:
    """Return the sum of ``values`` over every subset, indexed by the subset's mask of positions."""
    sums = [0]
    for value in values:
        sums += [total + value for total in sums]
    return sums


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
