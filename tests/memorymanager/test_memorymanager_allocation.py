"""Serving and releasing containers, rule by rule of memory-manager.md sections 5 and 6."""

from __future__ import annotations

from dataclasses import replace

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
    static,
)

import mooring.engine.memorymanager.static as engine
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryReleased
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import start
from mooring.engine.memorymanager.state import MemoryState, NUMANodeState, ReusableMemory, charge, release
from mooring.engine.memorymanager.static import allocate, remove
from mooring.engine.topologymanager.hints import Hint

TWO = static(empty_nodes(8, 8))


def served(
    policy: MemoryPolicy, whole: Pod, *hints: Hint, state: MemoryState | None = None
) -> tuple[MemoryState, ReusableMemory]:
    """Serve the containers of a pod one after another, the last hint for all that remain."""
    state, reusable = state or fresh(policy), ReusableMemory()
    for position, one in enumerate(whole.containers):
        answer = allocate(policy, state, reusable, whole, one, hints[min(position, len(hints) - 1)])
        assert not isinstance(answer, AllocationError), answer
        state, reusable = answer
    return state, reusable


def refused(policy: MemoryPolicy, state: MemoryState, asked: Container, hint: Hint) -> str:
    answer = allocate(policy, state, ReusableMemory(), pod(asked), asked, hint)
    assert isinstance(answer, AllocationError)
    assert answer.reason == ""
    return answer.message


def test_an_empty_list_of_blocks_counts_as_blocks() -> None:
    state = replace(fresh(TWO), assignments={"pod": {"c": ()}})
    again, _ = served(TWO, pod(container("c", 5)), on(0), state=state)
    assert again is state


def test_a_request_of_zero_is_written_down_and_counts() -> None:
    state, _ = served(TWO, pod(container("c", 0)), on(1))
    assert state.assignments == {"pod": {"c": (block([1], 0),)}}
    assert (reserved(state), counts(state)) == ([0, 0], [0, 1])


def test_huge_pages_without_memory_have_no_default() -> None:
    """A default is looked for among the hints for memory (v1.33, memorymanager policy_static.go, getDefaultHint)."""
    policy = static(empty_nodes(8, 8, M2=(4, 4)))
    asked = container("c", None, M2=2)
    assert refused(policy, fresh(policy), asked, Hint(None, preferred=True)) == engine.NO_PREFERRED_DEFAULT
    with pytest.raises(KubeletCrashError, match="requests huge pages and no memory"):
        served(policy, pod(asked), ANYWHERE)
    state, _ = served(policy, pod(asked), on(1))
    assert state.assignments["pod"]["c"] == (block([1], 2, HUGE),)
    assert refused(policy, fresh(policy), container("c", None, M2=5), on(1)) == engine.NO_EXTENSION
    assert refused(policy, fresh(policy), container("c", None, M2=9), ANYWHERE) == engine.NO_DEFAULT


def test_an_extension_looks_at_the_hints_for_memory_only() -> None:
    policy = static(empty_nodes(8, 8, M2=(4, 4)))
    pages = container("c", None, M2=6)
    assert refused(policy, fresh(policy), pages, on(0, preferred=False)) == engine.NO_EXTENSION
    both = container("c", 1, M2=6)
    answer = allocate(policy, fresh(policy), ReusableMemory(), pod(both), both, on(0, preferred=False))
    assert not isinstance(answer, AllocationError)
    assert set(answer[0].assignments["pod"]["c"]) == {block([0, 1], 1), block([0, 1], 6, HUGE)}


def test_a_type_that_a_node_of_the_affinity_does_not_list_crashes_the_kubelet() -> None:
    nodes = empty_nodes(8, 8, M2=(4, 4))
    nodes[1] = NUMANodeState(0, {"memory": nodes[1].memory["memory"]}, (1,))
    policy = static(nodes)
    asked = container("c", 1, M2=1)
    answer = allocate(policy, fresh(policy), ReusableMemory(), pod(asked), asked, on(0))
    assert not isinstance(answer, AllocationError)
    for hint in (on(1), on(0, 1), ANYWHERE):
        with pytest.raises(KubeletCrashError, match="NUMA node 1 does not list hugepages-2Mi"):
            allocate(policy, fresh(policy), ReusableMemory(), pod(asked), asked, hint)


# Init containers.


