"""Events of nodes: drains, restarts, upgrades, taints, CPUs offline, resizes, nodes that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fleet.clusters import ALIGNED, arrival, asked, cluster, group

from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Offline, Restart
from mooring.engine.releases.catalog import release_of
from mooring.fleet.answer import admitted, answer_of
from mooring.fleet.cluster import ClusterEvent, NodeAction, NodeEvent, PodArrival, PodPhase, PodResize, work_of
from mooring.fleet.event_files import load_cluster, with_events
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import Simulation
from mooring.inputs.pods.pods import resizing

SIX = asked("6")
FOUR = asked("4")


def run(arrivals: list[PodArrival], *events: ClusterEvent, count: int = 1) -> Simulation:
    return Simulation(replace(cluster(group("a", count, gpus=0)), events=events), work_of("w", arrivals)).run()


def fates(result: Simulation) -> dict[str, str]:
    return {record.arrival.name.partition("/")[2]: record.fate.value for record in result.records}


def test_a_cordoned_node_takes_no_new_pods_until_it_is_uncordoned() -> None:
    pods = [arrival("p", asked("1")), arrival("q", asked("1"), at=20)]
    result = run(pods, NodeEvent(10.0, "a", NodeAction.CORDON), NodeEvent(60.0, "a", NodeAction.UNCORDON))
    assert {record.arrival.name: record.admitted for record in result.records} == {"default/p": 0.0, "default/q": 60.0}


def test_a_restart_with_a_stricter_policy_refuses_pods_that_it_had_admitted() -> None:
    loose = Restart(replace(ALIGNED, topology_manager_policy="none"))
    strict = Restart(ALIGNED)
    pods = [arrival("six", SIX, at=10)]
    result = run(pods, NodeEvent(5.0, "a", loose), NodeEvent(50.0, "a", strict))
    record = result.records[0]
    assert (record.fate, record.admitted, record.ended) == (PodPhase.REFUSED, 10.0, 50.0)
    assert record.code


def test_a_kubelet_that_does_not_start_again_is_named_and_its_pods_leave_after_five_minutes() -> None:
    broken = Restart(replace(ALIGNED, topology_manager_policy="nope"))
    result = run([arrival("p", FOUR)], NodeEvent(10.0, "a", broken))
    assert result.operations.problems[0].startswith("a: the kubelet does not start again:")
    assert (result.records[0].fate, result.records[0].ended) == (PodPhase.EVICTED, 310.0)


def test_an_upgrade_keeps_the_pods_of_a_node() -> None:
    upgrade = Restart(release=release_of("1.37"))
    nodes = replace(cluster(group("a", 1, gpus=0)), events=(NodeEvent(10.0, "a", upgrade),))
    older = replace(nodes.groups[0], mooring=MooringConfig(release=release_of("1.34")))
    result = Simulation(replace(nodes, groups=(older,)), work_of("w", [arrival("p", FOUR)])).run()
    assert fates(result) == {"p": "runs"}
    assert result.nodes.at[0].kubelet.settings.release.name == "1.37"


def test_a_node_that_is_added_takes_pods_from_then_on_and_one_that_is_removed_loses_them() -> None:
    pods = [arrival("p", FOUR, owner="web")]
    added, removed = NodeEvent(30.0, "a-1", NodeAction.ADD), NodeEvent(20.0, "a-0", NodeAction.REMOVE)
    result = run(pods, added, removed, count=2)
    assert [(one.fate.value, one.node, one.admitted) for one in result.records] == [
        ("evicted", 0, 0.0), ("runs", 1, 30.0)
    ]  # fmt: skip


def test_cpus_that_are_offline_are_given_to_no_pod() -> None:
    hotplug = MooringConfig(frozenset({CPU_HOTPLUG}))
    nodes = cluster(replace(group("a", 1, gpus=0), mooring=hotplug))
    offline = NodeEvent(5.0, "a", Offline(CPUSet.parse("4-7")))
    result = Simulation(replace(nodes, events=(offline,)), work_of("w", [arrival("p", FOUR, at=10)])).run()
    assert fates(result) == {"p": "refused"}


def test_a_resize_changes_what_the_scheduler_counts_and_one_that_is_refused_is_named() -> None:
    burstable = asked("1", guaranteed=False)
    larger = resizing({"uid": "p", "containers": {"main": {"requests": {"cpu": "6"}}}})
    late = arrival("q", FOUR, at=20)
    result = run([arrival("p", burstable), late], PodResize(10.0, "default/p", larger))
    assert fates(result) == {"p": "runs", "q": "waits"}
    result = run([arrival("p", FOUR)], PodResize(10.0, "default/p", larger), PodResize(5.0, "default/x", larger))
    assert len(result.operations.problems) == 2
    assert "default/x: is not running" in result.operations.problems[0]


def test_an_urgent_pod_preempts_the_least_important_ones_alone() -> None:
    low, middle, high = (replace(asked("2"), priority=number) for number in (1, 2, 3))
    pods = [arrival("low", low), arrival("middle", middle), arrival("low2", low, at=1), arrival("high", high, at=5)]
    result = run(pods)
    assert fates(result) == {"low": "runs", "middle": "runs", "low2": "evicted", "high": "runs"}
    assert result.preempted == 1
    assert fates(run([*pods[:3], arrival("high", replace(high, preempts=False), at=5)]))["high"] == "waits"


EVENTS: dict[str, Any] = {"apiVersion": "mooring/v1alpha1", "kind": "ClusterEvents"}
GROUPS = [{"name": "a", "count": 3, "machine": "sockets=2 cores=8 memory=16Gi"}]


def written(folder: Path, events: list[dict[str, Any]]) -> str:
    (folder / "events.yaml").write_text(yaml.safe_dump({**EVENTS, "events": events}), encoding="utf-8")
    return str(folder / "events.yaml")


def test_an_event_of_a_group_happens_to_each_of_its_nodes_one_after_another(tmp_path: Path) -> None:
    nodes = cluster(group("a", 2))
    upgrade = {"at": 10, "do": "restart", "nodes": ["a"], "every": 60, "release": "1.36"}
    strict = {"at": 500, "do": "restart", "nodes": ["a-0"], "set": ["topologyManagerPolicy=restricted"]}
    events = with_events(nodes, written(tmp_path, [strict, upgrade])).events
    assert [(one.at, one.node) for one in events if isinstance(one, NodeEvent)] == [
        (10.0, "a-0"), (70.0, "a-1"), (500.0, "a-0")
    ]  # fmt: skip
    last = events[-1]
    assert isinstance(last, NodeEvent)
    assert isinstance(last.change, Restart)
    assert last.change.kubelet is not None
    assert last.change.kubelet.topology_manager_policy == "restricted"


def test_events_stand_in_a_cluster_too(tmp_path: Path) -> None:
    content = {**EVENTS, "kind": "Cluster", "groups": GROUPS, "events": [{"at": 5, "do": "drain", "nodes": ["a-1"]}]}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    assert load_cluster(str(tmp_path / "cluster.yaml")).cluster.events == (NodeEvent(5.0, "a-1", NodeAction.DRAIN),)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"at": 1, "do": "explode", "nodes": ["a"]}, "events[0].do: 'explode' is not known; write one of cordon"),
        ({"at": 1, "do": "drain", "nodes": ["b"]}, "events[0].nodes: 'b' is neither a node nor a group"),
        ({"at": 1, "do": "drain"}, "events[0].nodes: must not be empty"),
        ({"at": -1, "do": "drain", "nodes": ["a"]}, "events[0].at: must be a number of seconds"),
        ({"at": 1, "do": "drain", "nodes": ["a"], "cpus": "1"}, "events[0].cpus: is not known"),
        ({"at": 1, "do": "offline", "nodes": ["a"], "cpus": "1"}, "events[0].do: needs the extension cpu-hotplug"),
        ({"at": 1e308, "do": "drain", "nodes": ["a"]}, "events[0].at: must be a number of seconds"),
        ({"at": 1, "do": "drain", "nodes": ["a"], "every": 1e308}, "events[0].every: must be a number of seconds"),
        ({"at": 1, "do": "taint", "nodes": ["a"], "taints": [{"key": 1}]}, "events[0].taints[0].key: must be a string"),
        ({"at": 1, "do": "restart", "nodes": ["a"], "release": "9"}, "events[0].release: '9' is not a kubelet version"),
        ({"at": 1, "do": "restart", "nodes": ["a"], "set": ["x=1"]}, "events[0].set: 'x' cannot be set"),
        ({"at": 1, "do": "resize", "pod": "p", "containers": {"c": {"requests": {"gpu": 1}}}}, "gpu"),
        ([], "events[0]"),
    ],
)
def test_an_event_that_is_none_is_one_line(tmp_path: Path, event: Any, words: str) -> None:
    with pytest.raises(InputError) as raised:
        with_events(cluster(group("a", 2)), written(tmp_path, [event]))
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_answer_counts_evicted_pods_as_admitted() -> None:
    assert admitted(answer_of(run([arrival("p", FOUR)], NodeEvent(10.0, "a", NodeAction.DRAIN))).pods) == 1


def test_the_agent_holds_a_pod_on_its_node_until_another_one_leaves() -> None:
    # Of the two NUMA nodes one has 3 CPUs for pods and one 4, so that no one has 3 beside two pods of 2 CPUs.
    pods = [arrival("one", asked("2"), runs=50.0), arrival("two", asked("2")), arrival("three", asked("3"), at=10)]
    found = {agent: with_agent(pods, agent=agent) for agent in (False, True)}
    assert fates(found[False])["three"] == "refused"
    assert found[True].records[-1].admitted == 50.0


def test_a_pod_that_the_agent_never_has_room_for_is_held_and_counted() -> None:
    result = with_agent([arrival("wide", SIX), arrival("next", asked("2"), at=5)], agent=True)
    assert fates(result) == {"wide": "held", "next": "waits"}
    assert result.records[0].code
    assert answer_of(result).groups[0].admitted == 0


def test_a_held_pod_that_is_drained_counts_as_one_that_left_and_its_controller_creates_another() -> None:
    event = NodeEvent(20.0, "a", NodeAction.DRAIN)
    result = with_agent([arrival("wide", SIX, owner="web")], event, agent=True)
    assert fates(result) == {"wide": "left", "wide~1": "waits"}


def with_agent(pods: list[PodArrival], *events: ClusterEvent, agent: bool) -> Simulation:
    nodes = replace(cluster(group("a", 1, gpus=0)), events=events)
    return Simulation(nodes, work_of("w", pods), Strategy(agent=agent)).run()
