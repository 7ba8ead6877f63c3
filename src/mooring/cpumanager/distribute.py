"""Distributing CPUs evenly over the fewest NUMA nodes that can hold them.

Source: kubelet v1.37.1, cpumanager cpu_assignment.go (takeByTopologyNUMADistributed); spec: cpu-manager.md sections 7
and 8. The kubelet tries every subset of nodes on copies of its whole state. Balance and hand-out depend only on how
many CPUs the nodes of a subset have, so each distinct tuple of counts is judged once here.
"""

from __future__ import annotations

from itertools import combinations

from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.topology import Topology
from mooring.cpumanager.accumulator import Accumulator, Element
from mooring.cpumanager.balance import Judge, Verdict
from mooring.cpumanager.combos import Combo, claimed_combo
from mooring.cpumanager.facts import DistributionChosen, SharePicked
from mooring.cpumanager.packed import refused_outright, take_packed
from mooring.cpumanager.rules import TakeError, TakeRules


def take_distributed(
    topology: Topology, available: int, need: int, rules: TakeRules, observer: Observer | None = None
) -> int | TakeError | Endless:
    """Take ``need`` of the ``available`` CPUs in equal shares from several NUMA nodes.

    Args:
        topology: of the machine.
        available: mask of the CPUs to choose from.
        need: how many.
        rules: the options; ``whole_cores`` makes the unit of distribution a core.
        observer: receives which nodes were chosen and what each gave.

    Returns:
        The mask of the CPUs taken, the kubelet's error, or the defect that would keep the kubelet from returning.
    """
    group = topology.cpus_per_core if rules.whole_cores else 1
    if group == 0 or need % group:
        return take_packed(topology, available, need, rules, uncore=False, observer=observer)
    if need < 1:
        return 0
    refusal = refused_outright(available, need)
    if refusal:
        return refusal

    nodes = Accumulator(topology, available, need).numa_nodes()
    smallest, largest = _combo_sizes(topology, len(nodes), need, group)
    for size in range(smallest, largest + 1):
        found = _best_combo(topology, available, nodes, size, need, group, rules)
        if isinstance(found, Endless):
            return found
        if found is not None:
            return _claim(topology, available, nodes, found, need, group, rules, observer)
    return take_packed(topology, available, need, rules, uncore=False, observer=observer)


def _combo_sizes(topology: Topology, count: int, need: int, group: int) -> tuple[int, int]:
    """Return the smallest and the largest number of nodes to try."""
    groups = (topology.all_cpus.bit_count() - 1) // group + 1
    per_node = (groups - 1) // len(topology.numa) + 1
    needed = (need - 1) // group + 1
    return (needed - 1) // per_node + 1, min(needed, count)


def _best_combo(
    topology: Topology,
    available: int,
    nodes: list[Element],
    size: int,
    need: int,
    group: int,
    rules: TakeRules,
) -> Combo | Endless | None:
    """Walk the subsets of one size and return the most balanced one, with what the claim will make of it."""
    free = [(mask & available).bit_count() for _, mask in nodes]
    judge = Judge(free, need, size, group, align=rules.align_by_socket, fixed="group-loop" in rules.fixed_defects)
    best: Verdict | None = None
    best_positions: tuple[int, ...] = ()
    best_in_socket = False
    last_visited: tuple[int, ...] = ()
    for positions in combinations(range(len(nodes)), size):
        last_visited = positions
        # The kubelet looks whether it can stop at the beginning of the next visit only.
        if best is not None and best.balance == 0 and (best_in_socket or not rules.align_by_socket):
            break
        verdict = judge.verdict(tuple([free[position] for position in positions]))
        if verdict is None:
            continue
        if isinstance(verdict, Endless):
            return verdict
        better = best is None or verdict.balance < best.balance
        in_socket = False
        if rules.align_by_socket:
            in_socket = _in_one_socket(topology, nodes, positions)
            if in_socket != best_in_socket:
                better = in_socket
        if better:
            best, best_positions, best_in_socket = verdict, positions, in_socket
    if best is None:
        return None
    return claimed_combo(best_positions, last_visited, best, len(nodes), fixed="saved-combo" in rules.fixed_defects)


def _in_one_socket(topology: Topology, nodes: list[Element], positions: tuple[int, ...]) -> bool:
    cpus = 0
    for position in positions:
        cpus |= nodes[position][1]
    return topology.sockets_touched(cpus) <= 1


def _claim(
    topology: Topology,
    available: int,
    nodes: list[Element],
    combo: Combo,
    need: int,
    group: int,
    rules: TakeRules,
    observer: Observer | None,
) -> int | TakeError | Endless:
    """Take the shares of the chosen nodes, then hand out the rest group by group."""
    size = len(combo.positions)
    share = need // size // group * group
    for position in combo.positions:
        share = min(share, (nodes[position][1] & available).bit_count() // group * group)
    rest = need - share * size
    _report_choice(observer, nodes, combo, share, rest, group)
    taken, missing = 0, need
    for position in combo.positions:
        # Not all of them are left where an earlier share took a whole socket by its average size (average-sizes).
        left = nodes[position][1] & available & ~taken
        part = take_packed(topology, left, share, rules, uncore=False)
        if isinstance(part, int):
            taken |= part
            missing -= part.bit_count()
            _report(observer, nodes[position][0], part, is_rest=False)
    while rest > 0:
        before = rest
        for position in combo.remainder:
            if rest <= 0:
                break
            left = nodes[position][1] & available & ~taken
            if left.bit_count() < group:
                continue
            part = take_packed(topology, left, group, rules, uncore=False)
            if isinstance(part, int):
                taken |= part
                missing -= part.bit_count()
                _report(observer, nodes[position][0], part, is_rest=True)
            rest -= group
        if rest == before:
            return _stuck(missing, rules)
    if missing > 0:
        return TakeError(f"accounting error, not enough CPUs allocated, remaining: {missing}")
    if missing < 0:
        return TakeError(f"accounting error, too many CPUs allocated, remaining: {missing}")
    return taken


def _report_choice(
    observer: Observer | None, nodes: list[Element], combo: Combo, share: int, rest: int, group: int
) -> None:
    if observer is not None:
        used, found, takers = (
            tuple(nodes[position][0] for position in positions)
            for positions in (combo.positions, combo.found, combo.remainder)
        )
        observer(DistributionChosen(used, found, share, rest, takers if rest > 0 else (), group))


def _report(observer: Observer | None, node: int, cpus: int, *, is_rest: bool) -> None:
    if observer is not None and cpus:
        observer(SharePicked(node, cpus, is_rest))


def _stuck(missing: int, rules: TakeRules) -> TakeError | Endless:
    """Answer for a hand-out that makes no progress.

    Defect claim-loop (v1.37.1): the kubelet goes round for ever. Fixed, it is the accounting error that 1.36 gave.
    """
    if "claim-loop" in rules.fixed_defects:
        return TakeError(f"accounting error, not enough CPUs allocated, remaining: {missing}")
    return Endless("claim-loop")
