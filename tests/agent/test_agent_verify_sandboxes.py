"""Pods whose sandbox went without an event keep nothing; an agent that sees no control group believes the runtime."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.small_node import container, guaranteed, running, sandbox, shared, small_state
from tests.agent.whole_agent import Node, pod, start, whole

from mooring.agent.agent import Agent
from mooring.agent.effects import AgentReport, ReportKind, WriteCPUSet
from mooring.agent.nri.types import Event, LinuxResources, RuntimeContainer
from mooring.agent.reactor.containers import as_requested
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.lifecycle import end_missing_sandboxes
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState
from mooring.engine.core.bits import list_text


def two_pods() -> AgentState:
    """Return a node with a pod of two CPUs and one in the shared pool, both running."""
    boxes = [sandbox("own"), replace(sandbox("other"), cgroups_path="/t")]
    made = [running("own", cpus="1-2"), running("other", cpus="0,3-7")]
    return synchronize(small_state(), boxes, made, {"own": guaranteed("own", "2"), "other": shared("other")}).state


def pool(state: AgentState) -> str:
    return list_text(state.kubelet.node.cpu.default)


def test_a_vanished_sandbox_gives_back_what_its_pod_had_and_widens_the_pool() -> None:
    before = two_pods()
    assert pool(before) == "0,3-7"
    told = end_missing_sandboxes(before, ["sandbox-own-0"])
    assert pool(told.state) == "0-7"
    assert set(told.state.sandboxes) == {"sandbox-other-0"}
    assert [str(effect.cpus) for effect in told.effects if isinstance(effect, WriteCPUSet)] == ["0-7"]
    assert [effect.finding for effect in told.effects if isinstance(effect, AgentReport)] == [ReportKind.POD_GONE]


def test_a_sandbox_that_is_known_no_more_changes_nothing() -> None:
    before = two_pods()
    after = end_missing_sandboxes(before, ["somebody"]).state
    assert (after.kubelet, after.sandboxes, after.containers) == (before.kubelet, before.sandboxes, before.containers)


def test_a_sandbox_in_which_a_container_is_being_made_stays() -> None:
    state = create_container(small_state(), sandbox("a"), container("a"), guaranteed("a", "2")).state
    assert pool(end_missing_sandboxes(state, ["sandbox-a-0"]).state) == "0,3-7"


def test_a_container_is_derived_from_what_its_creation_asked_for() -> None:
    state = create_container(small_state(), sandbox("a"), container("a"), guaranteed("a", "1")).state
    record = container("a", resources=LinuxResources(cpus="1", quota=-1))
    assert as_requested(state, [record])[0].resources == container("a").resources
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


def test_an_agent_that_never_saw_a_group_gives_nothing_away_and_is_not_ready(node: Node) -> None:
    agent, _, _ = without_groups(node)
    for _ in range(3):
        agent.verify_all()
    assert node.status["cpus"]["exclusive"] == "1-2"
    assert any(reason.startswith("no control group") for reason in node.status["reasons"])
    assert not node.status["ready"]


def test_an_agent_that_sees_one_group_is_not_blind_any_more(node: Node) -> None:
    agent, runtime, _ = without_groups(node)
    agent.verify_all()
    start(node, runtime, "shared", 0)
    for _ in range(2):
        agent.verify_all()
    assert (node.status["cpus"]["exclusive"], node.status["ready"]) == ("", True)


def test_the_only_pod_of_a_node_is_gone_when_its_groups_had_been_seen(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
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
