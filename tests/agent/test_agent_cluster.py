"""The whole agent beside an API server that comes and goes: pods, taint, events, evictions, annotations."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.pods.fault_injector import Fault, FaultInjector, kubeconfig, pod_object
from tests.agent.small_node import CONFIG, INFO
from tests.agent.whole_agent import NODE, Node, pod, until, whole

from mooring.agent.agent import Agent
from mooring.agent.eviction import CONDITION, EFFECT, TAINT
from mooring.agent.nri.plugin import connect_to
from mooring.agent.nri.types import PodSandbox, RemoteError, RuntimeContainer
from mooring.agent.pods.api import KnownPods
from mooring.agent.pods.source import CONFIG_SOURCE
from mooring.agent.pods.writer import MOST_TRIES, ClusterWriter
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.published.objects import state_of
from mooring.published.publisher import LiveSource

OURS = {"key": TAINT, "effect": EFFECT}
THEIRS = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("service.following", "agent.pods.writer"):
        monkeypatch.setattr(f"mooring.{module}.pause_before", lambda _tries, _node: 0.01)


@pytest.fixture
def cluster() -> Iterator[FaultInjector]:
    with FaultInjector(node=NODE) as one:
        yield one


def agent_in(cluster: FaultInjector, node: Node, more: str = "") -> Agent:
    return node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\n{more}")


def connected(node: Node) -> RuntimeSide:
    runtime = node.listening.next()
    runtime.synchronize()
    return runtime


def in_shop(name: str, **annotations: str) -> PodSandbox:
    return replace(pod(name), namespace="shop", annotations=annotations)


def called(name: str, container: str, cpus: int) -> RuntimeContainer:
    return replace(whole(name, cpus), id=f"c-{name}-{container}", name=container)


def with_init(name: str) -> dict[str, Any]:
    """Return a pod whose init container and app need CPUs of their own; a runtime tells neither from the other."""
    made = pod_object(name)
    spec = made["spec"]
    first = {**spec["containers"][0], "name": "first"}
    return {**made, "spec": {**spec, "initContainers": [first]}}


def placed(agent: Agent, uid: str) -> dict[str, str]:
    """Return the containers of a pod that the engine gave CPUs, those included that the runtime has not named."""
    given = agent.holder.state.kubelet.node.cpu.assignments.get(uid, {})
    return {name: str(CPUSet(mask)) for name, mask in given.items()}


def test_the_taint_is_there_before_the_agent_connects_and_goes_when_it_is_ready_and_comes_back(
    cluster: FaultInjector, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.taints = [THEIRS]
    when_connecting: list[list[dict[str, Any]]] = []

    def connect(path: str) -> socket.socket:
        when_connecting.append(cluster.taints)
        return connect_to(path)

    monkeypatch.setattr("mooring.agent.agent.connect_to", connect)
    agent = agent_in(cluster, node, "failClosed: true")
    runtime = node.listening.next()
    agent.reconcile()
    assert when_connecting == [[THEIRS, OURS]]
    runtime.synchronize()
    until(lambda: agent.snapshot.runtime.synchronized, "everything is told")
    agent.reconcile()
    until(lambda: cluster.taints == [THEIRS], "the taint is gone")
    runtime.close()
    until(lambda: not agent.snapshot.runtime.connected, "the runtime is away")
    agent.reconcile()
    until(lambda: OURS in cluster.taints, "the taint is back")
    connected(node)
    until(lambda: agent.snapshot.runtime.synchronized, "everything is told again")
    agent.reconcile()
    until(lambda: OURS not in cluster.taints, "the taint is gone again")
    node.agents.remove(agent)
    agent.close()
    assert cluster.taints == [THEIRS, OURS], "who ends leaves the node closed"


def test_the_condition_of_the_node_tells_whether_its_agent_is_ready(cluster: FaultInjector, node: Node) -> None:
    cluster.conditions = {"Ready": {"type": "Ready", "status": "True"}}
    agent = agent_in(cluster, node, "nodeCondition: true")
    until(lambda: cluster.conditions.get(CONDITION, {}).get("status") == "False", "it is there before the runtime")
    node.listening.next().synchronize()
    until(lambda: agent.snapshot.runtime.synchronized, "everything is told")
    agent.reconcile()
    until(lambda: cluster.conditions[CONDITION]["status"] == "True", "the agent is ready")
    node.agents.remove(agent)
    agent.close()
    assert cluster.conditions[CONDITION]["status"] == "False"
    assert cluster.conditions["Ready"] == {"type": "Ready", "status": "True"}
    assert cluster.taints == []


def test_an_agent_that_cannot_taint_connects_all_the_same(cluster: FaultInjector, node: Node) -> None:
    cluster.fail(f"GET /api/v1/nodes/{NODE}", *[Fault(503)] * 3)
    agent = agent_in(cluster, node, "failClosed: true")
    node.listening.next()
    agent.reconcile()
    until(lambda: cluster.taints == [OURS], "the wish is tried until it is so")


def test_without_fail_closed_nobody_touches_the_node(cluster: FaultInjector, node: Node) -> None:
    agent = agent_in(cluster, node)
    connected(node)
    agent.reconcile()
    node.agents.remove(agent)
    agent.close()
    assert not cluster.asked(f"GET /api/v1/nodes/{NODE}")


def test_the_pod_of_the_api_server_decides_for_containers_that_the_runtime_has_not_named_yet(
    cluster: FaultInjector, node: Node
) -> None:
    cluster.put(with_init("web"))
    agent = agent_in(cluster, node)
    runtime = connected(node)
    runtime.create(in_shop("web"), called("web", "first", 2))
    assert placed(agent, "uid-web") == {"first": "1-2", "app": "1-2"}


@pytest.fixture
def port() -> Iterator[int]:
    """A port on which nobody listens, and that nobody else is given meanwhile, not even for an end of a connection."""
    with socket.socket() as kept:
        # The server may have it beside this one, because it says the same.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        yield kept.getsockname()[1]


def test_the_agent_lives_through_an_api_server_that_is_away_at_the_start_and_away_again(node: Node, port: int) -> None:
    agent = node.agent(f"kubeconfig: {kubeconfig(node.folder / 'kubeconfig', port)}")
    runtime = connected(node)
    runtime.create(in_shop("early"), called("early", "first", 2))
    assert placed(agent, "uid-early") == {"first": "1-2"}, "derived from what the runtime tells"
    with FaultInjector(node=NODE, port=port) as cluster:
        cluster.put(with_init("known"))
        until(lambda: agent.cluster.api is not None and agent.cluster.api.is_live, "pods are heard of")
        runtime.create(in_shop("known"), called("known", "first", 2))
        assert placed(agent, "uid-known") == {"first": "3-4", "app": "3-4"}
        assert placed(agent, "uid-early") == {"first": "1-2"}
    until(lambda: agent.cluster.api is not None and not agent.cluster.api.is_live, "the server is missed")
    runtime.create(in_shop("known"), called("known", "app", 2))
    assert placed(agent, "uid-known") == {"first": "3-4", "app": "3-4"}, "what was known stays"
    runtime.create(in_shop("late"), called("late", "first", 1))
    assert placed(agent, "uid-late") == {"first": "5"}
    with FaultInjector(node=NODE, port=port) as cluster:
        cluster.put(pod_object("known"))
        cluster.put(pod_object("new", "1"))
        until(lambda: agent.cluster.api is not None and agent.cluster.api.is_live, "pods are heard of again")
        runtime.create(in_shop("new"), called("new", "app", 1))
        assert placed(agent, "uid-new") == {"app": "6"}


def test_a_rejected_pod_is_evicted_and_the_cluster_is_told_why(cluster: FaultInjector, node: Node) -> None:
    cluster.put(pod_object("wide", "8"))
    agent = agent_in(cluster, node, "onRejection: evict")
    runtime = connected(node)
    for _ in range(3):
        with pytest.raises(RemoteError, match="UnexpectedAdmissionError"):
            runtime.create(in_shop("wide"), called("wide", "app", 8))
    path = "POST /api/v1/namespaces/shop/pods/wide/eviction"
    event = "POST /apis/events.k8s.io/v1/namespaces/shop/events"
    until(lambda: cluster.asked(path) and cluster.asked(event), "eviction and event")
    until(lambda: agent.metrics.counts().evictions == 1, "the one eviction that happened is counted")
    all_is_tried(agent)
    assert agent.metrics.counts().evictions == 1
    assert [one.body["deleteOptions"]["preconditions"]["uid"] for one in cluster.asked(path)] == ["uid-wide"]
    (told,) = [one.body for one in cluster.asked(event)]
    assert (told["reason"], told["regarding"]["uid"]) == ("UnexpectedAdmissionError", "uid-wide")
    assert told["reportingInstance"] == f"mooring-agent-{NODE}"


def all_is_tried(agent: Agent) -> ClusterWriter:
    """Wait until the agent has told the cluster everything that it wanted to so far, or has tried to."""
    writer = agent.cluster.outward
    assert isinstance(writer, ClusterWriter)
    passed_on = threading.Event()
    agent.work.put(passed_on.set)
    assert passed_on.wait(TIMEOUT)
    assert writer.wait_until_tried(TIMEOUT)
    return writer


def test_an_eviction_that_failed_for_a_while_is_asked_for_again_at_the_next_try(
    cluster: FaultInjector, node: Node
) -> None:
    path = "POST /api/v1/namespaces/shop/pods/wide/eviction"
    cluster.put(pod_object("wide", "8"))
    cluster.fail(path, *[Fault(429)] * MOST_TRIES)
    agent = agent_in(cluster, node, "onRejection: evict")
    runtime = connected(node)

    def retried() -> None:
        with pytest.raises(RemoteError, match="UnexpectedAdmissionError"):
            runtime.create(in_shop("wide"), called("wide", "app", 8))

    retried()
    writer = agent.cluster.outward
    assert isinstance(writer, ClusterWriter)
    until(lambda: len(cluster.asked(path)) == MOST_TRIES and not writer.evicting, "it is given up")
    retried()
    until(lambda: len(cluster.asked(path)) == MOST_TRIES + 1, "the pod is evicted")
    for _ in range(3):
        retried()
    all_is_tried(agent)
    assert len(cluster.asked(path)) == MOST_TRIES + 1, "who is evicted is not asked about again"
    counts = agent.metrics.counts()
    assert (counts.rejections, counts.evictions) == (1, 1)


def test_a_manifest_of_the_folder_decides_about_a_static_pod(node: Node) -> None:
    manifests = node.folder / "manifests"
    manifests.mkdir()
    manifest = with_init("etcd")
    metadata = {"name": "etcd", "namespace": "kube-system"}
    (manifests / "etcd.yaml").write_text(json.dumps({**manifest, "metadata": metadata, "status": {}}), encoding="utf-8")
    agent = node.agent(f"podManifests: {manifests}")
    runtime = connected(node)
    sandbox = replace(pod("etcd"), name=f"etcd-{NODE}", namespace="kube-system", annotations={CONFIG_SOURCE: "file"})
    runtime.create(sandbox, called("etcd", "first", 2))
    assert placed(agent, "uid-etcd") == {"first": "1-2", "app": "1-2"}


@pytest.mark.parametrize("known", [True, False], ids=["api", "derived"])
def test_a_pod_keeps_out_of_pinning_by_the_annotation_that_the_operator_allows(
    cluster: FaultInjector, node: Node, known: bool
) -> None:
    annotation = {"mooring/opt-out": "true"}
    if known:
        made = pod_object("free")
        cluster.put({**made, "metadata": {**made["metadata"], "annotations": annotation}})
    agent = agent_in(cluster, node, "optOutAnnotation: mooring/opt-out")
    runtime = connected(node)
    reply = runtime.create(in_shop("free", **annotation), called("free", "app", 2))
    assert reply.adjust.linux.resources.cpu.cpus == "0-7"
    assert placed(agent, "uid-free") == {}
    runtime.create(in_shop("other", **{"mooring/opt-out": "yes"}), called("other", "app", 2))
    assert placed(agent, "uid-other") == {"app": "1-2"}, "any other value is none"


def test_without_the_operators_word_the_annotation_means_nothing(cluster: FaultInjector, node: Node) -> None:
    agent = agent_in(cluster, node)
    runtime = connected(node)
    runtime.create(in_shop("free", **{"mooring/opt-out": "true"}), called("free", "app", 2))
    assert placed(agent, "uid-free") == {"app": "1-2"}


# The agent tells the cluster what it has given away, and never lets the runtime wait for that.


STATE = f"PATCH /apis/mooring.dev/v1alpha1/nodestates/{NODE}"


def available(cluster: FaultInjector) -> list[int]:
    return [request.body["status"]["exclusiveCPUs"]["available"] for request in cluster.asked(STATE)]


def test_what_the_runtime_starts_is_published(cluster: FaultInjector, node: Node) -> None:
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\npublish: true")
    runtime = node.listening.next()
    runtime.synchronize()
    until(lambda: cluster.asked(STATE), "the empty node is published")
    before = available(cluster)[-1]
    runtime.create(pod("a"), whole("a", 2))
    until(lambda: available(cluster)[-1] == before - 2, "the pod's CPUs are no longer available")
    state = state_of(cluster.asked(STATE)[-1].body)
    assert state.files == agent.holder.state.kubelet.files
    assert [key.uid for key in state.pods] == [*agent.holder.state.kubelet.node.active]
    until(lambda: writes(agent.metrics.text()) >= 2, "both writes are counted on the agent's page")


def writes(page: str) -> float:
    [line] = [line for line in page.splitlines() if line.startswith("mooring_publish_writes_total ")]
    return float(line.split()[1])


def test_server_that_refuses_holds_nobody_up(cluster: FaultInjector, node: Node) -> None:
    cluster.fail(STATE, *[Fault(503)] * 100)
    node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\npublish: true")
    runtime = node.listening.next()
    runtime.synchronize()
    until(lambda: cluster.asked(STATE), "it was tried")
    assert runtime.create(pod("a"), whole("a", 2)) is not None


def test_without_the_option_nothing_is_published(cluster: FaultInjector, node: Node) -> None:
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    node.listening.next().synchronize()
    until(lambda: cluster.asked("list"), "the pods are listed")
    assert "mooring-publisher" not in [thread.name for thread in threading.enumerate()]
    assert not cluster.asked(STATE)
    assert "mooring_publish" not in agent.metrics.text()


def test_publishing_needs_a_cluster(node: Node) -> None:
    with pytest.raises(InputError, match="publish: needs the API server"):
        node.agent("publish: true")
    with pytest.raises(InputError, match="is not a usable kubeconfig"):
        node.agent(f"kubeconfig: {node.folder / 'none'}\npublish: true")


def kubelet(**more: Any) -> Kubelet:
    start = start_kubelet(INFO, CONFIG, MooringConfig(), StateTexts(**more))
    assert isinstance(start, Kubelet)
    return start


def test_engines_without_news_are_the_same_observation() -> None:
    present = [kubelet()]
    source = LiveSource(lambda: present[-1], NODE)
    first = source.observe()
    present.append(kubelet())
    assert first is not None
    assert source.observe() is first


# Who is waited for: pods that are just coming, and none of those that Synchronize tells.


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Uids that are asked for with the patience for each; nobody waits."""
    asked: list[tuple[str, float]] = []
    find = KnownPods.find

    def without_waiting(self: KnownPods, uid: str, patience: float = 0.0) -> Pod | None:
        asked.append((uid, patience))
        return find(self, uid)

    monkeypatch.setattr(KnownPods, "find", without_waiting)
    return asked


def test_pods_of_synchronize_are_waited_for_by_nobody_and_one_that_is_created_is(
    cluster: FaultInjector, node: Node, waits: list[tuple[str, float]]
) -> None:
    cluster.put(pod_object("listed"))
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    runtime = node.listening.next()
    names = [f"unknown{number}" for number in range(30)]
    runtime.synchronize([pod(name) for name in names], [node.running(whole(name, 0), "0-7") for name in names])
    assert {patience for _, patience in waits} <= {0.0}
    assert len(agent.holder.state.kubelet.node.active) == 30, "all of them were derived"
    waits.clear()
    runtime.create(pod("coming"), whole("coming", 1))
    assert waits[0][0] == "uid-coming"
    assert waits[0][1] > 0
