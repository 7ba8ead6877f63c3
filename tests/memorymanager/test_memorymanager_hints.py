"""The hints of the memory manager are those of the plain loop of its specification; and those of what is held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeAlias

import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st
from tests.memorymanager.small_memory import HUGE, INIT, block, container, empty_nodes, fresh, pod, static, table

import mooring.engine.memorymanager.hints as engine
import mooring.engine.memorymanager.hints as policy_hints
from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Pod
from mooring.engine.memorymanager.facts import MemoryHintsAsked
from mooring.engine.memorymanager.hints import best_hint, calculate_hints
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.state import (
    Block,
    Leftover,
    MemoryState,
    MemoryTable,
    NUMANodeState,
    ReusableMemory,
    charge,
)
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.engine.topologymanager.wide import AnyHints, Family, ResourceHints

Nodes: TypeAlias = frozenset[int]
Reusable: TypeAlias = Mapping[Nodes, Mapping[str, int]]
"""Set of nodes -> memory type -> bytes that ended init containers leave there."""


WRAP = 2**64
"""Where the kubelet's unsigned numbers begin anew."""


def all_subsets(ids: list[int]) -> list[Nodes]:
    """Return the non-empty subsets by size, then lexicographic."""
    return [frozenset(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)]


def plain_hints(
    nodes: Mapping[int, NUMANodeState], requests: Mapping[str, int], reusable: Reusable
) -> list[tuple[Nodes, bool]]:
    """Return (nodes, preferred) for every hint, in the kubelet's order."""
    ids = sorted(nodes)
    smallest = len(ids)
    found: list[Nodes] = []
    for mask in all_subsets(ids):
        if any(sum(nodes[n].memory[name].allocatable for n in mask) % WRAP < asked for name, asked in requests.items()):
            continue
        smallest = min(smallest, len(mask))
        if violates(nodes, mask):
            continue
        extra = reusable.get(mask, {})
        if any(
            (sum(nodes[n].memory[name].free for n in mask) + extra.get(name, 0)) % WRAP < asked
            for name, asked in requests.items()
        ):
            continue
        found.append(mask)
    return [(mask, len(mask) == smallest) for mask in found]


def violates(nodes: Mapping[int, NUMANodeState], mask: Nodes) -> bool:
    if len(mask) == 1:
        (node,) = mask
        return len(nodes[node].cells) > 1
    for node in mask:
        state = nodes[node]
        if state.assignments > 0 and (len(state.cells) == 1 or set(state.cells) != set(mask)):
            return True
    return False


def generous_hints(
    nodes: Mapping[int, NUMANodeState], requests: Mapping[str, int], reusable: Reusable, own: Mapping[int, int]
) -> list[tuple[Nodes, bool]]:
    """Return the hints with defect exact-mask-reuse fixed.

    What is left on a set of nodes counts for every set that contains it; ``own`` assignments of ended init containers,
    by node, do not bind a node to its group.
    """
    seen = {
        node: NUMANodeState(
            state.assignments - own.get(node, 0),
            state.memory,
            state.cells if state.assignments > own.get(node, 0) or node not in own else (node,),
        )
        for node, state in nodes.items()
    }
    larger = {
        mask: {name: sum(types.get(name, 0) for lying, types in reusable.items() if lying <= mask) for name in requests}
        for mask in all_subsets(sorted(nodes))
    }
    return plain_hints(seen, requests, larger)


TYPES = ("memory", "hugepages-2Mi")


@dataclass(frozen=True, slots=True)
class Situation:
    """A machine, what is asked of it, and what ended init containers of the asking pod leave there."""

    nodes: dict[int, NUMANodeState]
    requests: dict[str, int]
    leftover: Leftover


@st.composite
def node_ids(draw: st.DrawFn, fewest: int, most: int) -> list[int]:
    count = draw(st.integers(fewest, most))
    if draw(st.integers(0, 3)):
        return list(range(count))
    return sorted(draw(st.sets(st.integers(0, 2 * most), min_size=count, max_size=count)))


@st.composite
def situations(
    draw: st.DrawFn, fewest: int = 1, most: int = 6, *, generous: bool = False, wrapping: bool = False
) -> Situation:
    """Draw a state that charging assignments leads to: also single nodes beside a group, as best-effort makes them.

    With ``wrapping``, some nodes have more reserved than they have: their numbers are just below 2^64.
    """
    ids = draw(node_ids(fewest, most))
    amounts = st.integers(0, 8) | st.integers(2**64 - 8, 2**64 - 1) if wrapping else st.integers(0, 8)
    nodes = {node: NUMANodeState(0, {name: _table(draw(amounts)) for name in TYPES}, (node,)) for node in ids}
    kept: dict[NUMAMask, dict[str, int]] = {}
    own: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 5))):
        mask = NUMAMask(mask_of(draw(st.sets(st.sampled_from(ids), min_size=1, max_size=3))))
        name, size = draw(st.sampled_from(TYPES)), draw(st.integers(0, 6))
        nodes = charge(nodes, tuple(members(mask)), name, size)
        if draw(st.booleans()):
            kept.setdefault(mask, {})[name] = kept.get(mask, {}).get(name, 0) + size
            own.update({node: own.get(node, 0) + 1 for node in members(mask)})
    asked = draw(st.sampled_from([TYPES[:1], TYPES[1:], TYPES]))
    requests = {name: draw(st.integers(0, 20)) for name in asked}
    return Situation(nodes, requests, Leftover(kept, own if generous else None))


