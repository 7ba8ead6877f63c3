"""Controllers: what they create, when they create another pod, and when they give up."""

from __future__ import annotations

from dataclasses import replace

from tests.fleet.clusters import LOOSE, asked, cluster, group

from mooring.fleet.answer import answer_of
from mooring.fleet.cluster import ControllerKind, NodeAction, NodeCluster, NodeEvent, PodPhase, Workload, work_of
from mooring.fleet.controllers import MOST_REMADE
from mooring.fleet.simulation import Simulation

SIX = asked("6")
"""More than one NUMA node has: the sums of a node take it, and single-numa-node does not."""
ONE = cluster(group("a", 1, gpus=0))


def run(workload: Workload, nodes: NodeCluster = ONE) -> Simulation:
    return Simulation(nodes, work_of("w", [], (), [workload])).run()


def created(result: Simulation) -> list[tuple[str, float]]:
    return [(record.arrival.name, record.arrival.at) for record in result.records]


def test_a_deployment_replaces_refused_pods_without_back_off_until_they_count_as_runaways() -> None:
    result = run(Workload("default/web", ControllerKind.DEPLOYMENT, SIX, pods=2))
    assert created(result)[:4] == [
        ("default/web-0", 0.0), ("default/web-1", 0.0), ("default/web-0~1", 1.0), ("default/web-1~1", 1.0)
    ]  # fmt: skip
    assert answer_of(result).runaways == {"default/web-0": MOST_REMADE, "default/web-1": MOST_REMADE}
    assert answer_of(result).pods.refused == 2 * (MOST_REMADE + 1)


def test_a_stateful_set_creates_a_pod_when_those_before_it_run() -> None:
    ordered = Workload("default/db", ControllerKind.STATEFUL_SET, asked("3"), pods=3, ordered=True, first=5)
    result = run(ordered)
    assert created(result) == [("default/db-5", 0.0), ("default/db-6", 0.0), ("default/db-7", 0.0)]
    assert [record.fate for record in result.records] == [PodPhase.RUNS, PodPhase.RUNS, PodPhase.WAITS]
    refused = run(replace(ordered, asked=SIX))
    assert {name.partition("~")[0] for name, _ in created(refused)} == {"default/db-5"}


def test_a_job_runs_so_many_pods_side_by_side_until_all_have_ended() -> None:
    result = run(Workload("default/j", ControllerKind.JOB, asked("1"), 0.0, 5, 2, runs=10.0))
    assert [at for _, at in created(result)] == [0.0, 0.0, 10.0, 10.0, 20.0]
    assert answer_of(result).pods.ran == 5
    assert not answer_of(result).failed_jobs


def test_a_job_waits_longer_after_each_failure_and_gives_up() -> None:
    result = run(Workload("default/j", ControllerKind.JOB, SIX, 0.0, 1, backoff_limit=3))
    assert created(result) == [
        ("default/j-0", 0.0), ("default/j-0~1", 10.0), ("default/j-0~2", 30.0), ("default/j-0~3", 70.0)
    ]  # fmt: skip
    assert answer_of(result).failed_jobs == ["default/j"]
    assert not answer_of(result).runaways


def test_a_job_that_gives_up_deletes_the_pods_that_run() -> None:
    nodes = cluster(group("a", 1, gpus=0), group("b", 1, LOOSE, gpus=0))
    result = run(Workload("default/j", ControllerKind.JOB, SIX, 0.0, 3, backoff_limit=0, runs=1000.0), nodes)
    assert PodPhase.RUNS not in {record.fate for record in result.records}
    assert answer_of(result).failed_jobs == ["default/j"]


def test_evicted_pods_of_a_deployment_come_back_elsewhere() -> None:
    nodes = replace(cluster(group("a", 2, gpus=0)), events=(NodeEvent(50.0, "a-0", NodeAction.DRAIN),))
    workload = Workload("default/web", ControllerKind.DEPLOYMENT, asked("2"), pods=2)
    result = run(workload, nodes)
    assert sorted(record.fate.value for record in result.records) == ["evicted", "runs", "runs"]
    assert [len(pods) for pods in result.nodes.pods] == [0, 2]


def test_a_deployment_that_is_deleted_takes_its_pods_with_it() -> None:
    result = run(Workload("default/web", ControllerKind.DEPLOYMENT, asked("3"), pods=3, leaves=30.0))
    assert [(record.fate, record.ended) for record in result.records] == [
        (PodPhase.RAN, 30.0), (PodPhase.RAN, 30.0), (PodPhase.LEFT, 30.0)
    ]  # fmt: skip
