"""Resizes that no journal has, because the folder could not be written: after a restart every container stays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.resizable_node import DELAYING, EXTENDED, LATE, RESIZING, resizable, sizes
from tests.agent.small_node import container, guaranteed, running, sandbox, shared
from tests.agent.test_agent_resizing import answers, cpus, pending, started, update

from mooring.agent.effects import AgentReport, ReportKind, WriteCPUSet
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.types import ContainerState, LinuxResources, RuntimeContainer
from mooring.agent.reactor.hotplug import cpus_changed
from mooring.agent.reactor.lifecycle import end_sandbox
from mooring.agent.reactor.recovery import Stored
from mooring.agent.reactor.response import Accepted, EventOutcome
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.reactor.update_container import released
from mooring.agent.state import AgentState
from mooring.engine.core.config import CPU_HOTPLUG, KubeletConfig
from mooring.engine.core.moment import SECOND, Moment

SOON = LATE.plus(-1)


def two(config: KubeletConfig = DELAYING) -> AgentState:
    """Return a state with ``a`` on CPU 1 and ``b`` on CPUs 2-3."""
    return started(started(resizable(config), guaranteed("a", "1")), guaranteed("b", "2"))


def listed(state: AgentState, uid: str, requested: int) -> RuntimeContainer:
    """Return a container as the runtime lists it: with the sizes of the last update and what is on record."""
    record = state.containers[f"{uid}-main-0"].record
    resources = replace(sizes(requested), cpus=str(record.cpus), mems="0", quota=-1)
    return container(uid, state=ContainerState.RUNNING, pid=99, resources=resources)


def restarted(
    written: AgentState, state: AgentState, requested: dict[str, int], now: Moment = SOON, **new: int
) -> EventOutcome:
    """Restart the agent from the journal of an earlier state.

    Args:
        written: the last that the disk took.
        state: what the agent knew when it ended.
        requested: CPUs by pod.
        now: the moment of the restart.
        new: pods that the journal does not have, with their CPUs.
    """
    journal = read_journal(JournalWriter().text(written))
    stored = Stored(journal.texts, journal.pods, last_seen=journal.last_seen)
    fresh = resizable(written.kubelet.settings.config, stored)
    live = [listed(state, uid, count) for uid, count in {**requested, **new}.items()]
    pods = {uid: guaranteed(uid, str(count)) for uid, count in new.items()}
    return synchronize(fresh, [sandbox(uid) for uid in {**requested, **new}], live, pods, None, now)


def written_cpus(outcome: EventOutcome) -> dict[str, str]:
    return {one.container_id[0]: str(one.cpus) for one in outcome.effects if isinstance(one, WriteCPUSet)}


def reports(outcome: EventOutcome) -> list[ReportKind]:
    return [one.finding for one in outcome.effects if isinstance(one, AgentReport)]


@pytest.mark.parametrize("config", [DELAYING, RESIZING], ids=["delay", "at-once"])
def test_a_container_that_grew_keeps_the_cpus_that_it_runs_on(config: KubeletConfig) -> None:
    before = two(config)
    grown = update(before, "a", sizes(3)).state
    assert cpus(grown, "a") == 0b110010
    without_b = end_sandbox(grown, sandbox("b")).state
    found = restarted(before, without_b, {"a": 3})
    assert written_cpus(found) == {"a": "1,4-5"}
    assert (cpus(found.state, "a"), pending(found.state, "a"), answers(found)) == (0b110010, {}, ["accepted"])
    assert reports(found) == [ReportKind.POD_GONE, ReportKind.TAKEN_OVER]
    assert found.state.kubelet.node.cpu.baselines["a"] == {"main": 0b10}
    assert isinstance(found.answer, Accepted)
    assert not found.answer.updates, "the runtime knows what the disk does not"


def test_what_was_recovered_is_in_the_next_journal() -> None:
    before = two()
    grown = update(before, "a", sizes(3)).state
    found = restarted(before, grown, {"a": 3, "b": 2}).state
    journal = read_journal(JournalWriter().text(found))
    fresh = resizable(stored=Stored(journal.texts, journal.pods))
    assert fresh.kubelet.node.cpu.assignments == found.kubelet.node.cpu.assignments
    assert fresh.kubelet.node.cpu.default == found.kubelet.node.cpu.default


def test_a_release_that_was_pending_gets_its_delay() -> None:
    before = two()
    shrinking = update(update(before, "a", sizes(4)).state, "a", sizes(2)).state
    found = restarted(before, shrinking, {"a": 2, "b": 2})
    assert written_cpus(found)["a"] == "1,4-6"
    assert pending(found.state, "a") == pending(shrinking, "a")
    assert cpus(released(found.state, SOON).state, "a") == 0b1110010
    assert cpus(released(found.state, SOON.plus(5 * SECOND)).state, "a") == 0b10010


def test_released_cpus_stay_with_the_container_that_got_them() -> None:
    before = update(two(), "a", sizes(3)).state
    shrunk = released(update(before, "a", sizes(1)).state, LATE).state
    state = started(shrunk, guaranteed("c", "2"))
    assert cpus(state, "c") == 0b110000
    found = restarted(before, state, {"a": 1, "b": 2}, LATE, c=2)
    assert written_cpus(found) == {"a": "1", "b": "2-3", "c": "4-5"}


def test_cpus_whose_delay_ended_after_the_journal_stay_with_the_container_that_got_them() -> None:
    before = update(update(two(), "a", sizes(3)).state, "a", sizes(1)).state
    assert pending(before, "a") == {"main": 0b10}
    state = started(released(before, LATE).state, guaranteed("c", "2"))
    assert cpus(state, "c") == 0b110000
    found = restarted(before, state, {"a": 1, "b": 2}, LATE, c=2)
    assert written_cpus(found) == {"a": "1", "b": "2-3", "c": "4-5"}
    assert pending(found.state, "a") == {}


def test_a_growth_that_is_taken_up_again_leaves_the_shared_pool_a_cpu() -> None:
    """The journal is damaged; the state file has six CPUs, the pod was granted seven, and the pool has one."""
    config = replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    written = started(started(resizable(config), shared("s")), guaranteed("a", "6"))
    live = [listed(written, "a", 7), running("s", cpus="3")]
    pods = {"a": guaranteed("a", "7"), "s": shared("s")}
    fresh = resizable(config, Stored(written.kubelet.files))
    found = synchronize(fresh, [sandbox("a"), sandbox("s")], live, pods, None, SOON).state
    assert (cpus(found, "a"), found.kubelet.node.cpu.default) == (0b11110110, 0b1000)


def test_an_offline_cpu_that_is_to_be_released_is_no_release_that_has_ended() -> None:
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    held = replace(guaranteed("a", "1", "1"), scale_down_grace=5)
    first = started(started(resizable(RESIZING, mooring=mooring), held), held, "c1")
    grown = update(first, "a", sizes(2)).state
    shrinking = update(cpus_changed(grown, 0b11110111).state, "a", sizes(1)).state
    assert (cpus(shrinking, "a"), pending(shrinking, "a")) == (0b1010, {"main": 0b10})
    journal = read_journal(JournalWriter().text(shrinking))
    stored = Stored(journal.texts, journal.pods, offline=journal.offline)
    live = [listed(shrinking, "a", 1), replace(listed(shrinking, "a", 1), id="a-c1-0", name="c1")]
    live[1] = replace(live[1], resources=replace(sizes(1), cpus="2", mems="0", quota=-1))
    found = synchronize(resizable(RESIZING, stored, mooring=mooring), [sandbox("a")], live, {}, None, SOON)
    assert (cpus(found.state, "a"), pending(found.state, "a")) == (0b1010, {"main": 0b10})


def test_released_cpus_stay_with_a_container_that_grew_onto_them() -> None:
    before = update(two(), "a", sizes(3)).state
    shrunk = released(update(before, "a", sizes(1)).state, LATE).state
    state = update(shrunk, "b", sizes(4), LATE).state
    assert cpus(state, "b") == 0b111100
    found = restarted(before, state, {"b": 4, "a": 1}, LATE)
    assert written_cpus(found) == {"a": "1", "b": "2-5"}


@pytest.mark.parametrize("recorded", ["1,3-4", "0-1,4", "4-6", "1,4", ""])
def test_cpus_that_the_engine_would_not_give_are_not_taken_over(recorded: str) -> None:
    state = two()
    odd = replace(listed(state, "a", 3), resources=replace(sizes(3), cpus=recorded, mems="0", quota=-1))
    journal = read_journal(JournalWriter().text(state))
    fresh = resizable(stored=Stored(journal.texts, journal.pods))
    found = synchronize(fresh, [sandbox("a"), sandbox("b")], [odd, listed(state, "b", 2)], {}, None, SOON)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a") == 0b110010


# Pods that no journal has, and a pod source that is behind a resize.


A = guaranteed("a", "1", "1")


def test_a_pod_that_no_journal_has_keeps_the_cpus_of_a_resize_that_its_source_does_not_know() -> None:
    beside = started(started(resizable(), guaranteed("z", "1")), A)
    state = end_sandbox(update(beside, "a", sizes(3)).state, sandbox("z")).state
    assert cpus(state, "a") == 0b110100
    found = synchronize(resizable(), [sandbox("a")], [listed(state, "a", 3)], {"a": A}, None, SOON)
    assert written_cpus(found) == {"a": "2,4-5"}
    assert ReportKind.TAKEN_OVER in reports(found)
    assert str(found.state.kubelet.node.active["a"].containers[0].requests["cpu"]) == "3"


def test_a_pod_that_no_journal_has_keeps_cpus_whose_release_is_pending_for_a_full_delay() -> None:
    beside = started(started(resizable(), guaranteed("z", "1")), A)
    shrinking = update(update(beside, "a", sizes(4)).state, "a", sizes(2)).state
    state = end_sandbox(shrinking, sandbox("z")).state
    assert cpus(state, "a") == 0b1110100
    found = synchronize(resizable(), [sandbox("a")], [listed(state, "a", 2)], {"a": A}, None, SOON)
    assert written_cpus(found) == {"a": "2,4-6"}
    kept = pending(found.state, "a")["main"]
    assert kept.bit_count() == 2
    assert kept & ~cpus(found.state, "a") == 0
    assert cpus(released(found.state, SOON).state, "a") == 0b1110100
    assert cpus(released(found.state, SOON.plus(5 * SECOND)).state, "a") == kept


@pytest.mark.parametrize(("recorded", "other"), [("2-5", "2-5"), ("1-7", "")], ids=["with-another", "alone"])
def test_one_that_runs_in_the_shared_pool_takes_nothing_of_it_over(recorded: str, other: str) -> None:
    pool = {"strict-cpu-reservation": "true"}
    fresh = resizable(replace(RESIZING, cpu_manager_policy_options=pool))
    resources = replace(sizes(1), cpus=recorded, mems="0", quota=-1)
    live = [container("a", state=ContainerState.RUNNING, pid=99, resources=resources)]
    if other:
        beside = LinuxResources(cpus=other, shares=2)
        live.append(container("s", state=ContainerState.RUNNING, pid=98, resources=beside))
    known = {"a": guaranteed("a", "1"), "s": shared("s")}
    boxes = [sandbox(one.pod_sandbox_id.split("-")[1]) for one in live]
    found = synchronize(fresh, boxes, live, {one.uid: known[one.uid] for one in boxes}, None, SOON)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a").bit_count() == 1


def test_the_last_cpus_of_the_pool_that_are_online_are_not_taken_over() -> None:
    config = replace(RESIZING, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    mooring = replace(EXTENDED, extensions=EXTENDED.extensions | {CPU_HOTPLUG})
    state = cpus_changed(resizable(config, mooring=mooring), 0b11100111).state
    live = [replace(running("a", cpus="1-2,5-7", mems="0"), resources=replace(sizes(5), cpus="1-2,5-7", quota=-1))]
    found = synchronize(state, [sandbox("a")], live, {"a": guaranteed("a", "5")}, None, SOON)
    assert ReportKind.TAKEN_OVER not in reports(found)
    assert cpus(found.state, "a") == 0


def test_all_cpus_but_the_reserved_ones_are_taken_over() -> None:
    live = [replace(running("a"), resources=replace(sizes(7), cpus="1-7", mems="0", quota=-1))]
    found = synchronize(resizable(), [sandbox("a")], live, {"a": guaranteed("a", "7")}, None, SOON)
    assert ReportKind.TAKEN_OVER in reports(found)
    assert (cpus(found.state, "a"), found.state.kubelet.node.cpu.default) == (0b11111110, 1)


def test_a_container_that_joins_its_pod_takes_no_cpus_of_a_resized_one() -> None:
    """The pod was known from its running containers; now a source names the others too, with sizes from before."""
    state = started(resizable(), guaranteed("a", "1"))
    grown = update(state, "a", sizes(3)).state
    joined = started(grown, A, "c1")
    assert cpus(joined, "a") == cpus(grown, "a")
    assert pending(joined, "a") == {}
    assert cpus(joined, "a", "c1").bit_count() == 1
    assert [str(one.requests["cpu"]) for one in joined.kubelet.node.active["a"].containers] == ["3", "1"]
