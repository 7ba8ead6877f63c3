"""Pods of a client that gives them no uid: the sandbox's id stands for it everywhere."""

from __future__ import annotations

from dataclasses import replace

from tests.agent.whole_agent import Node, pod, start, whole

from mooring.agent.nri.types import Event


def test_a_pod_without_a_uid_is_pinned_and_gives_everything_back(node: Node) -> None:
    agent = node.agent()
    runtime = node.listening.next()
    runtime.synchronize()
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
