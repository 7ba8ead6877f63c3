"""A replica that takes over knows what the one before has bound; a standby passes connections on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from tests.scheduling.extender_cluster import NODE, facts_with, started, state_of_node

from mooring.core.errors import InputError
from mooring.core.pod import Pod
from mooring.kubelet.shapes import shape_of
from mooring.publisher.facts_document import digest_of
from mooring.scheduling.binding import Binder
from mooring.scheduling.deciding import Decider, NodeVerdict
from mooring.scheduling.options import extender_options
from mooring.scheduling.pods import Shapes, seen_pod
from mooring.scheduling.replicas import Standby
from mooring.scheduling.run import run_extender
from mooring.scheduling.view import ClusterView
from mooring.scheduling.wire import BindAnswer, BindArguments
from mooring.service.cluster.apiserver import ClusterError
from mooring.service.cluster.lease import Election, Lease

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


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, str]]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(60)
        yield listener, f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_standby_passes_bytes_on_both_ways_until_a_side_ends_it() -> None:
    with listening() as (leader, address), listening() as (listener, here):
        port = int(here.rpartition(":")[2])
        with (
            closing(Standby(listener, lambda: address, 8)),
            socket.create_connection(("127.0.0.1", port), timeout=60) as client,
        ):
            passed, _ = leader.accept()
            passed.settimeout(60)
            client.sendall(b"question")
            assert passed.recv(100) == b"question"
            passed.sendall(b"answer")
            assert client.recv(100) == b"answer"
            passed.close()
            assert client.recv(100) == b""
        assert listener.fileno() >= 0


def test_a_standby_without_a_holder_closes_connections_and_one_that_takes_over_those_passed_on() -> None:
    with listening() as (leader, address), listening() as (listener, here):
        holder = [""]
        standby = Standby(listener, lambda: holder[0], 8)
        port = int(here.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            assert client.recv(100) == b""
        holder[0] = address
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            passed, _ = leader.accept()
            standby.close()
            assert client.recv(100) == b""
            passed.close()
        threads = [one.name for one in threading.enumerate()]
        assert "standby" not in threads


def test_a_standby_that_ends_while_it_connects_ends(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect = asyncio.open_connection

    async def connected(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        ways = await connect(host, port)
        standby._stop.set()  # noqa: SLF001 - between two turns of its loop
        return ways

    monkeypatch.setattr(asyncio, "open_connection", connected)
    with listening() as (_, address), listening() as (listener, here):
        standby = Standby(listener, lambda: address, 8)
        with socket.create_connection(("127.0.0.1", int(here.rpartition(":")[2])), timeout=60) as client:
            assert client.recv(100) == b""
        standby._thread.join(60)  # noqa: SLF001
        assert not standby._thread.is_alive()  # noqa: SLF001
    assert not caplog.records


def test_lease_and_advertised_address_belong_together(tmp_path: Path) -> None:
    file = tmp_path / "extender.yaml"
    file.write_text("apiVersion: mooring/v1alpha1\nkind: ExtenderConfiguration\n", encoding="utf-8")
    with pytest.raises(InputError, match="belongs together with --advertise"):
        run_extender(str(file), "", "10.0.0.7:8888")
    with pytest.raises(InputError, match="namespace and name belong together"):
        extender_options({"lease": {"name": "x"}}, source="extender.yaml")
