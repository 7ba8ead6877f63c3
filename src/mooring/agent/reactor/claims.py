"""Claims of dynamic resource allocation: prepared for pods, used by their containers, and released.

When a claim is prepared its CPUs leave the shared pool at once, so that no other container runs on them by the time at
which its first container is created.

A claim's driver gives every share of a claim a device of the Container Device Interface, and the kubelet hands each
container the devices of exactly the requests that it names. Such a device sets a variable, and by that the agent knows
what a container has of claims, whatever it can learn of the pod elsewhere. A pod's author can write such a variable
too: it counts only in pods for which the claim is reserved, and those are decided by the scheduler.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.nri.types import PodSandbox, RuntimeContainer
from mooring.agent.reactor.placing import place_waiting, text_of
from mooring.agent.reactor.response import EventOutcome, Refused, enforced, outcome
from mooring.agent.state import AgentState, claims_by_variable
from mooring.engine.core.decision import Rejection
from mooring.engine.core.observer import Observer
from mooring.engine.extensions.owners import claims_of
from mooring.engine.node.claims import Claim
from mooring.explain.phrases import nodes_of

CLAIM_NOT_PREPARED = "ClaimNotPrepared"
CLAIM_NOT_RESERVED = "ClaimNotReserved"


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


def nodes_of_claim(state: AgentState, namespace: str, name: str, device: str) -> tuple[int, ...] | None:
    """Return the NUMA nodes of the CPUs that a claim has of a device; None when it has none.

    Args:
        state: with the claims.
        namespace: of the claim.
        name: of the claim.
        device: the driver's name for what the CPUs are of.
    """
    topology, cpus = state.kubelet.settings.topology, 0
    for claim in claims_of(state.kubelet.node.cpu).values():
        if (claim.namespace, claim.name) == (namespace, name):
            for share in claim.shares:
                cpus |= share.cpus if share.device == device else 0
    return tuple(nodes_of(topology, cpus)) if cpus and topology is not None else None


def why_not_claimed(state: AgentState, sandbox: PodSandbox, container: RuntimeContainer) -> Rejection | None:
    """Return why a container that is being created cannot have what it names of claims; None when it can."""
    known = claims_by_variable(state) if container.claims else {}
    for variable in container.claims:
        claim, _ = known.get(variable, (None, 0))
        if claim is None:
            text = f"no claim with the variable {variable} is prepared on this node"
            return Rejection(CLAIM_NOT_PREPARED, text)
        if sandbox.uid not in state.claim_users.get(claim.uid, ()):
            text = f"claim {claim.namespace}/{claim.name} is not reserved for pod {sandbox.namespace}/{sandbox.name}"
            return Rejection(CLAIM_NOT_RESERVED, text)
    return None
