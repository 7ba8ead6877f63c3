"""A replica that takes over knows what the one before has bound; only the leader is ready."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import msgspec
import pytest
from tests.patience import until
from tests.scheduling.extender_cluster import NODE, facts_with, started, state_of_node
from tests.scheduling.extender_requests import PATIENT, Recorder, ask, no_cluster, ready_extender

from mooring.cluster.extender.binding import Binder
from mooring.cluster.extender.deciding import Decider, NodeVerdict
from mooring.cluster.extender.options import ExtenderOptions
from mooring.cluster.extender.pods import Shapes, seen_pod
from mooring.cluster.extender.run import Extender, extender_with, take_part
from mooring.cluster.extender.view import ClusterView
from mooring.cluster.extender.wire import BindAnswer, BindArguments
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.shapes import shape_of
from mooring.published.facts_document import digest_of
from mooring.service.apiserver import ClusterError
from mooring.service.lease import Election, Lease
from mooring.service.options import read_options

FACTS = facts_with("sockets=1 cores=2 threads=2 memory=8Gi", topology_manager_policy="single-numa-node")
"""Three CPUs can be given away."""


class OneLease:
    """A Lease that nobody else writes."""

    def __init__(self) -> None:
        self.lease: Lease = {"metadata": {}}

    def read(self) -> Lease:
        return self.lease

    def write(self, lease: Lease) -> None:
        self.lease = lease


class Server:
    """An API server whose pods the watch has not shown yet."""

    def __init__(self) -> None:
        self.bound: dict[str, str] = {}
        self.reads = 0
        self.fails = False
        self.meanwhile: Callable[[], object] = lambda: None
        """Happens after the pods of a node were read and before the answer arrives."""

    def read_pod(self, _namespace: str, name: str) -> bytes:
        return pod_json(name, self.bound.get(name, ""))

    def read_claim(self, namespace: str, name: str) -> bytes:
        raise ClusterError(f"claims do not count here: {namespace}/{name}")

    def pods_on(self, node: str) -> list[msgspec.Raw]:
        self.reads += 1
        if self.fails:
            raise ClusterError("away")
        found = [msgspec.Raw(pod_json(name, where)) for name, where in self.bound.items() if where == node]
        self.meanwhile()
        return found

    def bind(self, asked: BindArguments) -> None:
        self.bound[asked.PodName] = asked.Node

    def close(self) -> None:
        pass


def pod_json(name: str, node: str) -> bytes:
    amounts = {"cpu": "2", "memory": "1Gi"}
    spec = {"nodeName": node, "containers": [{"name": "c0", "resources": {"requests": amounts, "limits": amounts}}]}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return json.dumps({"metadata": metadata, "spec": spec, "status": {}}).encode()


class Replica:
    """What a replica knows, and its binds."""

    def __init__(self, server: Server) -> None:
        self.now = 0.0
        self.view = ClusterView(lambda: self.now)
        self.view.put_facts(digest_of(FACTS), FACTS)
        self.view.replace_pods([])
        self.view.put_state(NODE, 1, state_of_node(FACTS, started(FACTS)))
        self.election = Election(OneLease(), "10.0.0.7:8888", lambda: self.now)
        decider = Decider()

        def verdict(pod: Pod, node: str) -> NodeVerdict:
            return decider.verdict(self.view.outlook(node, pod), shape_of(pod))

        self.binder = Binder(self.view, server, Shapes(), verdict, self.election)

    def bind(self, name: str) -> BindAnswer:
        return self.binder.bind(BindArguments(name, "default", f"uid-{name}", NODE))


def test_a_new_holder_knows_the_binds_that_its_watch_has_not_shown() -> None:
    server = Server()
    first, second = Replica(server), Replica(server)
    first.election.step()
    assert not first.bind("one").Error
    second.election.step()
    assert second.bind("two").Error
    assert server.bound == {"one": NODE}


def test_without_the_lease_nothing_is_bound() -> None:
    server = Server()
    replica = Replica(server)
    assert replica.bind("one").Error == "mooring: another replica binds pods by now"
    replica.election.step()
    replica.now = 2.5  # a bind could arrive when the Lease is another's
    assert replica.bind("one").Error == "mooring: another replica binds pods by now"
    assert server.bound == {}
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
    server = Server()
    server.bound["one"] = NODE
    replica = Replica(server)
    seen = seen_pod(pod_json("one", NODE), Shapes())

    def end() -> None:
        if is_deleted:
            replica.view.drop_pod("uid-one")
        else:
            replica.view.put_pod(replace(seen, finished=True))

    if is_known:
        replica.view.put_pod(seen)
    server.meanwhile = end
    replica.election.step()
    assert not replica.bind("two").Error


def test_a_pod_that_begins_to_leave_while_its_node_is_read_leaves() -> None:
    server = Server()
    server.bound["one"] = NODE
    replica = Replica(server)
    seen = seen_pod(pod_json("one", NODE), Shapes())
    replica.view.put_pod(seen)
    server.meanwhile = lambda: replica.view.put_pod(replace(seen, leaving=True))
    replica.election.step()
    replica.bind("two")
    assert not replica.view.pods_on(NODE)


def test_one_replica_reads_no_node() -> None:
    server = Server()
    replica = Replica(server)
    alone = Binder(replica.view, server, Shapes(), replica.binder.verdict)
    assert not alone.bind(BindArguments("one", "default", "uid-one", NODE)).Error
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
        take_part(replica.election, lambda: bool(gets_on), steps, lambda _about, _problem: None)
    assert 5 < steps.number < 11


def test_a_replica_that_has_not_listed_everything_takes_no_lease() -> None:
    replica = Replica(Server())
    take_part(replica.election, bool, Steps(replica, {}), lambda _about, _problem: None)
    assert not replica.election.leads


def test_only_the_leader_is_ready_and_answers() -> None:
    now = [0.0]
    lease = OneLease()
    first, second = (Election(lease, name, lambda: now[0]) for name in ("first", "second"))
    first.step()
    second.step()
    answers = {}
    for election in (first, second):
        extender = extender_with(
            ExtenderOptions(request_time=PATIENT), no_cluster, lambda _about, _problem: None, Recorder(), election
        )
        for follower in extender.followers:
            follower.has_listed.set()
        question = json.dumps({"Pod": {"spec": {"containers": [{"name": "a"}]}}, "NodeNames": ["x"]}).encode()
        answers[election] = ask(extender, "/readyz", b"", "GET"), ask(extender, "/filter", question)[1].get("Error", "")
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


def test_a_lease_has_namespace_and_name() -> None:
    with pytest.raises(InputError, match="namespace and name belong together"):
        read_options({"lease": {"name": "x"}}, ExtenderOptions)
