"""Pods of an API server that fails in every way that it can; the server here is a fault injector."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import pytest
from tests.agent.pods.fault_injector import PATIENCE, Fault, FaultInjector, pod_object

from mooring.agent.nri.types import PodSandbox
from mooring.agent.pods.api import APIPods
from mooring.engine.core.machine import Finding
from mooring.service.apiserver import Cluster, ClusterError, cluster_of
from mooring.service.following import QUIET_PAUSE

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


def cpus(source: APIPods, name: str) -> str:
    assert eventually(lambda: source.is_live)
    pod = source.pod(sandbox(name))
    return "unknown" if pod is None else str(pod.containers[0].requests["cpu"])


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    with FaultInjector() as one:
        yield one


def test_pods_of_this_node_are_listed_and_then_watched(injector: FaultInjector) -> None:
    injector.put(pod_object("old", "3"))
    with watching(injector) as (source, heard):
        assert source.wait_until_listed(PATIENCE)
        assert cpus(source, "old") == "3"
        injector.put(pod_object("new", "4"))
        assert cpus(source, "new") == "4"
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
        injector.put(pod_object("last"))
        assert cpus(source, "last") == "2"  # and so everything before it was heard
        assert len(source) == 2


def test_the_mirror_of_a_static_pod_is_known_by_the_uid_that_the_kubelet_uses(injector: FaultInjector) -> None:
    mirror = pod_object("etcd-node-1")
    mirror["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "hash"
    injector.put(mirror)
    with watching(injector) as (source, _):
        assert source.wait_until_listed(PATIENCE)
        found = source.pod(sandbox("etcd-node-1", "hash", "file"))
        assert found is not None
        assert found.uid == "hash"
        injector.delete("etcd-node-1")
        injector.put(pod_object("last"))
        assert cpus(source, "last") == "2"
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
        injector.put(pod_object("new"))
        assert cpus(source, "new") == "2"
    assert [request.what for request in injector.requests[:6]] == ["list", "watch"] * 3
    first, *others = injector.asked("list")
    assert "resourceVersion" in first.query
    assert all("resourceVersion" not in request.query for request in others)
    assert (heard.findings, heard.waits) == ([], []), "part of the game"


def test_a_server_that_finds_every_version_too_old_is_asked_with_pauses(injector: FaultInjector) -> None:
    injector.fail("watch", *[Fault(status=410)] * 4)
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(injector.asked("watch")) >= 5)
        injector.put(pod_object("new"))
        assert cpus(source, "new") == "2"
    assert len(heard.waits) == 3
    assert heard.waits == sorted(heard.waits)


@pytest.mark.parametrize("what", ["list", "watch"])
def test_too_many_requests_are_followed_by_the_pause_that_the_server_asks(injector: FaultInjector, what: str) -> None:
    injector.put(pod_object("web"))
    injector.fail(what, Fault(status=429, retry_after="7"), Fault(status=429, retry_after="never"), Fault(status=503))
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(heard.waits) >= 3)
        injector.put(pod_object("new"))
        assert eventually(lambda: "is restored" in heard.messages())
        assert cpus(source, "new") == "2"
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
        assert cpus(source, "second") == "2"
        assert cpus(source, "first") == "2"
    assert len(injector.asked("list")) == 1
    assert injector.asked("watch")[1].query["resourceVersion"] == "100"
    assert "lost contact" in heard.messages()


def test_a_server_that_ends_every_watch_at_once_is_asked_with_pauses(injector: FaultInjector) -> None:
    injector.fail("watch", *[Fault()] * 5)
    with watching(injector) as (source, heard):
        assert injector.wait_for(lambda: len(heard.waits) >= 5)
        injector.put(pod_object("new"))
        assert cpus(source, "new") == "2"
    assert heard.waits == [QUIET_PAUSE] * 5
    assert heard.findings == []


def test_the_end_of_a_watch_in_order_costs_no_pause(injector: FaultInjector) -> None:
    injector.bookmarks = 1
    with watching(injector) as (source, heard):
        for turns in (partial(lambda turn: len(injector.asked("watch")) > turn, turn) for turn in range(3)):
            assert injector.wait_for(turns)
            injector.end_watches()
        injector.put(pod_object("new"))
        assert cpus(source, "new") == "2"
    assert len(injector.asked("list")) == 1
    assert all(wait == QUIET_PAUSE for wait in heard.waits)


@pytest.mark.parametrize("stream", [b"{", b"[]\n", b"\xff\xfe\n", b'{"type": 7}\n', b'"text"\n', b"nonsense\n" * 50])
def test_garbage_ends_the_watch_and_nothing_else(injector: FaultInjector, stream: bytes) -> None:
    injector.fail("watch", Fault(stream=stream))
    with watching(injector) as (source, _):
        assert injector.wait_for(lambda: len(injector.asked("watch")) >= 2)
        injector.put(pod_object("new"))
        assert cpus(source, "new") == "2"


@pytest.mark.parametrize("fault", [Fault(stream=b"[]"), Fault(stream=b"{oh"), Fault(cut=True), Fault(status=403)])
def test_a_list_that_cannot_be_read_is_asked_for_again(injector: FaultInjector, fault: Fault) -> None:
    injector.put(pod_object("web"))
    injector.fail("list", fault)
    with watching(injector) as (source, heard):
        assert source.wait_until_listed(PATIENCE)
        assert cpus(source, "web") == "2"
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
        injector.put(pod_object("new"))
        assert eventually(lambda: "is restored" in heard.messages())
        assert cpus(source, "new") == "2"
    assert heard.waits[1:4] == sorted(heard.waits[1:4])


def test_a_pod_that_cannot_be_used_is_reported_once_and_left_out(injector: FaultInjector) -> None:
    broken = pod_object("broken", "many")
    injector.put(broken)
    with watching(injector) as (source, heard):
        injector.put(broken)
        injector.put(pod_object("last"))
        assert cpus(source, "last") == "2"
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
