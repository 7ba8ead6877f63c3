"""CPUs that go offline and come back, in the agent's heart: who is told what, and in which order."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.small_node import (
    CONFIG,
    INFO,
    amounts,
    effects_of,
    ended,
    events,
    guaranteed,
    resizable,
    running,
    shared,
    started,
    stored,
    writes,
)
from tests.patience import until

from mooring.agent.effects import AgentReport, ReturnCPUs, WriteCPUSet
from mooring.agent.journal import JournalWriter
from mooring.agent.known_machine import keep_machine, known_machine
from mooring.agent.reactor.desired import DesiredSettings
from mooring.agent.reactor.hotplug import cpus_changed, is_news
from mooring.agent.reactor.recovery import Stored, reconfigured
from mooring.agent.reactor.response import EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reconcile import ONLINE, CPUWatch, is_about_cpus, online_cpus, open_uevents
from mooring.agent.state import AgentState
from mooring.agent.store import MACHINE_FILE
from mooring.engine.core.config import CPU_HOTPLUG, MIXED_CPUS, MooringConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core, MachineInfo
from mooring.inputs.machines.loader import load_machine

ALL = 0xFF
EXTENDED = MooringConfig(frozenset({CPU_HOTPLUG, MIXED_CPUS}), frozenset({"pod-restart"}))
NEVER = replace(EXTENDED, replace_offline="never")


def begun(mooring: MooringConfig = EXTENDED, found: Stored | None = None) -> AgentState:
    return resizable(CONFIG, found, mooring=mooring)


def peopled(mooring: MooringConfig = EXTENDED) -> AgentState:
    """Return a node with ``s`` in the shared pool, listed first, and ``a`` on CPUs 1-2."""
    return started(started(begun(mooring), shared("s")), guaranteed("a", "2"))


def without(*cpus: int) -> int:
    return ALL & ~sum(1 << cpu for cpu in cpus)


def cpus_of(state: AgentState, uid: str) -> str:
    return str(DesiredSettings.now(state).of(uid, "main").cpus)


def test_when_the_cpu_is_back_its_owner_gives_up_the_stand_in_before_the_pool_gets_it() -> None:
    found = cpus_changed(cpus_changed(peopled(), without(2)).state, ALL)
    assert writes(found) == [("a", "1-2"), ("s", "0,3-7")]
    [returned] = effects_of(found, ReturnCPUs)
    assert str(returned.cpus) == "2"
    assert {one.container_id for one in returned.below} == {"s-main-0", "a-main-0"}
    assert found.effects.index(returned) < min(found.effects.index(one) for one in effects_of(found, WriteCPUSet))


def test_what_is_known_changes_nothing_and_neither_do_cpus_that_the_machine_never_had() -> None:
    state = cpus_changed(peopled(), without(7)).state
    for online in (without(7), without(7) | 1 << 40):
        assert not is_news(state, online)
        found = cpus_changed(state, online)
        assert (found.effects, found.state) == ((), state)


def test_without_the_extension_no_cpu_is_missed() -> None:
    plain = started(begun(MooringConfig(fixed_defects=EXTENDED.fixed_defects)), guaranteed("a", "2"))
    assert not is_news(plain, 1)
    assert cpus_changed(plain, 1).effects == ()


def test_the_log_and_the_pod_hear_of_it() -> None:
    def said(outcome: EventOutcome) -> list[str]:
        return [one.message for one in effects_of(outcome, AgentReport)]

    away = cpus_changed(peopled(), without(2))
    assert said(away) == [
        "CPUs 2 went offline; offline are 2",
        "main lost CPUs 2 of 1-2, which are offline; 3 replace them",
    ]
    assert events(away) == ["CPUsReplaced"]
    assert said(cpus_changed(away.state, ALL)) == [
        "CPUs 2 came online; all are online",
        "main has all of its CPUs again, 1-2 instead of 1,3",
    ]
    assert events(cpus_changed(peopled(NEVER), without(2))) == ["CPUsOffline"]


# Over restarts.


def test_the_journal_keeps_what_is_offline_and_what_stands_in() -> None:
    away = cpus_changed(peopled(), without(2, 7)).state
    again = begun(found=stored(away))
    cpu = again.kubelet.node.cpu
    assert (cpu.offline, cpu.displaced) == (0x84, {"a": {2: 3}})
    assert cpu.assignments == away.kubelet.node.cpu.assignments
    assert not is_news(again, without(2, 7))
    before = stored(peopled())
    assert (before.offline, before.displaced) == (0, {})
    assert '"offline"' not in JournalWriter().text(peopled())


def restarted(state: AgentState) -> AgentState:
    """Return the state of a new agent, with the journal and the runtime's record."""
    listed = [running(uid, cpus=cpus_of(state, uid), mems="0") for uid in state.kubelet.node.active]
    return synchronize(begun(found=stored(state)), [*state.sandboxes.values()], listed, {}).state


