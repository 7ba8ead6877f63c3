"""Static pods from the folder of the kubelet."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods.fault_injector import pod_object
from tests.agent.pods.runtime_view import recorded

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.cluster import MOST_REMEMBERED, StaticPods
from mooring.agent.pods.resolve import differences, pod_of_object
from mooring.agent.pods.source import is_static
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import QoS


def write(folder: Path, name: str, cpu: str = "2", *, pod: str = "etcd", number: int = 1) -> Path:
    """Write a manifest as careful people do: beside it, then renamed."""
    content = pod_object(pod, cpu)
    del content["metadata"]["uid"], content["status"]
    file = folder / name
    beside = folder / f".{name}.{number}"
    beside.write_text(json.dumps(content))
    beside.rename(file)
    os.utime(file, ns=(number, number))
    return file


def sandbox(uid: str = "hash-1", name: str = "etcd-node-1", namespace: str = "shop") -> PodSandbox:
    annotations = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid}
    return PodSandbox("s", uid, name, namespace, annotations=annotations)


def cpus(pods: StaticPods, uid: str = "hash-1") -> str:
    pod = pods.pod(sandbox(uid))
    return "unknown" if pod is None else str(pod.containers[0].requests["cpu"])


def test_a_static_pod_is_found_under_its_name_on_the_node(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json")
    pods = StaticPods(tmp_path, "Node-1")
    pod = pods.pod(sandbox())
    assert pod is not None
    assert (pod.uid, pod.name, pod.namespace, pod.qos) == ("hash-1", "etcd-node-1", "shop", QoS.GUARANTEED)
    assert is_static(pod), "it is not evicted"
    assert pods.pod(sandbox("other", name="etcd-node-2")) is None
    assert pods.pod(sandbox("other", name="etcd")) is None
    assert pods.pod(sandbox("other", namespace="default")) is None


def test_the_kubelet_does_not_complete_pod_level_resources_of_a_static_pod(tmp_path: Path) -> None:
    limits = {"cpu": "2", "memory": "1Gi"}
    spec = {"resources": {"limits": limits}, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    manifest = {"metadata": {"name": "etcd", "namespace": "shop"}, "spec": spec}
    (tmp_path / "etcd.json").write_text(json.dumps(manifest), encoding="utf-8")
    pod = StaticPods(tmp_path, "node-1").pod(sandbox())
    assert pod is not None
    assert pod.resources is not None
    assert (dict(pod.resources.requests), pod.qos) == ({}, QoS.BURSTABLE)


def test_many_static_pods_are_found_by_one_look_at_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "etcd.json")
    pods = StaticPods(tmp_path, "node-1")
    looks: list[Path] = []
    listed = Path.iterdir

    def counted(folder: Path) -> Iterator[Path]:
        looks.append(folder)
        return listed(folder)

    monkeypatch.setattr(Path, "iterdir", counted)
    asked = [sandbox(), *(sandbox(f"other{number}", name=f"web{number}-node-1") for number in range(20))]
    assert set(pods.known(asked)) == {"hash-1"}
    assert len(looks) == 1
    assert set(pods.known([sandbox()])) == {"hash-1"}
    assert len(looks) == 1


def test_the_recorded_static_pod_is_found_and_agrees(tmp_path: Path) -> None:
    resources = "{requests: {cpu: 400m}, limits: {cpu: 1, memory: 64Mi}}"
    (tmp_path / "burst.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: st-burstable}\n"
        f"spec: {{containers: [{{name: a, resources: {resources}}}]}}\n"
    )
    told = recorded("static-pod-burstable")
    pod = StaticPods(tmp_path, "node-real").pod(told[0])
    assert pod is not None
    assert differences(pod, *told) == []


def test_a_changed_manifest_is_another_pod_and_the_running_one_stays_what_it_was(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json", "2")
    pods = StaticPods(tmp_path, "node-1")
    assert cpus(pods) == "2"
    write(tmp_path, "etcd.json", "3", number=2)
    assert cpus(pods, "hash-2") == "3"
    assert cpus(pods) == "2"
    (tmp_path / "etcd.json").unlink()
    assert cpus(pods, "hash-2") == "3"
    assert cpus(pods, "hash-3") == "unknown"


def test_a_manifest_with_a_uid_of_its_own_is_looked_at_again(tmp_path: Path) -> None:
    pods = StaticPods(tmp_path, "node-1")
    for number, cpu in enumerate(("2", "3"), 1):
        content = pod_object("etcd", cpu, uid="mine")
        del content["status"]
        (tmp_path / "etcd.json").write_text(json.dumps(content))
        os.utime(tmp_path / "etcd.json", ns=(number, number))
        assert cpus(pods, "mine") == cpu


def test_a_manifest_that_appears_is_found_at_the_next_question(tmp_path: Path) -> None:
    pods = StaticPods(tmp_path, "node-1")
    assert cpus(pods) == "unknown"
    write(tmp_path, "etcd.json")
    assert cpus(pods) == "2"


def test_a_refresh_reads_ahead(tmp_path: Path) -> None:
    findings: list[Finding] = []
    pods = StaticPods(tmp_path, "node-1", report=findings.append)
    (tmp_path / "broken.yaml").write_text("{")
    pods.refresh()
    assert len(findings) == 1
    pods.refresh()
    assert len(findings) == 1, "told once for each state of the file"


def test_a_single_file_may_stand_in_the_place_of_the_folder(tmp_path: Path) -> None:
    assert cpus(StaticPods(write(tmp_path, "etcd.json"), "node-1")) == "2"


@pytest.mark.parametrize("name", [".etcd.json", ".etcd.yaml.swp"])
def test_hidden_files_are_left_out_as_the_kubelet_does(tmp_path: Path, name: str) -> None:
    write(tmp_path, "other.json").rename(tmp_path / name)
    assert cpus(StaticPods(tmp_path, "node-1")) == "unknown"


def test_files_with_any_ending_are_read_as_the_kubelet_does(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json.orig")
    assert cpus(StaticPods(tmp_path, "node-1")) == "2"


def test_two_manifests_of_one_pod_are_reported_and_give_none(tmp_path: Path) -> None:
    findings: list[Finding] = []
    write(tmp_path, "etcd.json", "2")
    write(tmp_path, "etcd.json.bak", "4")
    assert cpus(StaticPods(tmp_path, "node-1", report=findings.append)) == "unknown"
    assert findings[0].message == "2 manifests describe the pod shop/etcd: which of them runs is unknown"


BAD: dict[str, bytes] = {
    "nothing": b"",
    "not YAML": b"{",
    "not text": b"\xff\x00",
    "a list": b"[]",
    "two documents": b"kind: Pod\n---\nkind: Pod\n",
    "a service": b"kind: Service\nmetadata: {name: etcd}\n",
    "no containers": b"kind: Pod\nmetadata: {name: etcd, namespace: shop}\nspec: {}\n",
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_file_is_reported_and_does_not_hide_the_others(tmp_path: Path, name: str) -> None:
    findings: list[Finding] = []
    (tmp_path / "a.yaml").write_bytes(BAD[name])
    write(tmp_path, "etcd.json")
    assert cpus(StaticPods(tmp_path, "node-1", report=findings.append)) == "2"
    (finding,) = findings
    assert finding.subject == str(tmp_path / "a.yaml")
    assert "\n" not in finding.message


def test_a_folder_that_is_not_there_is_reported_once_and_taken_up_when_it_comes(tmp_path: Path) -> None:
    findings: list[Finding] = []
    folder = tmp_path / "manifests"
    pods = StaticPods(folder, "node-1", report=findings.append)
    assert [cpus(pods), cpus(pods)] == ["unknown"] * 2
    assert [one.message for one in findings] == ["the folder of static pods cannot be read: no such file or directory"]
    folder.mkdir()
    write(folder, "etcd.json")
    assert cpus(pods) == "2"


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json")
    pods = StaticPods(tmp_path, "node-1")
    for number in range(MOST_REMEMBERED + 10):
        assert cpus(pods, f"hash-{number}") == "2"
    write(tmp_path, "etcd.json", "3", number=2)
    assert cpus(pods, f"hash-{MOST_REMEMBERED + 9}") == "2", "a pod that runs keeps its manifest"
    assert cpus(pods, "hash-10") == "2"
    assert cpus(pods, "hash-9") == "3", "it is read anew"


# Pods of the API server while a resize is on its way.


def resized(wanted: dict[str, Any], **status: Any) -> dict[str, Any]:
    obj = pod_object("web")
    obj["spec"]["containers"][0]["resources"] = wanted
    obj["status"]["containerStatuses"] = [{"name": "app", **status}]
    return obj


def amounts(obj: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    (one,) = pod_of_object(obj, source="test").containers
    return (
        {name: str(amount) for name, amount in one.requests.items()},
        {name: str(amount) for name, amount in one.limits.items()},
    )


def test_a_resize_that_is_not_accepted_yet_does_not_count() -> None:
    wanted = {"cpu": "4", "memory": "2Gi"}
    allocated = {"cpu": "2", "memory": "1Gi"}
    obj = resized({"requests": wanted, "limits": wanted}, allocatedResources=allocated)
    assert amounts(obj) == (allocated, allocated)


def test_a_limit_of_its_own_is_what_the_runtime_has() -> None:
    wanted = {"requests": {"cpu": "2"}, "limits": {"cpu": "4"}}
    obj = resized(wanted, allocatedResources={"cpu": "1"}, resources={"limits": {"cpu": "3"}})
    obj["status"]["qosClass"] = "Burstable"
    assert amounts(obj) == ({"cpu": "1"}, {"cpu": "3"})


def test_init_containers_and_pod_level_resources_are_allocated_too() -> None:
    two, four = {"cpu": "2", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}
    obj = pod_object("web")
    obj["spec"]["initContainers"] = [
        {"name": "side", "restartPolicy": "Always", "resources": {"requests": four, "limits": four}}
    ]
    obj["spec"]["resources"] = {"requests": {"cpu": "9", "memory": "4Gi"}, "limits": {"cpu": "9", "memory": "4Gi"}}
    obj["status"]["initContainerStatuses"] = [{"name": "side", "allocatedResources": two}]
    obj["status"]["allocatedResources"] = {"cpu": "5", "memory": "4Gi"}
    pod = pod_of_object(obj, source="test")
    assert str(pod.containers[0].limits["cpu"]) == "2"
    assert pod.resources is not None
    assert str(pod.resources.requests["cpu"]) == str(pod.resources.limits["cpu"]) == "5"
    assert pod.qos is QoS.GUARANTEED


def test_the_sum_of_a_pod_without_resources_of_its_own_is_not_taken_for_them() -> None:
    assert pod_of_object(pod_object("web", allocatedResources={"cpu": "1"}), source="test").resources is None


@pytest.mark.parametrize(
    "status",
    [
        {"containerStatuses": 1},
        {"containerStatuses": [{"name": 1}]},
        {"containerStatuses": [{"name": "app", "allocatedResources": [1]}]},
        {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "many"}}]},
    ],
)
def test_a_status_of_the_wrong_shape_is_bad_input(status: dict[str, Any]) -> None:
    obj = pod_object("web", **status)
    with pytest.raises(InputError):
        pod_of_object(obj, source="test")
