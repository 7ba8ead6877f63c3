"""Starting on a file: what is refused, and that some order of its assignments starts whenever one does."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import permutations, product

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.memorymanager.small_memory import (
    BOTH,
    HUGE,
    block,
    empty_nodes,
    fresh,
    static,
)

import mooring.engine.memorymanager.start as replay
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.release import ReleaseRules
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.start import DIFFERENT, Containers, start
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState, charge, release
from mooring.engine.memorymanager.static import remove

Assignments = Mapping[str, Mapping[str, tuple[Block, ...]]]
Nodes = Mapping[int, NUMANodeState]


def charged(nodes: Nodes, *blocks: Block) -> Nodes:
    for one in blocks:
        nodes = charge(nodes, tuple(sorted(one.numa)), one.type, one.size)
    return nodes


def on_file(nodes: Nodes, assignments: Assignments) -> MemoryState:
    return MemoryState("Static", nodes, assignments)


def test_blocks_of_a_whole_pod_count_instead_of_its_containers_and_have_no_container_name() -> None:
    policy = static(empty_nodes(8, 8), gates=BOTH)
    nodes = charged(policy.default_nodes, block([0], 6))
    entries = {"pod": {"c": (block([0], 4),), "d": (block([9], 1, "nonsense"),)}}
    state = MemoryState("Static", nodes, entries, {"pod": (block([0], 6),)})
    assert start(policy, state) is state
    assert start(static(empty_nodes(8, 8)), state) == (
        "[memorymanager] (pod: pod, container: d) the memory assignment uses the NUMA that does not exist"
    )
    bad = replace(state, pods={"pod": (block([9], 6),)})
    assert start(policy, bad) == (
        "[memorymanager] (pod: pod, container: ) the memory assignment uses the NUMA that does not exist"
    )


RIGHT = static(empty_nodes(8, 8, M2=(4, 4)))
HELD: Assignments = {"pod": {"a": (block([0, 1], 10),), "b": (block([0, 1], 1), block([0, 1], 5, HUGE))}}
BLOCKS = [one for containers in HELD["pod"].values() for one in containers]
STATE = on_file(charged(RIGHT.default_nodes, *BLOCKS), HELD)


def changed(node: int, **fields: object) -> MemoryState:
    return replace(STATE, nodes={**STATE.nodes, node: replace(STATE.nodes[node], **fields)})  # type: ignore[arg-type]


def moved(node: int, resource: str, **fields: int) -> MemoryState:
    memory = STATE.nodes[node].memory
    return changed(node, memory={**memory, resource: replace(memory[resource], **fields)})


@pytest.mark.parametrize(
    "state",
    [
        changed(0, assignments=4),
        changed(0, cells=(0,)),
        changed(0, cells=(0, 1, 2)),
        changed(0, memory={"memory": STATE.nodes[0].memory["memory"]}),
        changed(0, memory={**STATE.nodes[0].memory, "hugepages-1Gi": STATE.nodes[0].memory[HUGE]}),
        moved(1, "memory", total=9),
        moved(1, "memory", system_reserved=1),
        moved(1, "memory", allocatable=9),
        moved(1, "memory", free=6),
        moved(1, HUGE, reserved=0),
        replace(STATE, nodes={0: STATE.nodes[0]}),
        replace(STATE, nodes={**STATE.nodes, 2: STATE.nodes[0]}),
    ],
)
def test_every_difference_is_refused(state: MemoryState) -> None:
    assert start(RIGHT, state) == DIFFERENT


def test_a_group_whose_nodes_list_different_types_crashes_the_kubelet() -> None:
    nodes = empty_nodes(8, 8, M2=(4, 4))
    nodes[1] = replace(nodes[1], memory={"memory": nodes[1].memory["memory"]})
    held = block([0, 1], 10)
    policy = static(nodes)
    state = on_file(charged(nodes, held), {"pod": {"a": (held,)}})
    with pytest.raises(KubeletCrashError, match="NUMA node 1 does not list hugepages-2Mi and node 0 of its group does"):
        start(policy, state)
    # Where something else differs as well, the kubelet crashes or refuses by chance: refused.
    assert start(policy, replace(state, assignments={})) == DIFFERENT
    # Up to v1.31 it compares number by number and sums up no group.
    oldest = replace(policy, older=ReleaseRules(memory_file_compared_by_number=True))
    assert start(oldest, state) is state


# Lists of nodes that only a hand writes.


def test_a_list_that_names_a_node_twice_counts_it_twice_and_is_given_back_as_often() -> None:
    policy = static(empty_nodes(8, 8), gates=BOTH)
    held = block([0, 0], 3)
    nodes = charge(policy.default_nodes, held.numa, held.type, held.size)
    assert (nodes[0].assignments, nodes[0].cells, nodes[0].memory["memory"].reserved) == (2, (0, 0), 3)
    state = on_file(nodes, {"pod": {"c": (held,)}})
    assert start(policy, state) is state
    once = {**nodes, 0: replace(nodes[0], cells=(0,))}
    assert start(policy, replace(state, nodes=once)) == DIFFERENT
    assert remove(policy, state, "pod", "c") == fresh(policy)


def test_nodes_are_charged_in_the_order_of_the_list() -> None:
    policy = static(empty_nodes(8, 8))
    nodes = charge(policy.default_nodes, (1, 0), "memory", 10)
    assert [node.memory["memory"].reserved for node in nodes.values()] == [2, 8]
    state = on_file(nodes, {"pod": {"c": (block([1, 0], 10),)}})
    assert start(policy, state) is state
    # Beside another group the order is more than a question of sums.
    both = charge(charge(empty_nodes(8, 8), (1, 0), "memory", 10), (0,), "memory", 6)
    assert [node.memory["memory"].reserved for node in both.values()] == [8, 8]
    assert start(policy, on_file(both, {"a": {"c": (block([1, 0], 10),)}, "b": {"c": (block([0], 6),)}})) != DIFFERENT
    ascending = charge(charge(empty_nodes(8, 8), (0, 1), "memory", 10), (0,), "memory", 6)
    assert [node.memory["memory"].reserved for node in ascending.values()] == [8, 2]


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (block([0, 9], 6), "NUMA node 9, which the machine does not have"),
        (block([9], 0), "NUMA node 9, which the machine does not have"),
        (block([0], 6, HUGE), '"hugepages-2Mi", which NUMA node 0 does not list'),
    ],
)
def test_unchecked_blocks_of_a_pod_crash_the_kubelet_when_they_are_given_back(held: Block, words: str) -> None:
    # A pod without container entries is not looked at when the kubelet starts; containers can join it later.
    policy = static(empty_nodes(8, 8), gates=BOTH)
    state = replace(fresh(policy), pods={"pod": (held,)})
    assert start(policy, state) is state
    joined = replace(state, nodes=charge(state.nodes, (0,), "memory", 3), assignments={"pod": {"c": (block([0], 3),)}})
    with pytest.raises(KubeletCrashError, match=words):
        remove(policy, joined, "pod", "c")


def test_an_unknown_type_of_which_nothing_is_left_to_give_back_is_not_looked_up() -> None:
    policy = static(empty_nodes(8, 8), gates=BOTH)
    nodes = charge(policy.default_nodes, (0,), "memory", 3)
    state = MemoryState("Static", nodes, {"pod": {"c": (block([0], 3),)}}, {"pod": (block([0], 0, HUGE),)})
    left = remove(policy, state, "pod", "c")
    assert (left.nodes[0].assignments, left.nodes[0].memory["memory"].reserved) == (0, 3)


# Order.


def test_a_single_node_beside_its_group_starts_and_the_start_is_said_to_be_left_to_chance() -> None:
    policy = static(empty_nodes(8, 8))
    group, single = block([0, 1], 2), block([0], 6)
    state = on_file(charged(policy.default_nodes, group, single), {"a": {"c": (single,)}, "b": {"c": (group,)}})
    facts: list[object] = []
    assert start(policy, state, facts.append) is state
    assert facts == [StartLeftToChance((0,))]


def in_order(empty: Nodes, pods: Assignments, *order: str) -> MemoryState:
    """Return the file of pods whose containers, each named like its pod and a letter, came in this order."""
    held = [pods[name[0]][name[1]] for name in order]
    return on_file(charged(empty, *[one for blocks in held for one in blocks]), pods)


def test_no_order_takes_a_pod_apart() -> None:
    # The kubelet charges one pod after the other, so what only such an order leads to never starts.
    policy = static(empty_nodes(8, 8, 8, 8))
    pods: Assignments = {
        "a": {"x": (block([0], 1),), "y": (block([1], 1),)},
        "b": {"x": (block([0, 2], 1),), "y": (block([1, 3], 1),)},
    }
    assert start(policy, in_order(policy.default_nodes, pods, "bx", "ax", "ay", "by")) == DIFFERENT
    for order in (("bx", "by", "ax", "ay"), ("ax", "ay", "by", "bx")):
        state = in_order(policy.default_nodes, pods, *order)
        assert start(policy, state) is state


@st.composite
def files(draw: st.DrawFn) -> MemoryState:
    """Draw a small file: some assignments on overlapping sets of nodes, replayed in some order the kubelet may take.

    Its machine state may be off by what a removal leaves behind.
    """
    nodes: Nodes = empty_nodes(*draw(st.lists(st.integers(1, 6), min_size=2, max_size=3)))
    sets = st.sets(st.sampled_from(sorted(nodes)), min_size=1).map(sorted)
    blocks = st.lists(st.builds(block, sets, st.integers(0, 7)), min_size=1, max_size=2).map(tuple)
    pods = draw(st.lists(st.lists(blocks, min_size=1, max_size=2), max_size=4))
    assignments = {
        f"pod-{number}": {f"c{index}": held for index, held in enumerate(containers)}
        for number, containers in enumerate(pods)
    }
    order = draw(st.permutations(sorted(assignments)))
    recorded = nodes
    for uid in order:
        for name in draw(st.permutations(sorted(assignments[uid]))):
            recorded = charged(recorded, *assignments[uid][name])
    if draw(st.integers(0, 2)) == 0:
        gone = draw(blocks)
        recorded = release(charged(recorded, *gone), gone)
    return on_file(recorded, assignments)


def every_order(assignments: Assignments) -> Iterator[list[tuple[Block, ...]]]:
    for pods in permutations(assignments):
        for inside in product(*[list(permutations(assignments[uid].values())) for uid in pods]):
            yield [blocks for containers in inside for blocks in containers]


def starts_in_some_order(empty: Nodes, state: MemoryState) -> bool:
    return any(
        same(charged(empty, *[one for held in order for one in held]), state.nodes)
        for order in every_order(state.assignments)
    )


def same(expected: Nodes, real: Nodes) -> bool:
    for node, state in expected.items():
        if state.assignments != real[node].assignments or set(state.cells) != set(real[node].cells):
            return False
        for resource in state.memory:
            for amount in (lambda table: table.free, lambda table: table.reserved):
                if total(expected, state.cells, resource, amount) != total(real, state.cells, resource, amount):
                    return False
    return True


def total(nodes: Nodes, cells: tuple[int, ...], resource: str, amount: Callable[..., int]) -> int:
    return sum(amount(nodes[cell].memory[resource]) for cell in cells)


@settings(max_examples=70)
@given(files())
def test_a_file_starts_exactly_when_some_order_starts(state: MemoryState) -> None:
    empty = {
        node: NUMANodeState(
            0, {name: replace(one, reserved=0, free=one.allocatable) for name, one in known.memory.items()}, (node,)
        )
        for node, known in state.nodes.items()
    }
    possible = starts_in_some_order(empty, state)
    event(f"{'starts' if possible else 'never starts'}, {len(state.assignments)} pods")
    answer = start(static(empty), state)
    assert answer == (state if possible else DIFFERENT)


def test_full_nodes_are_searched_and_the_search_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    # What finds room on node 0 depends on what came before it; the groups alone do not tell.
    policy = static(empty_nodes(5, 6))
    pods: Assignments = {
        "a": {"c": (block([0], 2),)},
        "b": {"c": (block([0], 3),)},
        "c": {"c": (block([0, 1], 2),)},
        "d": {"c": (block([0, 1], 5),)},
    }
    state = in_order(policy.default_nodes, pods, "bc", "cc", "dc", "ac")
    assert start(policy, state) is state
    monkeypatch.setattr(replay, "MOST_CHARGES", 3)
    assert start(policy, state) == DIFFERENT


def test_hundreds_of_containers_beside_a_contested_node_are_charged_once() -> None:
    calm: list[Containers] = [((block([2], 1),),) for _ in range(300)]
    contested: list[Containers] = [((block([0, 1], 1),),), ((block([0], 1),),)]
    assert replay.contested_nodes([*calm, *contested]) == 0b011
    policy = static(empty_nodes(8, 8, 400))
    names = {f"p{number}": {"c": containers[0]} for number, containers in enumerate([*calm, *contested])}
    nodes = charged(policy.default_nodes, *[one for held in names.values() for one in held["c"]])
    state = on_file(nodes, names)
    assert start(policy, state) is state
    # Something no order explains: the search looks at the contested pods alone.
    table = nodes[2].memory["memory"]
    wrong = {**nodes, 2: replace(nodes[2], memory={"memory": replace(table, free=table.free + 1)})}
    assert start(policy, on_file(wrong, names)) == DIFFERENT
