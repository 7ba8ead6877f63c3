"""``--active`` with the pods of a whole cluster takes those of one node."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.cli.command import CORPORA, EXAMPLES, NODE, PODS, Answered, mooring
from tests.planner.recordings import recorded

SHAPE = {"limits": {"cpu": 2, "memory": "1Gi"}}
NEW = {"kind": "Pod", "metadata": {"name": "new"}, "spec": {"containers": [{"name": "app", "resources": SHAPE}]}}


def pod(name: str, node: str = "", phase: str = "Running", *, started: bool = True) -> dict[str, Any]:
    """Return a pod as kubectl prints it."""
    spec = {"containers": [{"name": "app", "resources": SHAPE}]} | ({"nodeName": node} if node else {})
    status = {"phase": phase} | ({"startTime": "2026-11-01T00:00:00Z"} if started else {})
    return {"kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status}


def plan(folder: Path, pods: list[dict[str, Any]], *options: str) -> Answered:
    """Plan one more pod after the active ones."""
    (folder / "active.json").write_text(json.dumps({"kind": "PodList", "items": pods}), encoding="utf-8")
    (folder / "new.json").write_text(json.dumps(NEW), encoding="utf-8")
    given = ("-f", folder / "new.json", "--active", folder / "active.json", *NODE)
    return mooring("plan", *given, "-o", "json", *options)


def standing(answered: Answered) -> list[tuple[str, bool]]:
    """Return the pods in order, each with whether it ran already."""
    return [(one["name"], one.get("running", False)) for one in answered.document["pods"]]


def told(answered: Answered) -> list[str]:
    """Return what is said about pods that do not run on the node."""
    return [f"{one['subject']}: {one['message']}" for one in answered.document["findings"] if one["code"] == "MOOR-513"]


PENDING = [
    pod("a", "n1"),
    pod("unbound", "", "Pending", started=False),
    pod("arriving", "n1", "Pending", started=False),
    pod("pulling", "n1", "Pending"),
    pod("elsewhere", "n2", "Pending", started=False),
]
BOUND = "bound to other nodes and left out"


@pytest.mark.parametrize(
    ("pods", "options", "running", "asked", "said"),
    [
        ([pod("a", "n1"), pod("b", "n2"), pod("c", "n3")], ("--node-name", "n1"), "a", "new", f"2 pods are {BOUND}"),
        (
            PENDING,
            ("--node-name", "n1"),
            "a pulling",
            "arriving new unbound",
            f"1 pod is {BOUND}; 2 pods are pending and not counted as running",
        ),
        ([pod("a", "n1"), pod("done", "n1", "Succeeded"), pod("failed", "n1", "Failed")], (), "a", "new", ""),
        ([pod("a", "n1"), pod("b", "n1"), pod("static")], (), "a b static", "new", ""),
    ],
    ids=["of other nodes", "pending", "finished", "of one node that needs no name"],
)
def test_pods_of_the_node_run_and_others_are_asked_or_left_out(
    pods: list[dict[str, Any]], options: tuple[str, ...], running: str, asked: str, said: str, tmp_path: Path
) -> None:
    answered = plan(tmp_path, pods, *options)
    expected = [*((name, True) for name in running.split()), *((name, False) for name in asked.split())]
    assert standing(answered) == expected
    assert told(answered) == ([f"node n1: {said}"] if said else [])


def test_pods_of_several_nodes_need_a_name(tmp_path: Path) -> None:
    refused = plan(tmp_path, [pod("a", "n1"), pod("b", "n2")])
    assert refused.code == 2
    assert "the pods are bound to 2 nodes (n1, n2); choose one with --node-name" in refused.complaint


# ``--save-state`` and ``--state``: plans that go on where others stopped, and files that stay untouched.


GOLDEN = Path(__file__).parent / "golden"


def contents(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir()}


def test_saved_files_are_those_of_the_last_answer(tmp_path: Path) -> None:
    answered = mooring("plan", *PODS, *NODE, "-o", "json", "--save-state", tmp_path / "new" / "root")
    last = answered.document["pods"][-1]
    assert contents(tmp_path / "new" / "root") == {
        "cpu_manager_state": last["cpuManagerState"],
        "memory_manager_state": last["memoryManagerState"],
    }


def test_nothing_is_saved_of_a_kubelet_that_does_not_start(tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE[:2], "--config", GOLDEN / "refused.yaml", "--save-state", tmp_path / "root", code=1)
    assert not (tmp_path / "root").exists()


def test_state_is_read_and_never_written(tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE, "--save-state", tmp_path / "before")
    saved = contents(tmp_path / "before")
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod_continuation("late", "4")))
    folders = ("--state", tmp_path / "before", "--save-state", tmp_path / "after")
    mooring("plan", "-f", tmp_path / "pod.yaml", *NODE, *folders, code=0)
    assert contents(tmp_path / "before") == saved
    assert "default_late" in contents(tmp_path / "after")["cpu_manager_state"]


def test_a_link_to_the_state_is_not_written_either(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    answered = mooring("plan", *PODS, *NODE, "--state", tmp_path / "root", "--save-state", tmp_path / "link", code=2)
    assert "whose files are never written" in answered.complaint
    assert contents(tmp_path / "root") == {}


def test_an_answer_is_given_only_when_the_state_was_saved(tmp_path: Path) -> None:
    (tmp_path / "cpu_manager_state").mkdir()
    answered = mooring("plan", *PODS, *NODE, "--save-state", tmp_path, code=2)
    assert "cpu_manager_state: cannot be written: " in answered.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["cpu_manager_state"]


def test_strangers_are_named_in_a_warning(tmp_path: Path) -> None:
    mooring("plan", *PODS, *NODE, "--save-state", tmp_path)
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod_continuation("late", "4")))
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", *NODE, "--state", tmp_path)
    assert answered.err == (
        "warning[MOOR-505]: state files: hold entries of 7 pods that no --active file describes (core_upf-0, "
        "core_upf-1, core_upf-2, ...); they count as running and keep what they have, but their requests are not "
        "counted\n"
    )


def pod_continuation(name: str, cpu: str, init: str = "", memory: str = "1Gi") -> dict[str, object]:
    def container(called: str, amount: str) -> dict[str, object]:
        return {"name": called, "resources": {"limits": {"cpu": amount, "memory": memory}}}

    spec: dict[str, object] = {"containers": [container("app", cpu)]}
    if init:
        spec["initContainers"] = [container("init", init)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


amounts = st.sampled_from(["2", "1", "4", "6", "500m", "16", "33", "3"])


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    given=st.lists(st.tuples(amounts, st.sampled_from(["", "", "2", "8"])), min_size=2, max_size=7),
    cut=st.integers(1, 6),
    policy=st.sampled_from(["single-numa-node", "restricted", "best-effort", "none"]),
)
def test_a_plan_in_two_is_the_plan_in_one(given: list[tuple[str, str]], cut: int, policy: str, tmp_path: Path) -> None:
    config = yaml.safe_load((EXAMPLES / "kubelet.yaml").read_text())
    (tmp_path / "kubelet.yaml").write_text(yaml.safe_dump({**config, "topologyManagerPolicy": policy}))
    node = (*NODE[:2], "--config", tmp_path / "kubelet.yaml")
    arriving = [pod_continuation(f"p{number}", cpu, init) for number, (cpu, init) in enumerate(given)]
    write(tmp_path / "all.yaml", arriving)
    whole = mooring("plan", "-f", tmp_path / "all.yaml", *node, "-o", "json", "--save-state", tmp_path / "whole")
    cut = min(cut, len(arriving) - 1)
    write(tmp_path / "first.yaml", arriving[:cut])
    write(tmp_path / "second.yaml", arriving[cut:])
    first = mooring("plan", "-f", tmp_path / "first.yaml", *node, "-o", "json", "--save-state", tmp_path / "half")
    admitted = [told["name"] for told in first.document["pods"] if told["admitted"]]
    running = [item for item in arriving if item["metadata"]["name"] in admitted]  # type: ignore[index]
    write(tmp_path / "running.yaml", running or [{"apiVersion": "v1", "kind": "List", "items": []}])
    second = mooring(
        *("plan", "-f", tmp_path / "second.yaml", "--active", tmp_path / "running.yaml", *node, "-o", "json"),
        *("--state", tmp_path / "half", "--save-state", tmp_path / "rest"),
    )
    new = [told for told in second.document["pods"] if "running" not in told]
    assert first.document["pods"] + new == whole.document["pods"]
    assert contents(tmp_path / "rest") == contents(tmp_path / "whole")


def write(path: Path, documents: list[dict[str, object]]) -> None:
    path.write_text(yaml.safe_dump_all(documents))


@pytest.mark.parametrize("name", ["admission-topology", "admission-memory"])
def test_saved_files_equal_those_of_the_recorded_kubelet(name: str, tmp_path: Path) -> None:
    compared = 0
    for scenario in list(recorded(f"{name}.jsonl.gz"))[:60]:
        steps = scenario["expect"].get("steps", [])
        if not steps or scenario.get("active") or any("admit" not in step for step in scenario["steps"]):
            continue
        if not steps[-1]["admitted"] or scenario["expect"].get("nondeterministic") or scenario["expect"].get("endless"):
            continue
        (tmp_path / "kubelet.json").write_text(json.dumps({"kind": "KubeletConfiguration", **scenario["kubelet"]}))
        items = [{"kind": "Pod", "apiVersion": "v1", **step["admit"]} for step in scenario["steps"]]
        (tmp_path / "pods.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))
        root = tmp_path / scenario["id"]
        answered = mooring(
            *("plan", "-f", tmp_path / "pods.json", "--config", tmp_path / "kubelet.json", "-o", "json"),
            *("--machine", f"{CORPORA / 'machines.jsonl'}#{scenario['machine']}", "--save-state", root),
        )
        if any(told["reason"].startswith("OutOf") for told in answered.document["pods"]):
            continue
        assert contents(root) == {
            "cpu_manager_state": steps[-1]["cpuManagerState"],
            "memory_manager_state": steps[-1]["memoryManagerState"],
        }
        compared += 1
    assert compared >= 3


# Restarts of the kubelet that move or reject running pods: every verb names the defect, what moves and what fails.


CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: {policy}
topologyManagerScope: pod
reservedSystemCPUs: "0"
featureGates: {{PodLevelResourceManagers: true}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: budget, uid: 11111111-1111-1111-1111-111111111111}
spec:
  resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}
  containers:
  - {name: pinned, resources: {limits: {cpu: "1", memory: 512Mi}, requests: {cpu: "1", memory: 512Mi}}}
  - {name: rest}
"""
OTHER = "{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: c}]}}"
MOVES = (
    "default/budget: a start of the kubelet on its state moves it: CPUs 1-2 become 3-4; CPUs 1-2 are lost, in no pool "
    "and of no container (defect pod-restart)"
)
FAILS = (
    "state files: after a start of the kubelet on them, its next start fails: start cpu manager error: current set of "
    'available CPUs "0-5" doesn\'t match with CPUs in state "0,3-5"'
)


