"""Events of nodes: drains, restarts, upgrades, taints, CPUs offline, resizes, nodes that come and go."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.command import mooring
from tests.fleet.described import (
    MACHINE,
    SIX,
    arrival,
    asked,
    cluster_file,
    fates,
    group,
    simulated,
    template,
    work_file,
    workload,
)

FOUR = "4"
HOTPLUG = {"extensions": ["cpu-hotplug"]}


def event(at: float, do: str, *nodes: str, **fields: Any) -> dict[str, Any]:
    return {"at": at, "do": do, "nodes": list(nodes or ("a",)), **fields}


def policy(name: str) -> dict[str, list[str]]:
    return {"set": [f"topologyManagerPolicy={name}"]}


def resized(at: float, pod: str, cpu: str) -> dict[str, Any]:
    return {"at": at, "do": "resize", "pod": pod, "containers": {"main": {"requests": {"cpu": cpu}}}}


@pytest.mark.parametrize(
    ("pods", "events", "became", "problem"),
    [
        (
            [arrival("p", "1"), arrival("q", "1", 20)],
            [event(10, "cordon"), event(60, "uncordon")],
            [("p", "runs", 0.0, None), ("q", "runs", 60.0, None)],
            "",
        ),
        (
            [arrival("six", SIX, 10)],
            [event(5, "restart", **policy("none")), event(50, "restart", **policy("single-numa-node"))],
            [("six", "refused", 10.0, 50.0)],
            "",
        ),
        (
            [arrival("p", FOUR)],
            [event(10, "restart", set=["reservedSystemCPUs=4"])],
            [("p", "evicted", 0.0, 310.0)],
            "a: the kubelet does not start again:",
        ),
        ([arrival("p", FOUR)], [event(10, "drain")], [("p", "evicted", 0.0, 10.0)], ""),
    ],
    ids=["cordoned and uncordoned", "a stricter policy", "a kubelet that does not start again", "drained"],
)
def test_pods_become_what_changes_of_their_node_make_of_them(
    tmp_path: Path, pods: list[Any], events: list[Any], became: list[Any], problem: str
) -> None:
    found = simulated(tmp_path, [group("a")], pods, events=events)
    fields = ("fate", "admitted", "ended")
    assert [(name.removeprefix("default/"), *rest) for name, *rest in told(found, "name", *fields)] == became
    assert [bool(code) for [code] in told(found, "code")] == [fate == "refused" for _, fate, *_ in became]
    assert "; ".join(found["problems"]).startswith(problem)
    assert bool(found["problems"]) == bool(problem)


def told(document: Any, *fields: str) -> list[tuple[Any, ...]]:
    """Return some fields of every pod."""
    return [tuple(one[field] for field in fields) for one in document["records"]]


def test_an_upgrade_keeps_the_pods_of_a_node_whose_configuration_the_new_release_knows(tmp_path: Path) -> None:
    upgrade = event(10, "restart", release="1.37")
    found = simulated(tmp_path, [group("a", release="1.34")], [arrival("p", FOUR)], events=[upgrade])
    assert (fates(found), found["problems"]) == ({"p": "runs"}, [])
    dropped = group("a", release="1.34", kubelet={"featureGates": {"AnyVolumeDataSource": True}})
    [problem] = simulated(tmp_path, [dropped], [arrival("p", FOUR)], events=[upgrade])["problems"]
    assert "unrecognized feature gate: AnyVolumeDataSource" in problem


def test_a_node_that_is_added_takes_pods_from_then_on_and_one_that_is_removed_loses_them(tmp_path: Path) -> None:
    events = [event(30, "add", "a-1"), event(20, "remove", "a-0")]
    found = simulated(tmp_path, [group("a", 2)], [arrival("p", FOUR, owner="web")], events=events)
    assert told(found, "fate", "node", "admitted") == [("evicted", "a-0", 0.0), ("runs", "a-1", 30.0)]


def test_cpus_that_are_offline_are_given_to_no_pod(tmp_path: Path) -> None:
    events = [event(5, "offline", cpus="4-7")]
    found = simulated(tmp_path, [group("a", mooring=HOTPLUG)], [arrival("p", FOUR, 10)], events=events)
    assert fates(found) == {"p": "refused"}


def test_a_resize_changes_what_the_scheduler_counts_and_one_that_is_refused_is_named(tmp_path: Path) -> None:
    burstable, late = arrival("p", "1", guaranteed=False), arrival("q", FOUR, 20)
    found = simulated(tmp_path, [group("a")], [burstable, late], events=[resized(10, "p", "6")])
    assert fates(found) == {"p": "runs", "q": "waits"}
    events = [resized(10, "p", "6"), resized(5, "x", "6")]
    found = simulated(tmp_path, [group("a")], [arrival("p", FOUR)], events=events)
    assert len(found["problems"]) == 2
    assert "default/x: is not running" in found["problems"][0]


def test_an_urgent_pod_preempts_the_least_important_ones_alone(tmp_path: Path) -> None:
    pods = [arrival("low", "2", priority=1), arrival("middle", "2", priority=2), arrival("low2", "2", 1, priority=1)]
    found = simulated(tmp_path, [group("a")], [*pods, arrival("high", "2", 5, priority=3)])
    assert fates(found) == {"low": "runs", "middle": "runs", "low2": "evicted", "high": "runs"}
    assert found["preempted"] == 1
    patient = arrival("high", "2", 5, priority=3, preemptionPolicy="Never")
    assert fates(simulated(tmp_path, [group("a")], [*pods, patient]))["high"] == "waits"


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
    tmp_path: Path, gate: bool, preempts: bool, cpu: str, evicted: list[str] | None
) -> None:
    nodes = group("a", kubelet={"featureGates": {"InPlacePodVerticalScalingSchedulerPreemption": gate}})
    burstable: dict[str, Any] = {"low": {"priority": 1}, "middle": {"priority": 2}, "high": {"priority": 3}}
    burstable["high"] |= {} if preempts else {"preemptionPolicy": "Never"}
    pods = [arrival(name, "2", guaranteed=False, **fields) for name, fields in burstable.items()]
    found = simulated(tmp_path, [nodes], pods, events=[resized(10, "high", cpu)])
    assert [name for name, fate in fates(found).items() if fate == "evicted"] == (evicted or [])
    has = found["samples"][-1]["used"]["cpu"] - 2000 * (2 - len(evicted or ()))
    assert (has, len(found["problems"])) == ((1000 * int(cpu), 0) if evicted is not None else (2000, 1))
    assert found["preempted"] == len(evicted or ())


EVENTS: dict[str, Any] = {"apiVersion": "mooring/v1alpha1", "kind": "ClusterEvents"}


def written(folder: Path, events: Sequence[object]) -> str:
    (folder / "events.yaml").write_text(yaml.safe_dump({**EVENTS, "events": events}), encoding="utf-8")
    return str(folder / "events.yaml")


def test_an_event_of_a_group_happens_to_each_of_its_nodes_one_after_another(tmp_path: Path) -> None:
    pods = [arrival(f"p{number}", "2", owner="web") for number in range(6)]
    events = written(tmp_path, [event(500, "drain", "a-0"), event(10, "drain", every=60)])
    found = asked("simulate", tmp_path, [group("a", 2)], pods, "--events", events, "-o", "json").document
    ended = [(one["node"], one["ended"]) for one in found["records"] if one["fate"] == "evicted"]
    assert sorted(set(ended)) == [("a-0", 10.0), ("a-1", 70.0)]


def agent_or_not(folder: Path, pods: list[Any], *events: object, agent: bool = True) -> Any:
    strategy = ("--strategy", "LeastAllocated+agent") if agent else ()
    return simulated(folder, [group("a")], pods, *strategy, events=events)


def test_the_agent_holds_a_pod_on_its_node_until_another_one_leaves(tmp_path: Path) -> None:
    # Of the two NUMA nodes one has 3 CPUs for pods and one 4, so that no one has 3 beside two pods of 2 CPUs.
    pods = [arrival("one", "2", runs=50), arrival("two", "2"), arrival("three", "3", 10)]
    assert fates(agent_or_not(tmp_path, pods, agent=False))["three"] == "refused"
    assert agent_or_not(tmp_path, pods)["records"][-1]["admitted"] == 50.0


def test_a_pod_that_the_agent_never_has_room_for_is_held_and_counted(tmp_path: Path) -> None:
    found = agent_or_not(tmp_path, [arrival("wide", SIX), arrival("next", "2", 5)])
    assert fates(found) == {"wide": "held", "next": "waits"}
    assert found["records"][0]["code"]
    assert found["groups"][0]["admitted"] == 0


def test_a_held_pod_that_is_drained_counts_as_one_that_left_and_its_controller_creates_another(tmp_path: Path) -> None:
    found = agent_or_not(tmp_path, [arrival("wide", SIX, owner="web")], event(20, "drain"))
    assert fates(found) == {"wide": "left", "wide~1": "waits"}


@pytest.mark.parametrize("seed", ["0", "4"])
def test_a_job_that_gives_up_at_the_moment_at_which_it_creates_a_pod_deletes_that_pod(
    tmp_path: Path, seed: str
) -> None:
    # One pod is refused by node a for the sixth time at 310 s, the other one loses node b 320 s later.
    lost = event(330, "restart", "b", set=["cpuManagerPolicy=none"])
    described = workload("Job", "j", SIX, completions=2, parallelism=2)
    groups = [group("a"), group("b", policy="best-effort")]
    found = simulated(tmp_path, groups, [described], "--seed", seed, events=[lost])
    assert found["failedJobs"] == ["default/j"]
    assert told(found, "fate", "ended")[-1] == ("left", 630.0)


# Clusters and work from files: what they become, and one line for what is wrong.


ROOT = Path(__file__).resolve().parents[2]
DAY = str(ROOT / "examples" / "fleet" / "day.yaml")
GROUP: dict[str, Any] = {"name": "a", "count": 2, "machine": MACHINE}
POD: dict[str, Any] = {"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}}


def test_a_group_has_machine_configuration_labels_zones_and_devices(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nmaxPods: 7\n"
        "cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\nreservedSystemCPUs: '0'\n",
        encoding="utf-8",
    )
    one = {
        **GROUP,
        "config": ["kubelet.yaml"],
        "mooring": {},
        "devices": {"devices": {"example.com/gpu": [{"id": "gpu0", "numa": [1]}]}},
        "release": "1.34",
        "labels": {"pool": "gpu"},
        "taints": [{"key": "gpu", "effect": "NoSchedule"}],
        "zones": ["east", "west"],
    }
    taken: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
    west = {"pool": "gpu", "topology.kubernetes.io/zone": "west"}
    pods = [
        arrival("refused", "0"),
        *(arrival(f"p{number}", "0", number, nodeSelector=west, **taken) for number in range(8)),
        arrival("gpu", "4", 9, gpus=1, **taken),
    ]
    found = simulated(tmp_path, [one], pods)
    nodes = [node for [node] in told(found, "node")]
    assert (nodes[0], nodes[1:-1]) == ("", [*["a-1"] * 7, ""])
    assert found["records"][-1]["fate"] == "runs", "four CPUs and the GPU are on NUMA node 1"
    assert {one["resource"]: one["offered"] for one in found["uses"]}["example.com/gpu"] == 2


def test_a_line_of_work_has_times_owner_and_count(tmp_path: Path) -> None:
    lines = [{"pod": POD, "at": 5, "runs": 60, "owner": "web", "count": 2}, ""]
    found = simulated(tmp_path, [GROUP], lines, events=[event(20, "drain")])
    assert told(found, "name", "created", "ended") == [
        ("default/line-1-0", 5.0, 20.0), ("default/line-1-1", 5.0, 20.0),
        ("default/line-1-1~1", 20.0, None), ("default/line-1-0~1", 20.0, None),
    ]  # fmt: skip
    assert told(simulated(tmp_path, [GROUP], lines), "ended") == [(65.0,), (65.0,)]


def test_a_deployment_is_a_controller(tmp_path: Path) -> None:
    described = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2, "template": POD}}
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({"apiVersion": "apps/v1", **described}), encoding="utf-8")
    found = of_file(tmp_path, "web.yaml")
    assert sorted(fates(found)) == ["web-0", "web-1"]


def of_file(folder: Path, name: str, *words: str) -> Any:
    """Return the document of the work of a file."""
    nodes = cluster_file(folder, GROUP)
    return mooring("fleet", "simulate", "--cluster", nodes, "-f", folder / name, *words, "-o", "json").document


def test_a_release_that_is_not_known_yet_is_said(tmp_path: Path) -> None:
    groups = [{**GROUP, "release": "1.36"}, {**GROUP, "name": "b", "release": "1.99"}]
    [finding] = simulated(tmp_path, groups, [arrival("p", "1")])["assumed"]
    assert finding.startswith(
        "group b: kubelet 1.99 is newer than v1.38.0-beta.0, the newest known release: decided as "
    )


@pytest.mark.parametrize("is_workload", [True, False])
def test_a_field_that_the_scheduler_reads_is_refused_with_its_place(tmp_path: Path, is_workload: bool) -> None:
    wrong = {"metadata": {"name": "web"}, "spec": {**POD["spec"], "nodeSelector": {"ssd": True}}}
    kind, field = ("Deployment", "spec.template.spec") if is_workload else ("Pod", "spec")
    described = {"metadata": {"name": "web"}, "spec": {"template": wrong}} if is_workload else wrong
    (tmp_path / "web.yaml").write_text(yaml.safe_dump({"kind": kind, **described}), encoding="utf-8")
    said = mooring("fleet", "simulate", "--cluster", cluster_file(tmp_path, GROUP), "-f", tmp_path / "web.yaml", code=2)
    assert re.search(rf"/web\.yaml:\d+:\d+: {field}\.nodeSelector\.ssd: must be a string", said.complaint)


def test_what_the_scheduler_would_read_and_the_simulation_does_not_is_counted(tmp_path: Path) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    spec = {**POD["spec"], "schedulingGates": [{"name": "wait"}], "volumes": volumes, "priorityClassName": "high"}
    spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
    assert simulated(tmp_path, [GROUP], [{"pod": {"spec": spec}, "count": 3}])["assumed"] == [
        "pods have priorityClassName without priority, which is not simulated",
        "pods have resourceClaims, which are assumed to take no CPU (MOOR-549)",
        "pods have schedulingGates, which is not simulated",
        "pods have volumes, which is not simulated",
    ]


def test_generated_work_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "day.yaml").write_text(Path(DAY).read_text(encoding="utf-8"), encoding="utf-8")
    first, again, other = (told(of_file(tmp_path, "day.yaml", "--seed", seed), "created") for seed in "334")
    assert first == again != other


def generated(folder: Path, shape: str = "", fields: str = "") -> str:
    text = (
        f"apiVersion: mooring/v1alpha1\nkind: GeneratedWork\n{fields}\nshapes:\n- {{{shape}pod: {json.dumps(POD)}}}\n"
    )
    (folder / "work.yaml").write_text(text, encoding="utf-8")
    return str(folder / "work.yaml")


def job(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": POD, **spec}}


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
def test_a_mistake_in_a_file_is_one_line_with_its_place(tmp_path: Path, wrong: tuple[str, Any], words: str) -> None:
    kind, content = wrong
    nodes = cluster_file(tmp_path, GROUP)
    if kind == "cluster":
        nodes = cluster_file(tmp_path, *content.pop("groups", [GROUP]), **content)
    work = work_file(tmp_path, *content) if kind == "lines" else str(ROOT / "examples" / "pods.yaml")
    work = generated(tmp_path, *content) if kind == "generated" else work
    events = ["--events", written(tmp_path, [content])] if kind == "events" else []
    assert words in mooring("fleet", "simulate", "--cluster", nodes, "-f", work, *events, code=2).complaint


def test_a_mean_lifetime_of_0_ends_pods_at_once_and_without_one_they_stay(tmp_path: Path) -> None:
    for fields, fate in (("meanLifetime: 0", "ran"), ("", "runs")):
        generated(tmp_path, fields=f"{fields}\ncount: 5")
        assert {*fates(of_file(tmp_path, "work.yaml")).values()} == {fate}


def test_a_workload_in_a_line_is_a_controller_with_times(tmp_path: Path) -> None:
    line = {"workload": job(completions=4, parallelism=2, backoffLimit=1), "at": 5, "runs": 600, "leaves": 900}
    assert told(simulated(tmp_path, [GROUP], [line]), "name", "created", "ended") == [
        ("default/j-0", 5.0, 605.0), ("default/j-1", 5.0, 605.0),
        ("default/j-2", 605.0, 900.0), ("default/j-3", 605.0, 900.0),
    ]  # fmt: skip


def test_labels_count_only_where_a_pod_asks_something_of_others(tmp_path: Path) -> None:
    alike = [{"pod": {**template("60"), "metadata": {"name": name, "labels": {"app": name}}}} for name in ("a", "b")]
    assert waiting(simulated(tmp_path, [GROUP], alike)) == [["default/a", "default/b"]]
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
    rule = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    apart = arrival("c", "1", 1, affinity=rule)
    assert waiting(simulated(tmp_path, [GROUP], [*alike, apart])) == [["default/a"], ["default/b"]]
    small = {"pod": {**template("1"), "metadata": {"name": "a", "labels": {"app": "a"}}}}
    assert waiting(simulated(tmp_path, [group("a")], [small, apart])) == [["default/c"]]


def waiting(document: Any) -> list[list[str]]:
    return [one["pods"] for one in document["waits"]]


def test_a_group_that_does_not_start_is_named_with_its_file(tmp_path: Path) -> None:
    file = cluster_file(tmp_path, {"name": "a", "machine": "cores=4", "kubelet": {"cpuManagerPolicy": "static"}})
    said = mooring("fleet", "simulate", "--cluster", file, "-f", ROOT / "examples/pods.yaml", code=2)
    assert f"{file}: groups.a: the kubelet would not start: " in said.complaint
