"""The whole agent on frames of a runtime: a container is resized, told its CPUs, and gives some back after a delay."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import Node, counted, leave, pod, rest, start, until, until_reconciled, whole

from mooring.agent.agent import Agent
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetSeen, UnseenCGroups
from mooring.agent.effects import WriteCPUSet
from mooring.agent.nri.types import Event, RemoteError, RuntimeContainer
from mooring.agent.reconcile import online_cpus, release, verify
from mooring.agent.state import Setting
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
    return node.connected("assigned: all")


def resize(node: Node, runtime: RuntimeSide, name: str, own: RuntimeContainer, cpus: int) -> None:
    """Update a container as a runtime does: others first, then itself, then it tells."""
    reply = runtime.update(pod(name), own, whole(name, cpus).resources)
    for one in sorted(reply.update, key=lambda update: bool(update.container_id == own.id)):
        other = one.container_id.removeprefix("c-")
        node.write(one.container_id, f"/pods/{other}/{one.container_id}", one.linux.resources.cpu.cpus)
    runtime.state_change(Event.POST_UPDATE_CONTAINER, pod(name), own)


def told(node: Node, name: str, *files: str) -> tuple[str, ...]:
    """Return what files of a container say, by default of its CPUs and its memory nodes."""
    folder = node.folder / "assigned" / f"c-{name}"
    return tuple((folder / f"{file}set").read_text("ascii") for file in files or ("assigned.cpu", "assigned.mem"))


def shrunk(node: Node, delay: str) -> tuple[Agent, RuntimeSide, RuntimeContainer, RuntimeContainer]:
    """Run a container that has grown from two CPUs to four and gives them back after a delay, and a shared one."""
    agent, runtime = resizing(node, delay)
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    assert (node.cpus(own), told(node, "own"), told(node, "shared")) == ("1-2", ("1-2", ""), ("", ""))
    resize(node, runtime, "own", own, 4)
    assert (node.cpus(own), node.cpus(shared), told(node, "own")[0]) == ("1-4", "0,5-7", "1-4")
    resize(node, runtime, "own", own, 2)
    return agent, runtime, shared, own


def until_back(agent: Agent, node: Node, shared: RuntimeContainer, own: RuntimeContainer) -> None:
    until_reconciled(agent, lambda: (node.cpus(own), node.cpus(shared)) == ("1-2", "0,3-7"), "the pool has them again")


def until_over(node: Node) -> None:
    until(lambda: node.container("own")["pending"]["secondsLeft"] == 0, "the delay is over")


def test_a_container_grows_is_told_and_gives_back_after_its_delay(node: Node) -> None:
    agent, runtime, shared, own = shrunk(node, "300ms")
    assert (node.cpus(own), node.cpus(shared), told(node, "own")[0]) == ("1-4", "0,5-7", "1-2")
    seen = node.container("own")
    assert (seen["cpus"], seen["baseline"]) == ("1-4", "1-2")
    assert (seen["pending"]["cpus"], seen["pending"]["releases"]) == ("1-2", "3-4")
    assert seen["pending"]["secondsLeft"] <= 0.3
    until_back(agent, node, shared, own)
    assert "pending" not in node.container("own")
    assert counted(agent, "resizes_total", result="accepted") == 2
    text = agent.metrics.text()
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
    assert node.container("own")["resize"]["reason"] == "Infeasible"
    assert counted(agent, "resizes_total", result="infeasible") == 1


def test_what_the_kernel_does_not_take_back_stays_with_its_container(node: Node) -> None:
    agent, _, shared, own = shrunk(node, "1ms")
    file = Path(node.tree.folder("cpuset", own.cgroups_path)) / "cpuset.cpus"
    file.unlink()
    file.mkdir()
    until_over(node)
    agent.reconcile()
    assert (node.container("own")["cpus"], node.cpus(shared)) == ("1-4", "0,5-7")
    file.rmdir()
    file.write_text("1-4\n", encoding="ascii")
    until_back(agent, node, shared, own)


@dataclass(frozen=True, slots=True)
class OfflineCPUs(UnseenCGroups):
    """A kernel with offline CPUs: version 2 leaves them out, version 1 refuses them and takes the rest."""

    offline: CPUSet
    trouble: CGroupTrouble | None

    def write_cpuset(self, wanted: WriteCPUSet) -> CPUSetSeen:
        return CPUSetSeen(wanted, None, Setting(wanted.cpus - self.offline, wanted.mems), True, self.trouble)


@pytest.mark.parametrize("trouble", [None, CGroupTrouble.OUT_OF_RANGE, CGroupTrouble.OUTSIDE_PARENT])
def test_cpus_are_released_while_one_that_is_kept_is_offline(node: Node, trouble: CGroupTrouble | None) -> None:
    agent, _, shared, _ = shrunk(node, "1ms")
    until_over(node)
    release(agent.holder, OfflineCPUs(CPUSet.parse("2"), trouble), present_moment())
    assert (node.container("own")["cpus"], node.cpus(shared)) == ("1-2", "0,3-7")


def test_a_growth_after_which_nothing_is_heard_is_reported_a_little_later(node: Node) -> None:
    agent, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    [update] = runtime.update(pod("own"), own, whole("own", 4).resources).update
    assert told(node, "own")[0] == "1-2"
    node.write(own.id, own.cgroups_path, update.linux.resources.cpu.cpus)
    until_reconciled(agent, lambda: told(node, "own")[0] == "1-4", "the files say what the container got")


def test_after_the_agent_has_left_nobody_is_told_that_he_has_cpus(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    _, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    node.agents.pop().close()
    left, _ = leave(node, monkeypatch, own)
    assert left == ["1 container may use every CPU and memory node again, and 2 groups have their CFS quota restored."]
    assert (told(node, "own"), node.cpus(own)) == (("", ""), "0-7")


@pytest.mark.parametrize("is_on", [True, False], ids=["on", "off"])
def test_files_follow_the_extension_over_a_restart_and_strays_go(node: Node, is_on: bool) -> None:
    _, runtime = resizing(node, "0s")
    own = start(node, runtime, "own", 2)
    (node.folder / "assigned" / "gone").mkdir()
    if not is_on:
        node.kubelet = node.kubelet.replace(", assigned-cpuset", "")
    node.restarted(runtime, "assigned: all").synchronize([pod("own")], [own])
    assert told(node, "own") == (("1-2", "") if is_on else ("", ""))
    assert not (node.folder / "assigned" / "gone").exists()


# The whole agent while CPUs go and come: cpusets, files, status, metrics, and restarts in between.


HOTPLUG = """\
---
kind: MooringConfiguration
extensions: [cpu-hotplug, assigned-cpuset]
cpuHotplug: {replace: REPLACE}
fixedDefects: [pod-restart]
"""
MORE = "assigned: all\nonlineCPUsInterval: 20ms"


def begun(node: Node, rule: str = "same-nodes") -> tuple[Agent, RuntimeSide]:
    """Start an agent that watches which CPUs are online: all."""
    node.show_online("0-7")
    node.kubelet = HOTPLUG.replace("REPLACE", rule)
    return node.connected(MORE)


def with_record(container: RuntimeContainer, cpus: str, quota: int | None = -1) -> RuntimeContainer:
    """Return a container as the runtime lists it, with these CPUs on record."""
    return replace(container, resources=replace(container.resources, cpus=cpus, quota=quota))


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


def knows(node: Node, offline: str) -> None:
    """Wait until the agent has done what follows from these CPUs being offline: it publishes that last."""
    until(lambda: node.status["cpus"]["offline"] == offline, f"the agent knows that {offline or 'none'} is offline")


def has(node: Node, *wanted: tuple[RuntimeContainer, str]) -> None:
    until(lambda: all(node.cpus(one) == cpus for one, cpus in wanted), f"cpusets {[cpus for _, cpus in wanted]}")


def with_lost_cpu(node: Node) -> tuple[Agent, RuntimeSide, RuntimeContainer, RuntimeContainer]:
    """Run a container with two CPUs of which one goes offline and is replaced, and a shared one."""
    agent, runtime = begun(node)
    shared, own = start(node, runtime, "shared", 0), start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (shared, "0,4-7"), (own, "1,3"))
    return agent, runtime, shared, own


def test_a_lost_cpu_is_replaced_and_given_back(any_node: Node) -> None:
    node = any_node
    agent, _, shared, own = with_lost_cpu(node)
    assert told(node, "own")[0] == "1,3"
    seen = node.container("own")
    assert (seen["cpus"], seen["original"]) == ("1,3", "1-2")
    assert counted(agent, "offline_cpus") == 1
    agent.verify_all()
    give_back(node, "2")
    knows(node, "")
    has(node, (shared, "0,3-7"), (own, "1-2"))
    assert told(node, "own")[0] == "1-2"
    if node.tree.version == 1:
        assert [node.tree.text("cpuset", f"pods{path}", "cpuset.cpus") for path in ("", "/own")] == ["0-7", "0-7"]
    agent.verify_all()
    assert (node.status["counts"]["repairs"], counted(agent, "overlap_cpus")) == (0, 0)


def test_a_lost_cpu_without_a_stand_in_is_no_deviation_and_comes_back(any_node: Node) -> None:
    node = any_node
    agent, runtime = begun(node, "never")
    own = start(node, runtime, "own", 2)
    take_away(node, "2")
    knows(node, "2")
    has(node, (own, "1"))
    agent.verify_all()
    seen = node.container("own")
    assert (seen["cpus"], seen["lost"], told(node, "own")[0]) == ("1-2", "2", "1")
    assert counted(agent, "broken_sets") == 1
    give_back(node, "2")
    knows(node, "")
    has(node, (own, "1-2"))
    assert told(node, "own")[0] == "1-2"
    agent.verify_all()
    assert node.status["counts"]["repairs"] == 0


def test_what_the_kernel_takes_first_is_no_deviation(any_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node = any_node
    # The agent does not come to know: its thread would look once at its start, whenever that is.
    monkeypatch.setattr("mooring.agent.reconcile.CPUWatch.start", lambda _: None)
    agent, runtime = begun(node)
    own = start(node, runtime, "own", 2)
    node.write(own.id, own.cgroups_path, "1")
    online = partial(online_cpus, str(node.tree.root))
    for shown, cpus, repairs in (("0-1,3-7", "1", 0), ("0-7", "1-2", 1)):
        node.show_online(shown)
        verify(agent.holder, node.tree.cgroups, None, online)
        assert (node.cpus(own), node.status["counts"]["repairs"]) == (cpus, repairs)


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
    _, runtime, shared, own = with_lost_cpu(node)
    node.agents.pop().close()
    runtime.close()
    if comes_back:
        give_back(node, "2")
    agent = node.agent(MORE)
    listed = [with_record(shared, "0,4-7", None), with_record(own, "1,3")]
    node.listening.next().synchronize([pod("shared"), pod("own")], listed)
    has(node, *(((shared, "0,3-7"), (own, "1-2")) if comes_back else ((shared, "0,4-7"), (own, "1,3"))))
    assert counted(agent, "reports_total", kind="state-refused") == 0
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
    node.listening.next().synchronize([pod("own")], [with_record(own, "1-2")])
    has(node, (own, "1,3"))
    assert counted(agent, "reports_total", kind="state-refused") == 0


def test_who_leaves_gives_back_what_is_online(any_node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node = any_node
    _, _, _, own = with_lost_cpu(node)
    node.agents.pop().close()
    left, _ = leave(node, monkeypatch, with_record(own, "1,3"))
    assert (left[1:], node.cpus(own)) == ([], "0-1,3-7")


def test_without_the_extension_the_list_is_not_looked_at(any_node: Node) -> None:
    node = any_node
    node.show_online("0-7")
    agent, runtime = node.connected(MORE)
    own = start(node, runtime, "own", 2)
    node.show_online("0-1,3-7")
    agent.reconcile()
    rest(node)
    assert "mooring-cpus" not in [thread.name for thread in threading.enumerate()]
    assert node.cpus(own) == "1-2"
    assert "offline" not in node.status["cpus"]
    assert not (node.folder / "state" / "machine.json").exists()


# The whole agent on frames of a runtime: a mixed container follows the pool, and its files say which is which.


MIXED = """\
---
kind: MooringConfiguration
extensions: [mixed-cpus, assigned-cpuset]
fixedDefects: [pod-restart]
"""


def mixing(node: Node, value: str = "true") -> tuple[Agent, RuntimeSide, RuntimeContainer]:
    """Start an agent, and a mixed container with two CPUs of its own."""
    node.kubelet = MIXED
    agent, runtime = node.connected("assigned: all")
    return agent, runtime, start(node, runtime, "poll", 2, {"mooring/mixed-cpus": value})


BOTH = ("assigned.cpu", "shared.cpu")


def test_its_cpuset_and_its_files_follow_the_pool(node: Node) -> None:
    agent, runtime, poll = mixing(node)
    assert (node.cpus(poll), told(node, "poll", *BOTH)) == ("0-7", ("1-2", "0,3-7"))
    other = start(node, runtime, "other", 3)
    assert (node.cpus(poll), node.cpus(other), told(node, "poll", *BOTH)) == ("0-2,6-7", "3-5", ("1-2", "0,6-7"))
    seen = node.container("poll")
    assert (seen["cpus"], seen["mixed"], seen["sharing"], seen["overlap"]) == ("1-2", "0,6-7", "container", "")
    runtime.stop(pod("other"), other)
    runtime.state_change(Event.STOP_POD_SANDBOX, pod("other"), None)
    assert (node.cpus(poll), told(node, "poll", *BOTH)) == ("0-7", ("1-2", "0,3-7"))
    agent.verify_all()
    assert (node.status["counts"]["repairs"], counted(agent, "overlap_cpus")) == (0, 0)
    node.write(poll.id, poll.cgroups_path, "1-2")
    agent.verify_all()
    assert node.cpus(poll) == "0-7"


def test_after_a_restart_it_goes_on(node: Node) -> None:
    _, runtime, poll = mixing(node)
    place = replace(pod("poll"), annotations={"mooring/mixed-cpus": "true"})
    reply = node.restarted(runtime, "assigned: all").synchronize([place], [with_record(poll, "0-7")])
    assert [*reply.update] == []
    assert (node.cpus(poll), told(node, "poll", *BOTH)) == ("0-7", ("1-2", "0,3-7"))
    assert node.container("poll")["cpus"] == "1-2"


def test_a_value_that_is_no_answer_pins_as_usual(node: Node) -> None:
    _, _, poll = mixing(node, "yes")
    assert node.cpus(poll) == "1-2"
    assert "mixed" not in node.container("poll")
    assert not (node.folder / "assigned" / "c-poll" / "shared.cpuset").exists()


def test_after_the_agent_has_left_it_has_all_cpus_and_is_told_none(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, poll = mixing(node)
    node.agents.pop().close()
    left, _ = leave(node, monkeypatch, replace(poll, resources=replace(whole("poll", 2).resources, cpus="0-7")))
    assert (left[1:], told(node, "poll", *BOTH), node.cpus(poll)) == ([], ("", ""), "0-7")
