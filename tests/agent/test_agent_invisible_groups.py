"""An agent from which the control groups are hidden believes the runtime, and says that it sees nothing."""

from __future__ import annotations

from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, pod, start, whole

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event, RuntimeContainer


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
