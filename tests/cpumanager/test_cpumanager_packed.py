"""Packed, spread and uncore-aligned taking equal the plain form of the specification."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.cpumanager.machines import laid_out, modulo, nested_topologies, runs, subsets_of, text, topologies
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