def given_restarts(folder: Path, policy: str = "best-effort", fixed: str = "") -> list[str | Path]:
    (folder / "kubelet.yaml").write_text(
        CONFIG.format(policy=policy) + f"---\n{{kind: MooringConfiguration, fixedDefects: [{fixed}]}}\n"
    )
    (folder / "pod.yaml").write_text(POD)
    (folder / "other.yaml").write_text(OTHER)
    return ["--machine", "cores=6 memory=16Gi", "--config", folder / "kubelet.yaml"]


@pytest.mark.parametrize(("fixed", "told"), [("", (MOVES, FAILS)), ("pod-restart", ())])
def test_a_saved_state_says_what_the_next_start_does_to_pods(tmp_path: Path, fixed: str, told: tuple[str, ...]) -> None:
    node = given_restarts(tmp_path, fixed=fixed)
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    assert (answered.code, answered.err) == (0, "".join(f"warning[MOOR-547]: {one}\n" for one in told))


def test_explain_and_doctor_name_the_defect_on_files_that_are_sound(tmp_path: Path) -> None:
    node = given_restarts(tmp_path)
    mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    running = ("--active", tmp_path / "pod.yaml", "--state", tmp_path / "state", *node)
    explained = mooring("explain", "budget", "-f", tmp_path / "other.yaml", *running, "-o", "json").document
    assert [one["code"] for one in explained["remarks"]] == ["MOOR-547", "MOOR-547"]
    assert [one["message"] for one in explained["remarks"]] == [text.partition(": ")[2] for text in (MOVES, FAILS)]
    sick = mooring("doctor", *running, code=1)
    text = " ".join(sick.out.split())
    assert text.startswith(f"{tmp_path}/state: the kubelet starts on these files, but its start after that fails ")
    assert f"warning[MOOR-547]: {MOVES}." in text
    assert f"error[MOOR-547]: {FAILS}." in text


def test_an_upgrade_that_moves_pods_or_starts_only_once_is_not_safe(tmp_path: Path) -> None:
    node = given_restarts(tmp_path)
    arguments = ("upgrade", "--kubelet-version", "1.36", "1.37", "-f", tmp_path / "pod.yaml", *node)
    answered = mooring(*arguments, "-o", "json")
    found = answered.document
    assert (answered.code, found["changed"], found["safe"]) == (1, False, False)
    assert found["nextStartError"] == FAILS.partition("fails: ")[2]
    assert "MOOR-547" in {one["code"] for one in found["findings"]}
    text = mooring(*arguments).out
    assert "but moves 1 of 1 running pod. A restart of the old one does the same." in text
    assert "Its start after that fails: start cpu manager error" in text
