"""The whole agent on frames of a runtime: a mixed container follows the pool, and its files say which is which."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.test_agent_uninstall import leaving
from tests.agent.whole_agent import Node, pod, start, until, whole

from mooring.agent.agent import Agent
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.agent.uninstall import Uninstalled

KUBELET = """\
---
kind: MooringConfiguration
extensions: [mixed-cpus, assigned-cpuset]
fixedDefects: [pod-restart]
"""
FILES = ("assigned.cpuset", "shared.cpuset")


def mixing(node: Node, value: str = "true") -> tuple[Agent, RuntimeSide, RuntimeContainer]:
    """Start an agent, and a mixed container with two CPUs of its own."""
    node.kubelet = KUBELET
    agent = node.agent("assigned: all")
    runtime = node.listening.next()
    runtime.synchronize()
    return agent, runtime, start(node, runtime, "poll", 2, {"mooring/mixed-cpus": value})


def told(node: Node) -> tuple[str, ...]:
    folder = node.folder / "assigned" / "c-poll"
    return tuple((folder / name).read_text("ascii") for name in FILES)


def container(node: Node, name: str) -> dict[str, Any]:
    return next(one for each in node.status["pods"] for one in each["containers"] if one["name"] == name)


def end(runtime: RuntimeSide, name: str, own: RuntimeContainer) -> None:
    runtime.stop(pod(name), own)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod(name), None)


def test_its_cpuset_and_its_files_follow_the_pool(node: Node) -> None:
    agent, runtime, poll = mixing(node)
    assert (node.cpus(poll), told(node)) == ("0-7", ("1-2", "0,3-7"))
    other = start(node, runtime, "other", 3)
    assert (node.cpus(poll), node.cpus(other), told(node)) == ("0-2,6-7", "3-5", ("1-2", "0,6-7"))
    seen = container(node, "poll")
    assert (seen["cpus"], seen["mixed"], seen["sharing"], seen["overlap"]) == ("1-2", "0,6-7", "container", "")
    end(runtime, "other", other)
    assert (node.cpus(poll), told(node)) == ("0-7", ("1-2", "0,3-7"))
    agent.verify_all()
    assert node.status["counts"]["repairs"] == 0
    assert "mooring_agent_overlap_cpus 0.0" in agent.metrics.text()


def test_what_somebody_takes_from_its_cpuset_comes_back(node: Node) -> None:
    agent, _, poll = mixing(node)
    node.write(poll.id, poll.cgroups_path, "1-2")

    def is_back() -> bool:
        agent.verify_all()
        return node.cpus(poll) == "0-7"

    until(is_back, "the cpuset is as decided")


def test_after_a_restart_it_goes_on(node: Node) -> None:
    _, runtime, poll = mixing(node)
    place = replace(pod("poll"), annotations={"mooring/mixed-cpus": "true"})
    node.agents.pop().close()
    runtime.close()
    node.agent("assigned: all")
    runtime = node.listening.next()
    reply = runtime.synchronize([place], [replace(poll, resources=replace(poll.resources, cpus="0-7", quota=-1))])
    assert [*reply.update] == []
    assert (node.cpus(poll), told(node)) == ("0-7", ("1-2", "0,3-7"))
    assert container(node, "poll")["cpus"] == "1-2"


def test_a_value_that_is_no_answer_pins_as_usual(node: Node) -> None:
    _, _, poll = mixing(node, "yes")
    assert node.cpus(poll) == "1-2"
    assert "mixed" not in container(node, "poll")
    assert not (node.folder / "assigned" / "c-poll" / "shared.cpuset").exists()


def test_after_the_agent_has_left_it_has_every_cpu_and_is_told_none(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, poll = mixing(node)
    node.agents.pop().close()
    found: list[Uninstalled] = []
    asked = whole("poll", 2).resources
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize([pod("poll")], [replace(poll, resources=replace(asked, cpus="0-7"))])
    assert (found[0].problems, told(node), node.cpus(poll)) == ((), ("", ""), "0-7")
