"""Alignment and stranded CPUs of placements that were made by hand, and of nodes filled by the engine."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.compared import STATIC, machine, measure, pod, pods, run_trial, trace

from mooring.answers.base.trace import shapes
from mooring.answers.compare.measures import alignment, touched
from mooring.answers.compare.trial import StrandedCPUsPart
from mooring.answers.compare.variant import Variant
from mooring.engine.core.config import ReservedMemory
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import discover_topology
from mooring.explanations.phrases import fewest_elements

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
def test_a_container_is_aligned_where_it_touches_the_fewest_elements(
    cpus: str, aligned: tuple[int, int, int, int]
) -> None:
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
