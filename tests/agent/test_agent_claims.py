"""What claims of dynamic resource allocation come to, on a node of 8 CPUs of which CPU 0 is reserved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.small_node import (
    CONFIG,
    INFO,
    STRICT,
    adjustment_of,
    container,
    cpuset_write,
    guaranteed,
    nodes,
    refusal_of,
    running,
    sandbox,
    shared,
    small_state,
    updates_of,
)
from tests.documents.validation import complaints
from tests.render.pictured import terminal_text

from mooring.agent.cgroups.cpuset import Cpuset
from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetWritten, written_of
from mooring.agent.claims import claim_asked, node_message
from mooring.agent.effects import AgentReport, ClusterEvent, Effect, Evict, Occasion, Persist, ReportKind, WriteCPUSet
from mooring.agent.journal import (
    JournalWriter,
    read_journal,
)
from mooring.agent.nri.messages import NRIContainerMessage
from mooring.agent.nri.methods import container_from
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.agent.reactor.create_container import create_container, prepare_claim, unprepare_claim
from mooring.agent.reactor.desired import expected
from mooring.agent.reactor.lifecycle import Compliance, state_change, stop_container
from mooring.agent.reactor.placing import place
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState, Options, claimed_cpus, variables
from mooring.agent.status import (
    Snapshot,
    exclusive_cpus,
    overlaps,
    status_document,
)
from mooring.answers.status import status_text
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import Core
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.owners import claim_key, claim_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import restart_kubelet
from mooring.engine.node.claims import Claim, Share
from mooring.inputs.configuration.mooring_config import plugin_choice
from mooring.service.agent_status import read_status
from mooring.service.messages import PrepareRequestMessage, ShareMessage
from mooring.views.build import status_view

NO_COUNTS = AgentCountsPart(0, 0.0, 0, 0, 0, 0, 0)

NUMA1 = 0xF0
TWO = Claim(
    "u-1", "shop", "two", (Share("fast", "numa1", 2, CPUMask(NUMA1)), Share("slow", "numa1", 1, CPUMask(NUMA1)))
)
FAST, SLOW = "MOORING_CLAIM_U_1_0", "MOORING_CLAIM_U_1_1"


def create(state: AgentState, pod: Pod, *claims: str) -> EventOutcome:
    return create_container(state, sandbox(pod.uid), container(pod.uid, claims=claims), pod)


def prepared(state: AgentState, *pods: str, asked: Claim = TWO) -> AgentState:
    return prepare_claim(state, asked, pods).state


def run(state: AgentState, pod: Pod, *claims: str) -> AgentState:
    """Create and start a container."""
    state = create(state, pod, *claims).state
    made = replace(running(pod.uid), id=f"{pod.uid}-main-0", claims=claims)
    for event in (Event.POST_CREATE_CONTAINER, Event.START_CONTAINER, Event.POST_START_CONTAINER):
        state = state_change(state, event, sandbox(pod.uid), made, pod).state
    return state


def cpus(made: EventOutcome) -> str:
    return adjustment_of(made).resources.cpus


def refusal(made: EventOutcome) -> str:
    return refusal_of(made).partition(":")[0]


def test_a_claim_leaves_the_shared_pool_before_it_is_answered() -> None:
    state = run(small_state(), shared("s"))
    made = prepare_claim(state, TWO, ["p"])
    assert isinstance(made.effects[0], Persist)
    [write] = [effect for effect in made.effects if isinstance(effect, WriteCPUSet)]
    assert (write.container_id, str(write.cpus)) == ("s-main-0", "0-3,7")


def test_a_container_has_the_shares_that_it_names_and_no_more() -> None:
    state = prepared(small_state(), "p", "q", "r")
    assert cpus(create(state, shared("p"), FAST, SLOW)) == "4-6"
    assert cpus(create(state, shared("q"), SLOW)) == "6"
    assert cpus(create(state, shared("r"))) == "0-3,7"


def test_cpus_of_its_own_and_of_claims_come_together() -> None:
    assert cpus(create(prepared(small_state(), "p"), guaranteed("p", "2"), SLOW)) == "1-2,6"


def test_a_claim_that_is_not_prepared_holds_the_container_back() -> None:
    assert refusal(create(small_state(), shared("p"), FAST)) == "ClaimNotPrepared"


def test_a_claim_of_another_pod_is_not_had_by_naming_it() -> None:
    made = create(prepared(small_state(), "p"), shared("thief"), FAST)
    assert refusal(made) == "ClaimNotReserved"
    assert [one.finding for one in made.effects if isinstance(one, AgentReport)] == [ReportKind.CLAIM_REFUSED]


def test_preparing_again_lets_another_pod_in_and_moves_nobody() -> None:
    state = run(prepared(small_state(), "p"), shared("p"), FAST)
    again = prepare_claim(state, TWO, ["p", "q"])
    assert not [effect for effect in again.effects if isinstance(effect, WriteCPUSet)]
    assert isinstance(again.effects[0], Persist)
    assert cpus(create(again.state, shared("q"), FAST)) == "4-5"
    assert overlaps(run(again.state, shared("q"), FAST), {}) == ()


def test_a_refused_claim_changes_nothing() -> None:
    state = small_state()
    made = prepare_claim(state, replace(TWO, shares=(Share("fast", "numa1", 5, CPUMask(NUMA1)),)), ["p"])
    assert refusal(made) == "InsufficientCPUs"
    assert made.state is state


def test_giving_back_widens_the_shared_pool() -> None:
    state = run(prepared(small_state(), "p"), shared("s"))
    made = unprepare_claim(state, "u-1")
    [write] = [effect for effect in made.effects if isinstance(effect, WriteCPUSet)]
    assert str(write.cpus) == "0-7"
    assert made.state.claim_users == {}
    assert unprepare_claim(made.state, "u-1").effects == ()


def test_a_pod_that_waited_for_a_claims_cpus_gets_them() -> None:
    state = prepared(small_state(), "p", asked=replace(TWO, shares=(Share("all", "numa1", 4, CPUMask(NUMA1)),)))
    state = state_change(state, Event.RUN_POD_SANDBOX, sandbox("g"), None).state
    listed = synchronize(state, [sandbox("g")], [running("g")], {"g": guaranteed("g", "5")})
    assert "g" in listed.state.held
    assert "g" in unprepare_claim(listed.state, "u-1").state.kubelet.node.active


def test_a_restart_keeps_claims_and_their_pods() -> None:
    state = run(prepared(small_state(), "p"), shared("p"), FAST)
    journal = read_journal(JournalWriter().text(state))
    fixed = MooringConfig(fixed_defects=frozenset({"pod-restart"}))
    again = resume(INFO, CONFIG, fixed, Stored(journal.texts, journal.pods, (), journal.claim_users)).state
    assert again.claim_users == {"u-1": frozenset({"p"})}
    here = replace(running("p", cpus="4-5"), claims=(FAST,))
    after = synchronize(again, [sandbox("p")], [here], {"p": shared("p")})
    assert not [one for one in after.effects if isinstance(one, AgentReport) and one.finding is ReportKind.POD_GONE]
    assert str(expected(after.state)[here.id].cpus) == "4-5"
    assert claim_of(after.state.kubelet.node.cpu, "u-1") == claim_of(state.kubelet.node.cpu, "u-1")


def test_a_journal_of_an_agent_without_claims_is_read() -> None:
    text = JournalWriter().text(small_state())
    assert "claims" not in text
    assert read_journal(text).claim_users == {}


def test_cpus_of_a_claim_are_its_users_own() -> None:
    state = run(prepared(small_state(), "p"), shared("p"), FAST)
    [one] = state.containers.values()
    assert str(exclusive_cpus(state, one, claimed_cpus(state))) == "4-5"
    intruder = run(state, shared("s"))
    [found] = overlaps(intruder, {"s-main-0": CPUSet.parse("5")})
    assert found == ("s-main-0", "p-main-0", CPUSet.parse("5"))


def test_no_claim_is_answered_that_cannot_be_written_where_the_operator_wants_that() -> None:
    before = small_state(options=Options(place_while_unwritable=False))
    made = unwritten(before, prepare_claim(before, TWO, ["p"]), claim_key("u-1"), "read-only")
    assert isinstance(made.answer, Refused)
    assert made.state.kubelet is before.kubelet


def test_variables_of_a_runtime_message_are_read() -> None:
    message = NRIContainerMessage(id="c", name="main", env=[f"{SLOW}=6", "PATH=/bin", f"{FAST}=4-5"])
    assert container_from(message).claims == (FAST, SLOW)
    assert RuntimeContainer("c", "s", "main").claims == ()


def test_every_share_has_a_variable_of_its_own() -> None:
    held = claim_of(prepared(small_state()).kubelet.node.cpu, "u-1")
    assert held is not None
    assert variables(held) == [FAST, SLOW]


def request(**fields: Any) -> PrepareRequestMessage:
    share = ShareMessage(request="fast", device="numa1", count=2, within="4-7")
    usual: dict[str, Any] = {"uid": "u-1", "namespace": "shop", "name": "two", "shares": [share], "pods": ["p"]}
    return PrepareRequestMessage(**{**usual, **fields})


def test_a_request_becomes_a_claim() -> None:
    asked, pods = claim_asked(request())
    assert asked == Claim("u-1", "shop", "two", (Share("fast", "numa1", 2, CPUMask(NUMA1)),))
    assert pods == {"p"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"uid": ""},
        {"namespace": "a/b"},
        {"name": "a/b"},
        {"shares": []},
        {"shares": [ShareMessage(request="r", device="a/b", count=1)]},
        {"shares": [ShareMessage(request="r/s/t", device="d", count=1)]},
        {"shares": [ShareMessage(request="r", device="d", count=0)]},
        {"shares": [ShareMessage(request="r", device="d", count=1, within="x")]},
        {"shares": [ShareMessage(request="r", device="d", count=1, within="1")] * 2},
    ],
    ids=["uid", "namespace", "name", "nothing", "device", "request", "count", "list", "twice"],
)
def test_what_is_no_claim_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        claim_asked(request(**wrong))


def test_a_driver_is_told_what_it_needs() -> None:
    state = prepared(small_state(), "p")
    message = node_message(Snapshot(Machine("m", INFO), state, node="n1"))
    assert (message.node, message.static, message.reserved) == ("n1", True, "0")
    assert (message.claimable, message.shared) == ("1-3,7", "0-3,7")
    [claim] = message.claims
    assert [(one.request, one.cpus, one.variable) for one in claim.shares] == [
        ("fast", "4-5", FAST),
        ("slow", "6", SLOW),
    ]


def test_status_text_and_picture_tell_claims_and_who_uses_them() -> None:
    state = run(prepared(small_state(), "p"), shared("p"), FAST)
    document = to_builtins(status_document(Snapshot(Machine("m", INFO), state, node="n1"), NO_COUNTS))
    assert complaints("AgentStatus", document) == []
    [claim] = document["claims"]
    assert (claim["name"], claim["cpus"], claim["pods"]) == ("two", "4-6", ["p"])
    [pod] = document["pods"]
    assert pod["containers"][0]["claimed"] == "4-5"
    assert document["cpus"]["exclusive"] == "4-6"
    text = status_text(read_status(document))
    assert "shop/two" in text
    assert "4-5 by claims" in text
    assert "claim shop/two (fast)" in terminal_text(status_view(Machine("m", INFO), read_status(document)), width=100)


# Refusals of containers whose pods have their place, the opt-out annotation, and what comes of cpusets.


EMPTY = "EmptySharedPool: no CPU is left in the shared pool for containers without CPUs of their own"


def created_for(state: AgentState, pod: Pod, name: str = "main", life: int = 0) -> EventOutcome:
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
    return created_for(small_state(STRICT, options), guaranteed("a", "7")).state


# An active pod has a container for which no CPU is left.


def test_a_container_of_a_placed_pod_for_which_no_cpu_is_left_is_reported_once() -> None:
    state = without_pool(Options(evict=True))
    found = created_for(state, guaranteed("a", "7"), "debug")
    assert found.answer == Refused(EMPTY)
    assert reports(found.effects) == [(ReportKind.REJECTED, "EmptySharedPool")]
    assert events(found.effects) == ["EmptySharedPool"]
    assert not [one for one in found.effects if isinstance(one, Evict)]
    again = created_for(found.state, guaranteed("a", "7"), "debug", 1)
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
    again = start(created_for(ended, guaranteed("a", "7")).state, "a", "debug", 1)
    assert reports(again.effects) == [(ReportKind.START_REFUSED, "EmptySharedPool")]


# The opt-out annotation.


@pytest.mark.parametrize(
    ("value", "is_told"), [("yes", True), ("1", True), ("", True), ("true", False), (" False ", False), (None, False)]
)
def test_an_unreadable_opt_out_is_reported_once_and_counts_as_no(value: str | None, *, is_told: bool) -> None:
    state = small_state(options=Options(opt_out_annotation="mooring/opt-out"))
    pod = guaranteed("a", "2", "1", annotations={} if value is None else {"mooring/opt-out": value})
    made = created_for(state, pod)
    assert adjustment_of(made).resources.cpus == ("0-7" if value == "true" else "1-2")
    assert (ReportKind.OPT_OUT_UNREAD in [one for one, _ in reports(made.effects)]) == is_told
    assert ("OptOutUnread" in events(made.effects)) == is_told
    assert events(created_for(made.state, pod, "c1").effects) == []


def test_a_pod_that_waits_is_told_of_its_annotation_once_too_and_of_none_where_there_is_no_such_option() -> None:
    pod = guaranteed("a", "9", annotations={"mooring/opt-out": "yes"})
    first = created_for(small_state(options=Options(opt_out_annotation="mooring/opt-out")), pod)
    assert isinstance(first.answer, Refused)
    assert events(first.effects) == ["OptOutUnread", "UnexpectedAdmissionError"]
    assert events(created_for(first.state, pod, life=1).effects) == []
    assert events(created_for(small_state(), pod).effects) == ["UnexpectedAdmissionError"]


# Which writes find lost updates.


def occasion(found: EventOutcome, container_id: str) -> list[Occasion]:
    return [one.occasion for one in found.effects if isinstance(one, WriteCPUSet) and one.container_id == container_id]


def test_an_update_that_was_due_while_a_container_was_made_is_looked_for_when_it_starts() -> None:
    state = created_for(small_state(), shared("s")).state
    state = created_for(state, guaranteed("a", "2")).state
    assert occasion(start(state, "s"), "s-main-0") == [Occasion.CHECK]


def test_what_nobody_could_have_told_the_runtime_is_carried_out_and_not_looked_for() -> None:
    state = created_for(small_state(), guaranteed("a", "2")).state
    state = created_for(state, shared("s")).state
    state = state_change(state, Event.STOP_POD_SANDBOX, sandbox("a"), None).state
    assert occasion(start(state, "s", cpus="0,3-7"), "s-main-0") == [Occasion.DECISION]
    # The next reply could have said so, and would have been dropped.
    told = stop_container(state, container("nobody"))
    assert updates_of(told) == ()
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


# Hidden siblings on a live node: they stay with their container through a reconciliation, and go with it.


HIDE = {"mooring/hide-siblings": "true"}
CORES = tuple(Core(number, (2 * number, 2 * number + 1), 0) for number in range(4))
SMT = replace(INFO, topology=(replace(INFO.topology[0], cores=CORES[:2]), replace(INFO.topology[1], cores=CORES[2:])))
"""Eight CPUs on four cores: 0 and 1 share one, and so on."""


def placed() -> AgentState:
    """Return a state in which pod a has one thread each of two cores, and nobody the others."""
    mooring = MooringConfig(frozenset({"plugins"}), plugins=plugin_choice({"plugins": ["hidden-siblings"]}))
    state = place(resume(SMT, CONFIG, mooring, None, None).state, guaranteed("a", "2", annotations=HIDE)).state
    assert state.kubelet.node.cpu.assignments == {"a": {"main": 0b01010000}, "hidden:a": {"main": 0b10100000}}
    return state


def gone(effects: object) -> list[AgentReport]:
    return [one for one in effects if isinstance(one, AgentReport) and one.finding is ReportKind.POD_GONE]  # type: ignore[attr-defined]


def test_a_reconciliation_keeps_them_while_the_pod_has_a_sandbox() -> None:
    state = placed()
    outcome = synchronize(state, [sandbox("a")], [running("a")], {"a": guaranteed("a", "2", annotations=HIDE)})
    assert outcome.state.kubelet.node.cpu.assignments == state.kubelet.node.cpu.assignments
    assert not gone(outcome.effects)


def test_they_come_back_with_a_pod_that_is_gone_and_are_told_once() -> None:
    outcome = synchronize(placed(), [], [], {})
    assert outcome.state.kubelet.node.cpu.assignments == {}
    assert outcome.state.kubelet.node.cpu.default == 0b11111111
    assert [report.uid for report in gone(outcome.effects)] == ["a"]


def test_an_agent_that_starts_anew_finds_them_in_its_journal() -> None:
    state = placed()
    files = state.kubelet.files
    started = restart_kubelet(state.kubelet)
    assert isinstance(started, Kubelet)
    assert started.files == files
    assert started.node.cpu.assignments == state.kubelet.node.cpu.assignments
