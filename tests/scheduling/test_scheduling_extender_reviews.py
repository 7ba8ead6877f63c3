"""What an API server is answered when a manifest is applied."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from tests.scheduling.extender_cluster import (
    ask,
    asking,
    facts_with,
    guaranteed,
    publish,
    ready_extender,
    started,
)

from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.run import Extender

FACTS = facts_with("sockets=2 numa=2 cores=64 threads=1 memory=64Gi", topology_manager_policy="single-numa-node")
UID = "705ab4f5-6393-11e8-b7cc-42010a800002"


@pytest.fixture
def extender() -> Iterator[Extender]:
    """Three nodes of two NUMA nodes with 31 and 32 CPUs; 20 of each are taken on two nodes, all on the third."""
    made = ready_extender()
    for name, cpus in {"node-a": (20, 20), "node-b": (20, 20), "node-c": (31, 32)}.items():
        kubelet, decision = started(FACTS).admit(guaranteed(name, *cpus))
        assert decision.admitted
        publish(made.view, FACTS, {name: kubelet})
    yield made
    made.stop()


def pod(cpus: str = "4", memory: str = "1Gi", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": cpus, "memory": memory}
    container = {"name": "app", "image": "none", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": "web", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def workload(kind: str, cpus: str, **more: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {"template": {"metadata": {"labels": {"app": "web"}}, "spec": pod(cpus)["spec"]}, **more}
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": spec}}
    version = "batch/v1" if "Job" in kind else "apps/v1"
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "web", "namespace": "shop"}, "spec": spec}


def review(content: object, before: object = None, **more: object) -> bytes:
    operation = "UPDATE" if before is not None else "CREATE"
    request = {"uid": UID, "operation": operation, "object": content, "oldObject": before, **more}
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


def answered(
    extender: Extender, content: object, before: object = None, path: str = "/validate", **more: object
) -> Any:
    """Return the response, of which it is checked that it is a review's."""
    status, answer = ask(extender, path, review(content, before, **more))
    assert status == 200
    response = answer.pop("response")
    assert answer == {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
    assert response.pop("uid") == UID
    return response


def counted(extender: Extender) -> dict[str, float]:
    _, text = ask(extender, "/metrics", b"", "GET")
    found = re.findall(r'mooring_extender_reviews_total\{answer="(\w+)"\} (\S+)', text)
    return {answer: float(number) for answer, number in found}


ALLOWED = {"allowed": True}


@pytest.mark.parametrize(
    ("cpus", "memory", "answer", "words"),
    [
        ("4", "1Gi", "now", ""),
        ("500m", "1Gi", "now", ""),
        ("20", "1Gi", "later", "no node admits it now; 3 of 3 would if empty (MOOR-103)."),
        ("20", "1Gi", "later", "With 12 CPUs in app it is admitted now."),
        ("33", "1Gi", "never", "no node ever admits it, not even if empty; 3 asked (MOOR-102)."),
        ("33", "1Gi", "never", "With 32 CPUs in app it is admitted."),
        ("300", "1Gi", "never", "but only 63 are free on the whole node."),
        ("4", "100Gi", "never", "Request less"),
    ],
)
def test_a_pod_is_admitted_now_later_or_never_and_a_warning_says_why(
    extender: Extender, cpus: str, memory: str, answer: str, words: str
) -> None:
    response = answered(extender, pod(cpus, memory), dryRun=bool(words))
    [warning] = response.pop("warnings", [""])
    assert response == ALLOWED
    assert (words in warning, bool(warning)) == (True, bool(words)), warning
    assert len(warning) < 256
    assert counted(extender) == {answer: 1.0}


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job", "CronJob"])
def test_templates_of_workloads_are_looked_at(extender: Extender, kind: str) -> None:
    assert answered(extender, workload(kind, "4")) == ALLOWED
    [warning] = answered(extender, workload(kind, "33"))["warnings"]
    assert warning.startswith("mooring: pod: no node ever admits it")


def test_each_template_of_an_operators_object_has_its_own_warning(extender: Extender) -> None:
    tasks = [{"name": f"t{cpus}", "replicas": 2, "template": {"spec": pod(cpus)["spec"]}} for cpus in ("4", "20", "33")]
    metadata = {"name": "web", "namespace": "shop"}
    job = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job", "metadata": metadata, "spec": {"tasks": tasks}}
    places = [warning.split(":")[1] for warning in answered(extender, job)["warnings"]]
    assert places == [" spec.tasks[1].template", " spec.tasks[2].template"]
    assert counted(extender) == {"never": 1.0}


@pytest.mark.parametrize(
    ("content", "before"),
    [
        (workload("Deployment", "33", replicas=5), workload("Deployment", "33", replicas=1)),
        (pod("33"), pod("33")),
        (pod("33", nodeName="node-a"), None),
        ({**pod("33"), "metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"}}, None),
        ({"kind": "Service", "apiVersion": "v1"}, None),
    ],
)
def test_what_changes_no_pod_to_be_placed_is_let_through(extender: Extender, content: object, before: object) -> None:
    for path in ("/validate", "/validate/deny"):
        assert answered(extender, content, before, path) == ALLOWED
    assert counted(extender) == {"nothing": 2.0}


