"""Which nodes the claim of a distribution really uses: defect saved-combo.

The kubelet's generator of subsets extends one growing list for each depth and remembers the best subset without
copying it. As long as the list has room, subsets visited later are written over the tail of the remembered one. How
much room there is follows from how the Go runtime grows lists (1, 2, 4, 8, 16, ...), so the rule can be stated without
the lists.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (iterateCombinations); spec: cpu-manager.md section 8.1. Fixed
upstream after v1.37 (kubernetes/kubernetes#141238).
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.cpumanager.balance import Verdict


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
