"""What the publisher writes and when, what it counts, and when it has waiting pods tried again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector
from tests.plans import started_kubelet
from tests.values import not_none

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.machines.compact import parse_compact
from mooring.published.facts_document import facts_of
from mooring.published.objects import state_of
from mooring.published.observation import EngineObserver, Observation
from mooring.published.publisher import LOOKING, Pace, Publisher
from mooring.service.apiserver import Cluster, ClusterError, cluster_of

NODE = "node-1"
FACTS = "POST /apis/mooring.dev/v1alpha1/nodefacts"
STATE = f"PATCH /apis/mooring.dev/v1alpha1/nodestates/{NODE}"
TOPOLOGY = f"PATCH /apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/{NODE}"
MACHINE = parse_compact("cores=8 memory=8Gi").info
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
BEGAN = 1_700_000_000.0


@dataclass
class Node:
    """A node that a test changes, a publisher of it, and a clock that stands still."""

    cluster: FaultInjector
    kubelet: Kubelet = field(default_factory=lambda: started_kubelet(MACHINE, CONFIG))
    observer: EngineObserver = field(default_factory=lambda: EngineObserver(NODE))
    now: float = 1000.0
    pace: Pace = field(default_factory=Pace)
    told: list[Finding] = field(default_factory=list)
    problem: str = ""
    computed: float = 0.0
    """CPU seconds of the publisher's thread."""
    opened: list[Cluster] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.seen = self.observer.observe(self.kubelet)
        self.publisher = Publisher(
            lambda: self.observe(),  # noqa: PLW0108 - a test may replace it
            self.connect,
            NODE,
            pace=self.pace,
            cpu=lambda: self.computed,
            report=self.told.append,
            clock=lambda: self.now,
            today=lambda: BEGAN + self.now,
        )

    def connect(self) -> Cluster:
        self.opened.append(cluster_of(self.cluster.config()))
        return self.opened[-1]

    def observe(self) -> Observation:
        if self.problem:
            raise MooringError(self.problem)
        return self.seen

    def admit(self, uid: str) -> None:
        self.kubelet, decision = self.kubelet.admit(Pod.of(uid, cpu=1, memory="1Mi"))
        assert decision.admitted
        self.seen = self.observer.observe(self.kubelet)

    def remove(self, uid: str) -> None:
        self.kubelet, _ = self.kubelet.remove(f"default/{uid}")
        self.seen = self.observer.observe(self.kubelet)

    def let_pass(self, seconds: float) -> None:
        """Do what the loop does for a while."""
        end = self.now + seconds
        while True:
            wait = self.publisher.step()
            assert 0 <= wait <= LOOKING
            if self.now + wait > end:
                self.now = end
                return
            self.now += wait

    def written(self, what: str = STATE) -> list[Any]:
        return [request.body for request in self.cluster.asked(what)]


@contextmanager
def publishing(pace: Pace) -> Iterator[Node]:
    with FaultInjector(node=NODE) as cluster:
        one = Node(cluster, pace=pace)
        yield one
        one.publisher.close()


@pytest.fixture
def node() -> Iterator[Node]:
    with publishing(Pace()) as one:
        yield one


@pytest.fixture
def waking() -> Iterator[Node]:
    with publishing(Pace(waking=5.0)) as one:
        yield one


def test_everything_is_written_soon_after_the_beginning_facts_before_the_state_that_names_them(node: Node) -> None:
    node.let_pass(1.0)
    order = [request.what for request in node.cluster.requests if request.method != "GET"]
    assert order == [FACTS, STATE, TOPOLOGY]
    (request,) = node.cluster.asked(STATE)
    assert request.query == {"fieldManager": "mooring", "force": "true"}
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


def test_burst_of_changes_is_one_write(node: Node) -> None:
    node.let_pass(10.0)
    for uid in "abcde":
        node.admit(uid)
        node.let_pass(0.03)
    node.let_pass(10.0)
    assert [body["status"]["exclusiveCPUs"]["available"] for body in node.written()] == [7, 2]
    assert len(node.written(TOPOLOGY)) == 2
    assert len(node.written(FACTS)) == 1
    assert node.publisher.writes == 2


def test_nothing_is_written_while_nothing_changes_but_the_heartbeat(node: Node) -> None:
    node.let_pass(299.0)
    assert len(node.written()) == 1
    node.let_pass(400.0)
    counts = node.publisher
    assert (counts.writes, counts.bursts, counts.changes) == (3, 1, 1)
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


@pytest.mark.parametrize(
    ("what", "status"),
    [(f"GET /api/v1/nodes/{NODE}", 403), (f"GET /api/v1/nodes/{NODE}", 404), (FACTS, 409)],
    ids=["a node that may not be read has no owner", "nor has one that is missing", "facts that are there already"],
)
def test_answers_that_are_fine_are_not_reported(node: Node, what: str, status: int) -> None:
    node.cluster.fail(what, Fault(status))
    node.let_pass(1.0)
    (state,) = node.written()
    assert "ownerReferences" not in state["metadata"] or what == FACTS
    assert not node.told


@pytest.mark.parametrize("what", [FACTS, STATE, TOPOLOGY], ids=["facts", "state", "topology"])
def test_write_that_fails_is_done_again_as_a_whole(node: Node, what: str) -> None:
    node.cluster.fail(what, Fault(503), Fault(500))
    node.let_pass(10.0)
    assert len(node.written(what)) == 3
    assert node.written(STATE)[-1]["spec"] == node.written(STATE)[0]["spec"]
    assert [finding.severity for finding in node.told] == ["warning", "warning", "info"]
    assert node.publisher.writes == 1


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [(Fault(429, retry_after="30"), 29.0), (Fault(401), 0.5)],
    ids=["the server is left alone as long as it wishes", "credentials are read anew after a refusal"],
)
def test_after_a_refusal_the_server_is_asked_again_over_a_new_way(node: Node, fault: Fault, seconds: float) -> None:
    node.cluster.fail(STATE, fault)
    node.let_pass(seconds)
    assert len(node.written()) == 1
    node.let_pass(4.0)
    assert (len(node.opened), len(node.written())) == (2, 2)


