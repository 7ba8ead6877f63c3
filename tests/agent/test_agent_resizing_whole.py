"""The whole agent on frames of a runtime: a container is resized, told its CPUs, and gives some back after a delay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.test_agent_uninstall import leaving
from tests.agent.whole_agent import Node, pod, start, until, whole

from mooring.agent.agent import Agent
from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, UnseenCGroups
from mooring.agent.effects import WriteCPUSet
from mooring.agent.nri.types import Event, RemoteError, RuntimeContainer
from mooring.agent.reconcile import release
from mooring.agent.uninstall import Uninstalled
from mooring.engine.core.cpuset import CPUSet
from mooring.service.daemon import present_moment

KUBELET = """\
cpuManagerPolicyOptions: {{scale-delay-time: "{delay}"}}
featureGates: {{CPUManagerPolicyAlphaOptions: true, InPlacePodVerticalScalingExclusiveCPUs: true}}
---
kind: MooringConfiguration
extensions: [exclusive-resize, scale-down-delay, assigned-cpuset]
fixedDefects: [pod-restart]
"""


def resizing(node: Node, delay: str) -> tuple[Agent, RuntimeSide]:
    node.kubelet = KUBELET.format(delay=delay)
    agent = node.agent("assigned: all")
    runtime = node.listening.next()
    runtime.synchronize()
    return agent, runtime


def resize(node: Node, runtime: RuntimeSide, name: str, own: RuntimeContainer, cpus: int) -> None:
    """Update a container as a runtime does: others first, then itself, then it tells."""
    reply = runtime.update(pod(name), own, whole(name, cpus).resources)
    for one in sorted(reply.update, key=lambda update: bool(update.container_id == own.id)):
        other = one.container_id.removeprefix("c-")
        node.write(one.container_id, f"/pods/{other}/{one.container_id}", one.linux.resources.cpu.cpus)
    runtime.state_change(Event.POST_UPDATE_CONTAINER, pod(name), own)


def told(node: Node, name: str) -> tuple[str, str]:
    folder = node.folder / "assigned" / f"c-{name}"
    return (folder / "assigned.cpuset").read_text("ascii"), (folder / "assigned.memset").read_text("ascii")


def container(node: Node, name: str) -> dict[str, Any]:
    return next(one for each in node.status["pods"] for one in each["containers"] if one["name"] == name)


def test_a_container_grows_is_told_and_gives_back_after_its_delay(node: Node) -> None:
    agent, runtime = resizing(node, "300ms")
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    assert (node.cpus(own), told(node, "own"), told(node, "shared")) == ("1-2", ("1-2", ""), ("", ""))
    resize(node, runtime, "own", own, 4)
    assert (node.cpus(own), node.cpus(shared), told(node, "own")[0]) == ("1-4", "0,5-7", "1-4")
    resize(node, runtime, "own", own, 2)
    assert (node.cpus(own), node.cpus(shared), told(node, "own")[0]) == ("1-4", "0,5-7", "1-2")
    seen = container(node, "own")
    assert (seen["cpus"], seen["baseline"]) == ("1-4", "1-2")
    assert (seen["pending"]["cpus"], seen["pending"]["releases"]) == ("1-2", "3-4")
    assert seen["pending"]["secondsLeft"] <= 0.3

    def is_back() -> bool:
        agent.reconcile()
        return node.cpus(own) == "1-2" and node.cpus(shared) == "0,3-7"

    until(is_back, "the CPUs are back in the pool")
    assert "pending" not in container(node, "own")
    text = agent.metrics.text()
    assert 'mooring_agent_resizes_total{result="accepted"} 2.0' in text
    assert "kubelet_cpu_manager_scale_down_delay_completed_total 1" in text
    assert "kubelet_cpu_manager_scale_down_pending_cpu_count 0" in text
    runtime.stop(pod("own"), own)
    runtime.state_change(Event.REMOVE_CONTAINER, pod("own"), own)
    assert not (node.folder / "assigned" / "c-own").exists()


def test_a_refused_resize_fails_the_update_with_the_engines_words_and_changes_nothing(node: Node) -> None:
    agent, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    with pytest.raises(RemoteError) as raised:
        runtime.update(pod("own"), own, whole("own", 1).resources)
    assert raised.value.message.startswith("Infeasible: prohibitedCPUAllocation Error: Skip resize, Not allowed to")
    assert (node.cpus(own), told(node, "own")[0]) == ("1-2", "1-2")
    assert container(node, "own")["resize"]["reason"] == "Infeasible"
    assert 'mooring_agent_resizes_total{result="infeasible"} 1.0' in agent.metrics.text()


def test_what_the_kernel_does_not_take_back_stays_with_its_container(node: Node) -> None:
    agent, runtime = resizing(node, "1ms")
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    resize(node, runtime, "own", own, 4)
    resize(node, runtime, "own", own, 2)
    file = Path(node.tree.folder("cpuset", own.cgroups_path)) / "cpuset.cpus"
    file.unlink()
    file.mkdir()
    until(lambda: container(node, "own")["pending"]["secondsLeft"] == 0, "the delay is over")
    agent.reconcile()
    assert (container(node, "own")["cpus"], node.cpus(shared)) == ("1-4", "0,5-7")
    file.rmdir()
    file.write_text("1-4\n", encoding="ascii")

    def is_back() -> bool:
        agent.reconcile()
        return node.cpus(own) == "1-2" and node.cpus(shared) == "0,3-7"

    until(is_back, "the CPUs are back in the pool")


@dataclass(frozen=True, slots=True)
class OfflineCPUs(UnseenCGroups):
    """A kernel with offline CPUs: version 2 leaves them out, version 1 refuses them and takes the rest."""

    offline: CPUSet
    trouble: CGroupTrouble | None

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetWritten:
        return CPUSetWritten(wanted, None, Cpuset(wanted.cpus - self.offline, wanted.mems), True, self.trouble)


@pytest.mark.parametrize("trouble", [None, CGroupTrouble.OUT_OF_RANGE, CGroupTrouble.OUTSIDE_PARENT])
def test_cpus_are_released_while_one_that_the_container_keeps_is_offline(
    node: Node, trouble: CGroupTrouble | None
) -> None:
    agent, runtime = resizing(node, "1ms")
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    resize(node, runtime, "own", own, 4)
    resize(node, runtime, "own", own, 2)
    until(lambda: container(node, "own")["pending"]["secondsLeft"] == 0, "the delay is over")
    release(agent.holder, OfflineCPUs(CPUSet.parse("2"), trouble), present_moment())
    assert (container(node, "own")["cpus"], node.cpus(shared)) == ("1-2", "0,3-7")


def test_a_growth_after_which_nothing_is_heard_is_reported_a_little_later(node: Node) -> None:
    agent, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    reply = runtime.update(pod("own"), own, whole("own", 4).resources)
    [update] = reply.update
    assert told(node, "own")[0] == "1-2"
    node.write(own.id, own.cgroups_path, update.linux.resources.cpu.cpus)

    def is_told() -> bool:
        agent.reconcile()
        return told(node, "own")[0] == "1-4"

    until(is_told, "the files say what the container got")


def test_after_the_agent_has_left_nobody_is_told_that_he_has_cpus(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    _, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    found: list[Uninstalled] = []
    with leaving(node, monkeypatch, found) as runtime:
        runtime.synchronize([pod("own")], [own])
    assert (found[0].problems, told(node, "own"), node.cpus(own)) == ((), ("", ""), "0-7")


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_files_follow_the_extension_over_a_restart_and_strays_go(node: Node, is_on: bool) -> None:
    _, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    runtime.close()
    (node.folder / "assigned" / "gone").mkdir()
    node.kubelet = KUBELET.format(delay="0s")
    if not is_on:
        node.kubelet = node.kubelet.replace(", assigned-cpuset", "")
    node.agent("assigned: all")
    node.listening.next().synchronize([pod("own")], [own])
    assert told(node, "own") == (("1-2", "") if is_on else ("", ""))
    assert not (node.folder / "assigned" / "gone").exists()
