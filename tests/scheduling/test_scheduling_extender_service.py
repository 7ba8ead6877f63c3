"""What the scheduler is answered: recorded bodies in the right form, and one clear line for everything else."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.patience import until
from tests.scheduling.extender_cluster import (
    NODE,
    Recorder,
    ask,
    asking,
    bind,
    facts_with,
    guaranteed,
    pod_body,
    pod_json,
    publish,
    question,
    ready_extender,
    started,
)
from tests.service.otlp_receiver import attributes, receiving

from mooring.cluster.extender.binding import Binder
from mooring.cluster.extender.deciding import Decider
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Seen, Shapes, seen_pod
from mooring.cluster.extender.possible_nodes import NodeVerdict
from mooring.cluster.extender.run import Extender
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import BindAnswer, BindArguments
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.kubelet.admit import shape_of
from mooring.service.apiserver import ClusterError
from mooring.service.lease import Election, Lease, ReadLease, WriteLease
from mooring.service.logs import open_traces
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


@pytest.fixture
def server() -> Recorder:
    return Recorder()


@pytest.fixture
def extender(server: Recorder) -> Iterator[Extender]:
    made = ready_extender(server=server)
    full, _ = started(FACTS).admit(guaranteed("full", 31, 31))
    publish(made.view, FACTS, {"node-a": started(FACTS), "node-b": full, "node-c": started(FACTS)})
    yield made
    made.stop()


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
    publish(extender.view, wide, dict.fromkeys(NAMES, started(wide)), version=2)
    _, answer = ask(extender, "/preempt", sent["request_raw"].encode())
    assert set(answer["NodeNameToMetaVictims"]) == set(proposed)
    assert all(set(one["Pods"][0]) == {"UID"} for one in answer["NodeNameToMetaVictims"].values())


def test_recorded_bind_binds(extender: Extender, server: Recorder) -> None:
    sent = recorded("bind-bind")
    asked = sent["request"]
    server.pod = json.dumps(pod_body(asked["PodUID"], "2")).encode()
    assert ask(extender, "/bind", sent["request_raw"].encode()) == (200, {"Error": ""})
    assert server.bound == [(asked["PodUID"], asked["Node"])]


def test_a_bind_that_would_be_refused_by_the_node_is_refused_here(extender: Extender, server: Recorder) -> None:
    for uid in ("one", "two", "three"):
        extender.view.put_pod(Seen(guaranteed(uid, 20)))
    assert bind(extender, "one", "node-a") == bind(extender, "two", "node-a") == ""
    assert "MOOR-103" in bind(extender, "three", "node-a")
    assert server.bound == [("one", "node-a"), ("two", "node-a")]


@pytest.mark.parametrize(("code", "counts"), [(409, False), (404, False), (0, True), (500, True), (429, True)])
def test_a_pod_counts_unless_it_is_said_to_be_unbound(
    extender: Extender, server: Recorder, code: int, counts: bool
) -> None:
    server.error = ClusterError("no", code=code)
    extender.view.put_pod(Seen(guaranteed("one", 20)))
    assert bind(extender, "one", "node-a").startswith("mooring: no")
    assert ("one" in extender.view.pods_on("node-a")) is counts


def places(extender: Extender, uid: str) -> list[str]:
    return [name for name in NAMES if uid in extender.view.pods_on(name)]


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
    server.pod = pod_json(Seen(guaranteed("one", 20), "node-a"))
    server.error = ClusterError("already assigned", code=409)
    assert bind(extender, "one", again) == "mooring: the pod is already bound to node node-a"
    assert places(extender, "one") == ["node-a"]


@pytest.mark.parametrize(
    ("stored", "place"),
    [
        (pod_json(Seen(guaranteed("one", 20), "node-a")), ["node-a"]),
        (pod_json(Seen(guaranteed("one", 20), "node-c")), ["node-c"]),
        (pod_json(Seen(guaranteed("one", 20))), []),
        (pod_json(Seen(guaranteed("two", 20))), []),
        (b"unreadable", ["node-a"]),
    ],
    ids=["there", "elsewhere", "waiting", "another", "unknown"],
)
def test_after_a_conflict_the_api_server_is_right(
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


@dataclass
class Deleting(Recorder):
    """Says that a pod waits that is deleted just then, and nothing of it afterwards."""

    view: ClusterView = field(default_factory=lambda: ClusterView(lambda: 0.0))

    def read_pod(self, namespace: str, name: str) -> bytes:
        if not self.pod:
            raise ClusterError(f"no answer about {namespace}/{name}")
        found, self.pod = self.pod, b""
        self.view.drop_pod(name)
        return found


def test_nothing_is_reserved_for_a_pod_that_was_deleted_while_it_was_being_bound() -> None:
    server = Deleting(ClusterError("conflict", code=409), pod=json.dumps(pod_body("one", "20")).encode())
    extender = ready_extender(server=server)
    server.view = extender.view
    publish(extender.view, FACTS, {"node-a": started(FACTS)})
    assert bind(extender, "one", "node-a") == "mooring: conflict"
    assert extender.view.pods_on("node-a") == {}
    extender.stop()


@pytest.mark.parametrize("after", [59, 61])
def test_a_pod_that_came_and_went_unnamed_is_reserved_for_while_a_state_of_that_time_may_be_on_its_way(
    after: int,
) -> None:
    replica = Replica(Server())
    view, small = replica.view, Seen(guaranteed("small", 2))
    view.put_pod(replace(small, node=NODE))
    view.drop_pod("small")
    replica.now += after
    view.prune()
    assert view.counts()["pods"] == (1 if after < 60 else 0)


class Slow(Recorder):
    """Lets the bind of the pod ``first`` wait until it may go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_go = threading.Event(), threading.Event()

    def bind(self, asked: BindArguments) -> None:
        if asked.PodUID == "first":
            self.begun.set()
            assert self.may_go.wait(60)
        super().bind(asked)


