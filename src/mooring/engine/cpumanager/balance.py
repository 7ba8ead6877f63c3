"""How evenly a subset of NUMA nodes would be left, and which nodes take the remainder.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (takeByTopologyNUMADistributed, standardDeviation); spec:
cpu-manager.md section 7 step 3.
"""

from __future__ import annotations

from itertools import combinations
from math import isqrt

from mooring.engine.core.decision import Endless
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is worth knowing of a subset of nodes that can serve the request."""

    balance: int
    """Population standard deviation of the CPUs left per node, in thousandths, rounded."""
    candidates: tuple[int, ...]
    """Indices, within the subset, of the nodes that could take one more group."""
    remainder: tuple[int, ...]
    """Indices, within ``candidates``, of those that take the rest; empty when nothing remains."""


class Judge:
    """Judges subsets of one size by the free CPUs of their nodes; equal tuples of counts are judged once."""

    def __init__(self, free: list[int], need: int, size: int, group: int, *, align: bool, fixed: bool) -> None:
        self._need = need
        self._size = size
        self._group = group
        self._align = align
        self._fixed = fixed
        self._squares = sum(count * count for count in free)
        self._known: dict[tuple[int, ...], Verdict | Endless | None] = {}
        """By the counts alone: the holders are the same for all subsets of a walk."""
        # All CPUs are handed out in the end, so the mean is that of every subset.
        total, nodes = sum(free) - need, len(free)
        # Thousandths, halves away from zero.
        mean = (2000 * total + nodes) // (2 * nodes)
        self._constant = nodes * mean * mean - 2000 * mean * total
        self._nodes = nodes

    def balance(self, squares: int) -> int:
        """Return the rounded deviation for a given sum of squares of the CPUs left per node.

        The kubelet rounds the mean to three decimals, computes in floating point and rounds the result to three
        decimals; whole numbers of thousandths give the same without its rounding noise.
        """
        spread = (1_000_000 * squares + self._constant) * 4 // self._nodes
        return (isqrt(spread) + 1) // 2

    def verdict(self, counts: tuple[int, ...], held: tuple[int, ...] = ()) -> Verdict | Endless | None:
        """Judge a subset by the free CPUs of its nodes, in order; None when it cannot serve the request.

        Args:
            counts: CPUs of each node that the result may hold, those that it holds already included.
            held: how many the first nodes hold already and keep (KEP-5554); the same in every call.
        """
        if counts not in self._known:
            self._known[counts] = self._judged(counts, held)
        return self._known[counts]

    def _judged(self, counts: tuple[int, ...], held: tuple[int, ...]) -> Verdict | Endless | None:
        group = self._group
        if sum(count // group * group for count in counts) < self._need:
            return None
        share = self._need // self._size // group * group
        if self._align:
            share = min(share, *(count // group * group for count in counts))
        elif min(counts) < share:
            return None
        after = [count - share for count in counts]
        rest = self._need - share * self._size
        for index, count in enumerate(held):
            # What a node keeps beyond its share is a part of the remainder that is handed out already.
            excess = max(0, count - share)
            after[index] -= excess
            rest -= excess
        if rest < 0:
            return None
        squares = self._squares - sum(count * count for count in counts) + sum(count * count for count in after)
        candidates = tuple(index for index, count in enumerate(after) if count >= group)
        if rest == 0:
            return Verdict(self.balance(squares), candidates, ())
        return self._with_remainder(candidates, [after[index] for index in candidates], rest, squares)

    def _with_remainder(
        self, candidates: tuple[int, ...], after: list[int], rest: int, squares: int
    ) -> Verdict | Endless | None:
        best: Verdict | None = None
        judged: dict[tuple[int, ...], int | None] = {}
        for size in range(len(candidates), 0, -1):
            for chosen in combinations(range(len(candidates)), size):
                left = tuple([after[index] for index in chosen])
                if left not in judged:
                    gain = self._handed_out(left, rest)
                    if isinstance(gain, Endless):
                        return gain
                    judged[left] = gain
                gain = judged[left]
                if gain is None:
                    continue
                balance = self.balance(squares + gain)
                if best is None or balance < best.balance:
                    best = Verdict(balance, candidates, chosen)
        return best

    def _handed_out(self, left: tuple[int, ...], rest: int) -> int | Endless | None:
        """Hand out ``rest`` round robin, a group at a time; return by how much the sum of squares changes.

        Defect group-loop: the kubelet compares the rest with the *CPUs* left but hands out whole groups, so that
        half-used cores let it go round for ever (kubernetes/kubernetes#140730). The loop is found here by a count and
        never entered.
        """
        group = self._group
        if sum(left) < rest:
            return None
        if sum(count // group for count in left) * group < rest:
            return None if self._fixed else Endless("group-loop")
        rounds, extra = divmod(rest // group, len(left))
        if min(left) >= (rounds + 1) * group:
            final = [count - (rounds + (index < extra)) * group for index, count in enumerate(left)]
        else:
            final = list(left)
            while rest > 0:
                for index, count in enumerate(final):
                    if rest > 0 and count >= group:
                        final[index] -= group
                        rest -= group
        return sum(count * count for count in final) - sum(count * count for count in left)


@dataclass(frozen=True, slots=True)
class Combo:
    """The nodes that a claim uses, as positions in the list of nodes."""

    positions: tuple[int, ...]
    remainder: tuple[int, ...]
    """Those that take one more group each, round robin."""
    found: tuple[int, ...] = ()
    """The positions that were judged best, which defect saved-combo may have replaced."""


def kept_prefix(length: int) -> int:
    """Return how many leading positions of a remembered subset survive; the rest is overwritten.

    Lists grow to 1, 2, 4, 8, 16 places. A subset of length L shares storage with later ones when the list that holds
    it has room left beyond its previous capacity: it then keeps one more than the capacity below.

    >>> [kept_prefix(length) for length in range(1, 11)]
    [1, 2, 3, 3, 5, 5, 5, 5, 9, 9]
    """
    capacity = 1
    while capacity < length:
        capacity *= 2
    return min(length, capacity // 2 + 1)


def claimed_positions(found: tuple[int, ...], last_visited: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return what a remembered subset has become when the walk is over.

    Its tail is that of the last visited subset with the same kept prefix. Subsets are visited in lexicographic order,
    so that is the last one visited at all where it has the prefix, and else the prefix with the largest tail.

    Args:
        found: the subset as it was when it was found best.
        last_visited: the subset at which the walk ended or was stopped.
        count: number of elements that the subsets are made of.
    """
    kept = kept_prefix(len(found))
    prefix = found[:kept]
    if last_visited[:kept] == prefix:
        return last_visited
    return prefix + tuple(range(count - len(found) + kept, count))


def claimed_combo(
    found: tuple[int, ...], last_visited: tuple[int, ...], verdict: Verdict, count: int, *, fixed: bool
) -> Combo:
    """Return the nodes that the claim uses for a remembered subset.

    The remainder set was remembered by its own walk over the candidates of the subset *as found*, and is overwritten
    in the same
    way: its walk is never stopped early, so it ends with the largest subset of its size.
    """
    candidates = tuple(found[index] for index in verdict.candidates)
    remainder = verdict.remainder
    if not fixed:
        if remainder:
            last = tuple(range(len(candidates) - len(remainder), len(candidates)))
            remainder = claimed_positions(remainder, last, len(candidates))
        positions = claimed_positions(found, last_visited, count)
    else:
        positions = found
    return Combo(positions, tuple(candidates[index] for index in remainder), found)