def overflowing() -> AgentState:
    """Return a state with ``a`` on two CPUs of node 0, which its hint names, and on one of node 1."""
    state = begun()
    for uid, count in (("b", "1"), ("c", "3"), ("a", "3")):
        state = started(state, guaranteed(uid, count))
    return ended(state, "c").state


def with_far_memory() -> AgentState:
    """Return a state with ``a`` on two CPUs of node 0, and with memory and the hint of both nodes."""
    pod = guaranteed("a")
    sizes = amounts("2", "5Gi")
    return started(begun(), replace(pod, containers=(replace(pod.containers[0], requests=sizes, limits=sizes),)))


@pytest.mark.parametrize(
    ("state", "hint", "had", "left"),
    [(overflowing(), 0b1, "2-3,7", "4-5,7"), (with_far_memory(), 0b11, "1-2", "1")],
    ids=["cpus-beyond-the-hint", "hint-beyond-the-cpus"],
)
def test_what_replaces_a_lost_cpu_stays_after_a_restart(state: AgentState, hint: int, had: str, left: str) -> None:
    assert state.kubelet.node.stored_hints["a"]["main"].mask == hint
    assert cpus_of(state, "a") == had
    lost = cpus_changed(state, without(2, 3)).state
    assert cpus_of(lost, "a") == left
    assert cpus_of(restarted(lost), "a") == left
    assert cpus_of(cpus_changed(restarted(state), without(2, 3)).state, "a") == left


def test_another_configuration_forgets_nothing_that_is_offline() -> None:
    away = cpus_changed(peopled(), without(2)).state
    found = reconfigured(away, replace(CONFIG, max_pods=50), EXTENDED)
    assert found.state.kubelet.node.cpu.displaced == {"a": {2: 3}}  # type: ignore[union-attr]
    assert found.state.kubelet.node.cpu.offline == 0b100  # type: ignore[union-attr]
    off = reconfigured(away, CONFIG, replace(EXTENDED, extensions=frozenset()))
    assert off.state.kubelet.node.cpu.offline == 0  # type: ignore[union-attr]


# The machine with its offline CPUs: kept while some are away, and given up when it is another machine.


WHOLE = load_machine("sockets=2 numa=2 cores=4 threads=2 memory=16Gi")
CPUS = {cpu for node in WHOLE.info.topology for core in node.cores for cpu in core.thread_ids}


def shown(machine: Machine, offline: set[int], memory: int = 0) -> Machine:
    """Return a machine as the kernel describes it while CPUs are offline."""
    nodes = tuple(
        replace(
            node,
            memory=node.memory + memory,
            cores=tuple(
                replace(core, thread_ids=left)
                for core in node.cores
                if (left := tuple(cpu for cpu in core.thread_ids if cpu not in offline))
            ),
        )
        for node in machine.info.topology
    )
    return replace(machine, info=replace(machine.info, num_cores=len(CPUS - offline), topology=nodes))


def with_core(info: MachineInfo, core: Core) -> MachineInfo:
    first, *rest = info.topology
    return replace(info, topology=(replace(first, cores=(core, *first.cores[1:])), *rest))


def test_what_is_no_description_of_the_machine_is_said_and_not_used(tmp_path: Path) -> None:
    assert known_machine(tmp_path / "none", WHOLE) == (WHOLE, "")
    (tmp_path / MACHINE_FILE).write_text("{half")
    found, problem = known_machine(tmp_path, WHOLE)
    assert found == WHOLE
    assert MACHINE_FILE in problem
    (tmp_path / "state").write_text("a file")
    assert str(tmp_path / "state") in keep_machine(tmp_path / "state", WHOLE)


