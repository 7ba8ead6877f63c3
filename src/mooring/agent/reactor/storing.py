"""What becomes of an outcome whose state cannot be written."""

from __future__ import annotations

from dataclasses import replace

from mooring.agent.reactor.answers import Adjusted, Outcome, Refused
from mooring.agent.reactor.effects import Finding, Persist, Report
from mooring.agent.reactor.placing import STATE_UNWRITABLE, text_of
from mooring.agent.reactor.values import AgentState
from mooring.core.decision import Rejection
from mooring.cpumanager.claimed import is_claim


def unwritten(before: AgentState, outcome: Outcome, uid: str, problem: str) -> Outcome:
    """Return what is done instead of an outcome whose :class:`Persist` failed.

    By default the same: the runtime and the cgroups hold every placement too, and a reconciliation reads them. With
    ``place_while_unwritable`` off a container with CPUs of its own is refused, unless its pod had them before.

    Args:
        before: the state before the event.
        outcome: what the event came to.
        uid: of the event's pod; empty where there is none.
        problem: of the folder, in words.
    """
    rest = tuple(effect for effect in outcome.effects if not isinstance(effect, Persist))
    report = Report(Finding.STATE_UNWRITABLE, problem, uid)
    own = outcome.state.kubelet.node.cpu.assignments.get(uid, {})
    had = before.kubelet.node.cpu.assignments.get(uid, {})
    # An answer to a creation, to an update that makes a container grow, or to a claim that had nothing.
    grows = any(had.get(name, 0 if is_claim(uid) else cpus) & cpus != cpus for name, cpus in own.items())
    is_given = isinstance(outcome.answer, Adjusted) or grows
    if outcome.state.options.place_while_unwritable or not is_given:
        return replace(outcome, effects=(report, *rest))
    if not any(own.values()) or had == own:
        return replace(outcome, effects=(report, *rest))
    refused = Rejection(STATE_UNWRITABLE, "CPUs of its own are not given while the agent's state cannot be written")
    return Outcome(replace(before, sandboxes=outcome.state.sandboxes), Refused(text_of(refused)), (report,))
