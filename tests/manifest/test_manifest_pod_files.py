"""Files of pods: lists, workloads, what is left out, what appears twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases
from tests.values import refusal as refused

from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import QoS
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_files import load_pods

SPEC: dict[str, Any] = {"containers": [{"name": "c", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}]}
TEMPLATE = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "name": "ignored"}, "spec": SPEC}


def pod(name: str, **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": SPEC, **more}


def workload(kind: str, version: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "web", "namespace": "shop", "uid": "of-the-owner"}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": {"template": TEMPLATE, **spec}}


def write(folder: Path, *contents: object, name: str = "f.json") -> Path:
    file = folder / name
    file.write_text("\n".join(json.dumps(content) for content in contents))
    return file


def names(folder: Path, *contents: object) -> list[str]:
    return [f"{found.namespace}/{found.name}" for found in load_pods([write(folder, *contents)])]


def refusal(folder: Path, *contents: object) -> str:
    return refused(load_pods, [write(folder, *contents)]).replace(f"{folder}/", "")


def test_pods_come_in_the_order_of_their_files(tmp_path: Path) -> None:
    first = write(tmp_path, pod("b"), pod("a"), name="1.json")
    second = write(tmp_path, pod("c"), name="2.json")
    assert [found.name for found in load_pods([second, first])] == ["c", "b", "a"]
    assert [found.name for found in load_pods([tmp_path])] == ["b", "a", "c"]
    assert load_pods([]) == []


def test_lists_are_opened(tmp_path: Path) -> None:
    bare = {"metadata": {"name": "y"}, "spec": SPEC}
    inner = {"kind": "List", "items": [pod("z")]}
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("x"), inner]}
    assert names(tmp_path, listed, {"kind": "PodList", "items": [bare]}) == ["default/x", "default/z", "default/y"]
    assert names(tmp_path, {"kind": "List", "items": None}) == []


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (workload("Deployment", "apps/v1", replicas=3), 3),
        (workload("Deployment", "apps/v1"), 1),
        (workload("Deployment", "apps/v1", replicas=0), 0),
        (workload("StatefulSet", "apps/v1", replicas=2), 2),
        (workload("ReplicaSet", "apps/v1", replicas=2), 2),
        (workload("ReplicationController", "v1", replicas=2), 2),
        (workload("DaemonSet", "apps/v1", replicas=5), 1),
        (workload("Job", "batch/v1"), 1),
        (workload("Job", "batch/v1", parallelism=3), 3),
        (workload("Job", "batch/v1", parallelism=3, completions=2), 2),
        (workload("Job", "batch/v1", completions=5), 1),
        (workload("Job", "batch/v1", parallelism=0), 0),
    ],
)
def test_workloads_give_their_pods(tmp_path: Path, content: dict[str, Any], count: int) -> None:
    found = load_pods([write(tmp_path, content)])
    assert [entry.name for entry in found] == [f"web-{number}" for number in range(count)]
    assert [entry.uid for entry in found] == [f"shop_web-{number}" for number in range(count)]
    assert all(entry.qos is QoS.GUARANTEED and entry.annotations == {"a": "b"} for entry in found)


def test_pods_of_a_stateful_set_begin_at_its_ordinal(tmp_path: Path) -> None:
    content = workload("StatefulSet", "apps/v1", replicas=2, ordinals={"start": 5})
    assert names(tmp_path, content) == ["shop/web-5", "shop/web-6"]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("Chart.yaml", "the folder is a Helm chart; helm template "),
        ("kustomization.yaml", "the folder is for Kustomize; kubectl kustomize "),
    ],
)
def test_folders_of_other_tools_are_refused_with_the_command(tmp_path: Path, name: str, problem: str) -> None:
    write(tmp_path, pod("x"))
    (tmp_path / name).write_text("name: x")
    assert (
        refused(load_pods, [tmp_path])
        == f"{tmp_path}: {problem}{tmp_path} prints its manifests: pipe them to mooring with -f -"
    )


def test_templates_in_other_places(tmp_path: Path) -> None:
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "tick"},
        "spec": {"jobTemplate": {"spec": {"parallelism": 2, "template": TEMPLATE}}},
    }
    template = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "form"}, "template": TEMPLATE}
    assert names(tmp_path, cron, template) == ["default/tick-0", "default/tick-1", "default/form-0"]


def test_what_has_no_pods_is_reported(tmp_path: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    foreign = {"apiVersion": "example.com/v1", "kind": "Deployment", "metadata": {"name": "own"}}
    config = {"kind": "KubeletConfiguration"}
    file = write(tmp_path, service, foreign, config, pod("x"))
    found: list[Finding] = []
    assert len(load_pods([file], report=found.append)) == 1
    assert [(finding.severity, finding.code, finding.message) for finding in found] == [
        ("info", "MOOR-503", "1 Service (web), 1 KubeletConfiguration"),
        (
            "info",
            "MOOR-503",
            "1 Deployment (own): no pod template found; --pod-template-path Deployment=PATH names one",
        ),
    ]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_are_left_out_and_counted_in_one_finding(tmp_path: Path, phase: str) -> None:
    found: list[Finding] = []
    ended = [pod(name, status={"phase": phase}) for name in ("a", "b", "c", "d")]
    file = write(tmp_path, *ended, pod("y", status={"phase": "Running"}))
    assert [entry.name for entry in load_pods([file], report=found.append)] == ["y"]
    message = "4 pods are left out: 4 ended (default/a, default/b, default/c, ...)"
    advice = "mooring explain NAMESPACE/POD asks about one"
    assert found == [Finding("info", "pods", f"{message}; {advice}", "MOOR-502")]


def test_a_pod_that_a_kubelet_rejected_is_one_of_the_pods(tmp_path: Path) -> None:
    failed = pod("x", status={"phase": "Failed", "reason": "SMTAlignmentError"})
    assert names(tmp_path, pod("new"), failed, pod("y")) == ["default/new", "default/y", "default/x"]


def test_one_path_needs_no_list(tmp_path: Path) -> None:
    file = write(tmp_path, pod("x"))
    for one in (file, str(file), Path(file)):
        assert [entry.name for entry in load_pods(one)] == ["x"]


def test_gates_are_those_of_the_caller(tmp_path: Path) -> None:
    limits = {"cpu": 1, "memory": "1Gi"}
    file = write(tmp_path, {**pod("x"), "spec": {**SPEC, "resources": {"requests": limits}}})
    assert [entry.qos for entry in load_pods([file])] == [QoS.GUARANTEED]
    assert [entry.qos for entry in load_pods([file], gates=PodGates(defaulting_fix=False))] == [QoS.BURSTABLE]


@pytest.mark.parametrize(("contents", "message"), cases(__file__, "refused-pod-files.yaml", "contents", "says"))
def test_unusable_pods_are_refused_with_their_place(tmp_path: Path, contents: list[Any], message: str) -> None:
    assert message in refusal(tmp_path, *contents)


def test_lists_without_end_are_refused(tmp_path: Path) -> None:
    nested: dict[str, Any] = pod("x")
    for _ in range(20):
        nested = {"kind": "List", "items": [nested]}
    assert "lists inside lists without end" in refusal(tmp_path, nested)


def test_number_of_pods_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.pods.pod_files.MOST_PODS", 50)
    message = refusal(tmp_path, workload("Deployment", "apps/v1", replicas=2_000_000_000))
    assert message == "f.json: spec.template: more than 50 pods; lower the replicas"
