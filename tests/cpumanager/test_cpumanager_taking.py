"""Packed, spread and uncore-aligned taking, also around CPUs that a resize keeps, equal the plain form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import (
    fixture,
    laid_out,
    mask,
    modulo,
    nested_topologies,
    runs,
    same,
    subsets_of,
    text,
    topologies,
)
from tests.cpumanager.plain_distribution import plain_distribute
from tests.cpumanager.plain_taking import TakingError, plain_take

from mooring.engine.core.bits import lowest, mask_of, members
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.take import take

FIXABLE = st.sampled_from([frozenset[str](), frozenset({"average-sizes"})])


def expected(topology: Topology, available: int, need: int, rules: TakeRules, *, uncore: bool) -> object:
    try:
        taken = plain_take(
            topology, set(members(available)), need, spread=rules.spread, uncore=uncore, fixed=rules.fixed_defects
        )
    except TakingError as error:
        return AllocationError(str(error))
    return mask_of(taken)


@settings(max_examples=250)
@given(st.data(), topologies(), st.booleans(), st.booleans(), FIXABLE)
def test_taking_equals_the_plain_form(
    data: st.DataObject, topology: Topology, spread: bool, uncore: bool, fixed: frozenset[str]
) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    need = data.draw(st.integers(-1, available.bit_count() + 1))
    rules = TakeRules(spread=spread, fixed_defects=fixed)
    taken = take(topology, available, need, replace(rules, uncore=uncore))
    event(f"numa first {topology.numa_first}, uncore {uncore}")
    assert text(taken) == text(expected(topology, available, need, rules, uncore=uncore))


@settings(max_examples=150)
@given(st.data(), nested_topologies(), st.booleans(), st.booleans())
def test_with_true_sizes_exactly_the_wanted_cpus_are_taken_from_those_available(
    data: st.DataObject, topology: Topology, spread: bool, uncore: bool
) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    need = data.draw(st.integers(0, available.bit_count()))
    rules = TakeRules(spread=spread, fixed_defects=frozenset({"average-sizes", "odd-uncore"}))
    taken = take(topology, available, need, replace(rules, uncore=uncore))
    assert isinstance(taken, int)
    assert taken & ~available == 0
    assert taken.bit_count() == need


@st.composite
def even_machines(draw: st.DrawFn) -> Topology:
    """Return uncores of equally many two-thread cores, on one or two sockets."""
    cores, uncores = draw(st.integers(1, 3)), 2 * draw(st.integers(1, 2))
    total, sockets = cores * uncores, draw(st.integers(1, 2))
    socket = runs(total // sockets, total)
    return laid_out(
        2 * total,
        core=modulo(total),
        uncore=runs(cores, total),
        socket=socket,
        numa=socket,
        counts=(2 * total, total, sockets, sockets, uncores),
    )


@settings(max_examples=100)
@given(st.data(), even_machines(), st.booleans())
def test_on_even_machines_the_average_is_the_true_size(data: st.DataObject, topology: Topology, uncore: bool) -> None:
    available = data.draw(subsets_of(topology.all_cpus))
    need = data.draw(st.integers(0, available.bit_count()))
    as_is = take(topology, available, need, TakeRules(uncore=uncore))
    fixed = take(topology, available, need, TakeRules(uncore=uncore, fixed_defects=frozenset({"average-sizes"})))
    assert text(as_is) == text(fixed)


@settings(max_examples=100)
@given(st.data(), even_machines())
def test_a_room_in_one_uncore_is_found_once_odd_uncore_is_fixed(data: st.DataObject, topology: Topology) -> None:
    need = data.draw(st.integers(1, topology.cpus_per_uncore - 1))
    room = data.draw(st.sampled_from([*topology.uncores.values()]))
    available = data.draw(subsets_of(topology.all_cpus)) | lowest(room, need)
    rules = TakeRules(fixed_defects=frozenset({"average-sizes", "odd-uncore"}))
    taken = take(topology, available, need, replace(rules, uncore=True))
    assert isinstance(taken, int)
    assert any(taken & ~cpus == 0 for cpus in topology.uncores.values())


MENDED = frozenset({"average-sizes", "claim-loop", "group-loop", "saved-combo"})
"""A resize never hands a CPU out twice and always ends."""
RULES = st.sampled_from(
    [
        TakeRules(fixed_defects=MENDED),
        TakeRules(spread=True, fixed_defects=MENDED),
        TakeRules(uncore=True, fixed_defects=MENDED),
        TakeRules(distribute=True, fixed_defects=MENDED),
        TakeRules(distribute=True, whole_cores=True, fixed_defects=MENDED),
        TakeRules(distribute=True, align_by_socket=True, fixed_defects=MENDED),
        TakeRules(distribute=True, align_by_socket=True, whole_cores=True, fixed_defects=MENDED),
    ]
)


def expected_around(topology: Topology, available: int, need: int, rules: TakeRules, kept: int) -> object:
    own, fixed, free = frozenset(members(kept)), rules.fixed_defects, set(members(available))
    try:
        if not rules.distribute:
            taken = plain_take(topology, free, need, spread=rules.spread, uncore=rules.uncore, fixed=fixed, kept=own)
        else:
            group = topology.num_cpus // topology.num_cores if rules.whole_cores else 1
            align = rules.align_by_socket
            taken = plain_distribute(topology, free, need, group=group, align=align, fixed=fixed, kept=own)
    except TakingError as error:
        return AllocationError(str(error))
    return mask_of(taken)


@settings(max_examples=350)
@given(st.data(), nested_topologies(), RULES)
def test_taking_around_kept_cpus_equals_the_plain_form(
    data: st.DataObject, topology: Topology, rules: TakeRules
) -> None:
    kept = data.draw(subsets_of(topology.all_cpus))
    available = data.draw(subsets_of(topology.all_cpus)) & ~kept
    need = data.draw(st.integers(0, available.bit_count() + 1))
    taken = take(topology, available, need, rules, kept=kept)
    event(f"{'distributed' if rules.distribute else 'uncore' if rules.uncore else 'packed'}, {type(taken).__name__}")
    assert text(taken) == text(expected_around(topology, available, need, rules, kept))
    if isinstance(taken, int):
        assert taken & ~available == 0
        assert taken.bit_count() == need


def taken(name: str | Topology, kept: str, available: str, need: int, **rules: Any) -> object:
    topology = fixture(name) if isinstance(name, str) else name
    cpus = mask(available) & ~mask(kept)
    return text(take(topology, cpus, need, TakeRules(fixed_defects=MENDED, **rules), kept=mask(kept)))


def test_a_core_with_a_kept_cpu_is_completed_before_a_free_one_is_begun() -> None:
    """1S8: cores (0, 4) to (3, 7). CPUs that are spread ignore the cores of kept ones."""
    assert taken("1S8", "2", "1-7", 1, spread=True) == "1"
    assert taken("1S8", "2", "1-7", 1) == "6"
    assert taken("1S8", "2", "1-7", 3) == "1,5-6"


def test_the_socket_of_kept_cpus_comes_first() -> None:
    """2S8: sockets 0-3 and 4-7; without kept CPUs the fuller socket 0 would come first."""
    assert taken("2S8", "", "1-7", 2) == "1-2"
    assert taken("2S8", "4", "1-7", 2) == "5-6"


def test_a_socket_that_only_lacks_kept_cpus_is_claimed_as_a_whole() -> None:
    assert taken("2S8", "6", "1-7", 4) == "1,4-5,7"


def test_kept_cpus_make_their_uncore_cache_whole() -> None:
    """U1: uncores of four CPUs."""
    assert taken("U1", "5-6", "1-15", 2, uncore=True) == "4,7"
    assert taken("U1", "5-6", "1-15", 3, uncore=True) == "1,4,7"


def test_inside_an_uncore_cache_begun_cores_come_first() -> None:
    """US: uncore 0-3,8-11 and uncore 4-7,12-15; cores (c, c + 8)."""
    assert taken("US", "6", "1-7,9-15", 1, uncore=True) == "14"
    assert taken("US", "6", "1-7,9-15", 3, uncore=True) == "4,12,14"


FOUR_NODES = laid_out(16, core=same, socket=runs(8), numa=runs(4), counts=(16, 16, 2, 4, 0))


@pytest.mark.parametrize(
    ("kept", "need", "result"),
    [
        pytest.param("0-1", 4, "2,4-6", id="kept CPUs count as part of their node's share"),
        pytest.param("0-2", 2, "4-5", id="a node that holds more than its share holds the remainder"),
        pytest.param("0,4,8", 3, "1,5,9", id="all nodes in use take part"),
        pytest.param("0-3", 4, "4-7", id="a node without free CPUs takes part too"),
    ],
)
def test_shares_are_those_of_the_whole_result(kept: str, need: int, result: str) -> None:
    assert taken(FOUR_NODES, kept, "0-15", need, distribute=True) == result


def test_where_nodes_hold_more_than_shares_and_remainder_taking_is_ordinary() -> None:
    """Six CPUs in all, node 0 has four: shares of 3, 2 or 1 leave it with more than the remainder."""
    assert taken(FOUR_NODES, "0-3,8", "4-15", 1, distribute=True) == "4"
    assert taken(FOUR_NODES, "0-3,8", "4-15", 2, distribute=True) == "9-10"


def test_nodes_with_kept_cpus_come_first_although_their_socket_does_not() -> None:
    """Socket 1 has the fewest available CPUs, and in it node 3 has none kept."""
    assert taken(FOUR_NODES, "4,8-11", "5-7,12-15", 3, distribute=True) == "5-7"
