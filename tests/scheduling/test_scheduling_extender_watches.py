"""What is heard of an API server that fails in the ways it can; the server here is a fault injector."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector, pod_object
from tests.patience import until

from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.run import Extender, extender_with
from mooring.service.apiserver import cluster_of

GONE = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.service.following.pause_before", lambda _tries, _name: 0.01)
    monkeypatch.setattr("mooring.service.following.QUIET_PAUSE", 0.01)


@pytest.fixture
def injector() -> Iterator[FaultInjector]:
    with FaultInjector() as one:
        one.put(pod_object("one"))
        yield one


@pytest.fixture
def problems() -> list[str]:
    return []


@pytest.fixture
def extender(injector: FaultInjector, problems: list[str]) -> Iterator[Extender]:
    """An extender; a test starts the last of its followers, that of pods."""
    made = extender_with(
        ExtenderOptions(), lambda: cluster_of(injector.config()), lambda _about, problem: problems.append(problem)
    )
    yield made
    injector.end_watches()
    made.followers[-1].stop()


def pods_on(extender: Extender) -> set[str]:
    return set(extender.view.pods_on("node-1"))


def test_pods_are_listed_in_pages_then_watched(injector: FaultInjector, extender: Extender) -> None:
    follower = extender.followers[-1]
    injector.page = 1
    injector.put(pod_object("two"))
    follower.start()
    until(follower.has_listed.is_set, "the pods are listed")
    assert pods_on(extender) == {"uid-one", "uid-two"}
    injector.put(pod_object("three"))
    until(lambda: "uid-three" in pods_on(extender), "the new pod is heard of")
    injector.delete("one")
    until(lambda: "uid-one" not in pods_on(extender), "the deleted pod is heard of")


def test_a_failed_page_leaves_everything_as_it_was_known(
    injector: FaultInjector, extender: Extender, problems: list[str]
) -> None:
    follower = extender.followers[-1]
    injector.fail("list", Fault(503), Fault(429, retry_after="0"), Fault(cut=True))
    follower.start()
    until(follower.has_listed.is_set, "the pods are listed in the end")
    assert len(problems) == 3
    assert pods_on(extender) == {"uid-one"}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(410),
        Fault(stream=json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"),
        Fault(429, retry_after="0"),
        Fault(500),
        Fault(stream=b'{"type": "ADDED", "obj\n'),
        Fault(cut=True),
    ],
    ids=["410", "410-in-the-stream", "429", "500", "garbage", "cut"],
)
def test_after_a_watch_that_failed_everything_is_received_all_the_same(
    injector: FaultInjector, extender: Extender, fault: Fault
) -> None:
    follower = extender.followers[-1]
    injector.fail("watch", fault, fault)
    follower.start()
    until(lambda: len(injector.asked("watch")) > 2, "it is watched again")
    injector.put(pod_object("two"))
    until(lambda: "uid-two" in pods_on(extender), "the new pod is heard of")
    assert pods_on(extender) == {"uid-one", "uid-two"}


def test_a_pod_that_vanished_between_lists_is_unbound(injector: FaultInjector, extender: Extender) -> None:
    follower = extender.followers[-1]
    follower.start()
    until(lambda: injector.asked("watch"), "it is watched")
    injector.put(pod_object("two"))
    until(lambda: "uid-two" in pods_on(extender), "the new pod is heard of")
    injector.pods.pop("two")
    injector.fail("watch", Fault(410))
    injector.end_watches()
    until(lambda: "uid-two" not in pods_on(extender), "the vanished pod is missed")


def test_an_object_that_cannot_be_read_is_a_reason_and_no_end(extender: Extender, problems: list[str]) -> None:
    content = {"apiVersion": "mooring.dev/v1alpha1", "kind": "NodeState", "metadata": {"name": "node-1"}, "spec": 5}
    extender.followers[1].listener.changed(msgspec.Raw(json.dumps(content).encode()))
    assert len(problems) == 1
    assert extender.view.outlook("node-1").trouble == "the state of the node cannot be read"


def test_while_a_listener_fails_its_follower_says_so(
    injector: FaultInjector, extender: Extender, problems: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    follower = extender.followers[-1]

    def odd(*_: object) -> None:
        raise LookupError("odd")

    follower.start()
    until(lambda: injector.asked("watch"), "it is watched")
    assert not follower.defect.is_set()
    monkeypatch.setattr(type(follower.listener), "changed", odd)
    injector.put(pod_object("two"))
    until(follower.defect.is_set, "the defect shows")
    assert "LookupError: odd" in problems
    monkeypatch.undo()
    injector.put(pod_object("three"))
    until(lambda: not follower.defect.is_set(), "what comes is taken again")


def test_a_follower_that_is_behind_lists_again_at_a_bookmark(injector: FaultInjector, extender: Extender) -> None:
    follower = extender.followers[-1]
    behind = [True]
    follower.is_behind = lambda: behind.pop() if behind else False
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}
    injector.fail("watch", Fault(stream=json.dumps(bookmark).encode() + b"\n"))
    follower.start()
    until(lambda: len(injector.asked("list")) == 2, "everything is listed again")
    assert behind == []
