"""Traces of an agent: one span for each call of the runtime, with the pod, the policies and the decision."""

from __future__ import annotations

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, pod, start, until, whole
from tests.service.otlp_receiver import Receiver, attributes, receiving

from mooring.agent.agent import Agent
from mooring.service.logs import Log, open_traces


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
