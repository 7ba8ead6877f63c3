"""The whole agent on frames of a runtime: placing, losing, coming back."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.pods.fault_injector import Fault, FaultInjector, kubeconfig, pod_object
from tests.agent.small_node import CONFIG, INFO
from tests.agent.whole_agent import NODE, Node, counted, listing, pod, rest, start, until, until_reconciled, whole
from tests.service.otlp_receiver import Receiver, attributes, receiving

from mooring.agent.agent import Agent
from mooring.agent.cgroups.protocol import UnseenCGroups
from mooring.agent.executor import PendingChecks, WorkQueue
from mooring.agent.journal import read_newest
from mooring.agent.nri.plugin import connect_to, given_by
from mooring.agent.nri.types import Event, Loss, LostAnswer, PodSandbox, RemoteError, RuntimeContainer
from mooring.agent.pods.api import KnownPods
from mooring.agent.pods.eviction import CONDITION, EFFECT, TAINT
from mooring.agent.pods.source import CONFIG_SOURCE
from mooring.agent.pods.writer import MOST_TRIES, ClusterWriter
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import AgentState
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import start_kubelet
from mooring.published.objects import state_of
from mooring.published.observation import LiveSource
from mooring.service.logs import Log, open_traces


def test_a_life_of_an_exclusive_and_a_shared_pod_moves_the_shared_one_off_and_back(node: Node) -> None:
    agent, runtime = node.connected()
    shared = start(node, runtime, "shared", 0)
    assert node.cpus(shared) == "0-7"
    own = start(node, runtime, "own", 2)
    assert (node.cpus(own), node.cpus(shared)) == ("1-2", "0,3-7")
    assert (agent.snapshot.overlaps(), node.status["ready"]) == ((), True)
    assert node.status["cpus"]["exclusive"] == "1-2"
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("own"))
    assert node.cpus(shared) == "0-7"


def test_a_killed_agent_comes_back_to_the_same_placement_and_moves_who_came_meanwhile(node: Node) -> None:
    _, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    stray = node.running(whole("stray", 0), "0-7")
    reply = node.restarted(runtime).synchronize([pod("own"), pod("stray")], [own, stray])
    assert [(one.container_id, one.linux.resources.cpu.cpus) for one in reply.update] == [("c-stray", "0,3-7")]
    assert set(node.agents[-1].snapshot.state.containers) == {"c-own", "c-stray"}
    assert node.cpus(own) == "1-2"


def test_a_pod_whose_groups_are_gone_at_two_looks_gives_its_cpus_back(node: Node) -> None:
    agent, runtime = node.connected()
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    node.tree.remove("/pods/own")
    agent.verify_all()
    assert node.status["cpus"]["exclusive"] == "1-2"
    agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.cpus(shared)) == ("", "0-7")
    assert own.id not in [one.get("id") for each in node.status["pods"] for one in each["containers"]]


def test_a_connection_that_breaks_is_made_again_and_everything_is_reported_anew(node: Node) -> None:
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    runtime.close()
    runtime = node.listening.next()
    assert list(runtime.synchronize([pod("own")], [own]).update) == []
    until(lambda: agent.snapshot.runtime.synchronized, "connected again")
    assert agent.metrics.counts().reconnects == 1


def test_a_pod_without_room_is_refused_with_the_kubelets_reason_and_message(node: Node) -> None:
    _, runtime = node.connected()
    with pytest.raises(RemoteError) as raised:
        runtime.create(pod("wide"), whole("wide", 8))
    assert raised.value.message.startswith("UnexpectedAdmissionError: Allocate failed due to not enough cpus available")
    assert [held["name"] for held in node.status["held"]] == ["wide"]
    assert node.status["counts"]["rejections"] == 1


@pytest.mark.parametrize("places", [True, False], ids=["places", "refuses"])
def test_an_agent_whose_folder_cannot_be_written_goes_on_or_refuses_as_it_was_told(node: Node, places: bool) -> None:
    (node.folder / "state").write_text("a file where a folder should be", encoding="utf-8")
    agent, runtime = node.connected(f"placeWhileUnwritable: {str(places).lower()}")
    if places:
        assert node.cpus(start(node, runtime, "own", 2)) == "1-2"
    else:
        with pytest.raises(RemoteError, match="StateUnwritable"):
            runtime.create(pod("own"), whole("own", 2))
    assert any("the state cannot be written" in reason for reason in node.status["reasons"])
    (node.folder / "state").unlink()
    agent.holder.write_again()
    assert node.status["ready"]
    assert read_newest((node.folder / "state" / "journal.json").read_text())[1] == ""


def test_a_cpuset_that_somebody_changed_is_put_right_and_reported(node: Node) -> None:
    agent, runtime = node.connected()
    own, shared = start(node, runtime, "own", 2), start(node, runtime, "shared", 0)
    node.write(own.id, own.cgroups_path, "0-7")
    for _ in range(2):
        agent.verify_all()
        assert (node.cpus(own), agent.metrics.counts().repairs) == ("1-2", 1)
    seen = {one: str(seen.cpus) for one, seen in agent.snapshot.effective.items()}
    assert seen == {own.id: "1-2", shared.id: "0,3-7"}


def test_on_a_simulated_machine_nothing_is_said_to_be_the_kernels_word(node: Node) -> None:
    agent = node.agent(cgroups=UnseenCGroups())
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    agent.verify_all()
    assert agent.snapshot.effective == {}


def test_an_answer_that_came_too_late_is_put_right_by_the_cgroup(node: Node) -> None:
    agent, runtime = node.connected()
    shared = start(node, runtime, "shared", 0)
    runtime.create(pod("own"), whole("own", 2))
    # The runtime had given up, so that it did not do what the answer said.
    agent.listener.lost(LostAnswer("CreateContainer", "c-own", 21.0, Loss.LATE, refused=True))
    assert node.cpus(shared) == "0,3-7"


@pytest.mark.parametrize("ends", ["runtime", "agent"])
def test_an_agent_that_the_runtime_started_talks_over_its_connection_until_one_ends(node: Node, ends: str) -> None:
    ours, theirs = socket.socketpair()
    runtime = RuntimeSide(theirs)
    environment = {"NRI_PLUGIN_SOCKET": str(ours.detach()), "NRI_PLUGIN_NAME": "pinner", "NRI_PLUGIN_IDX": "07"}
    agent = node.agent(given=given_by(environment))
    assert runtime.registered.get(timeout=TIMEOUT) == ("07", "pinner")
    runtime.configure()
    runtime.synchronize()
    assert node.cpus(start(node, runtime, "own", 2)) == "1-2"
    assert not agent.is_over
    if ends == "runtime":
        runtime.close()
    else:
        agent.close()
    until(lambda: agent.is_over, "the agent has nobody to talk to")


def test_a_second_agent_on_a_folder_is_refused_and_leaves_the_first(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.agent()
    monkeypatch.setattr("mooring.agent.store.LOCK_PATIENCE", 0.0)
    with pytest.raises(InputError, match="another agent uses this folder"):
        node.agent()
    assert node.status["kind"] == "AgentStatus"


def test_an_agent_whose_state_is_held_up_has_no_heartbeat(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = node.agent()
    beats: list[str] = []
    monkeypatch.setattr("mooring.agent.agent.HANGING", 0.0)
    monkeypatch.setattr(agent.heartbeat, "beat", lambda: beats.append("beat"))
    release, held = threading.Event(), threading.Event()

    def decide(state: AgentState, _hear: object) -> EventOutcome:
        held.set()
        assert release.wait(TIMEOUT)
        return EventOutcome(state)

    hanging = threading.Thread(target=lambda: agent.holder.apply(decide))
    hanging.start()
    held.wait(TIMEOUT)
    agent.reconcile()
    assert beats == []
    release.set()
    hanging.join(TIMEOUT)
    agent.reconcile()
    assert beats == ["beat"]


def reloaded(node: Node, old: str = "", new: str = "") -> None:
    """Change the agent's file, and let the agent take it up; without an old text the new one comes at the end."""
    file, agent = node.folder / "agent.yaml", node.agents[-1]
    text = file.read_text("utf-8")
    file.write_text(text.replace(old, new) if old else text + new, encoding="utf-8")
    agent.reload()
    agent.reconcile()


