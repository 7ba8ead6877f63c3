"""Taking CPUs: which algorithm serves which options, and distributing them evenly over the fewest NUMA nodes.

Source: kubelet v1.37.1, cpumanager policy_static.go (takeByTopology) and cpu_assignment.go
(takeByTopologyNUMADistributed, standardDeviation); spec: cpu-manager.md sections 5, 7 and 8. The kubelet tries every
subset of nodes on copies of its whole state. Balance and hand-out depend only on how many CPUs the nodes of a subset
have, so each distinct tuple of counts is judged once here.
"""

from __future__ import annotations

from itertools import combinations
from math import isqrt
from typing import TypeAlias

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.decision import AllocationError, Endless, Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import DistributionChosen, SharePicked
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.packed import NO_CORE_SIZE, Accumulator, Element, refused_outright, take_packed


def take_distributed(
    topology: Topology,
    available: CPUMask,
    need: int,
    rules: TakeRules,
    *,
    kept: CPUMask = NO_CPUS,
    width: int = 0,
    observer: Observer | None = None,
) -> CPUMask | AllocationError | Endless:
    """Take ``need`` of the ``available`` CPUs in equal shares from several NUMA nodes.

    CPUs that are kept count as part of their node's share, so that the shares are those of the whole result.

    Args:
        topology: of the machine.
        available: mask of the CPUs to choose from.
        need: how many.
        rules: the options; ``whole_cores`` makes the unit of distribution a core.
        kept: mask of CPUs that are held already and stay beside those taken (KEP-5554); none of them is available.
        width: number of NUMA nodes of the hint, over at least as many of which the CPUs are distributed where that is
            possible (up to v1.37 it is ignored: rule distribute-ignores-hint-width; spec: preview.md section 4).
        observer: receives which nodes were chosen and what each gave.

    Returns:
        The mask of the CPUs taken, the kubelet's error, or the defect that would keep the kubelet from returning.

    Raises:
        KubeletCrashError: a core has no CPUs by average.
    """
    group = topology.cpus_per_core if rules.whole_cores else 1
    if group == 0:
        raise KubeletCrashError(NO_CORE_SIZE)
    if need % group:
        return take_packed(topology, available, need, rules, uncore=False, kept=kept, observer=observer)
    if need < 1:
        return NO_CPUS
    refusal = refused_outright(available, need)
    if refusal:
        return refusal

    run = _Distribution(topology, available, kept, need, group, rules, observer)
    # The NUMA nodes with CPUs for the result: those that hold kept ones first, the used-up of them before all.
    #
    # Below sockets the order alone would not do: a socket may come first for another of its nodes.
    listed = Accumulator(topology, available, 0, kept=kept).numa_nodes()
    full = [node for node in topology.numa.items() if node[1] & kept and not node[1] & available]
    nodes = [*full, *sorted(listed, key=lambda node: not node[1] & kept)] if kept else listed
    # The smallest and the largest number of nodes to try
    groups = (topology.all_cpus.bit_count() - 1) // group + 1
    per_node = (groups - 1) // len(topology.numa) + 1
    needed = (run.total - 1) // group + 1
    smallest, largest = (needed - 1) // per_node + 1, min(needed, len(nodes))
    if smallest < width <= largest and not rules.older.distribute_ignores_hint_width:
        smallest = width
    for size in range(max(smallest, sum(1 for _, mask in nodes if mask & kept)), largest + 1):
        found = run.best_combo(nodes, size)
        if isinstance(found, Endless):
            return found
        if found is not None:
            return run.claim(nodes, found)
    return take_packed(topology, available, need, rules, uncore=False, kept=kept, observer=observer)


_Verdict: TypeAlias = tuple[int, tuple[int, ...]]
"""What is worth knowing of a subset of nodes that can serve the request: the population standard deviation of the CPUs
left per node, in thousandths, rounded; and the indices, within the subset, of the nodes that take one more group each,
round robin, empty when nothing remains."""