def test_a_filter_waits_for_its_turn_while_pods_are_being_bound() -> None:
    server = Slow()
    made = ready_extender(structs.replace(ExtenderOptions(), requests_at_once=1), server)
    publish(made.view, FACTS, {"node-a": started(FACTS)})
    made.view.put_pod(Seen(guaranteed("first", 2)))

    async def both() -> tuple[int, int]:
        asked = body(PodName="first", PodNamespace="default", PodUID="first", Node="node-a")
        binding = asyncio.create_task(asking(made, "/bind", asked))
        await asyncio.to_thread(server.begun.wait, 60)
        filtering = asyncio.create_task(asking(made, "/filter", question("2", NodeNames=["node-a"])))
        await asyncio.sleep(0)
        server.may_go.set()
        return (await binding)[0], (await filtering)[0]

    assert asyncio.run(both()) == (200, 200)
    made.stop()


def test_reasons_are_equal_for_equal_causes_and_tell_whether_removing_pods_helps(extender: Extender) -> None:
    _, answer = ask(extender, "/filter", question("33", NodeNames=[*NAMES, "node-x"]))
    hopeless = answer["FailedAndUnresolvableNodes"]
    assert answer["FailedNodes"] == {}
    assert len({hopeless[name] for name in ("node-a", "node-c")}) == 1
    assert hopeless["node-x"] == "mooring: the node has not published its state"
    _, answer = ask(extender, "/filter", question("20", NodeNames=NAMES))
    assert list(answer["FailedNodes"]) == ["node-b"]


