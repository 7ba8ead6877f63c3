"""The whole agent on frames of a runtime: placing, losing, coming back."""

from __future__ import annotations

import logging
import socket
import threading

import pytest
from tests.agent.nri.runtime_side import TIMEOUT, RuntimeSide
from tests.agent.whole_agent import Node, pod, start, until, whole
from tests.service.otlp_receiver import Receiver, attributes, receiving

from mooring.agent.agent import Agent
from mooring.agent.cgroups.protocol import UnseenCGroups
from mooring.agent.executor import PendingChecks, WorkQueue
from mooring.agent.journal import read_newest
from mooring.agent.nri.plugin import given_by
from mooring.agent.nri.types import Event, Loss, LostAnswer, RemoteError
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.state import AgentState
from mooring.engine.core.errors import InputError
from mooring.service.logs import Log, open_traces


def test_a_life_of_an_exclusive_and_a_shared_pod_moves_the_shared_one_off_and_back(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
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
    node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    runtime.close()
    stray = node.running(whole("stray", 0), "0-7")
    again = node.agent()
    runtime = node.listening.next()
    reply = runtime.synchronize([pod("own"), pod("stray")], [own, stray])
    assert [(one.container_id, one.linux.resources.cpu.cpus) for one in reply.update] == [("c-stray", "0,3-7")]
    assert set(again.snapshot.state.containers) == {"c-own", "c-stray"}
    assert node.cpus(own) == "1-2"


def test_a_pod_whose_groups_are_gone_at_two_looks_gives_its_cpus_back(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    node.tree.remove("/pods/own")
    agent.verify_all()
    assert node.status["cpus"]["exclusive"] == "1-2"
    agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.cpus(shared)) == ("", "0-7")
    assert own.id not in [one.get("id") for each in node.status["pods"] for one in each["containers"]]


def test_a_connection_that_breaks_is_made_again_and_everything_is_reported_anew(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    runtime.close()
    runtime = node.listening.next()
    assert list(runtime.synchronize([pod("own")], [own]).update) == []
    until(lambda: agent.snapshot.runtime.synchronized, "connected again")
    assert agent.metrics.counts().reconnects == 1


def test_a_pod_without_room_is_refused_with_the_kubelets_reason_and_message(node: Node) -> None:
    node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    with pytest.raises(RemoteError) as raised:
        runtime.create(pod("wide"), whole("wide", 8))
    assert raised.value.message.startswith("UnexpectedAdmissionError: Allocate failed due to not enough cpus available")
    assert [held["name"] for held in node.status["held"]] == ["wide"]
    assert node.status["counts"]["rejections"] == 1


@pytest.mark.parametrize("places", [True, False], ids=["places", "refuses"])
def test_an_agent_whose_folder_cannot_be_written_goes_on_or_refuses_as_it_was_told(node: Node, places: bool) -> None:
    (node.folder / "state").write_text("a file where a folder should be", encoding="utf-8")
    agent = node.agent(f"placeWhileUnwritable: {str(places).lower()}")
    runtime = node.listening.next()
    runtime.synchronize()
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
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.write(own.id, own.cgroups_path, "0-7")
    agent.verify_all()
    assert node.cpus(own) == "1-2"
    assert agent.metrics.counts().repairs == 1
    agent.verify_all()
    assert agent.metrics.counts().repairs == 1


def test_the_snapshot_has_what_the_kernel_shows(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own, shared = start(node, runtime, "own", 2), start(node, runtime, "shared", 0)
    agent.verify_all()
    assert {one: str(seen.cpus) for one, seen in agent.snapshot.effective.items()} == {
        own.id: "1-2",
        shared.id: "0,3-7",
    }


def test_on_a_simulated_machine_nothing_is_said_to_be_the_kernels_word(node: Node) -> None:
    agent = node.agent(cgroups=UnseenCGroups())
    runtime = node.listening.next()
    runtime.synchronize()
    start(node, runtime, "own", 2)
    agent.verify_all()
    assert agent.snapshot.effective == {}


def test_an_answer_that_came_too_late_is_put_right_by_the_cgroup(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    shared = start(node, runtime, "shared", 0)
    runtime.create(pod("own"), whole("own", 2))
    # The runtime had given up, so that it did not do what the answer said.
    agent.listener.lost(LostAnswer("CreateContainer", "c-own", 21.0, Loss.LATE, refused=True))
    assert node.cpus(shared) == "0,3-7"


@pytest.mark.parametrize("ends", ["runtime", "agent"])
def test_an_agent_that_the_runtime_started_talks_over_the_given_connection_until_one_ends(
    node: Node, ends: str
) -> None:
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


def test_a_second_agent_on_the_same_folder_is_refused_and_leaves_the_first_alone(
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


def test_another_policy_in_the_file_is_taken_up_while_containers_run(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    file = node.folder / "agent.yaml"
    file.write_text(file.read_text() + "onRejection: evict\nlogLevel: error\n", encoding="utf-8")
    with caplog.at_level(logging.WARNING, "test"):
        agent.reload()
        agent.reconcile()
    said = [line for line in caplog.records if "instead of evicted" in line.getMessage()]
    assert [line.__dict__["fields"]["about"] for line in said] == ["onRejection"]
    assert agent.snapshot.configuration.generation == 2
    assert agent.holder.state.options.evict
    file.write_text(file.read_text().replace('"0"', '"0-1"'), encoding="utf-8")
    agent.reload()
    agent.reconcile()
    assert agent.snapshot.configuration.generation == 2
    assert agent.snapshot.configuration.refusal
    assert node.cpus(own) == "1-2"


def test_what_the_engine_refuses_at_the_last_moment_is_not_said_to_be_in_force(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    # The copy that was asked did not have this container yet.
    monkeypatch.setattr("mooring.agent.reload.engine_refusal", lambda _kubelet, _new: "")
    file = node.folder / "agent.yaml"
    more = file.read_text().replace('"0"', '"0-1"') + "onRejection: evict\nperContainerMetrics: true\n"
    file.write_text(more, encoding="utf-8")
    agent.reload()
    agent.reconcile()
    shown = agent.snapshot.configuration
    assert shown.generation == 1
    assert "reserved" in shown.refusal
    assert not agent.holder.state.options.evict
    assert not agent.metrics.per_container
    assert 'mooring_agent_configuration_reloads_total{result="refused"} 1.0' in agent.metrics.text()
    assert 'mooring_agent_configuration_reloads_total{result="taken"} 0.0' in agent.metrics.text()
    assert node.cpus(own) == "1-2"


def test_an_extension_that_changes_how_pods_are_read_is_not_taken_up_by_half(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
    file = node.folder / "agent.yaml"
    more = "---\nkind: MooringConfiguration\napiVersion: mooring/v1alpha1\nextensions: [mixed-cpus, assigned-cpuset]\n"
    file.write_text(file.read_text() + more, encoding="utf-8")
    agent.reload()
    agent.reconcile()
    assert agent.snapshot.configuration.refusal.startswith("the extension mixed-cpus needs a restart: ")
    assert not agent.holder.state.kubelet.mooring.extensions


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