def test_an_update_of_the_template_is_answered(extender: Extender) -> None:
    assert answered(extender, workload("Deployment", "4"), workload("Deployment", "33")) == ALLOWED
    assert "warnings" in answered(extender, workload("Deployment", "33"), workload("Deployment", "4"))


def test_a_namespace_that_denies_denies_what_is_never_admitted_and_nothing_else(extender: Extender) -> None:
    for content in (pod("4"), pod("20")):
        assert answered(extender, content, path="/validate/deny")["allowed"]
    denied = answered(extender, workload("Job", "33"), path="/validate/deny")
    assert (denied["allowed"], denied["status"]["code"]) == (False, 403)
    assert denied["status"]["message"] == answered(extender, workload("Job", "33"))["warnings"][0]
    assert counted(extender) == {"now": 1.0, "later": 1.0, "denied": 1.0, "never": 1.0}


def test_while_a_node_cannot_be_judged_nothing_is_denied(extender: Extender) -> None:
    extender.view.put_state("node-d", 1, "unreadable")
    [warning] = answered(extender, pod("33"), path="/validate/deny")["warnings"]
    assert "none of the 3 nodes whose state is known ever admits it" in warning
    assert answered(extender, pod("33", resources={})) == answered(extender, pod("33"))
    assert counted(extender) == {"unknown": 3.0}


def test_what_fails_here_allows_the_object_and_is_counted(extender: Extender, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(extender, {"no": "object"}, path="/validate/deny") == ALLOWED
    extender.followers[0].has_listed.clear()
    assert answered(extender, pod("33"), path="/validate/deny") == ALLOWED
    extender.followers[0].has_listed.set()

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Decider, "admits", fail)
    assert answered(extender, pod("33"), path="/validate/deny") == ALLOWED
    monkeypatch.setattr(extender.view, "names", fail)
    assert answered(extender, pod("33"), path="/validate/deny") == ALLOWED
    assert counted(extender) == {"unread": 1.0, "unanswered": 2.0, "unknown": 1.0}


def test_without_a_node_of_which_anything_is_known_nothing_is_said() -> None:
    empty = ready_extender()
    assert answered(empty, pod("33"), path="/validate/deny") == ALLOWED
    empty.stop()


def test_reviews_hold_up_the_scheduler_for_one_at_most(extender: Extender, monkeypatch: pytest.MonkeyPatch) -> None:
    order, begun, may_go, outlooks = list[int](), threading.Event(), threading.Event(), extender.view.outlooks

    def slowly(names: Sequence[str], *more: Any) -> object:
        order.append(len(names))
        begun.set()
        assert may_go.wait(60)
        return outlooks(names, *more)

    async def together() -> list[Any]:
        reviews = [asyncio.create_task(asking(extender, "/validate", review(pod()))) for _ in range(5)]
        await asyncio.to_thread(begun.wait, 60)
        asked = json.dumps({"Pod": {**pod(), "metadata": {"name": "p", "uid": "u"}}, "NodeNames": ["node-a"]})
        scheduler = asyncio.create_task(asking(extender, "/filter", asked.encode()))
        for _ in range(50):
            await asyncio.sleep(0)  # until it is before the engine
        may_go.set()
        return await asyncio.gather(*reviews, scheduler)

    monkeypatch.setattr(extender.view, "outlooks", slowly)
    answers = asyncio.run(together())
    assert [status for status, _ in answers] == [200] * 6
    assert order == [3, 1, 3, 3, 3, 3]


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"apiVersion": "admission.k8s.io/v1"}'),
        review(pod()).replace(b"/v1", b"/v1beta1", 1),
        review(pod()).replace(b'"uid"', b'"id"'),
        b'{"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u", "object": %s}}' % (b"[" * 10**5 + b"]" * 10**5),
    ],
)
def test_what_is_no_review_is_400_which_an_api_server_takes_for_a_failure(extender: Extender, data: bytes) -> None:
    status, answer = ask(extender, "/validate", data)
    assert (status, set(answer)) == (400, {"error"})