def test_another_policy_in_the_file_is_adopted_while_containers_run(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    with caplog.at_level(logging.WARNING, "test"):
        reloaded(node, new="onRejection: evict\nlogLevel: error\n")
    said = [line for line in caplog.records if "instead of evicted" in line.getMessage()]
    assert [line.__dict__["fields"]["about"] for line in said] == ["onRejection"]
    assert agent.snapshot.configuration.generation == 2
    assert agent.holder.state.options.evict
    reloaded(node, '"0"', '"0-1"')
    assert agent.snapshot.configuration.generation == 2
    assert agent.snapshot.configuration.refusal
    assert node.cpus(own) == "1-2"
    more = "---\nkind: MooringConfiguration\napiVersion: mooring/v1alpha1\nextensions: [mixed-cpus, assigned-cpuset]\n"
    reloaded(node, new=more)
    assert agent.snapshot.configuration.refusal.startswith("the extension mixed-cpus needs a restart: ")
    assert not agent.holder.state.kubelet.mooring.extensions


def test_what_the_engine_refuses_late_is_not_said_to_be_in_force(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    agent, runtime = node.connected()
    own = start(node, runtime, "own", 2)
    # The copy that was asked did not have this container yet.
    monkeypatch.setattr("mooring.agent.reload.engine_refusal", lambda _kubelet, _new: "")
    reloaded(node, '"0"\n', '"0-1"\n')
    reloaded(node, new="onRejection: evict\nperContainerMetrics: true\n")
    shown = agent.snapshot.configuration
    assert shown.generation == 1
    assert "reserved" in shown.refusal
    assert not agent.holder.state.options.evict
    assert not agent.metrics.per_container
    assert counted(agent, "configuration_reloads_total", result="refused") == 2
    assert counted(agent, "configuration_reloads_total", result="taken") == 0
    assert node.cpus(own) == "1-2"


# Work that no answer waits for: each check that was asked for is made once, and none is lost.


def test_work_is_done_in_order_and_a_failure_does_not_end_it() -> None:
    done: list[int] = []
    failures: list[Exception] = []
    work = WorkQueue(failures.append)
    work.put(lambda: done.append(1))
    work.put(lambda: 1 // 0)
    work.put(lambda: done.append(2))
    work.start()
    work.finish(60)
    assert done == [1, 2]
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_who_finds_no_room_is_told_so_and_does_not_wait() -> None:
    held = threading.Event()
    work = WorkQueue(lambda _: None, size=1)
    assert work.put(lambda: held.wait(60))
    assert not work.put(lambda: None)
    assert work.dropped == 1
    work.start()
    held.set()
    work.finish(60)


class Watched:
    """A lock that tells whether a thread has had to wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.was_waited_for = False

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.was_waited_for = True
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_who_was_asked_for_is_looked_at_once_whoever_comes_first() -> None:
    made: list[tuple[str, ...]] = []
    checks = PendingChecks(made.append)
    checks.run_all()
    checks.add(("a", "b"))
    checks.add(("c",))
    checks.run_all()
    checks.run(("a", "b"))
    checks.run(("c",))
    assert made == [("a", "b", "c")]


def test_who_is_asked_for_again_while_somebody_looks_is_looked_at_again() -> None:
    made: list[tuple[str, ...]] = []

    def verify(ids: tuple[str, ...]) -> None:
        made.append(ids)
        if len(made) == 1:
            checks.add(("a",))

    checks = PendingChecks(verify)
    checks.add(("a", "b"))
    checks.run(("a", "b"))
    checks.run(("a",))
    assert made == [("a", "b"), ("a",)]


def test_a_look_that_somebody_else_makes_is_waited_for_and_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, ...]] = []
    began, go_on = threading.Event(), threading.Event()
    order: list[str] = []

    def verify(ids: tuple[str, ...]) -> None:
        began.set()
        assert go_on.wait(TIMEOUT)
        made.append(ids)
        order.append("looked")

    def confirm() -> None:
        checks.run_all()
        order.append("confirmed")

    locks: list[Watched] = []

    def lock() -> Watched:
        locks.append(Watched())
        return locks[-1]

    monkeypatch.setattr(f"{PendingChecks.__module__}.Lock", lock)
    checks = PendingChecks(verify)
    checks.add(("a",))
    first = threading.Thread(target=checks.run, args=(("a",),))
    first.start()
    assert began.wait(TIMEOUT)
    second = threading.Thread(target=confirm)
    second.start()
    until(lambda: any(one.was_waited_for for one in locks) or order, "the second waits, or has not waited")
    go_on.set()
    first.join(TIMEOUT)
    second.join(TIMEOUT)
    assert (made, order) == ([("a",)], ["looked", "confirmed"])


def test_a_look_that_fails_is_not_made_for_ever() -> None:
    def verify(_ids: tuple[str, ...]) -> None:
        raise OSError("broken")

    checks = PendingChecks(verify)
    checks.add(("a",))
    with pytest.raises(OSError, match="broken"):
        checks.run(("a",))
    checks.run_all()


# Traces of an agent: one span for each call of the runtime, with the pod, the policies and the decision.


def traced(node: Node, receiver: Receiver) -> tuple[Agent, RuntimeSide]:
    agent = Agent(node.beginning(), Log("test"))
    node.agents.append(agent)
    traces = open_traces("mooring-agent", receiver.environment, pytest.fail)
    assert traces is not None
    agent.trace_calls(traces)
    agent.start()
    runtime = node.listening.next()
    runtime.synchronize()
    until(lambda: agent.snapshot.runtime.synchronized, "the agent was told what runs")
    return agent, runtime


def test_each_call_is_a_span_with_its_pod_and_decision(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        for name, value in receiver.environment.items():
            monkeypatch.setenv(name, value)
        agent, runtime = traced(node, receiver)
        one = start(node, runtime, "web", 2)
        with pytest.raises(Exception, match=r"TopologyAffinity|UnexpectedAdmission"):
            runtime.create(pod("huge"), whole("huge", 64))
        runtime.stop(pod("web"), one)
        agent.close()
        placed, refused = receiver.named("NRI CreateContainer")
        found = attributes(placed)
        assert (found["k8s.namespace.name"], found["k8s.pod.name"]) == ("default", "web")
        assert (found["k8s.container.name"], found["mooring.decision"]) == ("web", "placed")
        assert (found["mooring.cpus"], found["mooring.cpu_manager_policy"]) == (node.cpus(one), "static")
        assert receiver.parts(placed) == ["engine", "write state"]
        assert attributes(refused)["mooring.decision"] == "refused"
        assert refused.status.message.startswith(attributes(refused)["mooring.reason"])
        assert attributes(receiver.named("NRI StopContainer")[0])["k8s.pod.name"] == "web"
        assert len(receiver.named("NRI Synchronize")) == 1
        assert receiver.services == {"mooring-agent"}


# The whole agent beside an API server that comes and goes: pods, taint, events, evictions, annotations.


OURS = {"key": TAINT, "effect": EFFECT}
THEIRS = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}


def agent_in(cluster: FaultInjector, node: Node, more: str = "") -> tuple[Agent, RuntimeSide]:
    return node.connected(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\n{more}")


def closed(node: Node) -> None:
    node.agents.pop().close()


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
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\nfailClosed: true")
    runtime = node.listening.next()
    agent.reconcile()
    assert when_connecting == [[THEIRS, OURS]]
    for _ in range(2):
        runtime.synchronize()
        until_reconciled(agent, lambda: cluster.taints == [THEIRS], "the taint is gone")
        runtime.close()
        until_reconciled(agent, lambda: OURS in cluster.taints, "the taint is back")
        runtime = node.listening.next()
    runtime.synchronize()
    until_reconciled(agent, lambda: OURS not in cluster.taints, "the taint is gone again")
    closed(node)
    assert cluster.taints == [THEIRS, OURS], "who ends leaves the node closed"


def test_the_condition_of_the_node_tells_whether_its_agent_is_ready(cluster: FaultInjector, node: Node) -> None:
    def status() -> str:
        return str(cluster.conditions.get(CONDITION, {}).get("status"))

    cluster.conditions = {"Ready": {"type": "Ready", "status": "True"}}
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\nnodeCondition: true")
    until(lambda: status() == "False", "it is there before the runtime")
    node.listening.next().synchronize()
    until_reconciled(agent, lambda: status() == "True", "the agent is ready")
    closed(node)
    assert status() == "False"
    assert cluster.conditions["Ready"] == {"type": "Ready", "status": "True"}
    assert cluster.taints == []


def test_an_agent_that_cannot_taint_connects_all_the_same(cluster: FaultInjector, node: Node) -> None:
    cluster.fail(f"GET /api/v1/nodes/{NODE}", *[Fault(503)] * 3)
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}\nfailClosed: true")
    node.listening.next()
    until_reconciled(agent, lambda: cluster.taints == [OURS], "the wish is tried until it is so")


def test_without_the_options_nobody_touches_the_node_and_nothing_is_published(
    cluster: FaultInjector, node: Node
) -> None:
    agent, _ = agent_in(cluster, node)
    until(lambda: cluster.asked("list"), "the pods are listed")
    agent.reconcile()
    assert "mooring-publisher" not in [thread.name for thread in threading.enumerate()]
    assert "mooring_publish" not in agent.metrics.text()
    closed(node)
    assert not cluster.asked(STATE)
    assert not cluster.asked(f"GET /api/v1/nodes/{NODE}")


def test_the_api_servers_pod_decides_for_containers_that_are_not_named_yet(cluster: FaultInjector, node: Node) -> None:
    cluster.put(with_init("web"))
    agent, runtime = agent_in(cluster, node)
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
    agent, runtime = node.connected(f"kubeconfig: {kubeconfig(node.folder / 'kubeconfig', port)}")
    pods = agent.pods.api
    assert pods is not None
    runtime.create(in_shop("early"), called("early", "first", 2))
    assert placed(agent, "uid-early") == {"first": "1-2"}, "derived from what the runtime tells"
    with FaultInjector(node=NODE, port=port) as cluster:
        cluster.put(with_init("known"))
        until(lambda: pods.is_live, "pods are heard of")
        runtime.create(in_shop("known"), called("known", "first", 2))
        assert placed(agent, "uid-known") == {"first": "3-4", "app": "3-4"}
        assert placed(agent, "uid-early") == {"first": "1-2"}
    until(lambda: not pods.is_live, "the server is missed")
    runtime.create(in_shop("known"), called("known", "app", 2))
    assert placed(agent, "uid-known") == {"first": "3-4", "app": "3-4"}, "what was known stays"
    runtime.create(in_shop("late"), called("late", "first", 1))
    assert placed(agent, "uid-late") == {"first": "5"}
    with FaultInjector(node=NODE, port=port) as cluster:
        cluster.put(pod_object("known"))
        cluster.put(pod_object("new", "1"))
        until(lambda: pods.is_live, "pods are heard of again")
        runtime.create(in_shop("new"), called("new", "app", 1))
        assert placed(agent, "uid-new") == {"app": "6"}


EVICTION = "POST /api/v1/namespaces/shop/pods/wide/eviction"


@pytest.mark.parametrize("given_up", [0, 1], ids=["evicted", "given-up-first"])
def test_a_rejected_pod_is_evicted_once_and_the_cluster_is_told_why(
    cluster: FaultInjector, node: Node, given_up: int
) -> None:
    cluster.put(pod_object("wide", "8"))
    cluster.fail(EVICTION, *[Fault(429)] * MOST_TRIES * given_up)
    agent, runtime = agent_in(cluster, node, "onRejection: evict")
    writer = agent.outward
    assert isinstance(writer, ClusterWriter)

    def retried() -> None:
        with pytest.raises(RemoteError, match="UnexpectedAdmissionError"):
            runtime.create(in_shop("wide"), called("wide", "app", 8))

    tries = given_up * MOST_TRIES + 1
    if given_up:
        retried()
        until(lambda: len(cluster.asked(EVICTION)) == MOST_TRIES and not writer.evicting, "it is given up")
    retried()
    until(lambda: len(cluster.asked(EVICTION)) == tries, "the pod is evicted")
    for _ in range(3):
        retried()
    rest(node)
    assert writer.wait_until_tried(TIMEOUT)
    assert len(cluster.asked(EVICTION)) == tries, "who is evicted is not asked about again"
    counts = agent.metrics.counts()
    assert (counts.rejections, counts.evictions) == (1, 1)
    assert {one.body["deleteOptions"]["preconditions"]["uid"] for one in cluster.asked(EVICTION)} == {"uid-wide"}
    (told,) = [one.body for one in cluster.asked("POST /apis/events.k8s.io/v1/namespaces/shop/events")]
    assert (told["reason"], told["regarding"]["uid"]) == ("UnexpectedAdmissionError", "uid-wide")
    assert told["reportingInstance"] == f"mooring-agent-{NODE}"


def test_a_manifest_of_the_folder_decides_about_a_static_pod(node: Node) -> None:
    manifests = node.folder / "manifests"
    manifests.mkdir()
    metadata = {"name": "etcd", "namespace": "kube-system"}
    manifest = {**with_init("etcd"), "metadata": metadata, "status": {}}
    (manifests / "etcd.yaml").write_text(json.dumps(manifest), encoding="utf-8")
    agent, runtime = node.connected(f"podManifests: {manifests}")
    sandbox = replace(pod("etcd"), name=f"etcd-{NODE}", namespace="kube-system", annotations={CONFIG_SOURCE: "file"})
    runtime.create(sandbox, called("etcd", "first", 2))
    assert placed(agent, "uid-etcd") == {"first": "1-2", "app": "1-2"}


@pytest.mark.parametrize("known", [True, False], ids=["api", "derived"])
def test_a_pod_keeps_out_of_pinning_by_the_allowed_annotation(cluster: FaultInjector, node: Node, known: bool) -> None:
    annotation = {"mooring/opt-out": "true"}
    if known:
        made = pod_object("free")
        cluster.put({**made, "metadata": {**made["metadata"], "annotations": annotation}})
    agent, runtime = agent_in(cluster, node, "optOutAnnotation: mooring/opt-out")
    reply = runtime.create(in_shop("free", **annotation), called("free", "app", 2))
    assert reply.adjust.linux.resources.cpu.cpus == "0-7"
    assert placed(agent, "uid-free") == {}


# The agent tells the cluster what it has given away, and never lets the runtime wait for that.


STATE = f"PATCH /apis/mooring.dev/v1alpha1/nodestates/{NODE}"


def available(cluster: FaultInjector) -> list[int]:
    return [request.body["status"]["exclusiveCPUs"]["available"] for request in cluster.asked(STATE)]


def test_what_the_runtime_starts_is_published(cluster: FaultInjector, node: Node) -> None:
    agent, runtime = agent_in(cluster, node, "publish: true")
    until(lambda: cluster.asked(STATE), "the empty node is published")
    before = available(cluster)[-1]
    runtime.create(pod("a"), whole("a", 2))
    until(lambda: available(cluster)[-1] == before - 2, "the pod's CPUs are no longer available")
    state = state_of(cluster.asked(STATE)[-1].body)
    assert state.files == agent.holder.state.kubelet.files
    assert [key.uid for key in state.pods] == [*agent.holder.state.kubelet.node.active]
    written = re.compile("^mooring_publish_writes_total ([0-9.]+)$", re.MULTILINE)
    until(lambda: float(written.findall(agent.metrics.text())[0]) >= 2, "both writes are on the agent's page")


def test_server_that_refuses_holds_nobody_up(cluster: FaultInjector, node: Node) -> None:
    cluster.fail(STATE, *[Fault(503)] * 100)
    _, runtime = agent_in(cluster, node, "publish: true")
    until(lambda: cluster.asked(STATE), "it was tried")
    assert runtime.create(pod("a"), whole("a", 2)) is not None


def test_publishing_needs_a_cluster(node: Node) -> None:
    with pytest.raises(InputError, match="publish: needs the API server"):
        node.agent("publish: true")
    with pytest.raises(InputError, match="is not a usable kubeconfig"):
        node.agent(f"kubeconfig: {node.folder / 'none'}\npublish: true")


def test_engines_without_news_are_the_same_observation() -> None:
    def kubelet() -> Kubelet:
        start = start_kubelet(INFO, CONFIG, MooringConfig(), StateTexts())
        assert isinstance(start, Kubelet)
        return start

    present = [kubelet()]
    source = LiveSource(lambda: present[-1], NODE)
    first = source.observe()
    present.append(kubelet())
    assert first is not None
    assert source.observe() is first


# Who is waited for: pods that are just coming, and none of those that Synchronize tells.


def test_pods_are_waited_for_at_creation_only(
    cluster: FaultInjector, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[str, float]] = []
    find = KnownPods.find

    def without_waiting(self: KnownPods, uid: str, patience: float = 0.0) -> Pod | None:
        waits.append((uid, patience))
        return find(self, uid)

    monkeypatch.setattr(KnownPods, "find", without_waiting)
    cluster.put(pod_object("listed"))
    agent = node.agent(f"kubeconfig: {cluster.kubeconfig(node.folder / 'kubeconfig')}")
    runtime = node.listening.next()
    names = [f"unknown{number}" for number in range(30)]
    runtime.synchronize(*listing(*(node.running(whole(name, 0), "0-7") for name in names)))
    assert {patience for _, patience in waits} <= {0.0}
    assert len(agent.holder.state.kubelet.node.active) == 30, "all of them were derived"
    waits.clear()
    runtime.create(pod("coming"), whole("coming", 1))
    assert waits[0][0] == "uid-coming"
    assert waits[0][1] > 0
