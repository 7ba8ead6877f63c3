"""Which containers may use which claims, and what that gives them.

A claim's driver gives every share of a claim a device of the Container Device Interface, and the kubelet hands each
container the devices of exactly the requests that it names. Such a device sets a variable, and by that the agent knows
what a container has of claims, whatever it can learn of the pod elsewhere. A pod's author can write such a variable
too: it counts only in pods for which the claim is reserved, and those are decided by the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.agent.nri.types import CLAIM_VARIABLE, PodSandbox, RuntimeContainer
from mooring.agent.reactor.values import LIVE, AgentState
from mooring.core.decision import Rejection
from mooring.extensions.claimed import HeldClaim, claims_of

CLAIM_NOT_PREPARED = "ClaimNotPrepared"
CLAIM_NOT_RESERVED = "ClaimNotReserved"


def variables(claim: HeldClaim) -> list[str]:
    """Return the variables of a claim's shares, in their order.

    >>> from mooring.extensions.claimed import HeldShare
    >>> variables(HeldClaim("5d-b1", "shop", "cpus", (HeldShare("fast", "numa0", 6),)))
    ['MOORING_CLAIM_5D_B1_0']
    """
    name = "".join(letter if letter.isascii() and letter.isalnum() else "_" for letter in claim.uid.upper())
    return [f"{CLAIM_VARIABLE}{name}_{number}" for number in range(len(claim.shares))]


def claimed_cpus(state: AgentState) -> Mapping[tuple[str, str], int]:
    """Return the CPUs that live containers have of claims, as masks by pod uid and container."""
    known = _known(state)
    found: dict[tuple[str, str], int] = {}
    if not known:
        return found
    for one in state.containers.values():
        if one.phase not in LIVE:
            continue
        for variable in one.claims:
            claim, cpus = known.get(variable, (None, 0))
            if claim is not None and one.uid in state.claim_users.get(claim.uid, ()):
                found[one.uid, one.name] = found.get((one.uid, one.name), 0) | cpus
    return found


def why_not_claimed(state: AgentState, sandbox: PodSandbox, container: RuntimeContainer) -> Rejection | None:
    """Return why a container that is being created cannot have what it names of claims; None when it can."""
    known = _known(state) if container.claims else {}
    for variable in container.claims:
        claim, _ = known.get(variable, (None, 0))
        if claim is None:
            text = f"no claim with the variable {variable} is prepared on this node"
            return Rejection(CLAIM_NOT_PREPARED, text)
        if sandbox.uid not in state.claim_users.get(claim.uid, ()):
            text = f"claim {claim.namespace}/{claim.name} is not reserved for pod {sandbox.namespace}/{sandbox.name}"
            return Rejection(CLAIM_NOT_RESERVED, text)
    return None


def _known(state: AgentState) -> dict[str, tuple[HeldClaim, int]]:
    """Return claim and CPUs of every variable."""
    return {
        variable: (claim, share.cpus)
        for claim in claims_of(state.kubelet.node.cpu).values()
        for variable, share in zip(variables(claim), claim.shares, strict=True)
    }
