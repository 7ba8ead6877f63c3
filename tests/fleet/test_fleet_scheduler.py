"""Filters, scores and the queue, by figures that the scheduler's formulas give."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.fleet.clusters import arrival, asked, cluster, group

from mooring.engine.core.errors import InputError
from mooring.fleet.cluster import PodDemand, PodPhase, Record
from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.numa import NUMAMatch, NUMAScoring
from mooring.fleet.scheduler.scheduler import Queue, Scheduler, ready_at
from mooring.fleet.scheduler.strategy import (
    Scoring,
    Strategy,
    feasible,
    nodes_to_find,
    scores,
    strategy_of,
)

OFFER = {"cpu": 10_000, "memory": 1000 * 2**20, "pods": 3}


def some_nodes(count: int = 2) -> Nodes:
    nodes = Nodes(cluster(group("n", count, gpus=0)))
    for place in range(count):
        nodes.table.set_offer(place, OFFER)
    return nodes


def points(of: Nodes, what: PodDemand, strategy: Strategy) -> list[int]:
    found: list[int] = scores(of.table, what, np.arange(len(of.at)), strategy).tolist()
    return found


def test_least_and_most_allocated_score_free_and_used_shares() -> None:
    nodes = some_nodes()
    nodes.table.add(0, asked("4", "600Mi"))
    # Node 0: cpu (10 - 5) / 10, memory (1000 - 700) / 1000 free; balance gets worse by 0 to 0.1 shares each.
    assert points(nodes, asked("1", "100Mi"), Strategy(Scoring.LEAST)) == [40 + 75 + 300, 90 + 75 + 300]
    assert points(nodes, asked("1", "100Mi"), Strategy(Scoring.MOST)) == [60 + 75 + 300, 10 + 75 + 300]


def test_a_container_without_requests_counts_in_scores_and_not_in_filters() -> None:
    nodes = some_nodes().table
    best_effort = asked("0", "0", guaranteed=False)
    assert feasible(nodes, best_effort).all()
    nodes.add(0, asked("10", "1000Mi"))
    assert feasible(nodes, best_effort).all()
    assert feasible(nodes, asked("1m")).tolist() == [False, True]


def test_a_node_takes_no_more_pods_than_it_may_have() -> None:
    nodes = some_nodes(1).table
    for _ in range(3):
        assert feasible(nodes, asked("0", "0")).all()
        nodes.add(0, asked("0", "0"))
    assert not feasible(nodes, asked("0", "0")).any()
    assert nodes.lacking(asked("0", "0"), 0) == "pods"


def test_a_resource_that_no_node_has_fits_nowhere() -> None:
    assert not feasible(some_nodes().table, asked("1", gpus=1)).any()


@pytest.mark.parametrize(("nodes", "found"), [(99, 99), (100, 100), (250, 120), (6000, 300), (20_000, 1000)])
def test_the_search_ends_after_a_share_of_the_nodes(nodes: int, found: int) -> None:
    assert nodes_to_find(nodes) == found


def test_the_search_goes_on_where_it_ended() -> None:
    nodes = Nodes(cluster(group("n", 250, gpus=0)))
    scheduler = Scheduler(nodes, Strategy(), seed=0)
    what = asked("100m", guaranteed=False)
    first, second, third = (scheduler.choose(what).node for _ in range(3))
    assert first is not None
    assert second is not None
    assert third is not None
    assert first < 120 <= second < 240
    assert third >= 240 or third < 110


def test_zones_are_looked_at_in_turn() -> None:
    zoned = replace(group("a", 4, gpus=0), zones=("x", "x", "x", "y"))
    assert Nodes(cluster(zoned)).table.order.tolist() == [0, 3, 1, 2]


def test_high_priority_comes_first_and_parked_pods_come_back_in_their_order() -> None:
    queue, what = Queue(), asked("1")
    pods = [Record(arrival(f"p{number}", what, number)) for number in range(3)]
    for one in pods:
        one.tries = 1
        queue.park(one)
    assert queue.kinds() == [what]
    assert queue.wake(what.key) is pods[0]
    pods[0].tries = 2
    queue.park(pods[0])
    pods[0].fate = PodPhase.LEFT
    assert queue.wake(what.key) is pods[1]
    assert queue.wake(what.key) is pods[2]
    assert queue.wake(what.key) is None
    assert not queue.kinds()


def test_the_back_off_doubles_up_to_ten_seconds() -> None:
    pauses = {1: 1, 2: 2, 4: 8, 9: 10}
    found = {tries: ready_at(Record(arrival("p", asked("1")), tries=tries, tried=100.0)) for tries in pauses}
    assert found == {tries: 100 + pause for tries, pause in pauses.items()}


def numa_match(scoring: NUMAScoring, *pods: str) -> tuple[NUMAMatch, Nodes]:
    """Return the plugin, and one node with two NUMA nodes of four CPUs, of which CPU 0 is reserved."""
    nodes = Nodes(cluster(group("n", 1, gpus=0)))
    for cpus in pods:
        assert nodes.admit(0, asked(cpus))[0].admitted
    return NUMAMatch(scoring), nodes


def test_node_resource_topology_match_passes_what_one_numa_node_has() -> None:
    match, nodes = numa_match(NUMAScoring.LEAST, "3")
    fits = {cpus: match.fits(nodes.at[0], asked(cpus).shape) for cpus in ("1", "4", "5")}
    assert fits == {"1": True, "4": True, "5": False}
    assert match.fits(nodes.at[0], asked("5", guaranteed=False).shape)


@pytest.mark.parametrize(
    ("scoring", "points"),
    [
        # CPUs: 2 of 3 and 2 of 4; memory: 4 of 8 GiB each; the least of the two NUMA nodes.
        (NUMAScoring.LEAST, (33 + 50) // 2),
        (NUMAScoring.MOST, 50),
        (NUMAScoring.BALANCED, int((1 - ((2 / 3 - 0.5) / 2) ** 2 * 2) * 100)),
        # One NUMA node, 12 points each, and 6 more because nothing is nearer.
        (NUMAScoring.FEWEST_NODES, 100 - 12 + 6),
    ],
)
def test_node_resource_topology_match_scores_by_numa_node(scoring: NUMAScoring, points: int) -> None:
    match, nodes = numa_match(scoring)
    assert match.score(nodes.at[0], asked("2", "4Gi").shape) == points
    assert match.score(nodes.at[0], asked("2", guaranteed=False).shape) == 100


def test_a_node_that_the_plugin_leaves_out_is_not_chosen() -> None:
    nodes = Nodes(cluster(group("n", 1, gpus=0)))
    assert Scheduler(nodes, Strategy(numa=NUMAScoring.LEAST), seed=0).choose(asked("5")).node is None
    assert Scheduler(nodes, Strategy(), seed=0).choose(asked("5")).node == 0


def test_a_shape_is_a_function_that_is_linear_between_its_points() -> None:
    nodes = some_nodes()
    nodes.table.add(0, asked("4", "400Mi"))
    # Half used: 100 for both; a tenth used: 20.
    found = points(nodes, asked("1", "100Mi"), strategy_of("RequestedToCapacityRatio(0:0,50:10,100:0)"))
    assert found == [100 + 75 + 300, 20 + 75 + 300]


@pytest.mark.parametrize(
    "name", ["Least", "LeastAllocated(0:0)", "MostAllocated+exact", "LeastAllocated+numa:Best",
             "RequestedToCapacityRatio(50:1,10:2)", "RequestedToCapacityRatio(x)", "RequestedToCapacityRatio(0:11)"]
)  # fmt: skip
def test_a_strategy_that_is_none_is_one_line(name: str) -> None:
    with pytest.raises(InputError, match="--strategy") as raised:
        strategy_of(name)
    assert "\n" not in str(raised.value)
