"""What claims of dynamic resource allocation come to, on a node of 8 CPUs of which CPU 0 is reserved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import to_builtins
from tests.agent.small_node import CONFIG, INFO, container, guaranteed, running, sandbox, shared, small_state
from tests.documents.validation import complaints
from tests.render.pictured import terminal_text

from mooring.agent.effects import AgentReport, Persist, ReportKind, WriteCPUSet
from mooring.agent.journal import JournalWriter, read_journal
from mooring.agent.nri.messages import NRIContainerMessage
from mooring.agent.nri.methods import container_from
from mooring.agent.nri.types import Event, RuntimeContainer
from mooring.agent.pod_resources import claim_asked, node_message
from mooring.agent.reactor.create_container import create_container, prepare_claim, unprepare_claim
from mooring.agent.reactor.desired import expected
from mooring.agent.reactor.lifecycle import state_change
from mooring.agent.reactor.recovery import Stored, resume
from mooring.agent.reactor.response import Adjusted, EventOutcome, Refused, unwritten
from mooring.agent.reactor.synchronize import synchronize
from mooring.agent.state import AgentState, Options, claimed_cpus, variables
from mooring.agent.status.document import status_document
from mooring.agent.status.snapshot import Snapshot, exclusive_cpus, overlaps
from mooring.answers.status.text import status_text
from mooring.documents.status import AgentCountsPart
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.engine.extensions.owners import claim_key, claim_of
from mooring.engine.node.claims import Claim, Share
from mooring.service.agent_status import read_status
from mooring.service.messages import PrepareRequestMessage, ShareMessage
from mooring.views.status import status_view

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
    assert isinstance(made.answer, Adjusted)
    return made.answer.adjustment.resources.cpus


def refusal(made: EventOutcome) -> str:
    assert isinstance(made.answer, Refused)
    return made.answer.text.partition(":")[0]


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
