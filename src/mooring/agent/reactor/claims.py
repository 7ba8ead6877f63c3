"""Claims of dynamic resource allocation: prepared for pods, and released.

When a claim is prepared its CPUs leave the shared pool at once, so that no other container runs on them by the time at
which its first container is created.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.agent.reactor.effects import AgentReport, ReportKind
from mooring.agent.reactor.outcomes import EventOutcome, Refused
from mooring.agent.reactor.placing import place_waiting, text_of
from mooring.agent.reactor.updates import enforced, outcome
from mooring.agent.reactor.values import AgentState
from mooring.core.observer import Observer
from mooring.node.claims import Claim


def prepare_claim(
    state: AgentState, asked: Claim, pods: Collection[str], observer: Observer | None = None
) -> EventOutcome:
    """Give a claim its CPUs; one that has them keeps them.

    Args:
        state: before.
        asked: what is allocated to it on this node.
        pods: uids of those for which it is reserved now.
        observer: receives the engine's facts, for metrics.

    Returns:
        An outcome that is :class:`Refused` when the claim gets nothing.
    """
    kubelet, decision = state.kubelet.claim(asked, observer)
    if decision.rejection is not None:
        text = f"claim {asked.namespace}/{asked.name}: {text_of(decision.rejection)}"
        report = AgentReport(ReportKind.CLAIM_REFUSED, text, "", "", decision.rejection.reason)
        return outcome(state, state, Refused(text_of(decision.rejection)), (report,))
    users = {**state.claim_users, asked.uid: frozenset(pods)}
    after, changed = enforced(state, replace(state, kubelet=kubelet, claim_users=users))
    return outcome(state, after, None, changed)


def unprepare_claim(state: AgentState, uid: str, observer: Observer | None = None) -> EventOutcome:
    """Take a claim's CPUs back; of one that has none nothing changes."""
    kubelet = state.kubelet.release(uid, observer)
    if kubelet.node is state.kubelet.node and uid not in state.claim_users:
        return outcome(state, state)
    users = {known: pods for known, pods in state.claim_users.items() if known != uid}
    placed = place_waiting(replace(state, kubelet=kubelet, claim_users=users), observer)
    after, changed = enforced(state, placed.state)
    return outcome(state, after, None, (*changed, *placed.effects))
