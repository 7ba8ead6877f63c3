"""The whole agent while CPUs go and come: cpusets, files, status, metrics, and restarts in between."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.agent.cgroups.made_up_tree import made_up_machine
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.test_agent_uninstall import leaving
from tests.agent.whole_agent import Node, pod, rest, start, until

from mooring.agent.agent import Agent
from mooring.agent.nri.types import RuntimeContainer
from mooring.agent.reconcile import online_cpus, verify
from mooring.agent.uninstall import Uninstalled
from mooring.engine.core.cpuset import CPUSet

KUBELET = """\
---
kind: MooringConfiguration
extensions: [cpu-hotplug, assigned-cpuset]
cpuHotplug: {replace: REPLACE}
fixedDefects: [pod-restart]
"""
MORE = "assigned: all\nonlineCPUsInterval: 20ms"


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def any_node(request: pytest.FixtureRequest, node: Node, tmp_path: Path) -> Node:
    """Return the node with control groups of either version, and all CPUs online."""
    if request.param == 1:
        node.tree = made_up_machine(tmp_path / "root1", 1)
        node.tree.group("pods")
    node.show_online("0-7")
    return node


def begun(node: Node, rule: str = "same-nodes") -> tuple[Agent, RuntimeSide]:
    node.kubelet = KUBELET.replace("REPLACE", rule)
    agent = node.agent(MORE)
    runtime = node.listening.next()
    runtime.synchronize()
    return agent, runtime


def take_away(node: Node, cpus: str) -> None:
    """Take CPUs offline as the kernel does: version 1 takes them out of every group, and then the list changes."""
    left = CPUSet.parse(node.online) - CPUSet.parse(cpus)
    if node.tree.version == 1:
        for file in sorted(node.tree.folder("cpuset").rglob("cpuset.cpus")):
            path = str(file.parent.relative_to(node.tree.folder("cpuset")))
            has = CPUSet.parse(node.tree.text("cpuset", path, "cpuset.cpus"))
            if has - left:
                node.tree.put("cpuset", path, "cpuset.cpus", str(has & left))
    node.show_online(str(left))


def give_back(node: Node, cpus: str) -> None:
    """Bring CPUs back; in version 1 the top alone gets them."""
    now = CPUSet.parse(node.online) | CPUSet.parse(cpus)
    if node.tree.version == 1:
        node.tree.put("cpuset", "", "cpuset.cpus", str(now))
    node.show_online(str(now))


def told(node: Node, name: str) -> str:
    return (node.folder / "assigned" / f"c-{name}" / "assigned.cpuset").read_text("ascii")


def container(node: Node, name: str) -> dict[str, Any]:
    return next(one for each in node.status["pods"] for one in each["containers"] if one["name"] == name)


def knows(node: Node, offline: str) -> None:
    """Wait until the agent has done what follows from these CPUs being offline: it publishes that last."""
    until(lambda: node.status["cpus"]["offline"] == offline, f"the agent knows that {offline or 'none'} is offline")


def has(node: Node, *wanted: tuple[RuntimeContainer, str]) -> None:
    until(lambda: all(node.cpus(one) == cpus for one, cpus in wanted), f"cpusets {[cpus for _, cpus in wanted]}")


def test_a_lost_cpu_is_replaced_and_given_back(any_node: Node) -> None:
    node = any_node
    agent, runtime = begun(node)
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (shared, "0,4-7"), (own, "1,3"))
    assert told(node, "own") == "1,3"
    seen = container(node, "own")
    assert (seen["cpus"], seen["original"]) == ("1,3", "1-2")
    assert "mooring_agent_offline_cpus 1.0" in agent.metrics.text()
    agent.verify_all()
    give_back(node, "2")
    knows(node, "")
    has(node, (shared, "0,3-7"), (own, "1-2"))
    assert told(node, "own") == "1-2"
    if node.tree.version == 1:
        assert [node.tree.text("cpuset", f"pods{path}", "cpuset.cpus") for path in ("", "/own")] == ["0-7", "0-7"]
    agent.verify_all()
    assert node.status["counts"]["repairs"] == 0
    assert "mooring_agent_overlap_cpus 0.0" in agent.metrics.text()


def test_a_lost_cpu_without_a_stand_in_is_no_deviation_and_comes_back(any_node: Node) -> None:
    node = any_node
    agent, runtime = begun(node, "never")
    own = start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (own, "1"))
    agent.verify_all()
    seen = container(node, "own")
    assert (seen["cpus"], seen["lost"], told(node, "own")) == ("1-2", "2", "1")
    assert "mooring_agent_broken_sets 1.0" in agent.metrics.text()
    give_back(node, "2")
    knows(node, "")
    has(node, (own, "1-2"))
    assert told(node, "own") == "1-2"
    agent.verify_all()
    assert node.status["counts"]["repairs"] == 0


def test_what_the_kernel_takes_before_the_agent_knows_is_no_deviation(
    any_node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = any_node
    node.kubelet = KUBELET.replace("REPLACE", "same-nodes")
    # The agent does not come to know: its thread would look once at its start, whenever that is.
    monkeypatch.setattr("mooring.agent.reconcile.CPUWatch.start", lambda _: None)
    agent = node.agent(MORE)
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.write(own.id, own.cgroups_path, "1")
    online = partial(online_cpus, str(node.tree.root))
    node.show_online("0-1,3-7")
    verify(agent.holder, node.tree.cgroups, None, online)
    assert (node.cpus(own), node.status["counts"]["repairs"]) == ("1", 0)
    node.show_online("0-7")
    verify(agent.holder, node.tree.cgroups, None, online)
    assert (node.cpus(own), node.status["counts"]["repairs"]) == ("1-2", 1)


def test_a_new_pod_is_placed_on_cpus_that_are_online(any_node: Node) -> None:
    node = any_node
    _, runtime = begun(node)
    take_away(node, "1-2,5")
    knows(node, "1-2,5")
    own = start(node, runtime, "own", 2)
    assert not CPUSet.parse(node.cpus(own)) & CPUSet.parse("1-2,5")
    assert len(CPUSet.parse(node.cpus(own))) == 2


@pytest.mark.parametrize("comes_back", [False, True], ids=["away", "back"])
def test_an_agent_that_starts_with_cpus_offline_keeps_its_state(any_node: Node, *, comes_back: bool) -> None:
    node = any_node
    _, runtime = begun(node)
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (shared, "0,4-7"), (own, "1,3"))
    node.agents.pop().close()
    runtime.close()
    if comes_back:
        give_back(node, "2")
    agent = node.agent(MORE)
    runtime = node.listening.next()
    listed = [
        replace(one, resources=replace(one.resources, cpus=cpus, quota=quota))
        for one, cpus, quota in ((shared, "0,4-7", None), (own, "1,3", -1))
    ]
    runtime.synchronize([pod("shared"), pod("own")], listed)
    has(node, *(((shared, "0,3-7"), (own, "1-2")) if comes_back else ((shared, "0,4-7"), (own, "1,3"))))
    assert 'kind="state-refused"' not in agent.metrics.text()
    assert len(agent.snapshot.machine.info.topology[0].cores) == 4
    if not comes_back:
        give_back(node, "2")
        has(node, (shared, "0,3-7"), (own, "1-2"))


def test_a_cpu_that_goes_while_nobody_looks_is_missed_at_the_start(any_node: Node) -> None:
    node = any_node
    _, runtime = begun(node)
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    runtime.close()
    take_away(node, "2")
    agent = node.agent(MORE)
    node.listening.next().synchronize(
        [pod("own")], [replace(own, resources=replace(own.resources, cpus="1-2", quota=-1))]
    )
    has(node, (own, "1,3"))
    assert 'kind="state-refused"' not in agent.metrics.text()


def test_who_leaves_gives_back_what_is_online(any_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node = any_node
    _, runtime = begun(node)
    own = start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (own, "1,3"))
    node.agents.pop().close()
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize([pod("own")], [replace(own, resources=replace(own.resources, cpus="1,3", quota=-1))])
    assert (found[0].problems, node.cpus(own)) == ((), "0-1,3-7")


def test_without_the_extension_the_list_is_not_looked_at(any_node: Node) -> None:
    node = any_node
    node.kubelet = ""
    agent = node.agent(MORE)
    runtime = node.listening.next()
    runtime.synchronize()
    own = start(node, runtime, "own", 2)
    node.show_online("0-1,3-7")
    agent.reconcile()
    rest(node)
    assert "mooring-cpus" not in [thread.name for thread in threading.enumerate()]
    assert node.cpus(own) == "1-2"
    assert "offline" not in node.status["cpus"]
    assert not (node.folder / "state" / "machine.json").exists()
