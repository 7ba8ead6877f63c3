"""What the scheduler is answered: recorded bodies in the right form, and one clear line for everything else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from tests.scheduling.extender_cluster import facts_with, guaranteed, started, state_of_node
from tests.scheduling.extender_requests import Recorder, ask, ready_extender

from mooring.cluster.extender import binding
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.run import Extender
from mooring.cluster.extender.wire import BindArguments
from mooring.engine.core.pod import QoS
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.published.facts_document import digest_of
from mooring.published.objects import NodeFacts
from mooring.service.apiserver import ClusterError
from mooring.service.options import read_options

WIRE = Path(__file__).parents[3] / "shared" / "wire"
FACTS = facts_with("sockets=2 numa=2 cores=64 threads=1 memory=64Gi", topology_manager_policy="single-numa-node")
NAMES = ("node-a", "node-b", "node-c")


def recorded(name: str) -> dict[str, Any]:
    path = WIRE / f"scheduler-extender-{name}.json"
    if not path.is_file():
        pytest.skip("the recorded bodies of a scheduler (../shared/wire) are not here")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def published(extender: Extender, name: str, kubelet: Kubelet, facts: NodeFacts = FACTS, version: int = 1) -> None:
    extender.view.put_facts(digest_of(facts), facts)
    extender.view.put_state(name, version, state_of_node(facts, kubelet, node=name))


@pytest.fixture
def server() -> Recorder:
    return Recorder()


@pytest.fixture
def extender(server: Recorder) -> Iterator[Extender]:
    made = ready_extender(server=server)
    full, _ = started(FACTS).admit(guaranteed("full", 31, 31))
    published(made, "node-a", started(FACTS))
    published(made, "node-b", full)
    published(made, "node-c", started(FACTS))
    yield made
    made.stop()


def pod_body(uid: str, cpus: str, priority: int = 0) -> dict[str, Any]:
    amounts = {"cpu": cpus, "memory": "1Gi"}
    return {
        "metadata": {"name": uid, "namespace": "default", "uid": uid},
        "spec": {
            "priority": priority,
            "containers": [{"name": "a", "resources": {"requests": amounts, "limits": amounts}}],
        },
        "status": {"qosClass": "Guaranteed", "phase": "Pending"},
    }


def body(**members: object) -> bytes:
    return json.dumps(members).encode()


@pytest.mark.parametrize("case", ["names", "bind"])
def test_recorded_filter_with_names_is_answered_with_names(extender: Extender, case: str) -> None:
    status, answer = ask(extender, "/filter", recorded(f"filter-{case}")["request_raw"].encode())
    assert status == 200
    assert sorted(answer["NodeNames"]) == ["node-a", "node-c"]
    assert answer["Nodes"] is None
    assert list(answer["FailedNodes"]) == ["node-b"]
    assert answer["Error"] == ""


def test_recorded_filter_with_nodes_is_answered_with_the_nodes_as_they_came(extender: Extender) -> None:
    sent = recorded("filter-nodes")
    _, answer = ask(extender, "/filter", sent["request_raw"].encode())
    items = json.loads(sent["request_raw"])["Nodes"]["items"]
    assert answer["NodeNames"] is None
    assert answer["Nodes"]["items"] == [item for item in items if item["metadata"]["name"] != "node-b"]


@pytest.mark.parametrize("case", ["names", "nodes", "bind"])
def test_recorded_prioritize_is_answered_with_a_score_for_each_node(extender: Extender, case: str) -> None:
    sent = recorded(f"prioritize-{case}")
    status, answer = ask(extender, "/prioritize", sent["request_raw"].encode())
    assert status == 200
    assert {entry["Host"] for entry in answer} == {entry["Host"] for entry in sent["response"]}
    assert all(0 <= entry["Score"] <= 10 for entry in answer)


@pytest.mark.parametrize("case", ["names", "nodes"])
def test_recorded_preempt_is_answered_with_uids_in_both_forms(extender: Extender, case: str) -> None:
    sent = recorded(f"preempt-preempt-{case}")
    proposed = sent["request"]["NodeNameToMetaVictims"] or sent["request"]["NodeNameToVictims"]
    status, answer = ask(extender, "/preempt", sent["request_raw"].encode())
    assert status == 200
    # A pod of 40 CPUs never fits one of two NUMA nodes with 32.
    assert answer == {"NodeNameToMetaVictims": {}}
    wide = facts_with("sockets=2 numa=2 cores=64 threads=1 memory=64Gi")
    for name in NAMES:
        published(extender, name, started(wide), wide, version=2)
    _, answer = ask(extender, "/preempt", sent["request_raw"].encode())
    assert set(answer["NodeNameToMetaVictims"]) == set(proposed)
    assert all(set(one["Pods"][0]) == {"UID"} for one in answer["NodeNameToMetaVictims"].values())


def test_recorded_bind_binds(extender: Extender, server: Recorder) -> None:
    sent = recorded("bind-bind")
    asked = sent["request"]
    server.pod = json.dumps(pod_body(asked["PodUID"], "2")).encode()
    assert ask(extender, "/bind", sent["request_raw"].encode()) == (200, {"Error": ""})
    assert server.bound == [(asked["PodUID"], asked["Node"])]


def bind(extender: Extender, uid: str, node: str) -> str:
    _, answer = ask(extender, "/bind", body(PodName=uid, PodNamespace="default", PodUID=uid, Node=node))
    return str(answer["Error"])


def test_a_bind_that_would_be_refused_by_the_node_is_refused_here(extender: Extender, server: Recorder) -> None:
    for uid in ("one", "two"):
        extender.view.put_pod(Seen(guaranteed(uid, 20)))
    extender.view.put_pod(Seen(guaranteed("three", 20)))
    assert bind(extender, "one", "node-a") == ""
    assert bind(extender, "two", "node-a") == ""
    assert "MOOR-103" in bind(extender, "three", "node-a")
    assert server.bound == [("one", "node-a"), ("two", "node-a")]


@pytest.mark.parametrize(("code", "counts"), [(409, False), (404, False), (0, True), (500, True), (429, True)])
def test_a_pod_counts_unless_the_api_server_says_that_it_did_not_bind_it(
    extender: Extender, server: Recorder, code: int, counts: bool
) -> None:
    server.error = ClusterError("no", code=code)
    extender.view.put_pod(Seen(guaranteed("one", 20)))
    assert bind(extender, "one", "node-a").startswith("mooring: no")
    assert ("one" in extender.view.pods_on("node-a")) is counts


def places(extender: Extender, uid: str) -> list[str]:
    return [name for name in NAMES if uid in extender.view.pods_on(name)]


def bound_body(uid: str, node: str) -> bytes:
    content = pod_body(uid, "20")
    content["spec"]["nodeName"] = node
    return json.dumps(content).encode()


@pytest.mark.parametrize("is_shown", [False, True])
@pytest.mark.parametrize("again", ["node-a", "node-c"])
def test_a_bind_whose_answer_was_lost_counts_where_it_was_made_when_the_scheduler_tries_again(
    extender: Extender, server: Recorder, again: str, *, is_shown: bool
) -> None:
    extender.view.put_pod(Seen(guaranteed("one", 20)))
    server.error = ClusterError("timed out")
    assert bind(extender, "one", "node-a") == "mooring: timed out"
    if is_shown:
        extender.view.put_pod(Seen(guaranteed("one", 20), "node-a"))
    server.pod = bound_body("one", "node-a")
    server.error = ClusterError("already assigned", code=409)
    assert bind(extender, "one", again) == "mooring: the pod is already bound to node node-a"
    assert places(extender, "one") == ["node-a"]


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        (bound_body("one", "node-a"), ["node-a"]),
        (bound_body("one", "node-c"), ["node-c"]),
        (bound_body("one", ""), []),
        (json.dumps(pod_body("two", "20")).encode(), []),
        (b"unreadable", ["node-a"]),
    ],
    ids=["there", "elsewhere", "waiting", "another", "unknown"],
)
def test_after_a_conflict_a_pod_counts_where_the_api_server_has_it(
    extender: Extender, server: Recorder, stored: bytes, place: list[str]
) -> None:
    extender.view.put_pod(Seen(guaranteed("one", 20)))
    server.pod, server.error = stored, ClusterError("conflict", code=409)
    assert bind(extender, "one", "node-a") == "mooring: conflict"
    assert places(extender, "one") == place


def test_a_pod_that_is_shown_bound_while_another_node_is_asked_about_stays_where_it_is(extender: Extender) -> None:
    extender.view.put_pod(Seen(guaranteed("one", 20), "node-a"))
    extender.view.assume(guaranteed("one", 20), "node-c")
    extender.view.not_bound("one")
    assert places(extender, "one") == ["node-a"]


def test_reasons_are_equal_for_equal_causes_and_tell_whether_removing_pods_helps(extender: Extender) -> None:
    _, answer = ask(extender, "/filter", body(Pod=pod_body("p", "33"), NodeNames=[*NAMES, "node-x"]))
    hopeless = answer["FailedAndUnresolvableNodes"]
    assert answer["FailedNodes"] == {}
    assert len({hopeless[name] for name in ("node-a", "node-c")}) == 1
    assert hopeless["node-x"] == "mooring: the node has not published its state"
    _, answer = ask(extender, "/filter", body(Pod=pod_body("p", "20"), NodeNames=list(NAMES)))
    assert list(answer["FailedNodes"]) == ["node-b"]


@pytest.mark.parametrize(
    ("unknown", "exclusive", "shared"),
    [("denyExclusive", False, True), ("deny", False, False), ("allow", True, True)],
)
def test_what_is_said_about_nodes_of_which_nothing_is_known(unknown: str, exclusive: bool, shared: bool) -> None:
    made = ready_extender(read_options({"unknownNodes": unknown}, ExtenderOptions))
    for cpus, wanted in (("2", exclusive), ("1500m", shared)):
        _, answer = ask(made, "/filter", body(Pod=pod_body("p", cpus), NodeNames=["nobody"]))
        assert (answer["NodeNames"] == ["nobody"]) is wanted
    made.stop()


def test_only_pods_that_get_something_wait_for_one_another_on_a_node(
    extender: Extender, server: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_go, send = threading.Event(), threading.Event(), server.bind

    def slowly(asked: BindArguments) -> None:
        if asked.PodUID == "first":
            begun.set()
            assert may_go.wait(60)
        send(asked)

    monkeypatch.setattr(server, "bind", slowly)
    monkeypatch.setattr(binding, "_WAIT", 0.1)
    for uid in ("first", "pinned"):
        extender.view.put_pod(Seen(guaranteed(uid, 2)))
    extender.view.put_pod(Seen(replace(guaranteed("plain", 2), qos=QoS.BURSTABLE)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bind, extender, "first", "node-a")
        assert begun.wait(60)
        assert bind(extender, "pinned", "node-a") == "mooring: other pods are being bound to the node"
        assert bind(extender, "plain", "node-a") == bind(extender, "pinned", "node-c") == ""
        may_go.set()
        assert first.result() == ""
    assert server.bound == [("plain", "node-a"), ("pinned", "node-c"), ("first", "node-a")]


def test_preemption_adds_the_victims_without_which_the_pod_would_be_refused(extender: Extender) -> None:
    kubelet = started(FACTS)
    for uid, cpus in (("low-1", 25), ("low-2", 25)):
        pod = guaranteed(uid, cpus)
        kubelet, decision = kubelet.admit(pod)
        assert decision.admitted
        extender.view.put_pod(Seen(pod, "node-a"))
    small = replace(guaranteed("small", 1), priority=0)
    kubelet, _ = kubelet.admit(small)
    extender.view.put_pod(Seen(small, "node-a"))
    published(extender, "node-a", kubelet, version=2)
    proposed = {"node-a": {"Pods": [{"UID": "small"}], "NumPDBViolations": 3}}
    asked = body(Pod=pod_body("high", "28", 10), NodeNameToVictims=None, NodeNameToMetaVictims=proposed)
    _, answer = ask(extender, "/preempt", asked)
    found = answer["NodeNameToMetaVictims"]["node-a"]
    assert found["NumPDBViolations"] == 3
    assert {one["UID"] for one in found["Pods"]} in ({"small", "low-1"}, {"small", "low-2"})


def test_room_made_for_a_pod_is_not_given_to_one_of_lower_priority(extender: Extender) -> None:
    extender.view.put_pod(Seen(guaranteed("other", 25), "node-a"))
    waiting = replace(guaranteed("high", 25), priority=10)
    extender.view.put_pod(Seen(waiting, nominated="node-a"))
    question = {"NodeNames": ["node-a"]}
    _, answer = ask(extender, "/filter", body(Pod=pod_body("low", "25"), **question))
    assert answer["NodeNames"] == []
    _, answer = ask(extender, "/filter", body(Pod=pod_body("high", "25", 10), **question))
    assert answer["NodeNames"] == ["node-a"]


@pytest.mark.parametrize("path", ["/filter", "/prioritize", "/preempt", "/bind"])
@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b"[]", b'{"Pod": 1, "NodeNames": ["a"]}', b"\xff\xfe", b'{"NodeNames": "a"}']
)
def test_a_body_that_cannot_be_read_gets_one_line_of_json(extender: Extender, path: str, data: bytes) -> None:
    status, answer = ask(extender, path, data)
    assert status == 400
    assert set(answer) == {"error"}
    assert "\n" not in answer["error"]


def test_a_body_that_is_too_large_is_refused_before_it_has_come(server: Recorder) -> None:
    made = ready_extender(structs.replace(ExtenderOptions(), largest_body=100), server)
    status, answer = ask(made, "/filter", [b"x" * 60, b"x" * 60, b"never"])
    assert (status, answer) == (413, {"error": "the body has more than 100 bytes"})
    made.stop()


def test_before_everything_was_listed_nobody_is_told_anything(extender: Extender) -> None:
    extender.followers[0].has_listed.clear()
    assert ask(extender, "/readyz", b"", "GET")[0] == 503
    assert ask(extender, "/healthz", b"", "GET")[0] == 200
    _, answer = ask(extender, "/filter", body(Pod=pod_body("p", "2"), NodeNames=["node-a"]))
    assert answer["Error"].startswith("mooring: the extender has not yet listed")
    assert not answer["NodeNames"]
    assert bind(extender, "p", "node-a").startswith("mooring: the extender has not yet listed")


def test_metrics_tell_what_was_asked_and_which_promises_were_broken(extender: Extender) -> None:
    pod = guaranteed("one", 2)
    extender.view.put_pod(Seen(pod))
    assert bind(extender, "one", "node-a") == ""
    extender.view.put_pod(Seen(pod, "node-a", finished=True, refusal="TopologyAffinityError"))
    _, text = ask(extender, "/metrics", b"", "GET")
    assert 'mooring_extender_binds_total{result="bound"} 1.0' in text
    assert 'mooring_extender_mispredictions_total{reason="TopologyAffinityError"} 1.0' in text


def test_pods_of_one_shape_share_everything_but_their_names() -> None:
    shapes = Shapes()
    one = seen_pod(json.dumps(pod_body("one", "2")).encode(), shapes).pod
    other = seen_pod(json.dumps(pod_body("two", "2")).encode(), shapes).pod
    assert one.containers is other.containers
    assert one.uid != other.uid


@pytest.mark.parametrize("change", [{}, {"status": {"qosClass": "Guaranteed", "phase": "Running"}}, {"spec": {}}])
def test_a_pod_is_read_alike_whether_one_like_it_was_read_before_or_not(change: dict[str, Any]) -> None:
    shapes, content = Shapes(), pod_body("two", "2")
    seen_pod(json.dumps(pod_body("one", "2")).encode(), shapes)
    content["metadata"] |= {"namespace": "shop", "annotations": {"kubernetes.io/config.mirror": "own"}}
    content["spec"] |= change.get("spec", {"nodeName": "node-a", "priority": 7})
    data = json.dumps({**content, "status": change.get("status", content["status"])}).encode()
    assert seen_pod(data, shapes) == seen_pod(data, shapes) == seen_pod(data, Shapes())


def test_what_is_known_is_answered_without_the_engines_thread(extender: Extender) -> None:
    asked = body(Pod=pod_body("p", "20"), NodeNames=["node-a", "node-b"])
    good = body(Pod=pod_body("p", "20"), NodeNames=["node-a"])
    before = ask(extender, "/filter", asked), ask(extender, "/prioritize", good)
    extender.service.close()
    assert (ask(extender, "/filter", asked), ask(extender, "/prioritize", good)) == before
    with pytest.raises(RuntimeError):
        ask(extender, "/filter", body(Pod=pod_body("p", "19"), NodeNames=["node-b"]))
