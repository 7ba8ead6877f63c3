"""What the publisher writes and when: soon after a change, once for a burst, now and then, and in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.publisher.published_node import FACTS, NODE, STATE, TOPOLOGY, Node

from mooring.published.facts_document import facts_of
from mooring.published.objects import state_of
from mooring.published.publisher import LOOKING
from mooring.service.apiserver import ClusterError


@pytest.fixture
def node() -> Iterator[Node]:
    with FaultInjector(node=NODE) as cluster:
        one = Node(cluster)
        yield one
        one.publisher.close()


def test_everything_is_written_soon_after_the_beginning(node: Node) -> None:
    node.let_pass(1.0)
    (facts,), (state,), (topology,) = node.written(FACTS), node.written(STATE), node.written(TOPOLOGY)
    assert facts_of(facts) == node.seen.facts
    assert replace(state_of(state), sequence=0) == node.seen.state
    assert facts["metadata"]["name"] == state["spec"]["facts"]
    assert state["status"]["exclusiveCPUs"] == {"allocatable": 7, "available": 7}
    assert topology["zones"][0]["resources"][0] == {
        "name": "cpu",
        "capacity": "8",
        "allocatable": "7",
        "available": "7",
    }


def test_facts_come_before_the_state_that_names_them(node: Node) -> None:
    node.let_pass(1.0)
    order = [request.what for request in node.cluster.requests if request.method != "GET"]
    assert order == [FACTS, STATE, TOPOLOGY]


def test_apply_is_forced_in_the_name_of_mooring(node: Node) -> None:
    node.let_pass(1.0)
    (request,) = node.cluster.asked(STATE)
    assert request.query == {"fieldManager": "mooring", "force": "true"}


def test_burst_of_changes_is_one_write(node: Node) -> None:
    node.let_pass(10.0)
    for uid in "abcde":
        node.admit(uid)
        node.let_pass(0.03)
    node.let_pass(10.0)
    assert [body["status"]["exclusiveCPUs"]["available"] for body in node.written()] == [7, 2]
    assert len(node.written(TOPOLOGY)) == 2
    assert len(node.written(FACTS)) == 1
    assert node.publisher.counts.writes == 2


def test_changes_without_end_are_written_once_a_second(node: Node) -> None:
    for number in range(100):
        if number % 2:
            node.remove("a")
        else:
            node.admit("a")
        node.let_pass(0.1)
    assert 9 <= len(node.written()) <= 11


def test_nothing_is_written_while_nothing_changes_but_the_heartbeat(node: Node) -> None:
    node.let_pass(299.0)
    assert len(node.written()) == 1
    node.let_pass(400.0)
    first, second, third = node.written()
    assert first["spec"] == second["spec"] == third["spec"]
    assert first["status"]["observedAt"] < second["status"]["observedAt"]
    assert len(node.written(FACTS)) == 3, "facts that somebody removed come back"


def test_every_change_has_a_higher_sequence_and_so_has_the_next_publisher(node: Node) -> None:
    node.let_pass(5.0)
    node.admit("a")
    node.let_pass(5.0)
    first, second = (body["spec"]["sequence"] for body in node.written())
    assert second == first + 1
    other = Node(node.cluster, now=node.now)
    other.let_pass(5.0)
    assert node.written()[-1]["spec"]["sequence"] > second
    other.publisher.close()


def test_state_and_topology_vanish_with_the_node(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.published.publisher.node_uid", lambda _http, name: f"uid of {name}")
    node.let_pass(1.0)
    for what in (STATE, TOPOLOGY):
        (owner,) = node.written(what)[0]["metadata"]["ownerReferences"]
        assert owner == {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": f"uid of {NODE}"}
    assert "ownerReferences" not in node.written(FACTS)[0]["metadata"], "others may have the same facts"


@pytest.mark.parametrize("status", [403, 404], ids=["forbidden", "missing"])
def test_without_a_node_object_there_is_no_owner(node: Node, status: int) -> None:
    node.cluster.fail(f"GET /api/v1/nodes/{NODE}", Fault(status))
    node.let_pass(1.0)
    assert "ownerReferences" not in node.written()[0]["metadata"]


def test_facts_that_are_there_already_are_fine(node: Node) -> None:
    node.cluster.fail(FACTS, Fault(409))
    node.let_pass(1.0)
    assert len(node.written(STATE)) == 1
    assert not node.told


@pytest.mark.parametrize("what", [FACTS, STATE, TOPOLOGY], ids=["facts", "state", "topology"])
def test_write_that_fails_is_done_again_as_a_whole(node: Node, what: str) -> None:
    node.cluster.fail(what, Fault(503), Fault(500))
    node.let_pass(10.0)
    assert len(node.written(what)) == 3
    assert node.written(STATE)[-1]["spec"] == node.written(STATE)[0]["spec"]
    assert [finding.severity for finding in node.told] == ["warning", "warning", "info"]
    assert node.publisher.counts.writes == 1


def test_server_is_left_alone_as_long_as_it_wishes(node: Node) -> None:
    node.cluster.fail(STATE, Fault(429, retry_after="30"))
    node.let_pass(29.0)
    assert len(node.written()) == 1
    node.let_pass(3.0)
    assert len(node.written()) == 2


def test_server_that_is_away_is_asked_less_and_less_and_gets_the_newest_state(node: Node) -> None:
    node.cluster.fail(STATE, *[Fault(503)] * 8)
    node.let_pass(60.0)
    assert len(node.written()) <= 8
    node.admit("a")
    node.let_pass(60.0)
    assert node.written()[-1]["status"]["exclusiveCPUs"]["available"] == 6
    assert all(cluster.http.is_closed for cluster in node.opened[:-1])


def test_credentials_are_read_anew_after_a_refusal(node: Node) -> None:
    node.cluster.fail(STATE, Fault(401))
    node.let_pass(5.0)
    assert len(node.opened) == 2
    assert len(node.written()) == 2


def test_missing_definitions_are_reported(node: Node) -> None:
    node.cluster.fail(FACTS, Fault(404))
    node.let_pass(0.5)
    assert node.told[0].message.endswith("apply the definitions of deploy/crds")


def test_cluster_without_node_resource_topologies_gets_the_rest(node: Node) -> None:
    node.cluster.fail(TOPOLOGY, Fault(404))
    node.let_pass(2.0)
    node.admit("a")
    node.let_pass(2.0)
    assert (len(node.written()), len(node.written(TOPOLOGY))) == (2, 1)
    assert [finding.severity for finding in node.told] == ["info"]
    node.let_pass(301.0)
    assert len(node.written(TOPOLOGY)) == 2, "with the heartbeat it is tried again"


def test_node_that_cannot_be_seen_is_not_confirmed(node: Node) -> None:
    node.let_pass(2.0)
    node.problem = "the kubelet is away"
    node.let_pass(1000.0)
    assert len(node.written()) == 1
    assert "the kubelet is away" in node.told[0].message
    node.problem = ""
    node.admit("a")
    node.let_pass(40.0)
    assert node.written()[-1]["status"]["exclusiveCPUs"]["available"] == 6
    assert node.told[-1].severity == "info"


def test_node_that_cannot_decide_publishes_its_state_and_nothing_that_is_available(node: Node) -> None:
    node.seen = replace(node.seen, node=None, problem="the file is damaged")
    node.let_pass(2.0)
    (state,) = node.written()
    assert set(state["status"]) == {"observedAt"}
    assert not node.written(TOPOLOGY)
    assert "the file is damaged" in node.told[0].message


def test_once_tells_its_failure(node: Node) -> None:
    node.publisher.once()
    assert len(node.written()) == len(node.written(TOPOLOGY)) == 1
    node.cluster.fail(STATE, Fault(403))
    with pytest.raises(ClusterError, match="403"):
        node.publisher.once()


def test_waiting_is_never_longer_than_a_look(node: Node) -> None:
    for _ in range(20):
        wait = node.publisher.step()
        assert 0 <= wait <= LOOKING
        node.now += wait
