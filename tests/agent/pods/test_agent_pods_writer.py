"""Events, evictions and the taint against a server that fails; the server here is a fault injector."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.pods.fault_injector import PATIENCE, Fault, FaultInjector, pod_object
from tests.patience import until

from mooring.agent.effects import ClusterEvent, EventSubject, Evict, about_node, about_pod
from mooring.agent.pods.cluster import AgentAccount, NoCluster, announce, connector, own_accounts
from mooring.agent.pods.eviction import (
    BURST,
    FIRST_INTERVAL,
    LONGEST_INTERVAL,
    MOST_REMEMBERED,
    REFILL,
    EventBook,
)
from mooring.agent.pods.writer import CHECKING, MOST_TRIES, ClusterWriter
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.service.apiserver import Cluster, ClusterError, cluster_of

WEB = EventSubject("Pod", "web-0", "uid-web-0", "shop")
HELD = ClusterEvent(WEB, "TopologyAffinityError", "Resources cannot be allocated with Topology locality")
EVENTS = "/apis/events.k8s.io/v1/namespaces/shop/events"
EVICTION = "/api/v1/namespaces/shop/pods/web-0/eviction"
NODE = "/api/v1/nodes/node-1"
NOON = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)


@dataclass
class Outside:
    """A clock that jumps to whatever is waited for, but for checks of the taint, and what was reported."""

    injector: FaultInjector
    seconds: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    evictions: int = 0
    waiting: threading.Condition | None = None

    def evicted(self) -> None:
        self.evictions += 1

    def report(self, finding: Finding) -> None:
        with self.injector.changed:
            self.findings.append(finding)
            self.injector.changed.notify_all()

    def clock(self) -> float:
        return self.seconds

    def wait(self, condition: threading.Condition, seconds: float | None) -> None:
        self.waiting = condition
        if seconds is None or seconds >= CHECKING[True]:
            condition.wait(PATIENCE)
        else:
            self.seconds += seconds

    def later(self, writer: ClusterWriter, seconds: float) -> None:
        """Let the writer come to rest, and then time pass."""
        assert writer.wait_until_tried(PATIENCE)
        until(lambda: self.waiting, "the writer waits")
        assert self.waiting is not None
        with self.waiting:
            self.seconds += seconds
            self.waiting.notify_all()

    def told(self, text: str) -> bool:
        return self.injector.wait_for(lambda: any(text in one.message for one in self.findings))


@contextmanager
def writing(
    injector: FaultInjector, connect: Callable[[], Cluster] | None = None, **more: Any
) -> Iterator[tuple[ClusterWriter, Outside]]:
    outside = Outside(injector)
    writer = ClusterWriter(
        connect or (lambda: cluster_of(injector.config())),
        "node-1",
        report=outside.report,
        evicted=outside.evicted,
        clock=outside.clock,
        wait=outside.wait,
        now=lambda: NOON,
        **more,
    )
    writer.start()
    try:
        yield writer, outside
    finally:
        writer.stop(PATIENCE)


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    with FaultInjector() as one:
        one.put(pod_object("web-0"))
        yield one


def test_an_event_names_pod_reason_and_reporter(injector: FaultInjector) -> None:
    with writing(injector) as (writer, _):
        writer.event(HELD)
        assert injector.wait_for(lambda: bool(injector.asked(f"POST {EVENTS}")))
    (request,) = injector.asked(f"POST {EVENTS}")
    body = request.body
    assert body["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "web-0",
        "namespace": "shop",
        "uid": "uid-web-0",
    }
    assert (body["reason"], body["note"], body["type"]) == (HELD.reason, HELD.note, "Warning")
    assert (body["reportingController"], body["reportingInstance"]) == ("mooring/agent", "mooring-agent-node-1")
    assert body["eventTime"].startswith("2026-11-21T12:00:00.123456")
    assert body["metadata"]["name"].startswith("web-0.")
    assert "series" not in body


def test_an_event_about_the_node_lands_in_the_default_namespace(injector: FaultInjector) -> None:
    path = "POST /apis/events.k8s.io/v1/namespaces/default/events"
    with writing(injector) as (writer, _):
        writer.event(ClusterEvent(about_node("node-1"), "AgentReady", "the agent is ready", warning=False))
        assert injector.wait_for(lambda: bool(injector.asked(path)))
    assert injector.asked(path)[0].body["type"] == "Normal"


def test_a_repeated_event_is_counted_up_in_the_same_object(injector: FaultInjector) -> None:
    with writing(injector) as (writer, _):
        for _try in range(40):
            writer.event(HELD)
        assert injector.wait_for(lambda: bool(injector.asked(f"POST {EVENTS}")))
        name = injector.asked(f"POST {EVENTS}")[0].body["metadata"]["name"]
        assert injector.wait_for(lambda: bool(injector.asked(f"PATCH {EVENTS}/{name}")))
    assert len(injector.asked(f"POST {EVENTS}")) == 1
    series = injector.asked(f"PATCH {EVENTS}/{name}")[0].body["series"]
    assert 1 < series["count"] <= 40
    assert series["lastObservedTime"] == "2026-11-21T12:00:00.123456Z"


def test_an_event_that_has_expired_is_created_again_with_its_count(injector: FaultInjector) -> None:
    with writing(injector) as (writer, _):
        writer.event(HELD)
        assert injector.wait_for(lambda: bool(injector.asked(f"POST {EVENTS}")))
        name = injector.asked(f"POST {EVENTS}")[0].body["metadata"]["name"]
        injector.fail(f"PATCH {EVENTS}/{name}", Fault(status=404))
        for _try in range(40):
            writer.event(HELD)
        assert injector.wait_for(lambda: len(injector.asked(f"POST {EVENTS}")) == 2)
    again = injector.asked(f"POST {EVENTS}")[1].body
    assert again["metadata"]["name"] == name
    assert again["series"]["count"] > 1


def test_an_eviction_names_the_uid_and_happens_once(injector: FaultInjector) -> None:
    with writing(injector) as (writer, outside):
        writer.evict(WEB, "no room")
        writer.evict(WEB, "no room")
        assert outside.told("shop/web-0 was evicted: no room")
        assert outside.evictions == 1
    (request,) = injector.asked(f"POST {EVICTION}")
    assert request.body["deleteOptions"]["preconditions"]["uid"] == "uid-web-0"
    assert request.body["metadata"] == {"name": "web-0", "namespace": "shop"}


@pytest.mark.parametrize("now", ["gone", "another", "going"])
def test_a_pod_that_is_gone_or_another_one_is_not_evicted(injector: FaultInjector, now: str) -> None:
    if now == "going":
        injector.fail(f"POST {EVICTION}", Fault(status=404))
    else:
        injector.delete("web-0")
    if now == "another":
        injector.put(pod_object("web-0", uid="new"))
    with writing(injector) as (writer, outside):
        writer.evict(WEB, "no room")
        assert outside.told("shop/web-0 has ended already")
        assert outside.evictions == 0
    assert len(injector.asked(f"POST {EVICTION}")) == (now == "going")


def test_an_eviction_that_a_budget_forbids_is_tried_again(injector: FaultInjector) -> None:
    injector.fail(f"POST {EVICTION}", *[Fault(status=429)] * 3)
    with writing(injector) as (writer, outside):
        writer.evict(WEB, "no room")
        assert outside.told("was evicted")
    assert len(injector.asked(f"POST {EVICTION}")) == 4
    assert [one.severity for one in outside.findings] == ["warning", "info"]


@pytest.mark.parametrize(("status", "tries", "told"), [(403, 1, 1), (422, 1, 1), (429, MOST_TRIES, 2)])
def test_an_eviction_that_is_given_up_may_be_asked_for_again_and_is_complained_about_once(
    status: int, tries: int, told: int, injector: FaultInjector
) -> None:
    injector.fail(f"POST {EVICTION}", *[Fault(status=status)] * (3 * tries))
    with writing(injector) as (writer, outside):
        for _retry in range(3):
            writer.evict(WEB, "no room")
            until(lambda: not writer.evicting, "it is given up")
        assert f"shop/web-0 is not evicted and stays held back: status {status}" in outside.findings[-1].message
        assert len(injector.asked(f"POST {EVICTION}")) == 3 * tries
        writer.evict(WEB, "no room")
        assert outside.told("was evicted")
        assert [one.severity for one in outside.findings] == [*["warning"] * told, "info"]


OTHER = {"key": "other", "effect": "NoSchedule", "value": "x"}
OURS = {"key": "mooring/agent-not-ready", "effect": "NoSchedule"}


def test_the_taint_comes_and_goes_beside_those_of_others(injector: FaultInjector) -> None:
    injector.taints = [OTHER]
    with writing(injector) as (writer, outside):
        writer.taint(present=True)
        assert outside.told("the node has the taint")
        assert injector.taints == [OTHER, OURS]
        writer.taint(present=False)
        assert outside.told("has lost the taint")
    assert injector.taints == [OTHER]
    assert injector.asked(f"PATCH {NODE}")[0].body["metadata"]["resourceVersion"] == "7"


@pytest.mark.parametrize(("present", "new", "wished"), [(True, [], [OURS]), (False, [OURS], [])])
def test_a_node_object_that_is_created_anew_becomes_as_wished(
    injector: FaultInjector, present: bool, new: list[dict[str, str]], wished: list[dict[str, str]]
) -> None:
    injector.taints = wished
    with writing(injector) as (writer, outside):
        writer.taint(present=present)
        for checks in (2, 3):
            outside.later(writer, CHECKING[present])
            assert injector.wait_for(lambda: len(injector.asked(f"GET {NODE}")) == checks)  # noqa: B023 - called now
        assert injector.asked(f"PATCH {NODE}") == []
        assert writer.wait_until_tried(PATIENCE)
        injector.taints = new
        outside.later(writer, CHECKING[present])
        assert outside.told("the node has")
        assert injector.taints == wished


def test_a_taint_without_a_node_object_is_reported_once_and_set_when_there_is_one(injector: FaultInjector) -> None:
    injector.fail(f"GET {NODE}", *[Fault(status=404)] * 3)
    with writing(injector) as (writer, outside):
        writer.taint(present=True)
        for checks in (1, 2, 3):
            assert injector.wait_for(lambda: len(injector.asked(f"GET {NODE}")) == checks)  # noqa: B023 - called now
            outside.later(writer, CHECKING[True])
        assert outside.told("the node has the taint")
        assert [one.severity for one in outside.findings] == ["warning", "info"]
    assert injector.taints == [OURS]


def test_the_taint_is_tried_until_it_is_there_and_the_last_wish_counts(injector: FaultInjector) -> None:
    injector.fail(f"PATCH {NODE}", *[Fault(status=409)] * (2 * MOST_TRIES))
    with writing(injector) as (writer, outside):
        writer.taint(present=True)
        assert outside.told("the node has the taint")
        writer.taint(present=False)
        assert outside.told("has lost the taint")
    assert len(injector.asked(f"PATCH {NODE}")) == 2 * MOST_TRIES + 2


def fill(writer: ClusterWriter, count: int) -> None:
    """Let so many events wait, about a pod each."""
    for number in range(count):
        writer.event(ClusterEvent(EventSubject("Pod", f"p{number}", f"u{number}", "shop"), "Held", ""))


def test_writes_wait_bounded_while_the_server_is_away(injector: FaultInjector, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.agent.pods.writer.MOST_WAITING", 8)
    away = threading.Event()

    def connect() -> Cluster:
        if not away.is_set():
            raise InputError("the certificate is being renewed")
        return cluster_of(injector.config())

    with writing(injector, connect) as (writer, outside):
        writer.taint(present=True)
        assert injector.wait_for(lambda: bool(outside.findings))
        fill(writer, 20)
        assert writer.waiting <= 8
        away.set()
        assert outside.told("the node has the taint")


def test_a_write_that_fails_counts_among_those_that_wait(
    injector: FaultInjector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mooring.agent.pods.writer.MOST_WAITING", 8)
    begun, goes_on = threading.Event(), threading.Event()

    def connect() -> Cluster:
        begun.set()
        assert goes_on.wait(PATIENCE)
        raise ClusterError("refused")

    with writing(injector, connect) as (writer, outside):
        writer.evict(WEB, "no room")
        assert begun.wait(PATIENCE)
        fill(writer, 8)
        most: list[int] = []
        monkeypatch.setattr(outside, "report", lambda _: most.append(writer.waiting))
        monkeypatch.setattr(writer, "_report", outside.report)
        goes_on.set()
        until(lambda: most, "the failure is told")
    assert max(most) <= 8


def test_stopping_writes_what_waits_and_ends(injector: FaultInjector) -> None:
    outside = Outside(injector)
    writer = ClusterWriter(lambda: cluster_of(injector.config()), "node-1", report=outside.report)
    writer.start()
    writer.taint(present=True)
    writer.event(HELD)
    writer.stop(PATIENCE)
    assert injector.taints == [OURS]
    assert len(injector.asked(f"POST {EVENTS}")) == 1
    assert not any(thread.name == "mooring-outward" for thread in threading.enumerate())


def test_stopping_does_not_wait_for_a_server_that_is_away(injector: FaultInjector) -> None:
    def connect() -> Cluster:
        raise ClusterError("refused")

    with writing(injector, connect) as (writer, outside):
        writer.taint(present=True)
        writer.evict(WEB, "no room")
        assert injector.wait_for(lambda: len(outside.findings) >= 2)
    assert not any(thread.name == "mooring-outward" for thread in threading.enumerate())


def test_what_the_reactor_wants_told_is_passed_on_except_the_eviction_of_a_static_pod(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, findings = list[object](), list[Finding]()
    outward = NoCluster(findings.append)
    monkeypatch.setattr(NoCluster, "event", lambda _self, event: told.append(event))
    monkeypatch.setattr(NoCluster, "evict", lambda _self, about, message: told.append((about, message)))
    web = Pod("uid-web-0", "web-0", "shop")
    static = Pod("hash", "etcd-node-1", "kube-system", annotations={"kubernetes.io/config.source": "file"})
    for effect in (HELD, Evict(web, "no room"), Evict(static, "no room")):
        announce(outward, effect, findings.append)
    assert told == [HELD, (WEB, "no room")]
    assert [one.subject for one in findings] == ["kube-system/etcd-node-1"]


def test_without_a_cluster_it_is_reported_once_what_is_left_out() -> None:
    findings: list[Finding] = []
    outward = NoCluster(findings.append)
    pod = about_pod(Pod("u", "web-0", "shop"))
    for _time in range(3):
        outward.event(ClusterEvent(pod, "Held", "no room"))
        outward.evict(pod, "no room")
        outward.taint(present=True)
        outward.taint(present=False)
    outward.stop(1)
    assert [one.message for one in findings] == [
        "none is configured: web-0: events are not written",
        "none is configured: shop/web-0 is not evicted, it is held back instead (no room)",
        "none is configured: the node gets no taint, so pods are scheduled to it while the agent is not running",
    ]


# Each switch of the agent can have an account of its own, whose token is a file that is renewed.


def write_kubeconfig(folder: Path, injector: FaultInjector, *own: str) -> str:
    """Write a kubeconfig whose further contexts have a token file each, named relative to the folder."""
    names = ["usual", *own]
    content = {
        "current-context": "usual",
        "clusters": [{"name": "c", "cluster": {"server": injector.config().cluster.server}}],
        "users": [{"name": name, "user": {"tokenFile": f"tokens/{name}"}} for name in names],
        "contexts": [{"name": name, "context": {"cluster": "c", "user": name}} for name in names],
    }
    (folder / "tokens").mkdir(exist_ok=True)
    for name in names:
        (folder / "tokens" / name).write_text(f"of {name}\n", encoding="utf-8")
    file = folder / "kubeconfig"
    file.write_text(json.dumps(content), encoding="utf-8")
    return str(file)


def tokens(injector: FaultInjector, what: str) -> list[str]:
    return [request.token for request in injector.asked(what)]


def test_every_write_uses_the_account_of_its_switch(injector: FaultInjector, tmp_path: Path) -> None:
    own = [AgentAccount.EVENTS.value, AgentAccount.EVICT.value, AgentAccount.TAINT.value]
    file = write_kubeconfig(tmp_path, injector, *own)
    with writing(injector, connector(file), own=own_accounts(file)) as (writer, _):
        writer.taint(present=True)
        writer.event(ClusterEvent(WEB, "Held", "no room"))
        writer.evict(WEB, "no room")
    assert set(tokens(injector, f"PATCH {NODE}")) == {"of mooring-agent-taint"}
    assert tokens(injector, f"POST {EVENTS}") == ["of mooring-agent-events"]
    assert tokens(injector, f"POST {EVICTION}") == ["of mooring-agent-evict"]


def test_a_switch_without_an_account_uses_the_current_context(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector, AgentAccount.PUBLISH.value)
    assert set(own_accounts(file)) == {AgentAccount.PUBLISH}
    with writing(injector, connector(file), own=own_accounts(file)) as (writer, _):
        writer.taint(present=True)
    assert set(tokens(injector, f"PATCH {NODE}")) == {"of usual"}


def test_a_renewed_token_is_read_when_the_old_one_is_refused(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector)
    injector.tokens = frozenset({"of usual"})
    with connector(file)() as cluster:
        assert cluster.http.get(NODE).is_success
        (tmp_path / "tokens" / "usual").write_text("renewed\n", encoding="utf-8")
        assert cluster.http.get(NODE).is_success, "the old token is still accepted"
        injector.tokens = frozenset({"renewed"})
        assert cluster.http.get(NODE).is_success
    assert tokens(injector, f"GET {NODE}") == ["of usual", "of usual", "of usual", "renewed"]


@pytest.mark.parametrize("before", [None, "stale"])
def test_the_taint_is_written_when_its_token_is_there(
    before: str | None, injector: FaultInjector, tmp_path: Path
) -> None:
    file = write_kubeconfig(tmp_path, injector)
    injector.tokens = frozenset({"fresh"})
    token, findings = tmp_path / "tokens" / "usual", list[Finding]()
    token.unlink()
    if before:
        token.write_text(before, encoding="utf-8")

    def report(finding: Finding) -> None:
        findings.append(finding)
        token.write_text("fresh", encoding="utf-8")

    writer = ClusterWriter(connector(file), "node-1", report=report)
    writer.start()
    writer.taint(present=True)
    assert injector.wait_for(lambda: bool(injector.taints))
    writer.stop(PATIENCE)
    assert "the node's taint could not be set" in findings[0].message


def test_a_misspelt_account_is_refused(injector: FaultInjector, tmp_path: Path) -> None:
    file = write_kubeconfig(tmp_path, injector, "mooring-agent-taints")
    with pytest.raises(
        InputError, match=r"contexts\[mooring-agent-taints\]: is not an account of the agent; name one of "
    ):
        own_accounts(file)


def test_a_mistake_in_an_accounts_context_names_its_field(injector: FaultInjector, tmp_path: Path) -> None:
    file = Path(write_kubeconfig(tmp_path, injector, AgentAccount.TAINT.value))
    content = json.loads(file.read_text(encoding="utf-8"))
    content["users"].pop()
    file.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match=r"contexts\[mooring-agent-taint\].user: 'mooring-agent-taint' is not among"):
        own_accounts(str(file))


# Events are counted up and do not flood.


def test_the_first_time_is_written_and_repeats_are_counted_at_growing_intervals() -> None:
    book = EventBook()
    written = [book.record(HELD, now, 7) for now in range(100)]
    counts = [(now, one.count) for now, one in enumerate(written) if one is not None]
    assert counts == [(0, 1), (10, 11), (30, 31), (70, 71)]
    assert {one.name for one in written if one is not None} == {"web-0.7"}


def test_a_count_that_nobody_repeats_is_written_when_it_is_due() -> None:
    book = EventBook()
    book.record(HELD, 0, 1)
    assert book.next_due() is None
    book.record(HELD, 1, 2)
    assert book.next_due() == FIRST_INTERVAL
    assert book.due(FIRST_INTERVAL - 1) == []
    [write] = book.due(FIRST_INTERVAL)
    assert (write.event, write.number, write.count) == (HELD, 1, 2)
    assert book.due(10**9) == []


def test_one_object_is_told_only_so_many_different_things() -> None:
    book = EventBook()
    written = [book.record(ClusterEvent(WEB, "Held", f"try {number}"), 0, number) for number in range(2 * BURST)]
    assert sum(one is not None for one in written) == BURST
    other = EventSubject("Pod", "web-1", "v", "shop")
    assert book.record(ClusterEvent(other, "Held", "try 1"), 0, 99) is not None
    assert book.record(ClusterEvent(WEB, "Held", "later"), REFILL, 100) is not None
    assert book.record(ClusterEvent(WEB, "Held", "later still"), REFILL, 101) is None


@settings(max_examples=100)
@given(st.lists(st.tuples(st.integers(0, 3), st.floats(0, 120)), max_size=200))
def test_nothing_is_counted_twice_or_lost(steps: list[tuple[int, float]]) -> None:
    book, now = EventBook(), 0.0
    happened: dict[str, int] = {}
    written: dict[str, int] = {}
    for number, (which, passed) in enumerate(steps):
        now += passed
        note = str(which)
        happened[note] = happened.get(note, 0) + 1
        one = book.record(ClusterEvent(WEB, "Held", note), now, number)
        for write in [*([one] if one else []), *book.due(now)]:
            assert write.count > written.get(write.event.note, 0)
            written[write.event.note] = write.count
    for write in book.due(now + 2 * LONGEST_INTERVAL):
        written[write.event.note] = write.count
    assert written == happened


def test_what_is_remembered_is_bounded() -> None:
    book = EventBook()
    tries = [ClusterEvent(WEB, "Held", f"try {number}") for number in range(BURST)]
    assert all(book.record(one, 0, number) for number, one in enumerate(tries))
    assert book.record(ClusterEvent(WEB, "Held", "one more"), 0, BURST) is None
    for number in range(MOST_REMEMBERED):
        book.record(ClusterEvent(EventSubject("Pod", f"p{number}", f"u{number}", "n"), "Held", ""), 0, number)
    again = book.record(tries[0], 0, 0)
    assert again is not None, "neither the event nor what its pod has left is remembered"
    assert again.count == 1
