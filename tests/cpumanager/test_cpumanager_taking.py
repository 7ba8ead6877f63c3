"""Packed, spread and uncore-aligned taking, also around CPUs that a resize keeps, equal the plain form."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import (
    laid_out,
    modulo,
    nested_topologies,
    runs,
    subsets_of,
    text,
    topologies,
)
from tests.cpumanager.plain_distribution import plain_distribute
from tests.cpumanager.plain_taking import TakingError, plain_take

from mooring.engine.core.bits import lowest, mask_of, members
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import TakeError, TakeRules
from mooring.engine.cpumanager.take import take

FIXABLE = st.sampled_from([frozenset[str](), frozenset({"average-sizes"})])


def expected(topology: Topology, available: int, need: int, rules: TakeRules, *, uncore: bool) -> object:
    try:
        taken = plain_take(
            topology, set(members(available)), need, spread=rules.spread, uncore=uncore, fixed=rules.fixed_defects
        )
    except TakingError as error:
        return TakeError(str(error))
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
        return TakeError(str(error))
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