class _Judge:
    """Judges subsets of one size by the free CPUs of their nodes; equal tuples of counts are judged once."""

    def __init__(
        self, free: list[int], need: int, size: int, group: int, *, align: bool, fixed_defects: frozenset[str]
    ) -> None:
        self._need = need
        self._size = size
        self._group = group
        self._align = align
        self._fixed_defects = fixed_defects
        self._squares = sum(count * count for count in free)
        self._known: dict[tuple[int, ...], _Verdict | Endless | None] = {}
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

    def verdict(self, counts: tuple[int, ...], held: tuple[int, ...] = ()) -> _Verdict | Endless | None:
        """Judge a subset by the free CPUs of its nodes, in order; None when it cannot serve the request.

        Args:
            counts: CPUs of each node that the result may hold, those that it holds already included.
            held: how many the first nodes hold already and keep (KEP-5554); the same in every call.
        """
        if counts not in self._known:
            self._known[counts] = self._judged(counts, held)
        return self._known[counts]

    def _judged(self, counts: tuple[int, ...], held: tuple[int, ...]) -> _Verdict | Endless | None:
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
        return (self.balance(squares), ()) if rest == 0 else self._with_remainder(after, rest, squares)

    def _with_remainder(self, after: list[int], rest: int, squares: int) -> _Verdict | Endless | None:
        candidates = [index for index, count in enumerate(after) if count >= self._group]
        rooms = [after[index] for index in candidates]
        found: tuple[int, ...] = ()
        best: int | None = None
        judged: dict[tuple[int, ...], int | None] = {}
        for size in range(len(candidates), 0, -1):
            for chosen in combinations(range(len(candidates)), size):
                left = tuple([rooms[index] for index in chosen])
                if left not in judged:
                    gain = self._handed_out(left, rest)
                    if isinstance(gain, Endless):
                        return gain
                    judged[left] = gain
                gain = judged[left]
                if gain is None:
                    continue
                balance = self.balance(squares + gain)
                if best is None or balance < best:
                    best, found = balance, chosen
        if best is None:
            return None
        if "saved-combo" not in self._fixed_defects:
            # The set is overwritten as the subset itself is, by a walk that is never stopped early: it ends with the
            # largest set of the size.
            last = tuple(range(len(candidates) - len(found), len(candidates)))
            found = _claimed_positions(found, last, len(candidates))
        return best, tuple([candidates[index] for index in found])

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
            return None if "group-loop" in self._fixed_defects else Endless("group-loop")
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


_Combo: TypeAlias = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
"""Positions in the list of nodes: those that a claim uses; those that take one more group each, round robin; and those
that were judged best, which defect saved-combo may have replaced."""