def test_blocks_of_later_init_containers_are_not_shrunk() -> None:
    first, last = container("i", 3, INIT), container("j", 2, INIT)
    whole = pod(first, last, container("a", 4))
    state = replace(fresh(TWO), assignments={"pod": {"j": (block([0], 2),)}})
    answer = allocate(TWO, state, ReusableMemory(), whole, first, on(0))
    assert not isinstance(answer, AllocationError)
    assert answer[0].assignments["pod"] == {"j": (block([0], 2),), "i": (block([0], 3),)}


def test_what_is_left_counts_for_hints_and_so_leads_to_an_extension_to_the_same_node() -> None:
    facts: list[object] = []
    whole = pod(container("i", 6, INIT), container("a", 5))
    state, reusable = served(TWO, pod(whole.containers[0]), on(0))
    answer = allocate(TWO, state, reusable, whole, whole.containers[1], on(0), facts.append)
    assert not isinstance(answer, AllocationError)
    (assigned,) = [fact for fact in facts if isinstance(fact, MemoryAssigned)]
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


def test_release_goes_node_by_node_in_the_order_of_the_block() -> None:
    nodes = charge(charge(empty_nodes(8, 8), (0, 1), "memory", 12), (0, 1), "memory", 1)
    assert [node.memory["memory"].reserved for node in nodes.values()] == [8, 5]
    left = release(nodes, (block([1, 0], 7),))
    assert [node.memory["memory"].reserved for node in left.values()] == [6, 0]


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
INIT_THEN_WIDE = pod(container("i", 6, INIT), container("a", 12))


def served_with(
    policy: MemoryPolicy, whole: Pod, *hints: Hint, state: MemoryState | None = None
) -> MemoryState | AllocationError:
    state, reusable = state or fresh(policy), ReusableMemory()
    for one, hint in zip(whole.containers, hints, strict=True):
        answer = allocate(policy, state, reusable, whole, one, hint)
        if isinstance(answer, AllocationError):
            return answer
        state, reusable = answer
    return state


def state_of(answer: MemoryState | AllocationError) -> MemoryState:
    assert isinstance(answer, MemoryState), answer
    return answer


def test_the_init_containers_assignment_ends_with_it_and_the_group_stays() -> None:
    policy = static(empty_nodes(8, 8), FIXED)
    whole = pod(container("i", 7, INIT), container("a", 5, M2=6), container("z", 1))
    policy = static(empty_nodes(8, 8, M2=(4, 4)), FIXED)
    state = state_of(served_with(policy, whole, on(0), on(0, 1, preferred=False), on(0, 1, preferred=False)))
    assert state.assignments["pod"]["i"] == (block([0], 1),)
    assert start(policy, state) is state
    state = remove(policy, state, "pod", "i")
    assert (reserved(state), reserved(state, HUGE)) == ([6, 0], [4, 2])
    assert (counts(state), groups(state)) == ([3, 3], [(0, 1), (0, 1)])
    assert start(policy, state) is state
    for name in ("a", "z"):
        state = remove(policy, state, "pod", name)
    assert state == fresh(policy)


def test_a_set_beside_the_init_containers_takes_nothing_over() -> None:
    state = state_of(served_with(static(empty_nodes(8, 8), FIXED), pod(*INIT_THEN_WIDE.containers[:1]), on(0)))
    asked = container("a", 4)
    whole = pod(INIT_THEN_WIDE.containers[0], asked)
    policy = static(empty_nodes(8, 8), FIXED)
    answer = allocate(policy, state, ReusableMemory(), whole, asked, on(1))
    assert not isinstance(answer, AllocationError)
    assert answer[0].assignments["pod"] == {"i": (block([0], 6),), "a": (block([1], 4),)}
    assert reserved(answer[0]) == [6, 4]


def test_what_several_init_containers_leave_inside_adds_up() -> None:
    policy = static(empty_nodes(8, 8, 8), FIXED)
    whole = pod(container("i", 5, INIT), container("j", 6, INIT), container("a", 15))
    state = state_of(served_with(policy, whole, on(0), on(1), on(0, 1, preferred=False)))
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
    whole = pod(*[one for one, _ in pods])
    hint = pods[0][1]
    broken, fixed = (
        served_with(static(empty_nodes(8, 6, 8), *names), whole, *[hint] * len(pods)) for names in ((), (FIXED,))
    )
    if isinstance(broken, AllocationError):
        return
    assert isinstance(fixed, MemoryState)
    if len({held.numa for blocks in broken.assignments["pod"].values() for held in blocks}) == 1:
        assert fixed == broken
