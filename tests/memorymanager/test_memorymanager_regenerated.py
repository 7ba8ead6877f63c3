"""Hints for what is held already, and what the policy answers before it looks at the machine."""

from __future__ import annotations

import pytest
from tests.memorymanager.small_memory import HUGE, INIT, block, container, empty_nodes, fresh, pod, static

import mooring.engine.memorymanager.hints as policy_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.pod import Pod
from mooring.engine.memorymanager.facts import MemoryHintsAsked
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.state import Block, MemoryState, ReusableMemory
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints
from mooring.engine.topologymanager.wide import ResourceHints

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


def test_the_highest_node_with_room_in_the_masks_is_63() -> None:
    held = holding(c=(block([63], 5),))
    assert of_container(POLICY, pod(container("c", 5)), held) == {"memory": Hints((NUMAMask(1 << 63),))}


@pytest.mark.parametrize("node", [-1, 64, 10**12])
def test_a_node_without_room_in_the_masks_is_no_opinion(node: int) -> None:
    assert of_container(POLICY, pod(container("c", 5)), holding(c=(block([node], 5),))) is None


def test_a_block_without_nodes_is_a_hint_that_meets_no_other() -> None:
    assert of_container(POLICY, pod(container("c", 5)), holding(c=(block([], 5),))) == {"memory": Hints((NUMAMask(0),))}


def test_two_blocks_of_one_type_leave_nothing_possible_for_the_other() -> None:
    whole = pod(container("c", 5, M2=2))
    held = holding(c=(block([0], 5), block([1], 5)))
    assert of_container(POLICY, whole, held) == {"memory": Hints((NUMAMask(0b01), NUMAMask(0b10))), HUGE: IMPOSSIBLE}


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


def test_in_pod_scope_the_kubelet_looks_at_the_first_holder_only() -> None:
    whole = pod(container("a", 5), container("b", 7))
    assert of_pod(POLICY, whole, holding(a=(block([0], 5),), b=(block([0], 7),))) is None
    assert of_pod(POLICY, whole, holding(a=(block([0], 12),), b=(block([1], 99),))) == {"memory": ON_ZERO}
    assert of_pod(POLICY, whole, holding(b=(block([1], 12),))) == {"memory": ON_ONE}
    assert of_pod(POLICY, whole, holding(a=())) is None


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
