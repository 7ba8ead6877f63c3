"""Serving and releasing containers, rule by rule of memory-manager.md sections 5 and 6."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memorymanager.small_memory import (
    ANYWHERE,
    APP,
    HUGE,
    INIT,
    SIDECAR,
    block,
    container,
    counts,
    empty_nodes,
    fresh,
    groups,
    on,
    pod,
    reserved,
    served,
    static,
)

from mooring.engine.core.decision import AllocationError
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryReleased
from mooring.engine.memorymanager.start import start
from mooring.engine.memorymanager.state import MemoryState, NUMANodeState, ReusableMemory, charge, release
from mooring.engine.memorymanager.static import allocate, remove
from mooring.engine.topologymanager.hints import Hint

TWO = static(empty_nodes(8, 8))


def test_a_type_that_a_node_of_the_affinity_does_not_list_crashes_the_kubelet() -> None:
    nodes = empty_nodes(8, 8, M2=(4, 4))
    nodes[1] = NUMANodeState(0, {"memory": nodes[1].memory["memory"]}, (1,))
    policy = static(nodes)
    asked = container("c", 1, M2=1)
    served(policy, pod(asked), on(0))
    for hint in (on(1), on(0, 1), ANYWHERE):
        with pytest.raises(KubeletCrashError, match="NUMA node 1 does not list hugepages-2Mi"):
            served(policy, pod(asked), hint)


# Init containers.


def test_what_is_left_counts_for_hints_and_so_leads_to_an_extension_to_the_same_node() -> None:
    facts: list[object] = []
    served(TWO, pod(container("i", 6, INIT), container("a", 5)), on(0), observer=facts.append)
    _, assigned = [fact for fact in facts if isinstance(fact, MemoryAssigned)]
    assert (assigned.way, assigned.mask, assigned.affinity) == ("extended", 0b01, 0b01)


# Removal.


def test_removal_gives_back_and_forgets_the_pod_with_its_last_container() -> None:
    whole = pod(container("a", 5), container("b", 2))
    facts: list[object] = []
    state, _ = served(TWO, whole, on(0), on(1))
    state = remove(TWO, state, "pod", "a", facts.append)
    assert state.assignments == {"pod": {"b": (block([1], 2),)}}
    assert (reserved(state), counts(state)) == ([0, 2], [0, 1])
    assert facts == [MemoryReleased("pod", "a", (block([0], 5),))]
    assert remove(TWO, state, "pod", "b") == fresh(TWO)
    assert remove(TWO, state, "pod", "a") is state
    assert remove(TWO, state, "nobody", "a") is state


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.lists(st.tuples(st.sets(st.integers(0, 3), min_size=1), st.integers(0, 9)), max_size=6),
    st.data(),
)
def test_charging_and_releasing_in_any_order_leads_back(
    memory: list[int], asked: list[tuple[set[int], int]], data: st.DataObject
) -> None:
    """As long as nothing is charged beyond what there is."""
    nodes = empty = empty_nodes(*memory)
    blocks = []
    for wanted, size in asked:
        cells = sorted(node for node in wanted if node < len(memory))
        if not cells or sum(nodes[node].memory["memory"].free for node in cells) < size:
            continue
        nodes = charge(nodes, tuple(sorted(cells)), "memory", size)
        blocks.append(block(cells, size))
    assert sum(node.memory["memory"].reserved for node in nodes.values()) == sum(one.size for one in blocks)
    same_nodes = len({one.numa for one in blocks}) <= 1
    for one in data.draw(st.permutations(blocks)):
        nodes = release(nodes, (one,))
        assert all(node.memory["memory"].free >= 0 for node in nodes.values())
    if same_nodes:
        assert nodes == empty
    assert [node.assignments for node in nodes.values()] == [0] * len(memory)


FIXED = "exact-mask-reuse"


def test_the_init_containers_assignment_ends_with_it_and_the_group_stays() -> None:
    whole = pod(container("i", 7, INIT), container("a", 5, M2=6), container("z", 1))
    policy = static(empty_nodes(8, 8, M2=(4, 4)), FIXED)
    state, _ = served(policy, whole, on(0), on(0, 1, preferred=False))
    assert state.assignments["pod"]["i"] == (block([0], 1),)
    assert start(policy, state) is state
    state = remove(policy, state, "pod", "i")
    assert (reserved(state), reserved(state, HUGE)) == ([6, 0], [4, 2])
    assert (counts(state), groups(state)) == ([3, 3], [(0, 1), (0, 1)])
    assert start(policy, state) is state
    for name in ("a", "z"):
        state = remove(policy, state, "pod", name)
    assert state == fresh(policy)


def test_what_several_init_containers_leave_inside_adds_up() -> None:
    policy = static(empty_nodes(8, 8, 8), FIXED)
    whole = pod(container("i", 5, INIT), container("j", 6, INIT), container("a", 15))
    state, _ = served(policy, whole, on(0), on(1), on(0, 1, preferred=False))
    assert state.assignments["pod"] == {"i": (block([0], 0),), "j": (block([1], 0),), "a": (block([0, 1], 15),)}
    assert reserved(state) == [8, 7, 0]


sizes = st.integers(0, 9)
node_sets = st.sets(st.integers(0, 2), min_size=1, max_size=3)


@st.composite
def asked(draw: st.DrawFn) -> list[tuple[Container, Hint]]:
    found = []
    for number in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from([INIT, INIT, SIDECAR, APP]))
        one = container(f"c{number}", draw(sizes), kind)
        found.append((one, on(*draw(node_sets), preferred=draw(st.booleans()))))
    return found


@given(asked())
def test_blocks_add_up_to_what_is_charged_and_all_of_it_comes_back(pods: list[tuple[Container, Hint]]) -> None:
    policy = static(empty_nodes(8, 6, 8), FIXED)
    whole = pod(*[one for one, _ in pods])
    state, reusable = fresh(policy), ReusableMemory()
    for one, hint in pods:
        answer = allocate(policy, state, reusable, whole, one, hint)
        if not isinstance(answer, AllocationError):
            state, reusable = answer
        blocks = [held for containers in state.assignments.values() for held in containers.values()]
        assert sum(reserved(state)) == sum(one.size for held in blocks for one in held)
    for name in list(state.assignments.get("pod", {})):
        state = remove(policy, state, "pod", name)
    assert counts(state) == [0, 0, 0]
    assert groups(state) == [(0,), (1,), (2,)]


@given(asked())
def test_on_the_same_nodes_both_ways_of_counting_are_one(pods: list[tuple[Container, Hint]]) -> None:
    whole, hint = pod(*[one for one, _ in pods]), pods[0][1]
    states: list[MemoryState] = []
    for names in ((), (FIXED,)):
        policy = static(empty_nodes(8, 6, 8), *names)
        state, reusable = fresh(policy), ReusableMemory()
        for one in whole.containers:
            answer = allocate(policy, state, reusable, whole, one, hint)
            if isinstance(answer, AllocationError):
                assert not states, "what the kubelet serves is served with the defect fixed"
                return
            state, reusable = answer
        states.append(state)
    broken, fixed = states
    if len({held.numa for blocks in broken.assignments["pod"].values() for held in blocks}) == 1:
        assert fixed == broken
