"""Memory of ended init containers with defect exact-mask-reuse fixed: it counts for every set around its own."""

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
    static,
)

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.memorymanager import static as engine
from mooring.engine.memorymanager.hints import calculate_hints
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.reuse import Leftover, ReusableMemory, leftover_for
from mooring.engine.memorymanager.start import start
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.memorymanager.static import MemoryAllocated, MemoryRefusal, allocate, remove
from mooring.engine.topologymanager.hints import Hint, Hints

FIXED = "exact-mask-reuse"
INIT_THEN_WIDE = pod(container("i", 6, INIT), container("a", 12))


def served(
    policy: MemoryPolicy, whole: Pod, *hints: Hint, state: MemoryState | None = None
) -> MemoryState | MemoryRefusal:
    state, reusable = state or fresh(policy), ReusableMemory()
    for one, hint in zip(whole.containers, hints, strict=True):
        answer = allocate(policy, state, reusable, whole, one, hint)
        if isinstance(answer, MemoryRefusal):
            return answer
        state, reusable = answer.state, answer.reusable
    return state


def state_of(answer: MemoryState | MemoryRefusal) -> MemoryState:
    assert isinstance(answer, MemoryState), answer
    return answer


def test_a_wider_container_takes_over_what_lies_inside() -> None:
    broken, fixed = static(empty_nodes(8, 8)), static(empty_nodes(8, 8), FIXED)
    refusal = served(broken, INIT_THEN_WIDE, on(0), on(0, 1, preferred=False))
    assert refusal == MemoryRefusal(engine.NO_EXTENSION)
    state = state_of(served(fixed, INIT_THEN_WIDE, on(0), on(0, 1, preferred=False)))
    assert state.assignments["pod"] == {"i": (block([0], 0),), "a": (block([0, 1], 12),)}
    assert (reserved(state), counts(state), groups(state)) == ([8, 4], [2, 1], [(0, 1), (0, 1)])


def test_the_default_hint_finds_the_wider_set_too() -> None:
    state = state_of(served(static(empty_nodes(8, 8), FIXED), INIT_THEN_WIDE, on(0), ANYWHERE))
    assert state.assignments["pod"]["a"] == (block([0, 1], 12),)


def test_the_init_containers_assignment_ends_with_it_and_the_group_stays() -> None:
    policy = static(empty_nodes(8, 8), FIXED)
    whole = pod(container("i", 7, INIT), container("a", 5, M2=6), container("z", 1))
    policy = static(empty_nodes(8, 8, M2=(4, 4)), FIXED)
    state = state_of(served(policy, whole, on(0), on(0, 1, preferred=False), on(0, 1, preferred=False)))
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
    state = state_of(served(static(empty_nodes(8, 8), FIXED), pod(*INIT_THEN_WIDE.containers[:1]), on(0)))
    asked = container("a", 4)
    whole = pod(INIT_THEN_WIDE.containers[0], asked)
    policy = static(empty_nodes(8, 8), FIXED)
    answer = allocate(policy, state, ReusableMemory(), whole, asked, on(1))
    assert isinstance(answer, MemoryAllocated)
    assert answer.state.assignments["pod"] == {"i": (block([0], 6),), "a": (block([1], 4),)}
    assert reserved(answer.state) == [6, 4]


def test_a_narrower_set_takes_nothing_over_and_may_leave_the_group() -> None:
    policy = static(empty_nodes(8, 8), FIXED)
    whole = pod(container("i", 10, INIT), container("a", 5))
    state = state_of(served(policy, whole, on(0, 1), on(1)))
    assert state.assignments["pod"] == {"i": (block([0, 1], 10),), "a": (block([1], 5),)}
    assert reserved(state) == [8, 7]
    state = remove(policy, state, "pod", "i")
    assert (reserved(state), counts(state), groups(state)) == ([0, 5], [0, 1], [(0,), (1,)])


def test_what_several_init_containers_leave_inside_adds_up() -> None:
    policy = static(empty_nodes(8, 8, 8), FIXED)
    whole = pod(container("i", 5, INIT), container("j", 6, INIT), container("a", 15))
    state = state_of(served(policy, whole, on(0), on(1), on(0, 1, preferred=False)))
    assert state.assignments["pod"] == {"i": (block([0], 0),), "j": (block([1], 0),), "a": (block([0, 1], 15),)}
    assert reserved(state) == [8, 7, 0]


def test_other_pods_still_bind_a_node_to_its_group() -> None:
    policy = static(empty_nodes(8, 8), FIXED)
    other = state_of(served(policy, pod(container("c", 1), uid="other"), on(0)))
    assert served(policy, INIT_THEN_WIDE, on(0), on(0, 1, preferred=False), state=other) == MemoryRefusal(
        engine.NO_EXTENSION
    )


@pytest.mark.parametrize("later", ContainerKind)
def test_every_kind_of_container_takes_over(later: ContainerKind) -> None:
    policy = static(empty_nodes(8, 8), FIXED)
    whole = pod(container("i", 6, INIT), container("l", 6, later))
    state = state_of(served(policy, whole, on(0), on(0, 1, preferred=False)))
    assert sum(reserved(state)) == 6


def test_what_is_left_is_read_from_the_blocks_and_not_from_the_record() -> None:
    whole = pod(container("i", 6, INIT), container("a", 4))
    held = {"i": (block([1], 3),)}
    forged = ReusableMemory("pod", {NUMAMask(0b01): {"memory": 9}})
    assert leftover_for(frozenset({FIXED}), forged, whole, "a", held) == Leftover(
        {NUMAMask(0b10): {"memory": 3}}, {1: 1}
    )
    assert leftover_for(frozenset(), forged, whole, "a", held) == Leftover({NUMAMask(0b01): {"memory": 9}})
    assert leftover_for(frozenset({FIXED}), forged, whole, "i", held) == Leftover()


def test_what_is_left_cannot_make_up_for_memory_that_nodes_could_never_give() -> None:
    nodes = empty_nodes(4, 4)
    left = Leftover({NUMAMask(0b01): {"memory": 9}}, {0: 1})
    assert calculate_hints(nodes, {"memory": 9}, left) is None
    assert calculate_hints(nodes, {"memory": 8}, left) == Hints(preferred=(NUMAMask(0b11),))
    wide = empty_nodes(*([4] * 9))
    family = calculate_hints(wide, {"memory": 9}, left)
    assert family is not None
    assert not isinstance(family, Hints)
    assert family.narrowest() == 3


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
        if isinstance(answer, MemoryAllocated):
            state, reusable = answer.state, answer.reusable
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
        served(static(empty_nodes(8, 6, 8), *names), whole, *[hint] * len(pods)) for names in ((), (FIXED,))
    )
    if isinstance(broken, MemoryRefusal):
        return
    assert isinstance(fixed, MemoryState)
    if len({held.numa for blocks in broken.assignments["pod"].values() for held in blocks}) == 1:
        assert fixed == broken
