"""Alignment of memory and devices is measured, and alignment by luck never wins against a guarantee."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.planner.compared import FIGURES, STATIC, machine, measure, pod, pods, run_trial, trace, varied

from mooring.answers.base.changes.configuration import AlignmentPromise
from mooring.answers.base.trace import shapes
from mooring.answers.compare.answer import Comparison, compare
from mooring.answers.compare.measures import MEASURES, AlignedContainersPart, VariantPart, alignment, rank_key, touched
from mooring.answers.compare.trial import StrandedCPUsPart
from mooring.answers.compare.variant import Dimension, Variant
from mooring.engine.core.config import KubeletConfig, ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.quantity import Quantity
from mooring.engine.core.topology import discover_topology
from mooring.engine.devicemanager.state import Device
from mooring.explanations.phrases import fewest_elements
from mooring.inputs.machines.loader import load_machine

GPU = "vendor.example/gpu"
NODE = load_machine("sockets=2 numa=2 cores=8 threads=1 memory=32Gi")
"""Nodes 0-3 and 4-7; CPU 0 is reserved."""
PINNING = replace(
    STATIC,
    memory_manager_policy="Static",
    kube_reserved={"memory": "1948Mi"},
    reserved_memory=(ReservedMemory(0, {"memory": "2Gi"}),),
)


def trainer(name: str, cpus: int, gpus: int) -> Pod:
    texts = {"cpu": str(cpus), "memory": "1Gi", **({GPU: str(gpus)} if gpus else {})}
    amounts = {resource: Quantity.parse(text) for resource, text in texts.items()}
    return Pod(
        f"uid-{name}", name, containers=(Container("main", requests=amounts, limits=amounts),), qos=QoS.GUARANTEED
    )


def by_policy(
    pods: list[Pod], config: KubeletConfig = STATIC, gpus: tuple[int, ...] = (0, 1), by: str = "guaranteed"
) -> Comparison:
    """Compare the topology policies on a node with a GPU on each of some NUMA nodes."""
    devices = {GPU: tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpus))}
    variants = [replace(one, devices=devices) for one in varied(NODE, config, Dimension.TOPOLOGY_POLICY)]
    return compare(trace(pods), variants, by=by)


def policies(comparison: Comparison) -> list[str]:
    return [one.settings.topology_manager_policy for one in comparison.document.variants]


def of_policy(comparison: Comparison, policy: str) -> VariantPart:
    return next(one for one in comparison.document.variants if one.settings.topology_manager_policy == policy)


def of_devices(found: VariantPart) -> tuple[int, int]:
    """Return how many containers with devices are aligned, and how many there are."""
    return found.aligned.devices, found.device_containers


def test_devices_far_from_the_cpus_are_counted() -> None:
    # Without hints the CPUs of the first pod come from NUMA node 0 and its GPU is gpu-0; the second gets CPUs of both.
    found = by_policy([trainer("one", 2, 0), trainer("two", 3, 1)], gpus=(0,))
    assert of_devices(of_policy(found, "none")) == (0, 1)
    # Of the two the GPU is where the CPUs are, when hints are used.
    assert of_devices(of_policy(by_policy([trainer("two", 3, 1)], gpus=(1,)), "restricted")) == (1, 1)


def test_memory_away_from_the_cpus_is_counted() -> None:
    found = by_policy([trainer("one", 2, 0), trainer("two", 4, 0)], PINNING)
    without, sure = of_policy(found, "none"), of_policy(found, "restricted")
    assert without.memory_containers == sure.memory_containers == 2
    assert without.aligned.memory < 2
    assert sure.aligned.memory == 2


def test_a_policy_that_promises_nothing_does_not_win_when_it_aligns_as_much() -> None:
    found = by_policy([trainer("one", 3, 1), trainer("two", 4, 1)])
    assert len({one.admitted for one in found.document.variants}) == 1, "every policy decides the same here"
    assert policies(found)[-2:] == ["best-effort", "none"]
    assert not found.document.variants[0].is_luck


def test_a_policy_that_promises_nothing_wins_by_admitting_more_only_where_that_is_the_measure() -> None:
    pods = [trainer("one", 2, 0), trainer("two", 2, 0), trainer("three", 3, 0)]
    found = by_policy(pods, by="admitted")
    assert policies(found)[:2] == ["best-effort", "none"]
    assert found.document.variants[0].is_luck
    assert policies(by_policy(pods))[-2:] == ["best-effort", "none"]


def test_align_by_socket_guarantees_sockets_and_not_numa_nodes() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    config = replace(STATIC, cpu_manager_policy_options={"align-by-socket": "true"}, feature_gates=gates)
    found = by_policy([trainer("one", 4, 0)], config)
    measured_ = of_policy(found, "restricted")
    assert (measured_.promise, measured_.is_luck, measured_.is_socket_luck) == (AlignmentPromise.SOCKET, True, False)
    assert MEASURES["numa"](measured_) == (0,)
    assert MEASURES["socket"](measured_) == (-1,)


def test_without_anything_to_align_the_given_configuration_stays_first() -> None:
    shared = Pod("uid-shared", "shared", containers=(Container("main"),), qos=QoS.BEST_EFFORT)
    assert policies(by_policy([shared]))[0] == "none"


@st.composite
def measured(draw: st.DrawFn, promise: AlignmentPromise) -> VariantPart:
    small = st.integers(0, 3)
    numa, socket, l3, memory, devices = (draw(small) for _ in range(5))
    return structs.replace(
        FIGURES,
        admitted=4,
        exclusive_containers=3,
        memory_containers=3,
        device_containers=3,
        aligned=AlignedContainersPart(numa, socket, l3, 3, memory, devices),
        spread=round(draw(st.integers(3, 6)) / 3, 3),
        alignment_promise=promise.name.lower(),
    )


@pytest.mark.parametrize("by", sorted(set(MEASURES) - {"socket"}))
@given(
    measured(AlignmentPromise.GUARANTEE),
    st.sampled_from([AlignmentPromise.NOTHING, AlignmentPromise.ATTEMPT]).flatmap(measured),
)
@settings(deadline=None, max_examples=50)
def test_luck_never_outranks_a_guarantee(by: str, sure: VariantPart, lucky: VariantPart) -> None:
    assert rank_key(sure, by) < rank_key(lucky, by)


# Alignment and stranded CPUs of placements that were made by hand, and of nodes filled by the engine.


NONE_STRANDED = StrandedCPUsPart(0, 0, 0, 0)
TOPOLOGY = discover_topology(machine().info)
"""4 NUMA nodes of 4 cores with 2 threads on 2 sockets, two L3 caches a node; siblings are c and c + 16."""


@pytest.mark.parametrize(
    ("cpus", "aligned"),
    [
        ("0,16", (1, 1, 1, 1)),
        ("0-1", (1, 1, 1, 0)),
        ("1-2,17-18", (1, 1, 0, 1)),
        ("0-3,16-19", (1, 1, 1, 1)),
        ("3-4,19-20", (0, 1, 0, 1)),
        ("7-8,23-24", (0, 0, 0, 1)),
        ("0-7,16-23", (1, 1, 1, 1)),
        ("0-3,8-11,16-19,24-27", (1, 0, 1, 1)),
        ("0-2,16-17", (1, 1, 1, 0)),
    ],
)
def test_a_container_is_aligned_on_the_fewest_elements(cpus: str, aligned: tuple[int, int, int, int]) -> None:
    assert alignment(TOPOLOGY, 0, [CPUSet.parse(cpus).mask]) == aligned


def test_what_is_reserved_counts_as_room_for_nobody() -> None:
    node = CPUSet.parse("0-3,16-19").mask
    eight = CPUSet.parse("1-4,17-20").mask
    assert alignment(TOPOLOGY, 0, [eight])[0] == 0
    # One reserved CPU on every node: 8 CPUs need two nodes then.
    reserved = CPUSet.parse("0,4,8,12").mask
    assert alignment(TOPOLOGY, reserved, [eight])[0] == 1
    assert fewest_elements(list(TOPOLOGY.numa.values()), node.bit_count(), reserved) == 2


@given(st.lists(st.integers(0, 6), max_size=6), st.integers(1, 20))
@settings(deadline=None, max_examples=100)
def test_fewest_is_the_smallest_choice_that_holds_the_cpus(sizes: list[int], count: int) -> None:
    masks, low = [], 0
    for size in sizes:
        masks.append(((1 << size) - 1) << low)
        low += size
    enough = [
        number
        for number in range(1, len(masks) + 1)
        for chosen in combinations(masks, number)
        if sum(mask.bit_count() for mask in chosen) >= count
    ]
    assert fewest_elements(masks, count) == min(enough, default=0)


@given(st.sets(st.integers(0, 31), min_size=1))
@settings(deadline=None, max_examples=100)
def test_no_set_of_cpus_touches_fewer_elements_than_the_fewest(cpus: set[int]) -> None:
    mask = CPUSet.from_ids(cpus).mask
    for elements in (TOPOLOGY.numa, TOPOLOGY.sockets, TOPOLOGY.uncores, TOPOLOGY.cores):
        assert touched(elements.values(), mask) >= fewest_elements(elements.values(), len(cpus))


def stranded(asked: list[int], *, fill: list[int] | None = None, **options: str) -> StrandedCPUsPart:
    config = replace(STATIC, cpu_manager_policy_options=options, topology_manager_policy="single-numa-node")
    asked_for = pods(*asked)
    trial = run_trial(trace(asked_for), Variant("x", machine(), config))
    assert all(one.decision.admitted for one in trial.admissions)
    return measure(trace(asked_for), trial, shapes(trace(pods(*(fill or asked))))).stranded


def test_what_pods_of_the_same_shapes_can_use_is_not_stranded() -> None:
    # 31 CPUs without the reserved one, one at a time: all of them can be used.
    assert stranded([1, 1]) == NONE_STRANDED


def test_what_is_too_small_for_every_shape_is_stranded() -> None:
    # 7 CPUs remain on the node of the reserved CPU; its sibling is beside nobody's core.
    assert stranded([8]) == StrandedCPUsPart(7, 0, 0, 7)
    # Pods of 5 leave 3 on three nodes, one of them beside a thread that is taken. On the node of the reserved CPU the
    # fifth one is that CPU's sibling, and a whole core is left.
    assert stranded([5]) == StrandedCPUsPart(11, 0, 3, 3 * 2 + 2)


def test_smaller_shapes_fill_what_larger_ones_leave() -> None:
    assert stranded([5], fill=[5, 3]).total == 2
    assert stranded([5], fill=[1, 5]).total == 0


def test_threads_beside_taken_ones_are_stranded_under_whole_cores() -> None:
    config = replace(STATIC, cpu_manager_policy_options={"full-pcpus-only": "true"})
    trial = run_trial(trace(pods(2)), Variant("x", machine(), config))
    found = measure(trace(pods(2)), trial, shapes(trace(pods(2)))).stranded
    assert found == StrandedCPUsPart(1, 0, 0, 1), "the sibling of the reserved CPU, which is nobody's"


def test_cpus_of_ended_init_containers_are_stranded() -> None:
    asked = [pod("one", 2, init=6)]
    trial = run_trial(trace(asked), Variant("x", machine(), STATIC))
    found = measure(trace(asked), trial, shapes(trace(asked)))
    assert found.stranded.init == 4
    assert (found.exclusive_containers, found.aligned.numa) == (1, 1), "the init container itself is not counted"


def test_nothing_is_stranded_where_nobody_gets_cpus() -> None:
    asked = pods(2, 3)
    trial = run_trial(trace(asked), Variant("x", machine(), replace(STATIC, cpu_manager_policy="none")))
    found = measure(trace(asked), trial, shapes(trace(asked)))
    assert (found.admitted, found.exclusive_containers, found.stranded, found.spread) == (2, 0, NONE_STRANDED, 0.0)


def test_memory_on_more_nodes_than_its_amount_needs_is_counted() -> None:
    config = replace(
        STATIC,
        memory_manager_policy="Static",
        topology_manager_policy="best-effort",
        topology_manager_scope="pod",
        kube_reserved={"memory": "1948Mi"},
        reserved_memory=(ReservedMemory(0, {"memory": "2Gi"}),),
    )
    wide = pods(12)
    trial = run_trial(trace(wide), Variant("x", machine(), config))
    assert trial.admissions[0].decision.admitted, trial.admissions[0].decision.message
    found = measure(trace(wide), trial, shapes(trace(wide)))
    assert (found.spread, found.memory_nodes_beyond_need) == (2, 1), "1 GiB is bound to both nodes of the CPUs"