@pytest.mark.parametrize(
    ("unknown", "exclusive", "shared"), [("denyExclusive", False, True), ("deny", False, False), ("allow", True, True)]
)
def test_what_is_said_about_nodes_of_which_nothing_is_known(unknown: str, exclusive: bool, shared: bool) -> None:
    made = ready_extender(read_options({"unknownNodes": unknown}, ExtenderOptions))
    for cpus, wanted in (("2", exclusive), ("1500m", shared)):
        _, answer = ask(made, "/filter", question(cpus, NodeNames=["nobody"]))
        assert (answer["NodeNames"] == ["nobody"]) is wanted
    made.stop()


def test_only_pods_that_get_something_wait_for_one_another_on_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Slow()
    extender = ready_extender(server=server)
    publish(extender.view, FACTS, {name: started(FACTS) for name in ("node-a", "node-c")})
    monkeypatch.setattr("mooring.cluster.extender.binding._WAIT", 0.1)
    for uid in ("first", "pinned"):
        extender.view.put_pod(Seen(guaranteed(uid, 2)))
    extender.view.put_pod(Seen(replace(guaranteed("plain", 2), qos=QoS.BURSTABLE)))
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(bind, extender, "first", "node-a")
        assert server.begun.wait(60)
        assert bind(extender, "pinned", "node-a") == "mooring: other pods are being bound to the node"
        assert bind(extender, "plain", "node-a") == bind(extender, "pinned", "node-c") == ""
        server.may_go.set()
        assert first.result() == ""
    extender.stop()
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
    publish(extender.view, FACTS, {"node-a": kubelet}, version=2)
    proposed = {"node-a": {"Pods": [{"UID": "small"}], "NumPDBViolations": 3}}
    asked = question("28", priority=10, NodeNameToVictims=None, NodeNameToMetaVictims=proposed)
    _, answer = ask(extender, "/preempt", asked)
    found = answer["NodeNameToMetaVictims"]["node-a"]
    assert found["NumPDBViolations"] == 3
    assert {one["UID"] for one in found["Pods"]} in ({"small", "low-1"}, {"small", "low-2"})


def test_room_made_for_a_pod_is_not_given_to_one_of_lower_priority(extender: Extender) -> None:
    extender.view.put_pod(Seen(guaranteed("other", 25), "node-a"))
    waiting = replace(guaranteed("high", 25), priority=10)
    extender.view.put_pod(Seen(waiting, nominated="node-a"))
    for uid, priority, nodes in (("low", 0, []), ("high", 10, ["node-a"])):
        _, answer = ask(extender, "/filter", question("25", uid=uid, priority=priority, NodeNames=["node-a"]))
        assert answer["NodeNames"] == nodes


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
    _, answer = ask(extender, "/filter", question("2", NodeNames=["node-a"]))
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
    asked, good = (question("20", NodeNames=nodes) for nodes in (["node-a", "node-b"], ["node-a"]))
    before = ask(extender, "/filter", asked), ask(extender, "/prioritize", good)
    extender.service.close()
    assert (ask(extender, "/filter", asked), ask(extender, "/prioritize", good)) == before
    with pytest.raises(RuntimeError):
        ask(extender, "/filter", question("19", NodeNames=["node-b"]))


# A replica that takes over knows what the one before has bound; only the leader is ready.


FACTS_REPLICAS = facts_with("sockets=1 cores=2 threads=2 memory=8Gi", topology_manager_policy="single-numa-node")
"""Three CPUs can be given away."""


def one_lease() -> tuple[ReadLease, WriteLease]:
    """Return what reads and writes a Lease that nobody else writes."""
    leases: list[Lease] = [{"metadata": {}}]
    return lambda: leases[-1], leases.append


class Server(Recorder):
    """An API server whose pods the watch has not shown yet."""

    def __init__(self, *bound: str) -> None:
        super().__init__()
        self.bound = [(uid, NODE) for uid in bound]
        self.reads = 0
        self.fails = False
        self.meanwhile: Callable[[], object] = lambda: None
        """Happens after the pods of a node were read and before the answer arrives."""

    def read_pod(self, _namespace: str, name: str) -> bytes:
        return pod_json(Seen(guaranteed(name, 2), dict(self.bound).get(name, "")))

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        self.reads += 1
        if self.fails:
            raise ClusterError("away")
        found = [msgspec.Raw(self.read_pod("", name)) for name, where in self.bound if where == node]
        self.meanwhile()
        return found


