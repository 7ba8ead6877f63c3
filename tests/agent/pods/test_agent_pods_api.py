"""Pods of an API server that fails in every way that it can; the server here is a fault injector."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods.fault_injector import PATIENCE, Fault, FaultInjector, pod_object
from tests.agent.pods.runtime_view import recorded
from tests.values import not_none

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.api import APIPods
from mooring.agent.pods.cluster import MOST_REMEMBERED, StaticPods
from mooring.agent.pods.resolve import differences, pod_of_object
from mooring.agent.pods.source import is_static
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import QoS
from mooring.service.apiserver import Cluster, ClusterError, cluster_of

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@dataclass
class Heard:
    """What a source has reported and for how long it would have waited."""

    injector: FaultInjector
    findings: list[Finding] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def report(self, finding: Finding) -> None:
        with self.injector.changed:
            self.findings.append(finding)
            self.injector.changed.notify_all()

    def wait(self, seconds: float) -> None:
        with self.injector.changed:
            self.waits.append(seconds)
            self.injector.changed.notify_all()

    def messages(self) -> str:
        with self.injector.changed:
            return "\n".join(finding.message for finding in self.findings)


@contextmanager
def watching(
    injector: FaultInjector, *, connect: Callable[[], Cluster] | None = None, patience: float = PATIENCE
) -> Iterator[tuple[APIPods, Heard]]:
    heard = Heard(injector)
    source = APIPods(
        connect or (lambda: cluster_of(injector.config())),
        injector.node,
        report=heard.report,
        wait=heard.wait,
        patience=patience,
    )
    source.start()
    try:
        yield source, heard
    finally:
        source.stop()


def sandbox(name: str, uid: str = "", source: str = "api") -> PodSandbox:
    annotations = {"kubernetes.io/config.source": source}
    return PodSandbox(f"s-{name}", uid or f"uid-{name}", name, "shop", annotations=annotations)


def eventually(holds: Callable[[], bool]) -> bool:
    """Wait for what another thread does, for which there is nothing to wait on."""
    deadline = time.monotonic() + PATIENCE
    pause = threading.Event()
    while not holds():
        if time.monotonic() > deadline:
            return False
        pause.wait(0.005)
    return True


def cpus(source: APIPods | StaticPods, of: PodSandbox) -> str:
    assert not isinstance(source, APIPods) or eventually(lambda: source.is_live)
    pod = source.pod(of)
    return "unknown" if pod is None else str(pod.containers[0].requests["cpu"])


def still_hears(source: APIPods, injector: FaultInjector) -> bool:
    """Tell whether a new pod becomes known, and so everything before it was heard."""
    injector.put(pod_object("last"))
    return cpus(source, sandbox("last")) == "2"


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    with FaultInjector() as one:
        yield one


def test_pods_of_this_node_are_listed_and_then_watched(injector: FaultInjector) -> None:
    injector.put(pod_object("old", "3"))
    with watching(injector) as (source, heard):
        assert source.wait_until_listed(PATIENCE)
        assert cpus(source, sandbox("old")) == "3"
        injector.put(pod_object("new", "4"))
        assert cpus(source, sandbox("new")) == "4"
        assert source.is_live
        assert len(source) == 2
    listed, watched = injector.asked("list")[0], injector.asked("watch")[0]
    assert listed.query["fieldSelector"] == watched.query["fieldSelector"] == "spec.nodeName=node-1"
    assert listed.query["resourceVersion"] == "0"
    assert watched.query["resourceVersion"] == "101"
    assert heard.findings == []


def test_only_what_decides_is_kept_of_a_pod(injector: FaultInjector) -> None:
    injector.put(pod_object("web"))
    with watching(injector) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        pod = source.pod(sandbox("web"))
    assert pod is not None
    assert pod.annotations == {}
    assert pod.qos.value == "Guaranteed"


def test_pages_of_a_long_list_are_all_read(injector: FaultInjector) -> None:
    injector.page = 2
    for number in range(5):
        injector.put(pod_object(f"p{number}"))
    with watching(injector) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        assert len(source) == 5


def test_a_pod_that_is_deleted_or_has_finished_is_forgotten(injector: FaultInjector) -> None:
    for name in ("gone", "done", "stays"):
        injector.put(pod_object(name))
    with watching(injector) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        injector.delete("gone")
        injector.put(pod_object("done", phase="Succeeded"))
        assert still_hears(source, injector)
        assert len(source) == 2


def test_the_mirror_of_a_static_pod_is_known_by_the_uid_that_the_kubelet_uses(injector: FaultInjector) -> None:
    mirror = pod_object("etcd-node-1")
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "hash"
    injector.put(mirror)
    with watching(injector) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        assert not_none(source.pod(sandbox("etcd-node-1", "hash", "file"))).uid == "hash"
        injector.delete("etcd-node-1")
        assert still_hears(source, injector)
        assert source.pod(sandbox("etcd-node-1", "hash", "file")) is None


def test_an_unknown_pod_is_waited_for_only_once_and_a_static_one_never(injector: FaultInjector) -> None:
    with watching(injector, patience=0.05) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        assert eventually(lambda: source.is_live)
        assert source.pod(sandbox("never")) is None
        assert source.pod(sandbox("static", source="file")) is None
        slow = APIPods(lambda: cluster_of(injector.config()), injector.node, patience=10_000)
        assert slow.pod(sandbox("never")) is None, "nobody waits for a source that does not hear anything"


def test_a_version_that_is_too_old_leads_to_a_new_list_of_the_newest(injector: FaultInjector) -> None:
    """As status of the request, and as an event in the stream."""
    injector.put(pod_object("old"))
    event = json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"
    mark = json.dumps({"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "99"}}}).encode() + b"\n"
    injector.fail("watch", Fault(status=410), Fault(stream=mark + event))
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(injector.requests) >= 6)
        assert still_hears(source, injector)
    assert [request.what for request in injector.requests[:6]] == ["list", "watch"] * 3
    first, *others = injector.asked("list")
    assert "resourceVersion" in first.query
    assert all("resourceVersion" not in request.query for request in others)
    assert (heard.findings, heard.waits) == ([], []), "part of the game"


def test_a_server_that_finds_every_version_too_old_is_asked_with_pauses(injector: FaultInjector) -> None:
    injector.fail("watch", *[Fault(status=410)] * 4)
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(injector.asked("watch")) >= 5)
        assert still_hears(source, injector)
    assert len(heard.waits) == 3
    assert heard.waits == sorted(heard.waits)


@pytest.mark.parametrize("what", ["list", "watch"])
def test_too_many_requests_are_followed_by_the_pause_that_the_server_asks(injector: FaultInjector, what: str) -> None:
    injector.put(pod_object("web"))
    injector.fail(what, Fault(status=429, retry_after="7"), Fault(status=429, retry_after="never"), Fault(status=503))
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(heard.waits) >= 3)
        assert still_hears(source, injector)
        assert eventually(lambda: "is restored" in heard.messages())
    assert heard.waits[0] == 7
    assert heard.waits[1] < heard.waits[2] < 7
    assert "status 429" in heard.messages()


def test_a_cut_watch_goes_on_after_the_last_change_that_was_heard(injector: FaultInjector) -> None:
    event = {"type": "ADDED", "object": pod_object("first")}
    event["object"]["metadata"]["resourceVersion"] = "100"  # type: ignore[index]
    injector.fail("watch", Fault(stream=json.dumps(event).encode() + b"\n", cut=True))
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(injector.requests) >= 3)
        injector.put(pod_object("second"))
        assert cpus(source, sandbox("second")) == "2"
        assert cpus(source, sandbox("first")) == "2"
    assert len(injector.asked("list")) == 1
    assert injector.asked("watch")[1].query["resourceVersion"] == "100"
    assert "lost contact" in heard.messages()


def test_a_server_that_ends_every_watch_at_once_is_asked_with_pauses(injector: FaultInjector) -> None:
    injector.fail("watch", *[Fault()] * 5)
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(heard.waits) >= 5)
        assert still_hears(source, injector)
    assert heard.waits == [1.0] * 5
    assert heard.findings == []


def test_the_end_of_a_watch_in_order_costs_no_pause(injector: FaultInjector) -> None:
    injector.bookmarks = 1
    with watching(injector) as (source, heard):
        for turns in (partial(lambda turn: len(injector.asked("watch")) > turn, turn) for turn in range(3)):
            assert injector.wait_for(turns)
            injector.end_watches()
        assert still_hears(source, injector)
    assert len(injector.asked("list")) == 1
    assert all(wait == 1.0 for wait in heard.waits)


@pytest.mark.parametrize("stream", [b"{", b"[]\n", b"\xff\xfe\n", b'{"type": 7}\n', b'"text"\n', b"nonsense\n" * 50])
def test_garbage_ends_the_watch_and_nothing_else(injector: FaultInjector, stream: bytes) -> None:
    injector.fail("watch", Fault(stream=stream))
    with watching(injector) as (source, _):
        assert injector.wait_for(lambda: len(injector.asked("watch")) >= 2)
        assert still_hears(source, injector)


@pytest.mark.parametrize("fault", [Fault(stream=b"[]"), Fault(stream=b"{oh"), Fault(cut=True), Fault(status=403)])
def test_a_list_that_cannot_be_read_is_asked_for_again(injector: FaultInjector, fault: Fault) -> None:
    injector.put(pod_object("web"))
    injector.fail("list", fault)
    with watching(injector) as (source, heard):
        assert source.wait_until_listed(PATIENCE)
        assert cpus(source, sandbox("web")) == "2"
    assert len(heard.waits) == 1
    assert "attempt 1" in heard.messages()


def test_what_is_known_stays_while_the_server_is_away_and_nobody_waits(injector: FaultInjector) -> None:
    injector.put(pod_object("web"))
    refused = threading.Event()
    opened: list[int] = []

    def connect() -> Cluster:
        opened.append(1)
        if len(opened) > 1 and not refused.is_set():
            raise ClusterError("refused")
        return cluster_of(injector.config())

    with watching(injector, connect=connect, patience=10_000) as (source, heard):
        assert source.wait_until_listed(PATIENCE)
        injector.fail("watch", Fault(status=500))
        injector.end_watches()
        assert injector.wait_for(lambda: len(heard.waits) >= 4)
        assert source.pod(sandbox("web")) is not None
        assert not source.is_live
        assert source.pod(sandbox("unknown")) is None
        refused.set()
        assert still_hears(source, injector)
        assert eventually(lambda: "is restored" in heard.messages())
    assert heard.waits[1:4] == sorted(heard.waits[1:4])


def test_a_pod_that_cannot_be_used_is_reported_once_and_left_out(injector: FaultInjector) -> None:
    broken = pod_object("broken", "many")
    injector.put(broken)
    with watching(injector) as (source, heard):
        injector.put(broken)
        assert still_hears(source, injector)
        assert len(source) == 1
    (finding,) = heard.findings
    assert finding.subject == "pod uid-broken"
    assert "'many' is not a quantity" in finding.message


def test_stopping_ends_a_watch_in_which_nothing_happens(injector: FaultInjector) -> None:
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(injector.asked("watch")) == 1)
        assert eventually(lambda: source.is_live)
    assert not source.is_live
    assert heard.findings == []
    assert not any(thread.name.startswith("follow-") for thread in threading.enumerate())


# Static pods from the folder of the kubelet.


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


def static(uid: str = "hash-1", name: str = "etcd-node-1", namespace: str = "shop") -> PodSandbox:
    annotations = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": uid}
    return PodSandbox("s", uid, name, namespace, annotations=annotations)


def test_a_static_pod_is_found_under_its_name_on_the_node(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json")
    pods = StaticPods(tmp_path, "Node-1")
    pod = not_none(pods.pod(static()))
    assert (pod.uid, pod.name, pod.namespace, pod.qos) == ("hash-1", "etcd-node-1", "shop", QoS.GUARANTEED)
    assert is_static(pod), "it is not evicted"
    assert pods.pod(static("other", name="etcd-node-2")) is None
    assert pods.pod(static("other", name="etcd")) is None
    assert pods.pod(static("other", namespace="default")) is None


def test_the_kubelet_does_not_complete_pod_level_resources_of_a_static_pod(tmp_path: Path) -> None:
    limits = {"cpu": "2", "memory": "1Gi"}
    spec = {"resources": {"limits": limits}, "containers": [{"name": "c", "resources": {"limits": limits}}]}
    manifest = {"metadata": {"name": "etcd", "namespace": "shop"}, "spec": spec}
    (tmp_path / "etcd.json").write_text(json.dumps(manifest), encoding="utf-8")
    pod = not_none(StaticPods(tmp_path, "node-1").pod(static()))
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
    asked = [
        static(),
        *(static(f"other{number}", name=f"web{number}-node-1") for number in range(20)),
    ]
    assert set(pods.known(asked)) == {"hash-1"}
    assert len(looks) == 1
    assert set(pods.known([static()])) == {"hash-1"}
    assert len(looks) == 1


def test_the_recorded_static_pod_is_found_and_agrees(tmp_path: Path) -> None:
    resources = "{requests: {cpu: 400m}, limits: {cpu: 1, memory: 64Mi}}"
    (tmp_path / "burst.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: st-burstable}\n"
        f"spec: {{containers: [{{name: a, resources: {resources}}}]}}\n"
    )
    told = recorded("static-pod-burstable")
    assert differences(not_none(StaticPods(tmp_path, "node-real").pod(told[0])), *told) == []


def test_a_changed_manifest_is_another_pod_and_the_running_one_stays_what_it_was(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json", "2")
    pods = StaticPods(tmp_path, "node-1")
    assert cpus(pods, static()) == "2"
    write(tmp_path, "etcd.json", "3", number=2)
    assert cpus(pods, static("hash-2")) == "3"
    assert cpus(pods, static()) == "2"
    (tmp_path / "etcd.json").unlink()
    assert cpus(pods, static("hash-2")) == "3"
    assert cpus(pods, static("hash-3")) == "unknown"


def test_a_manifest_with_a_uid_of_its_own_is_looked_at_again(tmp_path: Path) -> None:
    pods = StaticPods(tmp_path, "node-1")
    for number, cpu in enumerate(("2", "3"), 1):
        content = pod_object("etcd", cpu, uid="mine")
        del content["status"]
        (tmp_path / "etcd.json").write_text(json.dumps(content))
        os.utime(tmp_path / "etcd.json", ns=(number, number))
        assert cpus(pods, static("mine")) == cpu


def test_a_refresh_reads_ahead(tmp_path: Path) -> None:
    findings: list[Finding] = []
    pods = StaticPods(tmp_path, "node-1", report=findings.append)
    (tmp_path / "broken.yaml").write_text("{")
    pods.refresh()
    assert len(findings) == 1
    pods.refresh()
    assert len(findings) == 1, "told once for each state of the file"


def test_a_single_file_may_stand_in_the_place_of_the_folder(tmp_path: Path) -> None:
    assert cpus(StaticPods(write(tmp_path, "etcd.json"), "node-1"), static()) == "2"


@pytest.mark.parametrize(
    ("name", "found"), [(".etcd.json", "unknown"), (".etcd.yaml.swp", "unknown"), ("etcd.json.orig", "2")]
)
def test_files_with_any_ending_are_read_and_hidden_ones_are_not(tmp_path: Path, name: str, found: str) -> None:
    write(tmp_path, "other.json").rename(tmp_path / name)
    assert cpus(StaticPods(tmp_path, "node-1"), static()) == found


def test_two_manifests_of_one_pod_are_reported_and_give_none(tmp_path: Path) -> None:
    findings: list[Finding] = []
    write(tmp_path, "etcd.json", "2")
    write(tmp_path, "etcd.json.bak", "4")
    assert cpus(StaticPods(tmp_path, "node-1", report=findings.append), static()) == "unknown"
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
    assert cpus(StaticPods(tmp_path, "node-1", report=findings.append), static()) == "2"
    (finding,) = findings
    assert finding.subject == str(tmp_path / "a.yaml")
    assert "\n" not in finding.message


def test_a_folder_that_is_not_there_is_reported_once_and_taken_up_when_it_comes(tmp_path: Path) -> None:
    findings: list[Finding] = []
    folder = tmp_path / "manifests"
    pods = StaticPods(folder, "node-1", report=findings.append)
    assert [cpus(pods, static()), cpus(pods, static())] == ["unknown"] * 2
    assert [one.message for one in findings] == ["the folder of static pods cannot be read: no such file or directory"]
    folder.mkdir()
    write(folder, "etcd.json")
    assert cpus(pods, static()) == "2"


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    write(tmp_path, "etcd.json")
    pods = StaticPods(tmp_path, "node-1")
    for number in range(MOST_REMEMBERED + 10):
        assert cpus(pods, static(f"hash-{number}")) == "2"
    write(tmp_path, "etcd.json", "3", number=2)
    assert cpus(pods, static(f"hash-{MOST_REMEMBERED + 9}")) == "2", "a pod that runs keeps its manifest"
    assert cpus(pods, static("hash-10")) == "2"
    assert cpus(pods, static("hash-9")) == "3", "it is read anew"


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
