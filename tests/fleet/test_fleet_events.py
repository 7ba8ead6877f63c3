"""Events of nodes: drains, restarts, upgrades, taints, CPUs offline, resizes, nodes that come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fleet.clusters import ALIGNED, LOOSE, SIX, arrival, asked, cluster, group

from mooring.command.main import run
from mooring.engine.core.config import CPU_HOTPLUG, MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.events import Offline, Restart
from mooring.engine.releases.catalog import release_of
from mooring.fleet.cluster import (
    ClusterEvent,
    ControllerKind,
    NodeAction,
    NodeChange,
    NodeEvent,
    PodArrival,
    PodResize,
    Workload,
    work_of,
)
from mooring.fleet.event_files import load_cluster, with_events
from mooring.fleet.scheduler.strategy import Strategy
from mooring.fleet.simulation import Simulation, answer_of
from mooring.fleet.work_files import load_work
from mooring.inputs.pods.pods import resizing

FOUR = asked("4")


def simulated_run(arrivals: list[PodArrival], *events: ClusterEvent, count: int = 1) -> Simulation:
    return Simulation(replace(cluster(group("a", count, gpus=0)), events=events), work_of("w", arrivals)).run()


def fates(result: Simulation) -> dict[str, str]:
    return {record.arrival.name.partition("/")[2]: record.fate.value for record in result.records}


@pytest.mark.parametrize(
    ("pods", "changes", "became", "problem"),
    [
        (
            [arrival("p", asked("1")), arrival("q", asked("1"), at=20)],
            {10: NodeAction.CORDON, 60: NodeAction.UNCORDON},
            [("p", "runs", 0.0, None), ("q", "runs", 60.0, None)],
            "",
        ),
        (
            [arrival("six", SIX, at=10)],
            {5: Restart(replace(ALIGNED, topology_manager_policy="none")), 50: Restart(ALIGNED)},
            [("six", "refused", 10.0, 50.0)],
            "",
        ),
        (
            [arrival("p", FOUR)],
            {10: Restart(replace(ALIGNED, topology_manager_policy="nope"))},
            [("p", "evicted", 0.0, 310.0)],
            "a: the kubelet does not start again:",
        ),
        ([arrival("p", FOUR)], {10: NodeAction.DRAIN}, [("p", "evicted", 0.0, 10.0)], ""),
    ],
    ids=["cordoned and uncordoned", "a stricter policy", "a kubelet that does not start again", "drained"],
)
def test_pods_become_what_changes_of_their_node_make_of_them(
    pods: list[PodArrival],
    changes: dict[int, NodeChange],
    became: list[tuple[str, str, float, float | None]],
    problem: str,
) -> None:
    result = simulated_run(pods, *(NodeEvent(at, "a", change) for at, change in changes.items()))
    names = [name for name, *_ in became]
    found = [(one.fate.value, one.admitted, one.ended) for one in result.records]
    assert dict(zip(names, found, strict=True)) == {name: tuple(rest) for name, *rest in became}
    assert [bool(one.code) for one in result.records] == [fate == "refused" for _, fate, *_ in became]
    assert "; ".join(result.operations.problems).startswith(problem)
    assert bool(result.operations.problems) == bool(problem)
    assert answer_of(result).pods.admitted == sum(fate != "refused" for _, fate, *_ in became)


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
    result = simulated_run(pods, added, removed, count=2)
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
    result = simulated_run([arrival("p", burstable), late], PodResize(10.0, "default/p", larger))
    assert fates(result) == {"p": "runs", "q": "waits"}
    result = simulated_run(
        [arrival("p", FOUR)], PodResize(10.0, "default/p", larger), PodResize(5.0, "default/x", larger)
    )
    assert len(result.operations.problems) == 2
    assert "default/x: is not running" in result.operations.problems[0]


def test_an_urgent_pod_preempts_the_least_important_ones_alone() -> None:
    low, middle, high = (replace(asked("2"), priority=number) for number in (1, 2, 3))
    pods = [arrival("low", low), arrival("middle", middle), arrival("low2", low, at=1), arrival("high", high, at=5)]
    result = simulated_run(pods)
    assert fates(result) == {"low": "runs", "middle": "runs", "low2": "evicted", "high": "runs"}
    assert result.preempted == 1
    assert fates(simulated_run([*pods[:3], arrival("high", replace(high, preempts=False), at=5)]))["high"] == "waits"


@pytest.mark.parametrize(
    ("gate", "preempts", "cpu", "evicted"),
    [
        (True, True, "4", ["low"]),
        (True, True, "6", ["low", "middle"]),
        (True, True, "3", []),
        (True, True, "8", None),
        (True, False, "4", None),
        (False, True, "4", None),
    ],
)
def test_a_deferred_resize_preempts_only_with_its_gate_only_where_that_helps_and_the_least_important(
    gate: bool, preempts: bool, cpu: str, evicted: list[str] | None
) -> None:
    config = replace(ALIGNED, feature_gates={"InPlacePodVerticalScalingSchedulerPreemption": gate})
    low, middle, high = (asked("2", guaranteed=False, priority=number) for number in (1, 2, 3))
    pods = [arrival("low", low), arrival("middle", middle), arrival("high", replace(high, preempts=preempts))]
    larger = resizing({"uid": "high", "containers": {"main": {"requests": {"cpu": cpu}}}})
    nodes = replace(cluster(group("a", 1, config, gpus=0)), events=(PodResize(10.0, "default/high", larger),))
    result = Simulation(nodes, work_of("w", pods)).run()
    assert [name for name, fate in fates(result).items() if fate == "evicted"] == (evicted or [])
    has = result.nodes.pods[0]["default/high"].asked.requests["cpu"]
    assert (has, len(result.operations.problems)) == ((1000 * int(cpu), 0) if evicted is not None else (2000, 1))
    assert result.preempted == len(evicted or ())


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


@pytest.mark.parametrize("seed", [0, 4])
def test_a_job_that_gives_up_at_the_moment_at_which_it_creates_a_pod_deletes_that_pod(seed: int) -> None:
    # One pod is refused by node a for the sixth time at 310 s, the other one loses node b 320 s later.
    lost = NodeEvent(330.0, "b", Restart(replace(LOOSE, cpu_manager_policy="none")))
    nodes = replace(cluster(group("a", 1, gpus=0), group("b", 1, LOOSE, gpus=0)), events=(lost,))
    job = Workload("default/j", ControllerKind.JOB, SIX, pods=2)
    result = Simulation(nodes, work_of("w", [], workloads=[job]), seed=seed).run()
    assert answer_of(result).failed_jobs == ["default/j"]
    assert [(one.fate.value, one.ended) for one in result.records][-1] == ("left", 630.0)


def with_agent(pods: list[PodArrival], *events: ClusterEvent, agent: bool) -> Simulation:
    nodes = replace(cluster(group("a", 1, gpus=0)), events=events)
    return Simulation(nodes, work_of("w", pods), Strategy(agent=agent)).run()


# Clusters and work from files: what they become, and one line for what is wrong.


ROOT = Path(__file__).resolve().parents[2]
GROUP: dict[str, Any] = {"name": "a", "count": 2, "machine": "sockets=2 cores=8 memory=16Gi"}
POD: dict[str, Any] = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}


def cluster_file(folder: Path, **fields: Any) -> str:
    content = {"apiVersion": "mooring/v1alpha1", "kind": "Cluster", "groups": [GROUP], **fields}
    (folder / "cluster.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(folder / "cluster.yaml")


def lines_file(folder: Path, *lines: object) -> str:
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    (folder / "work.jsonl").write_text(text, encoding="utf-8")
    return str(folder / "work.jsonl")


def test_a_group_has_machine_configuration_labels_zones_and_devices(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n", encoding="utf-8"
    )
    group = {
        **GROUP,
        "config": ["kubelet.yaml"],
        "mooring": {},
        "devices": {"devices": {"example.com/gpu": [{"id": "gpu0", "numa": [1]}]}},
        "release": "1.34",
        "labels": {"pool": "gpu"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "zones": ["east", "west"],
    }
    cluster = load_cluster(cluster_file(tmp_path, groups=[group])).cluster
    first, second = cluster.members()
    assert (first.name, first.zone, second.name, second.zone) == ("a-0", "east", "a-1", "west")
    assert first.labels["pool"] == "gpu"
    assert first.group.config.max_pods == 7
    assert first.group.mooring.release.name == "1.34"
    assert first.group.taints[0].key == "gpu"
    assert first.group.devices["example.com/gpu"][0].numa == (1,)


def test_one_path_of_work_needs_no_list(tmp_path: Path) -> None:
    path = lines_file(tmp_path, {"pod": POD, "at": 5})
    assert load_work(path) == load_work([path])


def test_a_line_of_work_has_times_owner_and_count(tmp_path: Path) -> None:
    work = load_work([lines_file(tmp_path, {"pod": POD, "at": 5, "runs": 60, "owner": "web", "count": 2}, "")])
    assert [(one.name, one.at, one.runs, one.owner) for one in work.arrivals] == [
        ("default/line-1-0", 5.0, 60.0, "web"),
        ("default/line-1-1", 5.0, 60.0, "web"),
    ]
    assert work.arrivals[0].asked is work.arrivals[1].asked


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": POD, **spec}}


def test_a_deployment_is_a_controller(tmp_path: Path) -> None:
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 2, "template": POD},
    }
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(deployment), encoding="utf-8")
    work = load_work([str(tmp_path / "web.yaml")])
    assert [(one.name, one.kind, one.pods) for one in work.workloads] == [("default/web", ControllerKind.DEPLOYMENT, 2)]
    assert not work.arrivals


def test_a_release_that_is_not_known_yet_is_said(tmp_path: Path) -> None:
    groups = [{**GROUP, "release": "1.36"}, {**GROUP, "name": "b", "release": "1.99"}]
    [finding] = load_cluster(cluster_file(tmp_path, groups=groups)).cluster.findings
    assert finding.startswith(
        "group b: kubelet 1.99 is newer than v1.38.0-beta.0, the newest known release: decided as "
    )


@pytest.mark.parametrize("is_workload", [True, False])
def test_a_field_that_the_scheduler_reads_is_refused_with_its_place(tmp_path: Path, is_workload: bool) -> None:
    wrong = {"metadata": {"name": "web"}, "spec": {**POD["spec"], "nodeSelector": {"ssd": True}}}
    kind, field = ("Deployment", "spec.template.spec") if is_workload else ("Pod", "spec")
    described = {"metadata": {"name": "web"}, "spec": {"template": wrong}} if is_workload else wrong
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({"kind": kind, **described}), encoding="utf-8")
    with pytest.raises(InputError, match=rf"/web\.yaml:\d+:\d+: {field}\.nodeSelector\.ssd: must be a string"):
        load_work([str(tmp_path / "web.yaml")])


def test_what_the_scheduler_would_read_and_the_simulation_does_not_is_counted(tmp_path: Path) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {**POD["spec"], "schedulingGates": [{"name": "wait"}], "volumes": volumes, "priorityClassName": "high"}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    work = load_work([lines_file(tmp_path, {"pod": {"spec": spec}, "count": 3})])
    assert work.findings == (
        "pods have priorityClassName without priority, which is not simulated",
        "pods have resourceClaims, which are assumed to take no CPU (MOOR-549)",
        "pods have schedulingGates, which is not simulated",
        "pods have volumes, which is not simulated",
    )


def test_generated_work_is_the_same_for_the_same_seed() -> None:
    paths = [str(ROOT / "examples" / "fleet" / "day.yaml")]
    assert load_work(paths, 3).arrivals == load_work(paths, 3).arrivals
    assert load_work(paths, 3).arrivals != load_work(paths, 4).arrivals


def generated(folder: Path, shape: str = "", fields: str = "") -> str:
    text = (
        f"apiVersion: mooring/v1alpha1\nkind: GeneratedWork\n{fields}\nshapes:\n- {{{shape}pod: {json.dumps(POD)}}}\n"
    )
    (folder / "work.yaml").write_text(text, encoding="utf-8")
    return str(folder / "work.yaml")


WRONG_EVENTS: list[tuple[Any, str]] = [
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
]
WRONG_CLUSTERS: list[tuple[Any, str]] = [
    ({"kind": "Custer"}, "kind: 'Custer' is not a cluster; write Cluster"),
    ({"apiVersion": "v2"}, "apiVersion: 'v2' is not supported"),
    ({"groups": []}, "groups: must not be empty"),
    ({"nodes": []}, "nodes: is not known; known are"),
    ({"groups": [{**GROUP, "cuont": 1}]}, "groups[0].cuont: is not known; did you mean count?"),
    ({"groups": [{**GROUP, "count": -1}]}, "groups[0].count"),
    ({"groups": [GROUP, GROUP]}, "'a' is the name of two"),
    ({"groups": [{**GROUP, "count": 200_000}]}, "more than 100000 nodes"),
    (
        {"groups": [{**GROUP, "machine": "nowhere"}]},
        "cluster.yaml:4:3: groups[0].machine: nowhere: unknown machine",
    ),
    ({"groups": [GROUP, {**GROUP, "name": "b", "machine": "cores=0"}]}, "7:3: groups[1].machine: cores: must not"),
    ({"groups": [{**GROUP, "machine": "./none.json"}]}, "groups[0].machine: ./none.json: no such file"),
    ({"groups": [{**GROUP, "release": "banana"}]}, "groups[0].release: 'banana' is not a kubelet version"),
    ({"groups": [{**GROUP, "kubelet": {"maxPods": "x"}}]}, "cluster.yaml:5:5: groups[0].kubelet.maxPods: must be"),
    ({"groups": [{**GROUP, "mooring": {"mode": 1}}]}, "groups[0].mooring.mode: 'mode' is not known"),
    ({"groups": [{**GROUP, "taints": [{"key": "a"}, {"key": 1}]}]}, "groups[0].taints[1].key: must be a string"),
    (
        {"groups": [{**GROUP, "taints": [{"key": "a", "effect": "No"}]}]},
        "cluster.yaml:7:5: groups[0].taints[0].effect: 'No' is not known",
    ),
    ({"groups": [{"count": 1}]}, "groups[0].name: must not be empty"),
    ({"groups": [{**GROUP, "zones": [1]}]}, "groups[0].zones: must be a list of strings"),
]
NAMED = {"pod": {**POD, "metadata": {"name": "one"}}}
WRONG_LINES: list[tuple[Any, str]] = [
    (["{"], "work.jsonl:1: is not JSON"),
    ([{"pod": POD, "at": -1}], "work.jsonl:1: at: must be a number of seconds"),
    ([{"pod": POD, "runs": 1e308}], "work.jsonl:1: runs: must be a number of seconds from 0 to 3153600000"),
    ([{"pod": POD, "leaves": "1h"}], "work.jsonl:1: leaves: must be a number of seconds from 0 to"),
    ([{"pod": POD, "count": -1}], "work.jsonl:1: count: must not be negative, but is -1; write 0 or more"),
    ([{"pod": POD, "att": 1}], "work.jsonl:1: att: is not known; did you mean at?"),
    ([{"pod": {"spec": {"containers": []}}}], "work.jsonl:1: pod.spec.containers: must not be empty"),
    ([{"pod": POD, "at": 9, "leaves": 3}], "ends at 3 s, before it begins at 9 s"),
    ([[]], "work.jsonl:1"),
    ([NAMED, NAMED], "is there twice"),
    ([{"pod": POD, "count": 10**9}], "more than 1000000 pods; split the work"),
    ([{"workload": job(completions=10**9)}], "more than 1000000 pods; split the work"),
    ([{"workload": {**job(), "kind": "DaemonSet"}}], "work.jsonl:1: workload.kind: 'DaemonSet' is not simulated"),
    (
        [{"workload": job(template={"spec": {"containers": []}})}],
        "workload.spec.template.spec.containers: must not be empty",
    ),
    ([{"workload": job(backoffLimit=-1)}], "workload.spec.backoffLimit: must not be negative"),
]
WRONG_NUMBERS = [
    ("meanLifetime: 1e308", "", ":3:1: meanLifetime: must be a number of seconds from 0 to 3153600000 (100 years)"),
    ("meanLifetime: -1", "", ":3:1: meanLifetime: must be a number of seconds from 0 to"),
    ("meanLifetime: .inf", "", ":3:15: .inf is not a number"),
    ("meanLifetime: 1h", "", ":3:1: meanLifetime: must be a number of seconds from 0 to"),
    ("perHour: -10", "", ":3:1: perHour: must not be negative, but is -10; write 0 or more"),
    ("perHour: .nan", "", ":3:10: .nan is not a number"),
    ("burst: -1", "", ":3:1: burst: must be at least 1, but is -1; write 1 or more"),
    ("burst: 0", "", ":3:1: burst: must be at least 1, but is 0; write 1 or more"),
    ("count: -5", "", ":3:1: count: must not be negative, but is -5; write 0 or more"),
    ("", "weight: -1, ", ":5:4: shapes[0].weight: must not be negative, but is -1; write 0 or more"),
    ("", "weight: 0, ", ":4:1: shapes: all weights are 0; give at least one shape a weight of 1 or more"),
]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        *((("events", event), words) for event, words in WRONG_EVENTS),
        *((("cluster", fields), words) for fields, words in WRONG_CLUSTERS),
        *((("lines", lines), words) for lines, words in WRONG_LINES),
        *((("generated", (shape, fields)), f"work.yaml{words}") for fields, shape, words in WRONG_NUMBERS),
    ],
)
def test_a_mistake_in_a_file_is_one_line_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], wrong: tuple[str, Any], words: str
) -> None:
    kind, content = wrong
    nodes = cluster_file(tmp_path, **(content if kind == "cluster" else {}))
    work = lines_file(tmp_path, *content) if kind == "lines" else str(ROOT / "examples" / "pods.yaml")
    work = generated(tmp_path, *content) if kind == "generated" else work
    events = ["--events", written(tmp_path, [content])] if kind == "events" else []
    assert run(["fleet", "simulate", "--cluster", nodes, "-f", work, *events]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert words in line


def test_a_mean_lifetime_of_0_ends_pods_at_once_and_without_one_they_stay(tmp_path: Path) -> None:
    assert {one.runs for one in load_work([generated(tmp_path, fields="meanLifetime: 0")]).arrivals} == {0.0}
    assert {one.runs for one in load_work([generated(tmp_path)]).arrivals} == {None}


def test_a_workload_in_a_line_is_a_controller_with_times(tmp_path: Path) -> None:
    described = job(completions=4, parallelism=2, backoffLimit=1)
    (workload,) = load_work(
        [lines_file(tmp_path, {"workload": described, "at": 5, "runs": 60, "leaves": 900})]
    ).workloads
    assert (workload.name, workload.pods, workload.parallelism, workload.backoff_limit) == ("default/j", 4, 2, 1)
    assert (workload.at, workload.runs, workload.leaves) == (5.0, 60.0, 900.0)


def test_labels_count_only_where_a_pod_asks_something_of_others(tmp_path: Path) -> None:
    alike = [{"pod": {**POD, "metadata": {"name": name, "labels": {"app": name}}}} for name in ("a", "b")]
    first, second = load_work([lines_file(tmp_path, *alike)]).arrivals
    assert first.asked is second.asked
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    apart = {"pod": {"spec": {**POD["spec"], "affinity": rule}, "metadata": {"name": "c"}}}
    first, second, third = load_work([lines_file(tmp_path, *alike, apart)]).arrivals
    assert first.asked.key != second.asked.key
    assert third.asked.relations.anti_affinity[0].selector.matches("default", {"app": "a"})


def test_a_group_that_does_not_start_is_named_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    described = {
        "apiVersion": "mooring/v1alpha1",
        "kind": "Cluster",
        "groups": [{"name": "a", "machine": "cores=4", "kubelet": {"cpuManagerPolicy": "static"}}],
    }
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(described), encoding="utf-8")
    assert run(["fleet", "simulate", "--cluster", str(file), "-f", "examples/pods.yaml"]) == 2
    assert f"{file}: groups.a: the kubelet would not start: " in capsys.readouterr().err