@given(st.sets(st.sampled_from(sorted(CPUS)), max_size=len(CPUS) - 1))
def test_whatever_is_offline_is_known(tmp_path_factory: pytest.TempPathFactory, offline: set[int]) -> None:
    folder = tmp_path_factory.mktemp("state")
    assert keep_machine(folder, WHOLE) == ""
    found, problem = known_machine(folder, shown(WHOLE, offline))
    assert (found.info, problem) == (WHOLE.info, "")


def test_memory_is_that_of_today_and_the_description_is_written_once(tmp_path: Path) -> None:
    keep_machine(tmp_path, WHOLE)
    before = (tmp_path / MACHINE_FILE).stat().st_ino
    found = known_machine(tmp_path, shown(WHOLE, {3}, memory=4096))[0].info
    assert [one.memory for one in found.topology] == [one.memory + 4096 for one in WHOLE.info.topology]
    assert [one.cores for one in found.topology] == [one.cores for one in WHOLE.info.topology]
    keep_machine(tmp_path, WHOLE)
    assert (tmp_path / MACHINE_FILE).stat().st_ino == before


def test_a_machine_with_more_cpus_or_others_is_another_one(tmp_path: Path) -> None:
    small = Machine("small", INFO)
    keep_machine(tmp_path, small)
    assert "another machine" in known_machine(tmp_path, WHOLE)[1]
    core = INFO.topology[0].cores[0]
    moved = Machine("small", with_core(INFO, replace(core, socket_id=core.socket_id + 1)))
    found, problem = known_machine(tmp_path, moved)
    assert found == moved
    assert "another machine" in problem


# The watch of CPUs: the kernel's events are heard, those of others pass, and without any the list is read anyway.


OFFLINE = (
    b"offline@/devices/system/cpu/cpu3\0ACTION=offline\0DEVPATH=/devices/system/cpu/cpu3\0SUBSYSTEM=cpu\0SEQNUM=9\0"
)
NETWORK = b"add@/devices/net/x\0ACTION=add\0SUBSYSTEM=net\0"
AN_HOUR = 3600.0


@contextmanager
def watching(interval: float, heard: socket.socket | None) -> Iterator[list[int]]:
    """Watch, and give a list that grows with every look."""
    looks: list[int] = []
    watch = CPUWatch(lambda: looks.append(1), interval, lambda: heard)
    assert watch.has_events == (heard is not None)
    watch.start()
    try:
        until(lambda: bool(looks), "the first look")
        yield looks
    finally:
        watch.stop(20.0)
    assert not [one for one in threading.enumerate() if one.name == "mooring-cpus"]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    yield ours, theirs
    ours.close()


def test_an_event_of_a_cpu_is_a_reason_to_look_and_events_of_others_are_not(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    assert [is_about_cpus(one) for one in (OFFLINE, NETWORK, b"")] == [True, False, False]
    kernel, heard = pair
    with watching(AN_HOUR, heard) as looks:
        for looked in (2, 3):
            for _ in range(20):
                kernel.send(NETWORK)
            kernel.send(OFFLINE)
            until(lambda: len(looks) >= looked, "a look after the event")  # noqa: B023 - called now
    assert len(looks) <= 3


def test_where_nothing_is_heard_the_list_is_read_now_and_then() -> None:
    with watching(0.01, None) as looks:
        until(lambda: len(looks) > 3, "some looks")


def test_the_kernels_socket_can_be_had_or_there_is_none() -> None:
    found = open_uevents()
    if found is not None:
        assert (found.family, found.getblocking()) == (socket.AF_NETLINK, False)
        found.close()


def test_the_list_is_read_below_a_root_and_what_cannot_be_read_is_nothing(tmp_path: Path) -> None:
    file = tmp_path / ONLINE
    assert online_cpus(str(tmp_path)) is None
    file.parent.mkdir(parents=True)
    for text, found in (("0-2,5\n", "0-2,5"), ("", "None"), ("0-\n", "None")):
        file.write_text(text, encoding="ascii")
        assert str(online_cpus(str(tmp_path))) == found
