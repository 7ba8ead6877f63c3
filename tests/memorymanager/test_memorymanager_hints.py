"""The hints of the memory manager are those of the plain loop of its specification, at every width."""

from __future__ import annotations

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from tests.memorymanager.plain_hints import Nodes, generous_hints, plain_hints
from tests.memorymanager.small_memory import HUGE, empty_nodes, table
from tests.memorymanager.strategies_memory import TYPES, Situation, situations

import mooring.engine.memorymanager.hints as engine
from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.memorymanager.hints import best_hint, calculate_hints
from mooring.engine.memorymanager.state import Leftover, NUMANodeState, charge
from mooring.engine.topologymanager.hints import Hints
from mooring.engine.topologymanager.wide import AnyHints, Family


def as_pairs(hints: AnyHints | None) -> list[tuple[Nodes, bool]]:
    if hints is None:
        return []
    listed = hints.hints() if isinstance(hints, Family) else hints
    return [(frozenset(hint.numa or ()), hint.preferred) for hint in listed]


def by_sets(leftover: Leftover) -> dict[Nodes, dict[str, int]]:
    return {frozenset(members(mask)): dict(types) for mask, types in leftover.amounts.items()}


def expected(situation: Situation) -> list[tuple[Nodes, bool]]:
    nodes, requests, leftover = situation.nodes, situation.requests, situation.leftover
    if leftover.assignments is None:
        return plain_hints(nodes, requests, by_sets(leftover))
    return generous_hints(nodes, requests, by_sets(leftover), leftover.assignments)


def described(situation: Situation) -> AnyHints | None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(engine, "MOST_LISTED", 0)
        return calculate_hints(situation.nodes, situation.requests, situation.leftover)


@given(situations() | situations(generous=True))
def test_hints_are_those_of_the_plain_loop_in_its_order(situation: Situation) -> None:
    hints = calculate_hints(situation.nodes, situation.requests, situation.leftover)
    assert hints is None or isinstance(hints, Hints)
    pairs = as_pairs(hints)
    event("none" if hints is None else "preferred" if hints.preferred else "not preferred")
    assert pairs == expected(situation)
    assert (hints is None) == (not pairs)


WRAPPED = Situation(
    charge(empty_nodes(2**64 - 8, 3, 8, M2=(0, 0, 0)), (0, 1, 2), "memory", 4),
    {"memory": 3},
    Leftover({NUMAMask(0b111): {"memory": 3}}),
)
"""What is left wraps the sum of what is free around."""


@example(WRAPPED)
@given(situations(wrapping=True))
def test_hints_follow_numbers_that_wrap_around(situation: Situation) -> None:
    total = max(sum(state.memory[name].allocatable for state in situation.nodes.values()) for name in TYPES)
    event("sums wrap around" if total >= 2**64 else "no sum does")
    pairs = as_pairs(calculate_hints(situation.nodes, situation.requests, situation.leftover))
    assert pairs == expected(situation)


@given(situations() | situations(generous=True))
def test_described_hints_are_the_listed_ones_on_every_machine_that_can_be_listed(situation: Situation) -> None:
    assert as_pairs(described(situation)) == expected(situation)
    assert (described(situation) is None) == (not expected(situation))


@given(situations(7, 10) | situations(9, 10, generous=True))
def test_described_hints_are_the_listed_ones_on_wide_machines(situation: Situation) -> None:
    found = described(situation)
    assert as_pairs(found) == expected(situation)
    if len(situation.nodes) > engine.MOST_LISTED:
        assert calculate_hints(situation.nodes, situation.requests, situation.leftover) == found


@given(situations() | situations(generous=True) | situations(7, 10), st.data())
def test_the_best_hint_around_a_set_is_preferred_then_narrow_then_small(
    situation: Situation, data: st.DataObject
) -> None:
    around = data.draw(st.sets(st.sampled_from(sorted(situation.nodes)), max_size=3))
    fitting = [
        (not preferred, len(nodes), sum(2**node for node in nodes))
        for nodes, preferred in expected(situation)
        if nodes >= around
    ]
    for hints in (described(situation), calculate_hints(situation.nodes, situation.requests, situation.leftover)):
        best = best_hint(hints, sum(2**node for node in around))
        assert (None if best is None else (not best.preferred, best.mask)) == (
            (min(fitting)[0], min(fitting)[2]) if fitting else None
        )


@pytest.mark.parametrize("memory", [(8, 8), (8,) * 9])
def test_a_type_that_some_node_does_not_list_crashes_the_kubelet(memory: tuple[int, ...]) -> None:
    nodes = empty_nodes(*memory)
    nodes[0] = NUMANodeState(0, {**nodes[0].memory, HUGE: table(4)}, (0,))
    with pytest.raises(KubeletCrashError, match="NUMA node 1 does not list hugepages-2Mi"):
        calculate_hints(nodes, {HUGE: 1})
    assert calculate_hints(nodes, {"memory": 1}) is not None


def test_sixty_four_nodes_are_described() -> None:
    hints = calculate_hints(empty_nodes(*([8] * 64)), {"memory": 20})
    assert isinstance(hints, Family)
    assert (hints.smallest, hints.narrowest(), hints.best_around(1 << 63)) == (3, 3, 1 << 63 | 0b11)
