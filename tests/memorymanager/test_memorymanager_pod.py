"""Memory of whole pods (KEP-5526), and what containers and pods ask for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.faults import text_of
from tests.memorymanager.small_memory import (
    ANYWHERE,
    APP,
    BOTH,
    HUGE,
    INIT,
    block,
    container,
    empty_nodes,
    fresh,
    on,
    pod,
    pod_level,
    reserved,
    served,
    served_one,
    static,
)

import mooring.engine.memorymanager.hints as policy_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.decision import AllocationError
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.memorymanager.facts import MemoryHintsAsked, MemoryPinningFailed, MemoryPinningRequested
from mooring.engine.memorymanager.policy import (
    MemoryPolicy,
    default_machine_state,
    reserved_table,
    wrapped_nodes,
)
from mooring.engine.memorymanager.start import DIFFERENT, start
from mooring.engine.memorymanager.state import Block, MemoryState, ReusableMemory
from mooring.engine.memorymanager.static import allocate_pod, remove
from mooring.engine.topologymanager.hints import Hint, Hints

NODES = empty_nodes(20, 20, M2=(9, 9))
POLICY = static(NODES, gates=BOTH)
SANE = static(NODES, "pod-restart", gates=BOTH)


def shared(name: str, kind: ContainerKind = APP) -> Container:
    return Container(name, kind)


def served_whole(
    policy: MemoryPolicy, whole: Pod, hint: Hint = ANYWHERE, state: MemoryState | None = None
) -> MemoryState:
    answer = allocate_pod(policy, state or fresh(policy), whole, hint)
    assert isinstance(answer, MemoryState), answer
    return answer


# The check of the shared pool.

NO_SHARED = (
    "pod rejected, sum of exclusive container memory requests equals pod budget, "
    "leaving no memory for shared containers"
)


# The partition.


def test_observers_are_told_of_the_whole_pod_and_why_it_failed() -> None:
    facts: list[object] = []
    whole = pod_level(container("a", 10), shared("b"), memory=10)
    answer = allocate_pod(POLICY, fresh(POLICY), whole, on(0), facts.append)
    assert answer == AllocationError(NO_SHARED, "EmptyPodSharedPoolError")
    assert facts == [MemoryPinningRequested("pod", ""), MemoryPinningFailed("pod", "", NO_SHARED)]
    del facts[:]
    hints = policy_hints.pod_hints(POLICY, fresh(POLICY), ReusableMemory(), pod(container("a", 5)), facts.append)
    (fact,) = facts
    assert isinstance(fact, MemoryHintsAsked)
    assert (fact.pod, fact.container, fact.requests, {"memory": fact.hints}) == ("pod", "", {"memory": 5}, hints)


# Restart.

WHOLE = pod_level(container("i", 3, INIT), container("a", 4), shared("b"), memory=10)


def started(policy: MemoryPolicy, whole: Pod = WHOLE, hint: Hint = ANYWHERE) -> MemoryState:
    """Return the state after the pod's containers started: init containers are gone."""
    return remove(policy, served_whole(policy, whole, hint), whole.uid, "i")


@pytest.mark.parametrize("whole", [WHOLE, pod_level(container("a", 4, M2=1), container("b", 6), memory=10, M2=1)])
def test_fixed_nothing_changes_and_the_hints_are_the_pods_own_nodes(whole: Pod) -> None:
    state = started(SANE, whole, on(1))
    assert served_whole(SANE, whole, on(0), state) is state
    hints = policy_hints.pod_hints(SANE, state, ReusableMemory(), whole)
    assert hints == {block.type: Hints(preferred=(NUMAMask(0b10),)) for block in state.pods["pod"]}


def test_fixed_the_kubelets_random_order_of_types_does_not_matter() -> None:
    whole = pod_level(container("a", 4, M2=1), shared("b"), memory=10, M2=3)
    state = served_whole(SANE, whole, on(1))
    turned = replace(
        state,
        assignments={"pod": {name: held[::-1] for name, held in state.assignments["pod"].items()}},
        pods={"pod": state.pods["pod"][::-1]},
    )
    assert served_whole(SANE, whole, on(0), turned) is turned


def test_fixed_containers_that_miss_theirs_at_the_end_get_them() -> None:
    state = served_whole(SANE, WHOLE, on(1))
    for kept in (("i",), ("i", "a")):
        torn = replace(state, assignments={"pod": {name: state.assignments["pod"][name] for name in kept}})
        assert served_whole(SANE, WHOLE, on(0), torn) == state


def begins_anew(torn: MemoryState, whole: Pod = WHOLE) -> bool:
    """Tell whether the pod is served as if it had nothing, on the nodes of the hint and charged once."""
    hints = policy_hints.pod_hints(SANE, torn, ReusableMemory(), whole)
    free = policy_hints.pod_hints(SANE, fresh(SANE), ReusableMemory(), whole)
    return hints == free and served_whole(SANE, whole, on(1), torn) == served_whole(SANE, whole, on(1))