class _Distribution:
    """One run of distribution: what is asked of all combos, and the claim while it goes from node to node."""

    __slots__ = ("available", "group", "kept", "missing", "observer", "rules", "taken", "topology", "total")

    def __init__(
        self,
        topology: Topology,
        available: CPUMask,
        kept: CPUMask,
        need: int,
        group: int,
        rules: TakeRules,
        observer: Observer | None,
    ) -> None:
        self.topology, self.available, self.kept = topology, available, kept
        self.group, self.rules, self.observer = group, rules, observer
        self.total = need + kept.bit_count()
        """CPUs of the result, the kept ones included."""
        self.missing = need
        self.taken = NO_CPUS

    def room(self, cpus: CPUMask) -> int:
        """Return how many of some CPUs the result may hold."""
        return (cpus & (self.available | self.kept)).bit_count()

    def best_combo(self, nodes: list[Element], size: int) -> _Combo | Endless | None:
        """Walk the subsets of one size and return the most balanced one, with what the claim will make of it."""
        rules = self.rules
        # Up to v1.36 the two options ignored each other (rule distribute-ignores-sockets; spec: releases.md section 5).
        align = rules.align_by_socket and not rules.older.distribute_ignores_sockets
        free = [self.room(mask) for _, mask in nodes]
        held = [(mask & self.kept).bit_count() for _, mask in nodes]
        judge = _Judge(free, self.total, size, self.group, align=align, fixed_defects=rules.fixed_defects)
        # Every node with kept CPUs takes part; they stand at the beginning of the list.
        first = sum(1 for count in held if count)
        holders, held_by_them = tuple(range(first)), tuple(held[:first])
        best: int | None = None
        best_takers: tuple[int, ...] = ()
        best_positions: tuple[int, ...] = ()
        best_in_socket = False
        last_visited: tuple[int, ...] = ()
        for others in combinations(range(first, len(nodes)), size - first):
            positions = last_visited = (*holders, *others)
            # The kubelet looks whether it can stop at the beginning of the next visit only.
            if best == 0 and (best_in_socket or not align):
                break
            verdict = judge.verdict(tuple([free[position] for position in positions]), held_by_them)
            if verdict is None:
                continue
            if isinstance(verdict, Endless):
                return verdict
            balance, takers = verdict
            better = best is None or balance < best
            in_socket = False
            if align:
                cpus = NO_CPUS
                for position in positions:
                    cpus |= nodes[position][1]
                in_socket = self.topology.sockets_touched(cpus) <= 1
                if in_socket != best_in_socket:
                    better = in_socket
            if better:
                best, best_takers, best_positions, best_in_socket = balance, takers, positions, in_socket
        if best is None:
            return None
        used = best_positions
        if "saved-combo" not in rules.fixed_defects:
            used = _claimed_positions(best_positions, last_visited, len(nodes))
        # Those that take the rest are nodes of the subset *as found*.
        return used, tuple(best_positions[index] for index in best_takers), best_positions

    def claim(self, nodes: list[Element], combo: _Combo) -> CPUMask | AllocationError | Endless:
        """Take the shares of the chosen nodes, then hand out the rest group by group."""
        group, kept = self.group, self.kept
        used, remainder, found = combo
        share = self.total // len(used) // group * group
        # Up to v1.36 each node is asked for the full share (rule distribute-claims-full-share; spec: releases.md
        # section 5).
        if not self.rules.older.distribute_claims_full_share:
            for position in used:
                share = min(share, self.room(nodes[position][1]) // group * group)
        rest = self.total - share * len(used)
        for position in used:
            rest -= max(0, (nodes[position][1] & kept).bit_count() - share)
        if self.observer is not None:
            ids, best, takers = (
                tuple(nodes[position][0] for position in positions) for positions in (used, found, remainder)
            )
            self.observer(DistributionChosen(ids, best, share, rest, takers if rest > 0 else (), group))
        for position in used:
            node = nodes[position]
            # Not all of them are left where an earlier share took a whole socket by its average size (average-sizes).
            self._take(node, share - (node[1] & kept).bit_count(), is_rest=False)
        while rest > 0:
            before = rest
            for position in remainder:
                if rest > 0 and self._left(nodes[position]).bit_count() >= group:
                    self._take(nodes[position], group, is_rest=True)
                    rest -= group
            if rest == before:
                # Defect claim-loop (v1.37.1): the kubelet goes round for ever. Fixed, it is the error that 1.36 gave.
                error = AllocationError(f"accounting error, not enough CPUs allocated, remaining: {self.missing}")
                return error if "claim-loop" in self.rules.fixed_defects else Endless("claim-loop")
        if self.missing:
            verb = "not enough" if self.missing > 0 else "too many"
            return AllocationError(f"accounting error, {verb} CPUs allocated, remaining: {self.missing}")
        return self.taken

    def _left(self, node: Element) -> CPUMask:
        """Return the CPUs of a node that can still be taken."""
        return node[1] & self.available & ~self.taken

    def _take(self, node: Element, count: int, *, is_rest: bool) -> None:
        """Take CPUs of a node; an error counts as none."""
        kept = self.kept | self.taken if self.kept else NO_CPUS
        part = take_packed(self.topology, self._left(node), count, self.rules, uncore=False, kept=kept)
        if isinstance(part, int):
            self.taken |= part
            self.missing -= part.bit_count()
            if self.observer is not None and part:
                self.observer(SharePicked(node[0], part, is_rest))


def _claimed_positions(found: tuple[int, ...], last_visited: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return what a remembered subset has become when the walk is over.

    Its tail is that of the last visited subset with the same kept prefix. Subsets are visited in lexicographic order,
    so that is the last one visited at all where it has the prefix, and else the prefix with the largest tail.

    Args:
        found: the subset as it was when it was found best.
        last_visited: the subset at which the walk ended or was stopped.
        count: number of elements that the subsets are made of.

    >>> [_claimed_positions(tuple(range(size)), (*range(size - 1), 11), 12)[-1] == 11 for size in range(4, 11)]
    [True, False, True, True, True, False, True]
    """
    # Lists grow to 1, 2, 4, 8, 16 places. A subset of length L shares storage with later ones when the list that holds
    # it has room left beyond its previous capacity: it then keeps one more than the capacity below.
    capacity = 1
    while capacity < len(found):
        capacity *= 2
    kept = min(len(found), capacity // 2 + 1)
    prefix = found[:kept]
    if last_visited[:kept] == prefix:
        return last_visited
    return prefix + tuple(range(count - len(found) + kept, count))


def take(
    topology: Topology,
    available: CPUMask,
    need: int,
    rules: TakeRules,
    observer: Observer | None = None,
    *,
    kept: CPUMask = NO_CPUS,
    width: int = 0,
) -> CPUMask | AllocationError | Endless:
    """Take ``need`` of the ``available`` CPUs by the rules of the policy options.

    Distribution over NUMA nodes never looks at uncore caches. CPUs that are kept stand beside those taken and are not
    among the available ones (KEP-5554, spec: resize.md section 4).
    """
    if rules.distribute:
        return take_distributed(topology, available, need, rules, kept=kept, width=width, observer=observer)
    return take_packed(topology, available, need, rules, uncore=rules.uncore, kept=kept, observer=observer)
