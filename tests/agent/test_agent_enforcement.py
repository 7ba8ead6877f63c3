"""Refusals of containers whose pods have their place, the opt-out annotation, and what comes of cpusets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.agent.sets import cpuset_write, nodes
from tests.agent.small_node import STRICT, container, guaranteed, sandbox, shared, small_state

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, written_of
from mooring.agent.effects import AgentReport, ClusterEvent, Effect, Evict, Occasion, ReportKind, WriteCPUSet
from mooring.agent.nri.types import Event
from mooring.agent.reactor.create_container import create_container
from mooring.agent.reactor.lifecycle import Compliance, state_change, stop_container
from mooring.agent.reactor.response import Accepted, Adjusted, EventOutcome, Refused
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState, Options
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.pod import Pod

EMPTY = "EmptySharedPool: no CPU is left in the shared pool for containers without CPUs of their own"


def create(state: AgentState, pod: Pod, name: str = "main", life: int = 0) -> EventOutcome:
    return create_container(state, sandbox(pod.uid), container(pod.uid, name, life), pod)


def start(state: AgentState, uid: str, name: str = "main", life: int = 0, cpus: str = "0-7") -> EventOutcome:
    made = container(uid, name, life, pid=99)
    made = replace(made, resources=replace(made.resources, cpus=cpus))
    state = state_change(state, Event.POST_CREATE_CONTAINER, sandbox(uid), made).state
    return state_change(state, Event.START_CONTAINER, sandbox(uid), made)


def reports(effects: tuple[Effect, ...]) -> list[tuple[ReportKind, str]]:
    return [(one.finding, one.reason) for one in effects if isinstance(one, AgentReport)]


def events(effects: tuple[Effect, ...]) -> list[str]:
    return [one.reason for one in effects if isinstance(one, ClusterEvent)]


def without_pool(options: Options | None = None) -> AgentState:
    """Return a node whose pool a pod of seven CPUs has emptied."""
    return create(small_state(STRICT, options), guaranteed("a", "7")).state


# An active pod has a container for which no CPU is left.


def test_a_container_of_a_placed_pod_for_which_no_cpu_is_left_is_reported_once() -> None:
    state = without_pool(Options(evict=True))
    found = create(state, guaranteed("a", "7"), "debug")
    assert found.answer == Refused(EMPTY)
    assert reports(found.effects) == [(ReportKind.REJECTED, "EmptySharedPool")]
    assert events(found.effects) == ["EmptySharedPool"]
    assert not [one for one in found.effects if isinstance(one, Evict)]
    again = create(found.state, guaranteed("a", "7"), "debug", 1)
    assert (again.answer, reports(again.effects), events(again.effects)) == (found.answer, [], [])


def test_the_same_at_its_start_and_again_after_it_had_started() -> None:
    first = start(without_pool(), "a", "debug")
    assert (first.answer, reports(first.effects)) == (Refused(EMPTY), [(ReportKind.START_REFUSED, "EmptySharedPool")])
    assert events(first.effects) == ["EmptySharedPool"]
    again = start(first.state, "a", "debug", 1)
    assert (again.answer, reports(again.effects)) == (Refused(EMPTY), [])


@pytest.mark.parametrize("is_listed", [False, True], ids=["ended", "gone-at-synchronize"])
def test_of_a_pod_that_has_ended_no_refusal_is_left_for_one_that_comes_again_with_its_uid(*, is_listed: bool) -> None:
    refused = start(without_pool(), "a", "debug").state
    assert refused.unstarted
    if is_listed:
        ended = synchronize(refused, [], [], {}).state
    else:
        ended = state_change(refused, Event.STOP_POD_SANDBOX, sandbox("a"), None).state
    assert (ended.unstarted, ended.deviating) == ({}, {})
    again = start(create(ended, guaranteed("a", "7")).state, "a", "debug", 1)
    assert reports(again.effects) == [(ReportKind.START_REFUSED, "EmptySharedPool")]


# The opt-out annotation.


@pytest.mark.parametrize(
    ("value", "is_told"), [("yes", True), ("1", True), ("", True), ("true", False), (" False ", False), (None, False)]
)
def test_a_value_of_the_opt_out_annotation_that_nobody_can_read_is_reported_once_and_counts_as_no(
    value: str | None, *, is_told: bool
) -> None:
    state = small_state(options=Options(opt_out_annotation="mooring/opt-out"))
    pod = guaranteed("a", "2", "1", annotations={} if value is None else {"mooring/opt-out": value})
    made = create(state, pod)
    assert isinstance(made.answer, Adjusted)
    assert made.answer.adjustment.resources.cpus == ("0-7" if value == "true" else "1-2")
    assert (ReportKind.OPT_OUT_UNREAD in [one for one, _ in reports(made.effects)]) == is_told
    assert ("OptOutUnread" in events(made.effects)) == is_told
    assert events(create(made.state, pod, "c1").effects) == []


def test_a_pod_that_waits_is_told_of_its_annotation_once_too_and_of_none_where_there_is_no_such_option() -> None:
    pod = guaranteed("a", "9", annotations={"mooring/opt-out": "yes"})
    first = create(small_state(options=Options(opt_out_annotation="mooring/opt-out")), pod)
    assert isinstance(first.answer, Refused)
    assert events(first.effects) == ["OptOutUnread", "UnexpectedAdmissionError"]
    assert events(create(first.state, pod, life=1).effects) == []
    assert events(create(small_state(), pod).effects) == ["UnexpectedAdmissionError"]


# Which writes find lost updates.


def occasion(found: EventOutcome, container_id: str) -> list[Occasion]:
    return [one.occasion for one in found.effects if isinstance(one, WriteCPUSet) and one.container_id == container_id]


def test_an_update_that_was_due_while_a_container_was_made_is_looked_for_when_it_starts() -> None:
    state = create(small_state(), shared("s")).state
    state = create(state, guaranteed("a", "2")).state
    assert occasion(start(state, "s"), "s-main-0") == [Occasion.CHECK]


def test_what_nobody_could_have_told_the_runtime_is_carried_out_and_not_looked_for() -> None:
    state = create(small_state(), guaranteed("a", "2")).state
    state = create(state, shared("s")).state
    state = state_change(state, Event.STOP_POD_SANDBOX, sandbox("a"), None).state
    assert occasion(start(state, "s", cpus="0,3-7"), "s-main-0") == [Occasion.DECISION]
    # The next reply could have said so, and would have been dropped.
    told = stop_container(state, container("nobody"))
    assert isinstance(told.answer, Accepted)
    assert told.answer.updates == ()
    assert occasion(start(told.state, "s", cpus="0,3-7"), "s-main-0") == [Occasion.CHECK]


# What the kernel shows.

WRITE = cpuset_write("c", 9, "/c", "1-2", "0")


def shown(cpus: str, mems: str = "0") -> Cpuset:
    return Cpuset(CPUSet.parse(cpus), nodes(mems))


@pytest.mark.parametrize(
    ("done", "standing", "problem"),
    [
        (CPUSetWritten(WRITE, shown("0-7"), shown("1-2"), wrote=True), Compliance.RIGHT, ""),
        (CPUSetWritten(WRITE, after=shown("1")), Compliance.WITHIN, "has CPUs 1 instead of 1-2, though it was written"),
        (
            CPUSetWritten(WRITE, after=shown("1-2", "0-1"), trouble=CGroupTrouble.BUSY, problem="/c: busy"),
            Compliance.BEYOND,
            "has memory nodes 0-1 instead of 0: /c: busy",
        ),
        (
            CPUSetWritten(WRITE, trouble=CGroupTrouble.NOT_PERMITTED, problem="/c: not permitted"),
            Compliance.UNKNOWN,
            "has a control group that cannot be read or written: /c: not permitted",
        ),
        (CPUSetWritten(WRITE, trouble=CGroupTrouble.GONE), Compliance.ENDED, ""),
        (CPUSetWritten(WRITE), Compliance.UNSEEN, ""),
    ],
)
def test_a_write_stands_as_the_kernel_shows(done: CPUSetWritten, standing: Compliance, problem: str) -> None:
    found = written_of(done)
    assert (found.standing, found.problem) == (standing, problem)
    assert found.had == ("CPUs 0-7 instead of 1-2" if done.wrote else "")
