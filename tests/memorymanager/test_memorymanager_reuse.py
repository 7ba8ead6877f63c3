"""Memory of ended init containers with defect exact-mask-reuse fixed: it counts for every set around its own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.memorymanager.small_memory import (
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

from mooring.engine.core.decision import AllocationError
from mooring.engine.core.pod import Container, Pod
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import start
from mooring.engine.memorymanager.state import MemoryState, ReusableMemory
from mooring.engine.memorymanager.static import allocate, remove
from mooring.engine.topologymanager.hints import Hint

FIXED = "exact-mask-reuse"
INIT_THEN_WIDE = pod(container("i", 6, INIT), container("a", 12))


def served(
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
    assert not isinstance(answer, AllocationError)
    assert answer[0].assignments["pod"] == {"i": (block([0], 6),), "a": (block([1], 4),)}
    assert reserved(answer[0]) == [6, 4]


def test_what_several_init_containers_leave_inside_adds_up() -> None:
    policy = static(empty_nodes(8, 8, 8), FIXED)
    whole = pod(container("i", 5, INIT), container("j", 6, INIT), container("a", 15))
    state = state_of(served(policy, whole, on(0), on(1), on(0, 1, preferred=False)))
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
        served(static(empty_nodes(8, 6, 8), *names), whole, *[hint] * len(pods)) for names in ((), (FIXED,))
    )
    if isinstance(broken, AllocationError):
        return
    assert isinstance(fixed, MemoryState)
    if len({held.numa for blocks in broken.assignments["pod"].values() for held in blocks}) == 1:
        assert fixed == broken