class Replica:
    """What a replica knows, and its binds."""

    def __init__(self, server: Server) -> None:
        self.now = 0.0
        self.view = ClusterView(lambda: self.now)
        self.view.replace_pods([])
        publish(self.view, FACTS_REPLICAS, {NODE: started(FACTS_REPLICAS)})
        self.election = Election(*one_lease(), "10.0.0.7:8888", lambda: self.now)
        decider = Decider()

        def verdict(pod: Pod, node: str) -> NodeVerdict:
            return decider.verdict(self.view.outlook(node, pod), shape_of(pod))

        self.binder = Binder(self.view, server, Shapes(), verdict, self.election)

    def bind(self, name: str) -> BindAnswer:
        return self.binder.bind(BindArguments(name, "default", name, NODE))


def test_a_new_holder_knows_the_binds_that_its_watch_has_not_shown() -> None:
    server = Server()
    first, second = Replica(server), Replica(server)
    first.election.step()
    assert not first.bind("one").Error
    second.election.step()
    assert second.bind("two").Error
    assert server.bound == [("one", NODE)]


def test_without_the_lease_nothing_is_bound() -> None:
    server = Server()
    replica = Replica(server)
    assert replica.bind("one").Error == "mooring: another replica binds pods by now"
    replica.election.step()
    replica.now = 2.5  # a bind could arrive when the Lease is another's
    assert replica.bind("one").Error == "mooring: another replica binds pods by now"
    assert server.bound == []
    replica.election.step()
    assert not replica.bind("one").Error


def test_pods_of_a_node_are_read_once_and_until_they_could_be() -> None:
    server = Server()
    replica = Replica(server)
    replica.election.step()
    server.fails = True
    assert replica.bind("one").Error
    server.fails = False
    assert not replica.bind("one").Error
    assert replica.bind("two").Error
    assert server.reads == 2


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_a_pod_that_ends_while_its_node_is_read_does_not_count(*, is_known: bool, is_deleted: bool) -> None:
    server = Server("one")
    replica = Replica(server)
    seen = Seen(guaranteed("one", 2), NODE)

    def end() -> None:
        if is_deleted:
            replica.view.drop_pod("one")
        else:
            replica.view.put_pod(replace(seen, finished=True))

    if is_known:
        replica.view.put_pod(seen)
    server.meanwhile = end
    replica.election.step()
    assert not replica.bind("two").Error


def test_a_pod_that_begins_to_leave_while_its_node_is_read_leaves() -> None:
    server = Server("one")
    replica = Replica(server)
    seen = Seen(guaranteed("one", 2), NODE)
    replica.view.put_pod(seen)
    server.meanwhile = lambda: replica.view.put_pod(replace(seen, leaving=True))
    replica.election.step()
    replica.bind("two")
    assert not replica.view.pods_on(NODE)


def test_one_replica_reads_no_node() -> None:
    server = Server()
    replica = Replica(server)
    alone = Binder(replica.view, server, Shapes(), replica.binder.verdict)
    assert not alone.bind(BindArguments("one", "default", "one", NODE)).Error
    assert server.reads == 0


class Steps(threading.Event):
    """An end that comes after so many steps, each a second long."""

    def __init__(self, replica: Replica, happens: dict[int, Callable[[], object]]) -> None:
        super().__init__()
        self.replica, self.happens, self.number = replica, happens, 0

    def is_set(self) -> bool:
        return self.number > 20

    def wait(self, timeout: float | None = None) -> bool:
        self.number += 1
        self.replica.now += timeout or 0.0
        self.happens.get(self.number, lambda: None)()
        return False