def test_server_that_is_away_is_asked_less_and_less_and_gets_the_newest_state(node: Node) -> None:
    node.cluster.fail(STATE, *[Fault(503)] * 8)
    node.let_pass(60.0)
    assert len(node.written()) <= 8
    node.admit("a")
    node.let_pass(60.0)
    assert node.written()[-1]["status"]["exclusiveCPUs"]["available"] == 6
    assert all(cluster.http.is_closed for cluster in node.opened[:-1])


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
    assert values(node)["mooring_publish_blind_looks_total"] >= 2
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


def test_once_writes_and_wakes_and_tells_its_failure(waking: Node) -> None:
    waking.publisher.once()
    assert len(waking.written()) == len(waking.written(TOPOLOGY)) == len(woken(waking)) == 1
    waking.cluster.fail(STATE, Fault(403))
    with pytest.raises(ClusterError, match="403"):
        waking.publisher.once()


# Counts, and when pods that wait are tried again.


WAKE = f"PATCH /api/v1/nodes/{NODE}"


def woken(node: Node) -> list[str]:
    return [body["metadata"]["annotations"]["mooring.dev/room"] for body in node.written(WAKE)]


def test_nobody_is_woken_unless_it_is_asked_for(node: Node) -> None:
    node.admit("a")
    node.let_pass(10.0)
    node.remove("a")
    node.let_pass(10.0)
    assert len(node.written()) == 2
    assert not node.written(WAKE)


def test_more_room_wakes_after_it_is_published_and_less_room_does_not(waking: Node) -> None:
    waking.let_pass(10.0)
    (request,) = waking.cluster.asked(WAKE)
    assert request.body == {"metadata": {"annotations": {"mooring.dev/room": woken(waking)[0]}}}, "and nothing else"
    assert len(woken(waking)) == 1, "what was there before the first state is not known"
    waking.admit("a")
    waking.let_pass(10.0)
    assert len(woken(waking)) == 1
    waking.remove("a")
    waking.let_pass(10.0)
    assert len(woken(waking)) == 2
    assert woken(waking)[-1] == str(waking.written()[-1]["spec"]["sequence"])
    order = [request.what for request in waking.cluster.requests if request.what in (STATE, WAKE)]
    assert order[-2:] == [STATE, WAKE]
    assert waking.publisher.wakes == 2


def test_changes_without_end_are_written_once_a_second_and_wake_every_five_seconds_at_most(waking: Node) -> None:
    for number in range(100):
        if number % 2:
            waking.remove("a")
        else:
            waking.admit("a")
        waking.let_pass(0.7)
    assert 55 <= len(waking.written()) <= 71
    assert 10 <= len(woken(waking)) <= 14


def test_room_that_grew_while_nobody_could_be_woken_is_told_later(waking: Node) -> None:
    waking.admit("a")
    waking.let_pass(1.0)
    waking.remove("a")
    waking.let_pass(2.0)
    assert len(waking.written()) == 2
    assert len(woken(waking)) == 1
    waking.let_pass(4.0)
    assert len(woken(waking)) == 2


def test_a_refusal_is_reported_and_tried_again_and_holds_up_no_state(waking: Node) -> None:
    waking.cluster.fail(WAKE, Fault(403))
    waking.let_pass(2.0)
    assert waking.publisher.wakes == 0
    (told,) = waking.told
    assert told.severity == "warning"
    assert "waiting pods tried again is not written" in told.message
    waking.admit("a")
    waking.let_pass(2.0)
    assert len(waking.written()) == 2
    waking.let_pass(4.0)
    assert waking.publisher.wakes == 1


def values(node: Node) -> dict[str, float]:
    lines = node.publisher.text().decode().splitlines()
    return {name: float(value) for name, value in (line.split() for line in lines if not line.startswith("#"))}


def test_the_page_has_the_counts_and_the_age_of_the_last_write_once_there_was_one(node: Node) -> None:
    age = "mooring_publish_last_write_age_seconds"
    assert age not in values(node)
    node.let_pass(1.0)
    node.now = not_none(node.publisher.written_at) + 77.5
    assert values(node)[age] == 77.5
    node.cluster.fail(STATE, Fault(503))
    node.admit("a")
    node.let_pass(4.0)
    assert values(node) == {
        "mooring_publish_changes_total": 2,
        "mooring_publish_writes_total": 2,
        "mooring_publish_failures_total": 1,
        "mooring_publish_blind_looks_total": 0,
        "mooring_publish_wakes_total": 0,
        age: node.now - not_none(node.publisher.written_at),
        "mooring_publish_change_cpu_seconds_count": 2,
        "mooring_publish_change_cpu_seconds_sum": 0,
    }


def test_the_cpu_time_of_a_burst_is_for_seeing_and_writing_it(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.let_pass(5.0)
    before = node.publisher.burst_cpu, node.publisher.bursts
    observe = node.observe

    def costly() -> Observation:
        node.computed += 0.25
        return observe()

    # Every observation costs a quarter of a second.
    monkeypatch.setattr(node, "observe", costly)
    node.let_pass(5.0)
    assert (node.publisher.burst_cpu, node.publisher.bursts) == before, "nothing has changed"
    node.admit("a")
    node.let_pass(0.1)
    node.admit("b")
    node.let_pass(5.0)
    assert node.publisher.bursts == before[1] + 1
    assert node.publisher.burst_cpu == before[0] + 0.5
