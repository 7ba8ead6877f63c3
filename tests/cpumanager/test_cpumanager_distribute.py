"""Distribution across NUMA nodes equals the plain form with Go's growing lists."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from mooring.core.bits import mask_of, members
from mooring.core.decision import Endless
from mooring.core.topology import CPUPlace, Topology, build_topology
from mooring.cpumanager.balance import Judge
from mooring.cpumanager.combos import claimed_positions, kept_prefix
from mooring.cpumanager.distribute import take_distributed
from mooring.cpumanager.rules import TakeError, TakeRules
from tests.cpumanager.machines import nested_topologies, subsets_of, text, topologies, true_counts
from tests.cpumanager.plain_distribution import (
    GoList,
    NeverReturnsError,
    deviation,
    plain_distribute,
    visit_subsets,
)
from tests.cpumanager.plain_taking import TakingError

DEFECTS = ["saved-combo", "group-loop", "claim-loop", "average-sizes"]
RULES = st.builds(
    TakeRules,
    distribute=st.just(True),
    spread=st.booleans(),
    whole_cores=st.booleans(),
    align_by_socket=st.booleans(),
    fixed_defects=st.one_of(st.just(frozenset()), st.frozensets(st.sampled_from(DEFECTS))),
)


def expected(topology: Topology, available: int, need: int, rules: TakeRules) -> object:
    try:
        taken = plain_distribute(
            topology,
            set(members(available)),
            need,
            group=topology.num_cpus // topology.num_cores if rules.whole_cores else 1,
            spread=rules.spread,
            align=rules.align_by_socket,
            fixed=rules.fixed_defects,
        )
    except TakingError as error:
        return TakeError(str(error))
    except NeverReturnsError as error:
        return Endless(str(error))
    return mask_of(taken)


def without_saved_combo(rules: TakeRules) -> TakeRules:
    return replace(rules, fixed_defects=rules.fixed_defects | {"saved-combo"})


@st.composite
def wide_machines(draw: st.DrawFn) -> tuple[Topology, int]:
    """Return a machine of up to nine nodes on two sockets, two threads a core, and some available CPUs."""
    nodes = draw(st.integers(5, 9))
    per_node = draw(st.integers(2, 3))
    cores = nodes * per_node
    places = {
        cpu: CPUPlace(cpu % cores // per_node, cpu % cores // per_node * 2 // nodes, cpu % cores, 0)
        for cpu in range(2 * cores)
    }
    topology = build_topology(places, **true_counts(places))
    available = 0
    for cpus in topology.numa.values():
        count = draw(st.integers(0, 2 * per_node))
        available |= mask_of(sorted(members(cpus), key=lambda cpu: (cpu % cores, cpu))[:count])
    return topology, available


@settings(max_examples=300)
@given(st.data(), topologies(most_nodes=5), RULES)
def test_distribution_equals_the_plain_form(data: st.DataObject, topology: Topology, rules: TakeRules) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    # The specification does not say what becomes of a node that is listed under two sockets.
    assume(topology.numa_first or all(len(sockets) == 1 for sockets in topology.sockets_of_node.values()))
    need = data.draw(st.integers(-1, available.bit_count() + 1))
    taken = take_distributed(topology, available, need, rules)
    event(type(taken).__name__)
    assert text(taken) == text(expected(topology, available, need, rules))


@settings(max_examples=150)
@given(st.data(), wide_machines(), RULES)
def test_distribution_over_many_nodes_equals_the_plain_form(
    data: st.DataObject, machine: tuple[Topology, int], rules: TakeRules
) -> None:
    topology, available = machine
    group = topology.cpus_per_core if rules.whole_cores else 1
    need = group * data.draw(st.integers(1, max(1, available.bit_count() // group)))
    taken = take_distributed(topology, available, need, rules)
    event(type(taken).__name__)
    event(f"saved-combo matters: {taken != take_distributed(topology, available, need, without_saved_combo(rules))}")
    assert text(taken) == text(expected(topology, available, need, rules))


@settings(max_examples=150)
@given(st.data(), nested_topologies(most_cpus=24), RULES)
def test_with_all_defects_fixed_the_wanted_cpus_are_taken_from_those_available(
    data: st.DataObject, topology: Topology, rules: TakeRules
) -> None:
    fixed = replace(rules, fixed_defects=frozenset(DEFECTS))
    available = data.draw(subsets_of(topology.all_cpus))
    need = data.draw(st.integers(1, max(1, available.bit_count())))
    taken = take_distributed(topology, available, need, fixed)
    if need > available.bit_count():
        assert isinstance(taken, TakeError)
        return
    assert isinstance(taken, int)
    assert (taken & ~available, taken.bit_count()) == (0, need)


# Lists that share storage.


@pytest.mark.parametrize("length", range(1, 12))
def test_a_remembered_subset_changes_exactly_behind_the_kept_prefix(length: int) -> None:
    """Spec: cpu-manager.md section 8.1, for every subset of every small list and every place to stop."""
    for count in range(length, min(length + 4, 13)):
        subsets = list(combinations(range(count), length))
        remembered: list[GoList] = []
        visited: list[tuple[int, ...]] = []

        def visit(subset: GoList, seen: list[GoList], path: list[tuple[int, ...]]) -> bool:
            seen.append(subset)
            path.append(tuple(subset.values()))
            for found, kept in zip(subsets, seen, strict=False):
                assert tuple(kept.values()) == claimed_positions(found, path[-1], count)
            return len(seen) < 60

        visit_subsets(range(count), length, lambda subset, s=remembered, v=visited: visit(subset, s, v))  # type: ignore[misc]
        assert visited == subsets[: len(visited)]


@pytest.mark.parametrize(
    ("length", "kept"),
    [(1, 1), (2, 2), (3, 3), (4, 3), (5, 5), (6, 5), (8, 5), (9, 9), (10, 9), (16, 9), (17, 17), (18, 17)],
)
def test_the_kept_prefix_follows_the_growth_of_lists(length: int, kept: int) -> None:
    assert kept_prefix(length) == kept


# Balance.


@settings(max_examples=400)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=9), st.data())
def test_the_balance_in_thousandths_equals_the_rounded_floats(free: list[int], data: st.DataObject) -> None:
    need = data.draw(st.integers(0, sum(free)))
    after = list(free)
    left = need
    for index in range(len(after)):
        given_here = data.draw(st.integers(0, min(left, after[index]))) if index < len(after) - 1 else left
        if given_here > after[index]:
            return
        after[index] -= given_here
        left -= given_here
    judge = Judge(free, need, 1, 1, align=False, fixed=False)
    assert judge._balance(sum(count * count for count in after)) == round(deviation(after) * 1000)
