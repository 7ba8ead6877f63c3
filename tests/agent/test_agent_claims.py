"""What claims of dynamic resource allocation come to, on a node of 8 CPUs of which CPU 0 is reserved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent import small_node as small
from tests.agent.small_node import (
    CONFIG,
    INFO,
    STRICT,
    adjustment_of,
    container,
    create,
    effects_of,
    ended,
    events,
    findings,
    guaranteed,
    running,
    sandbox,
    shared,
    small_state,
    started,
    writes,
)
from tests.documents.validation import complaints
from tests.render.pictured import terminal_text

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CPUSetSeen, written_of
from mooring.agent.effects import Evict, Occasion, Persist, ReportKind, WriteCPUSet
from mooring.agent.journal import JournalWriter
from mooring.agent.nri.messages import NRIContainerMessage
from mooring.agent.nri.methods import container_from
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.agent.reactor.create_container import prepare_claim, unprepare_claim
from mooring.agent.reactor.desired import expected
from mooring.agent.reactor.lifecycle import Compliance, state_change, stop_container
from mooring.agent.reactor.recovery import resume
from mooring.agent.reactor.response import EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.startup import claim_asked, node_message
from mooring.agent.state import AgentState, Options, Setting, claimed_cpus, variables
from mooring.agent.status import Snapshot, exclusive_cpus, overlaps, status_document
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


def prepared(state: AgentState, *pods: str, asked: Claim = TWO) -> AgentState:
    return prepare_claim(state, asked, pods).state


def with_user() -> AgentState:
    """Return a state in which a container of pod p runs on CPUs of a claim."""
    return started(prepared(small_state(), "p"), shared("p"), claims=(FAST,))


def cpus(made: EventOutcome) -> str:
    return adjustment_of(made).resources.cpus


def refusal(made: EventOutcome) -> str:
    return small.refusal_of(made).partition(":")[0]


def test_a_claim_leaves_the_shared_pool_before_it_is_answered_and_widens_it_again() -> None:
    made = prepare_claim(started(small_state(), shared("s")), TWO, ["p"])
    assert isinstance(made.effects[0], Persist)
    assert writes(made) == [("s", "0-3,7")]
    held = claim_of(made.state.kubelet.node.cpu, "u-1")
    assert held is not None
    assert variables(held) == [FAST, SLOW], "every share has a variable of its own"
    back = unprepare_claim(made.state, "u-1")
    assert (writes(back), back.state.claim_users) == ([("s", "0-7")], {})
    assert unprepare_claim(back.state, "u-1").effects == ()


@pytest.mark.parametrize(
    ("pod", "claims", "own"),
    [
        (shared("p"), (FAST, SLOW), "4-6"),
        (shared("p"), (SLOW,), "6"),
        (shared("p"), (), "0-3,7"),
        (guaranteed("p", "2"), (SLOW,), "1-2,6"),
    ],
)
def test_a_container_has_the_shares_that_it_names_and_no_more(pod: Pod, claims: tuple[str, ...], own: str) -> None:
    assert cpus(create(prepared(small_state(), "p"), pod, claims=claims)) == own


def test_a_claim_that_is_not_prepared_or_reserved_for_another_pod_holds_the_container_back() -> None:
    assert refusal(create(small_state(), shared("p"), claims=(FAST,))) == "ClaimNotPrepared"
    made = create(prepared(small_state(), "p"), shared("thief"), claims=(FAST,))
    assert (refusal(made), findings(made)) == ("ClaimNotReserved", [ReportKind.CLAIM_REFUSED])


def test_preparing_again_lets_another_pod_in_and_moves_nobody() -> None:
    again = prepare_claim(with_user(), TWO, ["p", "q"])
    assert writes(again) == []
    assert isinstance(again.effects[0], Persist)
    assert cpus(create(again.state, shared("q"), claims=(FAST,))) == "4-5"
    assert overlaps(started(again.state, shared("q"), claims=(FAST,)), {}) == ()


def test_a_refused_claim_changes_nothing() -> None:
    state = small_state()
    made = prepare_claim(state, replace(TWO, shares=(Share("fast", "numa1", 5, CPUMask(NUMA1)),)), ["p"])
    assert refusal(made) == "InsufficientCPUs"
    assert made.state is state


def test_a_pod_that_waited_for_a_claims_cpus_gets_them() -> None:
    state = prepared(small_state(), "p", asked=replace(TWO, shares=(Share("all", "numa1", 4, CPUMask(NUMA1)),)))
    state = state_change(state, Event.RUN_POD_SANDBOX, sandbox("g"), None).state
    listed = synchronize(state, [sandbox("g")], [running("g")], {"g": guaranteed("g", "5")})
    assert "g" in listed.state.held
    assert "g" in unprepare_claim(listed.state, "u-1").state.kubelet.node.active


def test_a_restart_keeps_claims_and_their_pods() -> None:
    state = with_user()
    fixed = MooringConfig(fixed_defects=frozenset({"pod-restart"}))
    again = resume(INFO, CONFIG, fixed, small.stored(state)).state
    assert again.claim_users == {"u-1": frozenset({"p"})}
    here = replace(running("p", cpus="4-5"), claims=(FAST,))
    after = synchronize(again, [sandbox("p")], [here], {"p": shared("p")})
    assert ReportKind.POD_GONE not in findings(after)
    assert str(expected(after.state)[here.id].cpus) == "4-5"
    assert claim_of(after.state.kubelet.node.cpu, "u-1") == claim_of(state.kubelet.node.cpu, "u-1")
    fresh = JournalWriter().text(small_state())
    assert "claims" not in fresh
    assert small.stored(small_state()).claim_users == {}


def test_cpus_of_a_claim_are_its_users_own() -> None:
    state = with_user()
    [one] = state.containers.values()
    assert str(exclusive_cpus(state, one, claimed_cpus(state))) == "4-5"
    [found] = overlaps(started(state, shared("s")), {"s-main-0": CPUSet.parse("5")})
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
    document = to_builtins(status_document(Snapshot(Machine("m", INFO), with_user(), node="n1"), NO_COUNTS))
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


def start(state: AgentState, uid: str, name: str = "main", life: int = 0, cpus: str = "0-7") -> EventOutcome:
    made = container(uid, name, life, pid=99)
    made = replace(made, resources=replace(made.resources, cpus=cpus))
    return small.tell(small.tell(state, Event.POST_CREATE_CONTAINER, made).state, Event.START_CONTAINER, made)


def without_pool(options: Options | None = None) -> AgentState:
    """Return a node whose pool a pod of seven CPUs has emptied."""
    return create(small_state(STRICT, options), guaranteed("a", "7")).state


# An active pod has a container for which no CPU is left.


def test_a_container_of_a_placed_pod_for_which_no_cpu_is_left_is_reported_once() -> None:
    pod = guaranteed("a", "7")
    found = create(without_pool(Options(evict=True)), pod, "debug")
    assert (found.answer, findings(found), events(found)) == (
        Refused(EMPTY),
        [ReportKind.REJECTED],
        ["EmptySharedPool"],
    )
    assert not effects_of(found, Evict)
    again = create(found.state, pod, "debug", 1)
    assert (again.answer, findings(again), events(again)) == (found.answer, [], [])


def test_the_same_at_its_start_and_again_after_it_had_started() -> None:
    first = start(without_pool(), "a", "debug")
    assert (first.answer, findings(first)) == (Refused(EMPTY), [ReportKind.START_REFUSED])
    assert events(first) == ["EmptySharedPool"]
    again = start(first.state, "a", "debug", 1)
    assert (again.answer, findings(again)) == (Refused(EMPTY), [])


@pytest.mark.parametrize("is_listed", [False, True], ids=["ended", "gone-at-synchronize"])
def test_of_a_pod_that_has_ended_no_refusal_is_left_for_one_that_comes_again_with_its_uid(*, is_listed: bool) -> None:
    refused = start(without_pool(), "a", "debug").state
    assert refused.unstarted
    over = (synchronize(refused, [], [], {}) if is_listed else ended(refused, "a")).state
    assert (over.unstarted, over.deviating) == ({}, {})
    again = start(create(over, guaranteed("a", "7")).state, "a", "debug", 1)
    assert findings(again) == [ReportKind.START_REFUSED]


# The opt-out annotation.


@pytest.mark.parametrize(
    ("value", "is_told"), [("yes", True), ("1", True), ("", True), ("true", False), (" False ", False), (None, False)]
)
def test_an_unreadable_opt_out_is_reported_once_and_counts_as_no(value: str | None, *, is_told: bool) -> None:
    state = small_state(options=Options(opt_out_annotation="mooring/opt-out"))
    pod = guaranteed("a", "2", "1", annotations={} if value is None else {"mooring/opt-out": value})
    made = create(state, pod)
    assert cpus(made) == ("0-7" if value == "true" else "1-2")
    assert (ReportKind.OPT_OUT_UNREAD in findings(made)) == is_told
    assert ("OptOutUnread" in events(made)) == is_told
    assert events(create(made.state, pod, "c1")) == []


def test_a_pod_that_waits_is_told_of_its_annotation_once_too_and_of_none_where_there_is_no_such_option() -> None:
    pod = guaranteed("a", "9", annotations={"mooring/opt-out": "yes"})
    first = create(small_state(options=Options(opt_out_annotation="mooring/opt-out")), pod)
    assert isinstance(first.answer, Refused)
    assert events(first) == ["OptOutUnread", "UnexpectedAdmissionError"]
    assert events(create(first.state, pod, life=1)) == []
    assert events(create(small_state(), pod)) == ["UnexpectedAdmissionError"]


# Which writes find lost updates.


def occasion(found: EventOutcome) -> list[Occasion]:
    return [one.occasion for one in effects_of(found, WriteCPUSet) if one.container_id == "s-main-0"]


def test_what_nobody_could_have_told_the_runtime_is_carried_out_and_not_looked_for() -> None:
    state = create(create(small_state(), guaranteed("a", "2")).state, shared("s")).state
    state = ended(state, "a").state
    assert occasion(start(state, "s", cpus="0,3-7")) == [Occasion.DECISION]
    # The next reply could have said so, and would have been dropped.
    told = stop_container(state, container("nobody"))
    assert small.updates_of(told) == ()
    assert occasion(start(told.state, "s", cpus="0,3-7")) == [Occasion.CHECK]


# What the kernel shows.

WRITE = small.cpuset_write("c", 9, "/c", "1-2", "0")


def shown(cpus: str, mems: str = "0") -> Setting:
    return Setting(small.cpus(cpus), small.nodes(mems))


@pytest.mark.parametrize(
    ("done", "standing", "problem"),
    [
        (CPUSetSeen(WRITE, shown("0-7"), shown("1-2"), wrote=True), Compliance.RIGHT, ""),
        (CPUSetSeen(WRITE, after=shown("1")), Compliance.WITHIN, "has CPUs 1 instead of 1-2, though it was written"),
        (
            CPUSetSeen(WRITE, after=shown("1-2", "0-1"), trouble=CGroupTrouble.BUSY, problem="/c: busy"),
            Compliance.BEYOND,
            "has memory nodes 0-1 instead of 0: /c: busy",
        ),
        (
            CPUSetSeen(WRITE, trouble=CGroupTrouble.NOT_PERMITTED, problem="/c: not permitted"),
            Compliance.UNKNOWN,
            "has a control group that cannot be read or written: /c: not permitted",
        ),
        (CPUSetSeen(WRITE, trouble=CGroupTrouble.GONE), Compliance.ENDED, ""),
        (CPUSetSeen(WRITE), Compliance.UNSEEN, ""),
    ],
)
def test_a_write_stands_as_the_kernel_shows(done: CPUSetSeen, standing: Compliance, problem: str) -> None:
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
    state = create(resume(SMT, CONFIG, mooring).state, guaranteed("a", "2", annotations=HIDE)).state
    assert state.kubelet.node.cpu.assignments == {"a": {"main": 0b01010000}, "hidden:a": {"main": 0b10100000}}
    return state


def test_they_stay_while_the_pod_has_a_sandbox_and_come_back_when_it_is_gone() -> None:
    state = placed()
    outcome = synchronize(state, [sandbox("a")], [running("a")], {})
    assert outcome.state.kubelet.node.cpu.assignments == state.kubelet.node.cpu.assignments
    assert ReportKind.POD_GONE not in findings(outcome)
    again = restart_kubelet(state.kubelet)
    assert isinstance(again, Kubelet)
    assert again.files == state.kubelet.files, "an agent that starts anew finds them in its journal"
    assert again.node.cpu.assignments == state.kubelet.node.cpu.assignments
    over = synchronize(state, [], [], {})
    assert (over.state.kubelet.node.cpu.assignments, over.state.kubelet.node.cpu.default) == ({}, 0b11111111)
    assert findings(over).count(ReportKind.POD_GONE) == 1