def test_fixed_everything_else_begins_anew() -> None:
    state = served_whole(SANE, WHOLE, on(0))
    held = state.assignments["pod"]

    def torn(**entries: tuple[Block, ...]) -> MemoryState:
        return replace(state, assignments={"pod": entries})

    assert begins_anew(torn(i=held["i"], b=held["b"]))  # a is missing, and has not ended
    assert begins_anew(torn(i=held["i"], a=(block([0], 3),), b=held["b"]))
    assert begins_anew(torn(i=held["i"], a=(block([1], 4),), b=held["b"]))
    assert begins_anew(replace(state, pods={"pod": (block([0], 11),)}))


def test_fixed_a_pod_whose_numbers_changed_begins_anew() -> None:
    state = served_whole(SANE, pod_level(container("a", 4), shared("b"), memory=8), on(0))
    grown = pod_level(container("a", 4), shared("b"), memory=10)
    assert begins_anew(state, grown)
    assert reserved(served_whole(SANE, grown, on(1), state)) == [0, 10]


def test_fixed_containers_served_one_by_one_before_begin_anew() -> None:
    whole = pod_level(container("a", 4), container("c", 2), shared("b"), memory=10)
    state, _ = served(SANE, whole, on(0))
    assert reserved(state) == [6, 0]
    assert begins_anew(state, whole)


def test_pod_blocks_without_containers_were_never_charged() -> None:
    orphaned = replace(fresh(SANE), pods={"pod": (block([0], 10),)})
    assert start(SANE, orphaned) is orphaned
    assert begins_anew(orphaned)


def test_in_container_scope_a_pod_with_blocks_of_its_own_is_not_charged_again() -> None:
    state = started(SANE)
    assert served_one(SANE, state, WHOLE, "i", on(1)) is state
    assert policy_hints.container_hints(SANE, state, ReusableMemory(), WHOLE, WHOLE.containers[0]) is None
    # The kubelet serves the init container that has ended; its own file then says less than is charged.
    again = served_one(POLICY, started(POLICY), WHOLE, "i", on(1))
    assert start(POLICY, again) == DIFFERENT


def machine(*nodes: NUMANode) -> MachineInfo:
    return MachineInfo(1, 1, sum(node.memory for node in nodes), nodes)


def test_reservations_above_a_nodes_memory_wrap_around_and_are_named() -> None:
    state = default_machine_state(
        machine(NUMANode(0, 1024), NUMANode(1, 0), NUMANode(2, 1 << 30)), {0: {"memory": 1025}}
    )
    assert state[0].memory["memory"].allocatable == state[0].memory["memory"].free == 2**64 - 1
    assert (state[0].memory["memory"].total, state[0].memory["memory"].system_reserved) == (1024, 1025)
    assert wrapped_nodes(state) == (0,)


def reserve(*entries: ReservedMemory, node: str = "100", fixed: frozenset[str] = frozenset()) -> object:
    amounts = {"memory": Quantity.parse(node), "cpu": Quantity.parse("1")}
    return text_of(reserved_table(entries, [0, 1], amounts, fixed))


def test_a_node_may_be_named_without_ordinary_memory() -> None:
    entries = [ReservedMemory(0, {"memory": "100"}), ReservedMemory(1, {HUGE: "0"})]
    assert reserve(*entries) == {0: {"memory": 100}, 1: {HUGE: 0}}
    assert reserve(entries[1], node="0") == "[memorymanager] you should specify the system reserved memory"


def not_equal(configured: str, resource: str, expected: str) -> str:
    return (
        f'the total amount "{configured}" of type "{resource}" is not equal to the value "{expected}" '
        "determined by Node Allocatable feature"
    )


@pytest.mark.parametrize(
    ("entries", "node", "text"),
    [
        (
            [ReservedMemory(2, {"memory": "1"})],
            "100",
            "the reserved memory configuration references a NUMA node 2 that does not exist on this machine",
        ),
        ([ReservedMemory(0, {"memory": "60"})], "100", not_equal("60", "memory", "100")),
        ([ReservedMemory(0, {HUGE: "2Mi", "memory": "100"})], "100", not_equal("2Mi", "hugepages-2Mi", "0")),
        ([], "100", not_equal("0", "memory", "100")),
        ([ReservedMemory(0, {"memory": "0.5Gi"})], "512Mi", "could not covert a variable of type Quantity to int64"),
        ([], "0", "[memorymanager] you should specify the system reserved memory"),
    ],
)
def test_reserved_memory_that_does_not_add_up_is_refused(entries: list[ReservedMemory], node: str, text: str) -> None:
    assert reserve(*entries, node=node) == text


def test_the_misspelt_word_is_corrected_when_the_defect_is_fixed() -> None:
    entries = [ReservedMemory(0, {"memory": "0.5Gi"})]
    text = reserve(*entries, node="512Mi", fixed=frozenset({"hint-typo"}))
    assert text == "could not convert a variable of type Quantity to int64"