def _table(allocatable: int) -> MemoryTable:
    return replace(MemoryTable(0, 0, 0, 0, 0), total=allocatable, allocatable=allocatable, free=allocatable)


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


POLICY = static(empty_nodes(20, 20, M2=(9, 9)))
SANE = static(POLICY.default_nodes, "memory-nil-hints")
ON_ZERO, ON_ONE, ON_BOTH = (Hints(preferred=(NUMAMask(mask),)) for mask in (0b01, 0b10, 0b11))


def holding(**held: tuple[Block, ...]) -> MemoryState:
    return MemoryState("Static", POLICY.default_nodes, {"pod": held})


def of_container(policy: MemoryPolicy, whole: Pod, state: MemoryState, name: str = "c") -> ResourceHints | None:
    (one,) = [one for one in whole.containers if one.name == name]
    return policy_hints.container_hints(policy, state, ReusableMemory(), whole, one)


def of_pod(policy: MemoryPolicy, whole: Pod, state: MemoryState) -> ResourceHints | None:
    return policy_hints.pod_hints(policy, state, ReusableMemory(), whole)


@pytest.mark.parametrize("blocks", [(), (block([0], 4),), (block([0], 5), block([0], 1, HUGE)), (block([0], 5, HUGE),)])
def test_blocks_that_do_not_fit_are_no_opinion_in_the_kubelet_and_impossible_otherwise(
    blocks: tuple[Block, ...],
) -> None:
    whole, held = pod(container("c", 5)), holding(c=blocks)
    assert of_container(POLICY, whole, held) is None
    assert of_container(SANE, whole, held) == {"memory": IMPOSSIBLE}


@pytest.mark.parametrize("node", [-1, 64, 10**12])
def test_a_node_without_room_in_the_masks_is_no_opinion(node: int) -> None:
    assert of_container(POLICY, pod(container("c", 5)), holding(c=(block([node], 5),))) is None


def test_a_block_without_nodes_is_a_hint_that_meets_no_other() -> None:
    assert of_container(POLICY, pod(container("c", 5)), holding(c=(block([], 5),))) == {"memory": Hints((NUMAMask(0),))}


def test_an_init_container_that_was_taken_over_from_still_fits() -> None:
    whole = pod(container("c", 5, INIT), container("a", 3))
    held = holding(c=(block([0], 2),), a=(block([0], 3),))
    assert of_container(POLICY, whole, held) is None
    assert of_container(SANE, whole, held) == {"memory": ON_ZERO}
    assert of_container(SANE, whole, holding(c=(block([0], 5),))) == {"memory": ON_ZERO}
    assert of_container(SANE, whole, holding(c=(block([0], 6),))) == {"memory": IMPOSSIBLE}
    both = pod(container("c", 5, INIT, M2=2))
    mixed = holding(c=(block([0], 4), block([0], 3, HUGE)))
    assert of_container(SANE, both, mixed) == {"memory": IMPOSSIBLE, HUGE: IMPOSSIBLE}


def test_in_pod_scope_every_container_is_held_against_itself_when_the_defect_is_fixed() -> None:
    whole = pod(container("i", 9, INIT), container("a", 5), container("b", 7))
    assert of_pod(SANE, whole, holding(a=(block([0], 5),), b=(block([0], 7),))) == {"memory": ON_ZERO}
    assert of_pod(SANE, whole, holding(a=(block([0], 5),), b=(block([1], 7),))) == {"memory": ON_BOTH}
    assert of_pod(SANE, whole, holding(i=(block([0], 1),), a=(block([0], 5),), b=(block([0], 7),))) == {
        "memory": ON_ZERO
    }
    assert of_pod(SANE, whole, holding(a=(block([1], 5),), b=(block([1], 7),))) == {"memory": ON_ONE}
    assert of_pod(SANE, whole, holding(a=(block([0], 12),), b=(block([0], 7),))) == {"memory": IMPOSSIBLE}


def test_the_observer_learns_what_the_hints_were_made_from() -> None:
    facts: list[object] = []
    whole = pod(container("c", 5))
    policy_hints.container_hints(POLICY, fresh(POLICY), ReusableMemory(), whole, whole.containers[0], facts.append)
    (asked,) = facts
    assert isinstance(asked, MemoryHintsAsked)
    assert (asked.container, asked.requests, asked.groups) == ("c", {"memory": 5}, ())
    assert asked.free == {0: {"memory": 20, HUGE: 9}, 1: {"memory": 20, HUGE: 9}}
