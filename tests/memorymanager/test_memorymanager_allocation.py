"""Serving and releasing containers, rule by rule of memory-manager.md sections 5 and 6."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memorymanager.small_memory import (
    ANYWHERE,
    BOTH,
    HUGE,
    INIT,
    LARGE,
    SIDECAR,
    block,
    container,
    counts,
    empty_nodes,
    fresh,
    groups,
    on,
    pod,
    pod_level,
    reserved,
    static,
)

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, Pod, PodLevelGates, QoS
from mooring.engine.memorymanager import static as engine
from mooring.engine.memorymanager.facts import MemoryAssigned, MemoryReleased
from mooring.engine.memorymanager.policy import NOT_INT64, MemoryPolicy
from mooring.engine.memorymanager.reuse import ReusableMemory
from mooring.engine.memorymanager.state import MemoryState, NUMANodeState, charge, release
from mooring.engine.memorymanager.static import MemoryAllocated, MemoryRefusal, allocate, remove
from mooring.engine.topologymanager.hints import Hint

TWO = static(empty_nodes(8, 8))


def served(
    policy: MemoryPolicy, whole: Pod, *hints: Hint, state: MemoryState | None = None
) -> tuple[MemoryState, ReusableMemory]:
    """Serve the containers of a pod one after another, the last hint for all that remain."""
    state, reusable = state or fresh(policy), ReusableMemory()
    for position, one in enumerate(whole.containers):
        answer = allocate(policy, state, reusable, whole, one, hints[min(position, len(hints) - 1)])
        assert isinstance(answer, MemoryAllocated), answer
        state, reusable = answer.state, answer.reusable
    return state, reusable


def refused(policy: MemoryPolicy, state: MemoryState, asked: Container, hint: Hint) -> str:
    answer = allocate(policy, state, ReusableMemory(), pod(asked), asked, hint)
    assert isinstance(answer, MemoryRefusal)
    assert answer.reason == ""
    return answer.message


@pytest.mark.parametrize("qos", [QoS.BURSTABLE, QoS.BEST_EFFORT])
def test_pods_that_are_not_guaranteed_get_nothing(qos: QoS) -> None:
    state, _ = served(TWO, pod(container("c", 5), qos=qos), on(0))
    assert state == fresh(TWO)


@pytest.mark.parametrize("gates", [PodLevelGates(), PodLevelGates(resources=False, managers=True)])
def test_pod_level_pods_without_both_gates_get_nothing(gates: PodLevelGates) -> None:
    policy = static(empty_nodes(8, 8), gates=gates)
    state, _ = served(policy, pod_level(container("c", 5), memory=5), on(0))
    assert state == fresh(policy)


def test_a_container_without_memory_gets_nothing_and_no_entry() -> None:
    state, _ = served(TWO, pod(container("c", None)), on(0))
    assert state == fresh(TWO)


def test_requests_that_are_no_numbers_are_refused() -> None:
    assert refused(TWO, fresh(TWO), container("c", "0.5"), on(0)) == NOT_INT64


def test_the_affinity_is_used_when_it_suffices() -> None:
    state, _ = served(TWO, pod(container("c", 5)), on(1))
    assert state.assignments == {"pod": {"c": (block([1], 5),)}}
    assert (reserved(state), counts(state), groups(state)) == ([0, 5], [0, 1], [(0,), (1,)])


def test_a_group_is_filled_from_its_lowest_node() -> None:
    state, _ = served(TWO, pod(container("c", 10)), on(0, 1))
    assert state.assignments == {"pod": {"c": (block([0, 1], 10),)}}
    assert (reserved(state), counts(state), groups(state)) == ([8, 2], [1, 1], [(0, 1), (0, 1)])


def test_existing_blocks_are_kept_whatever_is_asked_now() -> None:
    state, _ = served(TWO, pod(container("c", 5)), on(1))
    again, reusable = served(TWO, pod(container("c", 3, INIT)), on(0), state=state)
    assert again is state
    assert reusable.of("pod") == {0b10: {"memory": 5}}


def test_an_empty_list_of_blocks_counts_as_blocks() -> None:
    state = replace(fresh(TWO), assignments={"pod": {"c": ()}})
    again, _ = served(TWO, pod(container("c", 5)), on(0), state=state)
    assert again is state


def test_a_request_of_zero_is_written_down_and_counts() -> None:
    state, _ = served(TWO, pod(container("c", 0)), on(1))
    assert state.assignments == {"pod": {"c": (block([1], 0),)}}
    assert (reserved(state), counts(state)) == ([0, 0], [0, 1])


def test_without_an_affinity_the_best_hint_is_the_default() -> None:
    state, _ = served(TWO, pod(container("c", 5)), ANYWHERE)
    assert state.assignments["pod"]["c"] == (block([0], 5),)
    second = pod(container("c", 5), uid="second")
    state, _ = served(TWO, second, Hint(None, preferred=True), state=state)
    assert state.assignments["second"]["c"] == (block([1], 5),)


def test_a_default_that_does_not_exist_is_refused() -> None:
    policy = static(empty_nodes(8, 8, 8))
    used, _ = served(policy, pod(container("c", 7), uid="other"), on(2))
    one, _ = served(policy, pod(container("c", 1), uid="one"), on(0), state=used)
    two, _ = served(policy, pod(container("c", 1), uid="two"), on(1), state=one)
    assert refused(policy, used, container("c", 17), Hint(None, preferred=True)) == engine.NO_DEFAULT
    assert refused(policy, two, container("c", 8), Hint(None, preferred=False)) == engine.NO_DEFAULT


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


def test_a_default_that_is_wider_than_on_an_empty_node_is_refused_where_preference_counts() -> None:
    policy = static(empty_nodes(8, 4, 4))
    state, _ = served(policy, pod(container("c", 5), uid="other"), on(0))
    asked = container("c", 6)
    assert refused(policy, state, asked, Hint(None, preferred=True)) == engine.NO_PREFERRED_DEFAULT
    answer = allocate(policy, state, ReusableMemory(), pod(asked), asked, ANYWHERE)
    assert isinstance(answer, MemoryAllocated)
    assert answer.state.assignments["pod"]["c"] == (block([1, 2], 6),)


def test_an_affinity_that_does_not_suffice_is_extended() -> None:
    policy = static(empty_nodes(8, 4, 4))
    asked = container("c", 6)
    answer = allocate(policy, fresh(policy), ReusableMemory(), pod(asked), asked, on(2, preferred=False))
    assert isinstance(answer, MemoryAllocated)
    assert answer.state.assignments["pod"]["c"] == (block([0, 2], 6),)  # of two pairs the smaller number
    assert refused(policy, fresh(policy), asked, on(2)) == engine.NO_PREFERRED_EXTENSION
    assert refused(policy, fresh(policy), container("c", 17), on(2, preferred=False)) == engine.NO_EXTENSION


def test_an_extension_looks_at_the_hints_for_memory_only() -> None:
    policy = static(empty_nodes(8, 8, M2=(4, 4)))
    pages = container("c", None, M2=6)
    assert refused(policy, fresh(policy), pages, on(0, preferred=False)) == engine.NO_EXTENSION
    both = container("c", 1, M2=6)
    answer = allocate(policy, fresh(policy), ReusableMemory(), pod(both), both, on(0, preferred=False))
    assert isinstance(answer, MemoryAllocated)
    assert set(answer.state.assignments["pod"]["c"]) == {block([0, 1], 1), block([0, 1], 6, HUGE)}


def test_an_affinity_that_cuts_through_a_group_is_refused() -> None:
    policy = static(empty_nodes(8, 8, 8))
    group, _ = served(policy, pod(container("c", 10), uid="other"), on(0, 1))
    assert refused(policy, group, container("c", 1), on(1, 2)) == engine.VIOLATION
    single, _ = served(policy, pod(container("c", 1), uid="other"), on(0))
    assert refused(policy, single, container("c", 1), on(0, 1)) == engine.VIOLATION


def test_a_single_node_of_a_group_is_taken_all_the_same_and_leaves_the_group() -> None:
    # Only hints refuse it; the affinity of best-effort can point there (spec: README.md section 5, start failure).
    policy = static(empty_nodes(8, 8))
    group, _ = served(policy, pod(container("c", 2), uid="other"), on(0, 1))
    state, _ = served(policy, pod(container("c", 1)), on(0, preferred=False), state=group)
    assert (groups(state), counts(state), reserved(state)) == ([(0,), (0, 1)], [2, 1], [3, 0])


def test_several_types_lie_on_the_same_nodes_each_counting() -> None:
    policy = static(empty_nodes(8, 8, M2=(4, 4), G1=(4, 4)))
    state, _ = served(policy, pod(container("c", 3, M2=6, G1=1)), on(0, 1))
    # The kubelet's order is random; here types are sorted.
    assert state.assignments["pod"]["c"] == (block([0, 1], 1, LARGE), block([0, 1], 6, HUGE), block([0, 1], 3))
    assert (reserved(state), reserved(state, HUGE), reserved(state, LARGE)) == ([3, 0], [4, 2], [1, 0])
    assert counts(state) == [3, 3]


def test_a_type_that_a_node_of_the_affinity_does_not_list_crashes_the_kubelet() -> None:
    nodes = empty_nodes(8, 8, M2=(4, 4))
    nodes[1] = NUMANodeState(0, {"memory": nodes[1].memory["memory"]}, (1,))
    policy = static(nodes)
    asked = container("c", 1, M2=1)
    answer = allocate(policy, fresh(policy), ReusableMemory(), pod(asked), asked, on(0))
    assert isinstance(answer, MemoryAllocated)
    for hint in (on(1), on(0, 1), ANYWHERE):
        with pytest.raises(KubeletCrashError, match="NUMA node 1 does not list hugepages-2Mi"):
            allocate(policy, fresh(policy), ReusableMemory(), pod(asked), asked, hint)


# Init containers.


def test_a_later_container_uses_what_an_init_container_leaves() -> None:
    state, reusable = served(TWO, pod(container("i", 6, INIT), container("a", 4)), on(0))
    assert state.assignments["pod"] == {"i": (block([0], 2),), "a": (block([0], 4),)}
    assert (reserved(state), counts(state)) == ([6, 0], [2, 0])
    assert reusable.of("pod") == {0b01: {"memory": 2}}


def test_init_containers_share_and_the_larger_one_counts() -> None:
    state, reusable = served(TWO, pod(container("i", 4, INIT), container("j", 6, INIT)), on(0))
    assert state.assignments["pod"] == {"i": (block([0], 0),), "j": (block([0], 6),)}
    assert reserved(state) == [6, 0]
    assert reusable.of("pod") == {0b01: {"memory": 6}}


def test_blocks_of_later_init_containers_are_not_shrunk() -> None:
    first, last = container("i", 3, INIT), container("j", 2, INIT)
    whole = pod(first, last, container("a", 4))
    state = replace(fresh(TWO), assignments={"pod": {"j": (block([0], 2),)}})
    answer = allocate(TWO, state, ReusableMemory(), whole, first, on(0))
    assert isinstance(answer, MemoryAllocated)
    assert answer.state.assignments["pod"] == {"j": (block([0], 2),), "i": (block([0], 3),)}


def test_earlier_init_containers_are_shrunk_in_order_until_the_size_is_used_up() -> None:
    whole = pod(container("i", 4, INIT), container("j", 2, INIT), container("a", 5))
    state, _ = served(TWO, whole, on(0))
    # j takes 2 of i's 4; a takes the other 2 and j's 2, and one byte is new.
    assert state.assignments["pod"] == {"i": (block([0], 0),), "j": (block([0], 0),), "a": (block([0], 5),)}
    assert reserved(state) == [5, 0]


def test_sidecars_use_but_never_leave_anything() -> None:
    whole = pod(container("i", 5, INIT), container("s", 2, SIDECAR), container("a", 4))
    state, reusable = served(TWO, whole, on(0))
    assert state.assignments["pod"] == {"i": (block([0], 0),), "s": (block([0], 2),), "a": (block([0], 4),)}
    assert reserved(state) == [6, 0]
    assert reusable.of("pod") == {0b01: {"memory": 0}}


def test_what_is_left_counts_for_hints_and_so_leads_to_an_extension_to_the_same_node() -> None:
    facts: list[object] = []
    whole = pod(container("i", 6, INIT), container("a", 5))
    state, reusable = served(TWO, pod(whole.containers[0]), on(0))
    answer = allocate(TWO, state, reusable, whole, whole.containers[1], on(0), facts.append)
    assert isinstance(answer, MemoryAllocated)
    (assigned,) = [fact for fact in facts if isinstance(fact, MemoryAssigned)]
    assert (assigned.way, assigned.mask, assigned.affinity) == ("extended", 0b01, 0b01)


def test_serving_another_pod_forgets_what_is_left() -> None:
    _, reusable = served(TWO, pod(container("i", 6, INIT)), on(0))
    other = container("c", 1)
    answer = allocate(TWO, fresh(TWO), reusable, pod(other, uid="other"), other, on(0))
    assert isinstance(answer, MemoryAllocated)
    assert answer.reusable.of("pod") == {}


def test_what_is_left_counts_for_its_very_nodes_only() -> None:
    whole = pod(container("i", 6, INIT), container("a", 6))
    state, _ = served(TWO, whole, on(0), on(1))
    assert state.assignments["pod"] == {"i": (block([0], 6),), "a": (block([1], 6),)}
    assert reserved(state) == [6, 6]
    wide = pod(container("i", 6, INIT), container("a", 12))
    first, reusable = served(TWO, pod(wide.containers[0]), on(0))
    answer = allocate(TWO, first, reusable, wide, wide.containers[1], on(0, 1, preferred=False))
    assert answer == MemoryRefusal(engine.NO_EXTENSION)


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


def test_a_group_ends_with_its_last_assignment_on_each_node() -> None:
    state, _ = served(TWO, pod(container("a", 10), container("b", 3)), on(0, 1))
    state = remove(TWO, state, "pod", "a")
    # Of the 13 bytes 8 lay on node 0, and these go first.
    assert (reserved(state), counts(state), groups(state)) == ([0, 3], [1, 1], [(0, 1), (0, 1)])
    assert remove(TWO, state, "pod", "b") == fresh(TWO)


def test_release_goes_node_by_node_in_the_order_of_the_block() -> None:
    nodes = charge(charge(empty_nodes(8, 8), (0, 1), "memory", 12), (0, 1), "memory", 1)
    assert [node.memory["memory"].reserved for node in nodes.values()] == [8, 5]
    left = release(nodes, (block([1, 0], 7),))
    assert [node.memory["memory"].reserved for node in left.values()] == [6, 0]


def test_the_memory_of_a_managed_pod_goes_with_its_last_container() -> None:
    policy = static(empty_nodes(8, 8), gates=BOTH)
    nodes = charge(policy.default_nodes, (0,), "memory", 6)
    state = MemoryState(
        "Static",
        nodes,
        {"pod": {"a": (block([0], 4),), "b": (block([0], 2),)}},
        {"pod": (block([0], 6),)},
    )
    half = remove(policy, state, "pod", "a")
    assert (half.nodes, half.pods) == (nodes, state.pods)
    assert remove(policy, half, "pod", "b") == fresh(policy)


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


@given(st.integers(0, 8), st.integers(0, 8), st.integers(0, 8))
def test_a_pods_blocks_always_add_up_to_what_is_charged(first: int, second: int, third: int) -> None:
    sizes = [first, second, third]
    kinds = (INIT, SIDECAR, INIT)
    whole = pod(*[container(f"c{n}", size, kinds[n]) for n, size in enumerate(sizes)], container("app", 4))
    policy = static(empty_nodes(30, 8))
    state, _ = served(policy, whole, on(0))
    blocks = [one for held in state.assignments["pod"].values() for one in held]
    assert sum(one.size for one in blocks) == sum(reserved(state))
    assert sum(reserved(state)) == max(first, second + max(third, 4))


@pytest.mark.parametrize(
    ("hint", "asked", "mask", "way"),
    [(on(1), 5, 0b10, "affinity"), (ANYWHERE, 5, 0b01, "default"), (on(1), 9, 0b11, "extended")],
)
def test_observers_are_told_whose_blocks_lie_where_and_how_the_nodes_were_found(
    hint: Hint, asked: int, mask: int, way: str
) -> None:
    facts: list[object] = []
    one = container("c", asked)
    answer = allocate(TWO, fresh(TWO), ReusableMemory(), pod(one), one, replace(hint, preferred=False), facts.append)
    assert isinstance(answer, MemoryAllocated)
    blocks = answer.state.assignments["pod"]["c"]
    assert facts[-1] == MemoryAssigned("pod", "c", hint.mask, NUMAMask(mask), way, blocks, "")
