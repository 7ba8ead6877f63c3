"""What the runtime leaves out of Synchronize keeps its place as long as its programs run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.small_node import (
    CONFIG,
    container,
    create,
    effects_of,
    findings,
    guaranteed,
    resizable,
    running,
    sandbox,
    shared,
    small_state,
    stored,
    writes,
)
from tests.agent.whole_agent import Node, pod, start, whole

from mooring.agent.agent import Agent
from mooring.agent.effects import AgentReport, ReportKind, WriteCPUSet
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.types import ContainerState, Event, LinuxResources, RuntimeContainer
from mooring.agent.reactor.containers import as_requested, unlisted
from mooring.agent.reactor.lifecycle import end_missing_sandboxes, state_change
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.reactor.synchronize import synchronize, unknown_pods
from mooring.agent.state import AgentState, LastSeen, Phase
from mooring.engine.core.bits import list_text


def synchronized_again(node: Node, runtime: RuntimeSide, *, restarted: bool) -> RuntimeSide:
    """Break the connection, with the agent or without, and return the next one before its Synchronize."""
    if restarted:
        return node.restarted(runtime)
    runtime.close()
    return node.listening.next()


def two_pods(node: Node) -> tuple[RuntimeSide, RuntimeContainer, RuntimeContainer]:
    """Let a pod with two CPUs and one in the shared pool run."""
    _, runtime = node.connected()
    own, other = start(node, runtime, "own", 2), start(node, runtime, "shared", 0)
    assert (node.cpus(own), node.cpus(other)) == ("1-2", "0,3-7")
    return runtime, own, other


@pytest.mark.parametrize("restarted", [False, True], ids=["same-agent", "agent-restarted"])
@pytest.mark.parametrize("listed", ["nothing", "sandbox", "container"])
def test_a_pod_that_runs_unlisted_keeps_its_cpus(node: Node, listed: str, restarted: bool) -> None:
    runtime, own, other = two_pods(node)
    runtime = synchronized_again(node, runtime, restarted=restarted)
    boxes = [pod("shared"), *([pod("own")] if listed == "sandbox" else [])]
    runtime.synchronize(boxes, [other, *([own] if listed == "container" else [])])
    assert node.status["cpus"]["exclusive"] == "1-2"
    assert (node.cpus(own), node.cpus(other)) == ("1-2", "0,3-7")
    state = node.agents[-1].holder.state
    assert set(state.containers) == {own.id, other.id}
    assert set(state.sandboxes) == {"sandbox-own", "sandbox-shared"}


@pytest.mark.parametrize("restarted", [False, True], ids=["same-agent", "agent-restarted"])
def test_a_shared_container_that_runs_unlisted_is_narrowed_all_the_same(node: Node, restarted: bool) -> None:
    runtime, own, other = two_pods(node)
    runtime = synchronized_again(node, runtime, restarted=restarted)
    node.write(other.id, other.cgroups_path, "0-7")
    runtime.synchronize([pod("own"), pod("shared")], [own])
    assert node.cpus(other) == "0,3-7"
    runtime.stop(pod("own"), own)
    assert node.agents[-1].snapshot.overlaps() == ()


# What the reactor makes of it, and what the agent remembers.


def state_of_two() -> AgentState:
    """Return a node with a pod of two CPUs and one in the shared pool, both running."""
    boxes = [sandbox("own"), replace(sandbox("other"), cgroups_path="/t")]
    made = [running("own", cpus="1-2"), running("other", cpus="0,3-7")]
    return synchronize(small_state(), boxes, made, {"own": guaranteed("own", "2"), "other": shared("other")}).state


BOXES = [sandbox("own"), sandbox("other")]


def about_own(outcome: EventOutcome) -> list[ReportKind]:
    return [one.finding for one in effects_of(outcome, AgentReport) if one.uid == "own"]


def test_only_the_groups_of_what_is_missed_on_the_lists_are_asked() -> None:
    state = state_of_two()
    everything = [sandbox("own"), sandbox("other")], [running("own"), running("other")]
    assert unlisted(state, *everything) == {}
    assert {*unlisted(state, [], everything[1])} == {"sandbox-own-0", "sandbox-other-0"}
    made = state.with_container(replace(state.containers["own-main-0"], cgroup="/pods/own/c"))
    assert unlisted(made, everything[0], [])["own-main-0"] == ("/pods/own/c", 99)
    ended = made.with_container(replace(made.containers["own-main-0"], phase=Phase.ENDED))
    assert unlisted(ended, everything[0], []) == {}


def test_what_runs_unlisted_is_reported_each_time_and_ends_with_its_group() -> None:
    state = state_of_two()
    for _ in range(2):
        told = synchronize(state, [sandbox("other")], [running("other")], {}, running={"own-main-0"})
        assert about_own(told) == [ReportKind.RUNS_UNLISTED] * 2
        state = told.state
    assert end_missing_sandboxes(state, ["sandbox-own-0"]).state.kubelet.node.cpu.assignments == {}
    # A sandbox that runs alone keeps the place of its pod.
    told = synchronize(state_of_two(), [sandbox("other")], [running("other")], {}, running={"sandbox-own-0"})
    assert told.state.kubelet.node.cpu.assignments == {"own": {"main": 0b110}}


def test_the_cgroup_of_an_unlisted_container_is_written_with_every_answer_that_concerns_it() -> None:
    state = synchronize(state_of_two(), BOXES, [running("own", cpus="1-2")], {}, running={"other-main-0"}).state
    for uid, pool in (("new", "0,3,6-7"), ("more", "0,3")):
        told = create(state, guaranteed(uid, "2"))
        assert writes(told) == [("other", pool)]
        state = told.state
    again = synchronize(state, BOXES, [running("own"), running("other")], {}).state
    assert not again.containers["other-main-0"].unlisted


def test_a_listed_container_of_a_sandbox_that_nobody_knows_is_placed_by_its_labels_or_reported() -> None:
    told = synchronize(small_state(), [], [running("own")], {})
    assert [one.container_id for one in effects_of(told, AgentReport)] == ["own-main-0"]
    labels = {f"io.kubernetes.pod.{key}": value for key, value in (("uid", "own"), ("name", "o"), ("namespace", "n"))}
    stranger = replace(running("own"), labels=labels, cgroups_path="/pods/own/c")
    [box] = unknown_pods(small_state(), [], [stranger])
    assert (box.id, box.uid, box.name, box.namespace) == ("sandbox-own-0", "own", "o", "n")
    assert box.cgroup_parent == "/pods/own"
    told = synchronize(small_state(), [], [stranger], {"own": guaranteed("own", "2")})
    assert told.state.kubelet.node.cpu.assignments == {"own": {"main": 0b110}}
    assert [one.container_id for one in effects_of(told, WriteCPUSet)] == ["own-main-0"]


# A creation that a restart of the runtime has ended: nothing reports it.


def state_of_interrupted_creation() -> AgentState:
    """Return what a Synchronize after a restart of the runtime makes of a second container that was being made."""
    made = create(state_of_two(), guaranteed("own", "2", "1"), "c1").state
    return synchronize(made, BOXES, [running("own", cpus="1-2"), running("other")], {}).state


def test_a_sandbox_without_a_group_ends_although_a_creation_in_it_was_interrupted() -> None:
    state = state_of_interrupted_creation()
    assert set(state.kubelet.node.cpu.assignments["own"]) == {"main", "c1"}
    assert end_missing_sandboxes(state, ["sandbox-own-0"]).state.kubelet.node.cpu.assignments == {}


def test_a_container_that_is_listed_takes_the_place_of_an_interrupted_creation_with_its_name() -> None:
    again = replace(running("own", "c1", cpus="3"), id="own-c1-1")
    listed = [running("own", cpus="1-2"), running("other"), again]
    state = synchronize(state_of_interrupted_creation(), BOXES, listed, {}).state
    assert {one.id for one in state.containers_of("own")} == {"own-main-0", "own-c1-1"}


def test_a_creation_that_goes_on_after_all_is_no_longer_in_doubt() -> None:
    state = state_of_interrupted_creation()
    assert state.containers["own-c1-0"].unlisted
    made = container("own", "c1", resources=LinuxResources(cpus="3"))
    state = state_change(state, Event.POST_CREATE_CONTAINER, sandbox("own"), made).state
    assert (state.containers["own-c1-0"].phase, state.containers["own-c1-0"].unlisted) == (Phase.CREATED, False)


# A start that a restart of the runtime has interrupted: containerd lists the container beside the one in its place.


@pytest.mark.parametrize("is_first", [True, False], ids=["listed-first", "listed-last"])
def test_of_two_containers_with_one_name_the_running_one_is_shown_with_its_cpus(node: Node, *, is_first: bool) -> None:
    node.agent()
    runtime = node.listening.next()
    made = node.running(whole("own", 1), "3", 100_000)
    resources = replace(made.resources, cpus="5")
    left = replace(made, id="c-left", state=ContainerState.CREATED, pid=0, resources=resources)
    runtime.synchronize([pod("own")], [left, made] if is_first else [made, left])
    [[shown]] = [one["containers"] for one in node.status["pods"]]
    assert (shown["id"], shown["cpus"], node.cpus(made)) == (made.id, "3", "3")


def test_the_journal_of_an_agent_that_was_told_nothing_yet_keeps_what_ran() -> None:
    state = state_of_two()
    made = stored(state)
    assert {*made.last_seen.sandboxes} == {*state.sandboxes}
    assert {*made.last_seen.containers} == {*state.containers}
    fresh = replace(small_state(), remembered=made.pods, last_seen=made.last_seen)
    assert stored(fresh).last_seen == made.last_seen
    assert synchronize(fresh, [], [], {}).state.last_seen == LastSeen()


def test_a_pod_that_waits_waits_on_after_a_restart_although_its_container_is_not_listed() -> None:
    big = {"big": guaranteed("big", "6")}
    live = [running("own", cpus="1-2"), running("other", cpus="0,3-7")]
    state = synchronize(state_of_two(), [*BOXES, sandbox("big")], [*live, running("big", cpus="0-7")], big).state
    assert {*state.held} == {"big"}
    fresh = resizable(CONFIG, stored(state), mooring=state.kubelet.mooring)
    assert [one.uid for one in unknown_pods(fresh, BOXES, live, {"big-main-0"})] == ["big"]
    assert {*synchronize(fresh, BOXES, live, big, running={"big-main-0"}).state.held} == {"big"}


def test_a_journal_from_before_has_no_sandboxes_and_is_read() -> None:
    envelope = json.loads(JournalWriter().text(state_of_two()))
    del envelope["body"]["sandboxes"]
    for row in envelope["body"]["containers"].values():
        for name in {*row} - {"sandbox", "pod", "name", "cpus", "mems"}:
            del row[name]
    body = json.dumps(envelope["body"], separators=(",", ":"))
    text = f"sha256:{hashlib.sha256(body.encode()).hexdigest()}"
    whole_text = json.dumps({**envelope, "checksum": text, "body": 0}, separators=(",", ":"))
    made = read_journal(whole_text.replace('"body":0', f'"body":{body}'))
    assert made.last_seen.sandboxes == {}
    assert made.last_seen.containers["own-main-0"].cgroup == ""


# Pods whose sandbox went without an event keep nothing; an agent that sees no control group believes the runtime.


def pool(state: AgentState) -> str:
    return list_text(state.kubelet.node.cpu.default)


def test_a_vanished_sandbox_gives_back_what_its_pod_had_and_widens_the_pool() -> None:
    before = state_of_two()
    assert pool(before) == "0,3-7"
    told = end_missing_sandboxes(before, ["sandbox-own-0"])
    assert (pool(told.state), {*told.state.sandboxes}) == ("0-7", {"sandbox-other-0"})
    assert (writes(told), findings(told)) == ([("other", "0-7")], [ReportKind.POD_GONE])
    # One that is known no more changes nothing, and one in which a container is being made stays.
    after = end_missing_sandboxes(before, ["somebody"]).state
    assert (after.kubelet, after.sandboxes, after.containers) == (before.kubelet, before.sandboxes, before.containers)
    making = create(small_state(), guaranteed("a", "2")).state
    assert pool(end_missing_sandboxes(making, ["sandbox-a-0"]).state) == "0,3-7"


def test_a_container_is_derived_from_what_its_creation_asked_for() -> None:
    asked = container("a").resources
    state = create(small_state(), guaranteed("a", "1"), resources=asked).state
    record = container("a", resources=LinuxResources(cpus="1", quota=-1))
    assert as_requested(state, [record])[0].resources == asked
    stranger = container("b", resources=LinuxResources(quota=-1))
    assert as_requested(state, [stranger]) == [stranger]


def without_groups(node: Node) -> tuple[Agent, RuntimeSide, RuntimeContainer]:
    """Let a pod run whose groups the agent never saw, as in a control group namespace of its own."""
    agent = node.agent()
    runtime = node.listening.next()
    own = node.running(whole("own", 2), "1-2", 200_000)
    node.tree.remove("/pods/own")
    runtime.synchronize([pod("own")], [own])
    return agent, runtime, own


def test_an_agent_that_never_saw_a_group_gives_nothing_away_until_it_sees_one(node: Node) -> None:
    agent, runtime, _ = without_groups(node)
    for _ in range(3):
        agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.status["ready"]) == ("1-2", False)
    assert any(reason.startswith("no control group") for reason in node.status["reasons"])
    start(node, runtime, "shared", 0)
    for _ in range(2):
        agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.status["ready"]) == ("", True)


def test_the_only_pod_of_a_node_is_gone_when_its_groups_had_been_seen(node: Node) -> None:
    agent, runtime = node.connected()
    start(node, runtime, "own", 2)
    agent.verify_all()
    node.tree.remove("/pods/own")
    for _ in range(2):
        agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.status["ready"]) == ("", True)


def test_a_sandbox_in_which_nothing_runs_says_nothing_about_the_agents_sight(node: Node) -> None:
    agent, runtime, own = without_groups(node)
    runtime.stop(pod("own"), own)
    for _ in range(2):
        agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.status["ready"]) == ("", True)
    runtime.state_change(Event.REMOVE_CONTAINER, pod("own"), own)


# Pods of a client that gives them no uid: the sandbox's id stands for it everywhere.


def test_a_pod_without_a_uid_is_pinned_and_gives_everything_back(node: Node) -> None:
    agent, runtime = node.connected()
    shared = start(node, runtime, "shared", 0)
    box, asked = replace(pod("own"), uid=""), whole("own", 2)
    runtime.state_change(Event.RUN_POD_SANDBOX, box)
    assert runtime.create(box, asked).adjust.linux.resources.cpu.cpus == "1-2"
    running = node.running(asked, "1-2", -1)
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        runtime.state_change(event, box, running)
    assert (node.cpus(running), node.cpus(shared)) == ("1-2", "0,3-7")
    second = replace(pod("second"), uid="")
    assert runtime.create(second, whole("second", 1)).adjust.linux.resources.cpu.cpus == "3"
    assert {*agent.holder.state.kubelet.node.active} == {"uid-shared", "sandbox-own", "sandbox-second"}
    runtime.close()
    runtime = node.listening.next()
    runtime.synchronize([box, pod("shared")], [running, shared])
    assert node.status["cpus"]["exclusive"] == "1-2"
    runtime.stop(box, running)
    runtime.state_change(Event.STOP_POD_SANDBOX, box)
    assert node.status["cpus"]["exclusive"] == ""
    assert set(agent.holder.state.kubelet.node.active) == {"uid-shared"}