def test_an_engine_that_hangs_loses_the_lease() -> None:
    replica, gets_on = Replica(Server()), [True]
    steps = Steps(replica, {5: gets_on.clear})
    with pytest.raises(ClusterError, match="the lease is lost"):
        replica.election.take_part(lambda: bool(gets_on), steps, lambda _about, _problem: None)
    assert 5 < steps.number < 11


def test_a_replica_that_has_not_listed_everything_takes_no_lease() -> None:
    replica = Replica(Server())
    replica.election.take_part(bool, Steps(replica, {}), lambda _about, _problem: None)
    assert not replica.election.leads


def test_only_the_leader_is_ready_and_answers() -> None:
    now = [0.0]
    lease = one_lease()
    first, second = (Election(*lease, name, lambda: now[0]) for name in ("first", "second"))
    first.step()
    second.step()
    answers = {}
    for election in (first, second):
        extender = ready_extender(election=election)
        asked = question("500m", NodeNames=["x"])
        answers[election] = ask(extender, "/readyz", b"", "GET"), ask(extender, "/filter", asked)[1]["Error"]
        assert ask(extender, "/healthz", b"", "GET")[0] == 200
        extender.service.close()
    assert answers[first] == ((200, "ok\n"), "")
    assert answers[second] == ((503, "another replica decides\n"), "mooring: another replica decides")


def fails(extender: Extender, path: str) -> bool:
    return ask(extender, path, b"", "GET")[0] == 503


def test_an_engine_that_does_not_answer_is_neither_ready_nor_alive() -> None:
    """The probes ask the threads that work, and not the one that answers them."""
    extender = ready_extender(ExtenderOptions(request_time=0.05))
    ends = threading.Event()
    extender.service._thinking.submit(ends.wait)  # noqa: SLF001 - an engine that hangs
    extender.start()
    try:
        for path in ("/healthz", "/readyz"):
            until(partial(fails, extender, path), f"{path} fails")
        ends.set()
        until(lambda: not fails(extender, "/healthz"), "it gets on")
    finally:
        ends.set()
        extender.stop()


# Traces of the extender: one span for each answered request, with the pod and counts of nodes.


POD = {**pod_body("web", "2"), "metadata": {"name": "web", "namespace": "shop", "uid": "u1"}}


def test_each_answered_request_is_a_span_with_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        traces = open_traces("mooring-extender", receiver.environment, pytest.fail)
        assert traces is not None
        extender = ready_extender(traces=traces)
        full, _ = started(FACTS).admit(guaranteed("full", 31, 31))
        publish(extender.view, FACTS, {"a": started(FACTS), "b": full, "c": started(FACTS)})
        for path in ("/filter", "/prioritize"):
            assert ask(extender, path, body(Pod=POD, NodeNames=["a", "b", "c"]))[0] == 200
        asked = body(PodName="web", PodNamespace="shop", PodUID="u1", Node="b")
        assert ask(extender, "/bind", asked)[0] == 200
        assert ask(extender, "/filter", b"{")[0] == 400
        nameless = {**POD, "metadata": {"name": None}}
        ask(extender, "/filter", body(Pod=nameless, NodeNames=[]))
        extender.stop()
        traces.close()
        filtered, *_ = receiver.named("extender filter")
        pod = {"k8s.namespace.name": "shop", "k8s.pod.name": "web", "k8s.pod.uid": "u1"}
        assert attributes(filtered) == {**pod, "mooring.nodes.passed": 2, "mooring.nodes.rejected": 1}
        [prioritized] = receiver.named("extender prioritize")
        scored = attributes(prioritized)
        assert scored == {**pod, "mooring.nodes.scored": 3, "mooring.score.highest": scored["mooring.score.highest"]}
        assert scored["mooring.score.highest"] > 0
        [bound] = receiver.named("extender bind")
        assert attributes(bound) == {**pod, "k8s.node.name": "b", "mooring.decision": "refused"}
        assert bound.status.message
