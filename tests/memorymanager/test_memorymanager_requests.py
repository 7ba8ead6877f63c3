"""What containers and pods ask of the memory manager, and what is kept back from them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.faults import text_of
from tests.memorymanager.small_memory import BOTH, HUGE, SIDECAR, container, pod, pod_level

from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.engine.core.pod import PodLevelGates
from mooring.engine.core.quantity import Quantity
from mooring.engine.memorymanager.policy import (
    NOT_INT64,
    container_requests,
    default_machine_state,
    hugepages_type,
    pod_requests,
    reserved_table,
    wrapped_nodes,
)

OFF = PodLevelGates()


@pytest.mark.parametrize("text", ["0.5", "100m", "1e30", "9223372036854775808"])
def test_what_is_no_whole_number_of_64_bits_is_an_error(text: str) -> None:
    asked = container("c", text)
    assert container_requests(pod(asked), asked, OFF) == NOT_INT64
    assert pod_requests(pod(asked), OFF) == NOT_INT64


def test_a_container_of_a_managed_pod_asks_only_when_requests_equal_limits() -> None:
    own, shared = container("own", 4), replace(container("shared", 3), limits={})
    whole = pod_level(own, shared, memory=10)
    assert container_requests(whole, own, BOTH) == {"memory": 4}
    assert container_requests(whole, shared, BOTH) == {}
    assert container_requests(whole, shared, OFF) == {"memory": 3}
    no_cpu = container("no cpu", 4, cpu=0)
    assert container_requests(pod_level(no_cpu, memory=10), no_cpu, BOTH) == {}


def machine(*nodes: NUMANode) -> MachineInfo:
    return MachineInfo(1, 1, sum(node.memory for node in nodes), nodes)


def test_reservations_above_a_nodes_memory_wrap_around_and_are_named() -> None:
    state = default_machine_state(
        machine(NUMANode(0, 1024), NUMANode(1, 0), NUMANode(2, 1 << 30)), {0: {"memory": 1025}}
    )
    assert state[0].memory["memory"].allocatable == state[0].memory["memory"].free == 2**64 - 1
    assert (state[0].memory["memory"].total, state[0].memory["memory"].system_reserved) == (1024, 1025)
    assert wrapped_nodes(state) == (0,)


def test_sums_of_a_pods_requests_wrap_around() -> None:
    whole = pod(container("s", "9E", SIDECAR), container("a", "9E"), container("b", "9E"))
    assert pod_requests(whole, OFF) == {"memory": 27 * 10**18 - 2**64}


@pytest.mark.parametrize(
    ("kib", "name"), [(4, "hugepages-4Ki"), (64, "hugepages-64Ki"), (2048, HUGE), (16777216, "hugepages-16Gi")]
)
def test_pools_are_named_by_page_size_in_binary_units(kib: int, name: str) -> None:
    assert hugepages_type(kib) == name


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
