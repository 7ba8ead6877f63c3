"""Claims of dynamic resource allocation in a story: the pod's own, and those without which it would be admitted.

A claim is an owner of CPUs beside pods (:mod:`mooring.node.claims`). Whether claims are what a refused pod lacks room
for is not guessed from sums: the engine is asked again without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mooring.core.bits import list_text
from mooring.core.pod import Pod
from mooring.cpumanager.claimed import HeldClaim, claims_of
from mooring.explain.phrases import count, joined
from mooring.explain.story import ClaimsTold
from mooring.explain.tree import NO, Line
from mooring.kubelet.kubelet import Kubelet
from mooring.planner.answering import Answer, answered

MOST_NAMED = 6
"""How many claims one line names."""


def claims_told(answer: Answer, before: Kubelet) -> ClaimsTold:
    """Return what is to be told of claims.

    Args:
        answer: about the pod.
        before: the kubelet that was asked, as it was then.
    """
    held = claims_of(before.node.cpu)
    by_name = {(claim.namespace, claim.name): claim for claim in held.values()}
    own = [by_name.get((answer.pod.namespace, name)) for name in answer.pod.claims]
    nowhere = tuple(name for name, claim in zip(answer.pod.claims, own, strict=True) if claim is None)
    return ClaimsTold(
        own=tuple(claim for claim in own if claim is not None),
        nowhere=nowhere,
        in_the_way=() if answer.admitted or not held else _in_the_way(answer, before, tuple(held.values())),
        held=sum(claim.cpus.bit_count() for claim in held.values()),
    )


def _in_the_way(answer: Answer, before: Kubelet, held: tuple[HeldClaim, ...]) -> tuple[HeldClaim, ...]:
    """Return a set of claims without which the pod is admitted, and no smaller part of it; empty when none helps."""
    if not _is_admitted(answer, before, held):
        return ()
    gone = list(held)
    # Small claims are the first that are left where they are, so that few large ones remain.
    for claim in sorted(held, key=lambda one: (one.cpus.bit_count(), one.namespace, one.name, one.uid)):
        rest = [one for one in gone if one is not claim]
        if _is_admitted(answer, before, rest):
            gone = rest
    return tuple(sorted(gone, key=lambda one: (one.namespace, one.name, one.uid)))


def _is_admitted(answer: Answer, before: Kubelet, without: Iterable[HeldClaim]) -> bool:
    for claim in without:
        before = before.release(claim.uid)
    return answered(before, answer.pod, running=answer.running)[1].admitted


def claim_lines(told: ClaimsTold, pod: Pod) -> Iterator[Line]:
    """Yield what there is to tell, the cause of a refusal first."""
    if told.in_the_way:
        several = len(told.in_the_way) > 1
        claims = f"{count(len(told.in_the_way), 'claim')} {'hold' if several else 'holds'}"
        below = tuple(Line(_claim_text(claim)) for claim in told.in_the_way[:MOST_NAMED])
        if len(told.in_the_way) > MOST_NAMED:
            below += (Line(f"and {len(told.in_the_way) - MOST_NAMED} more"),)
        them = "them" if several else "that claim"
        yield Line(f"{claims} CPUs that the pod needs: it would be admitted without {them}", below, mark=NO)
    elif told.held and not told.own:
        yield Line(f"claims hold {count(told.held, 'CPU')} of the node", detail=True)
    for claim in told.own:
        shares = tuple(
            Line(f"request {share.request}: CPUs {list_text(share.cpus)} of {share.device}")
            for share in claim.shares
            if share.device
        )
        yield Line(f"its {_claim_text(claim)}", shares)
    if told.nowhere:
        names = joined([f"{pod.namespace}/{name}" for name in told.nowhere])
        yield Line(f"no CPUs of this node are held for {names}, which the pod names as claims", detail=True)


def _claim_text(claim: HeldClaim) -> str:
    name = f"{claim.namespace}/{claim.name}" if claim.name else claim.uid
    return f"claim {name} holds CPUs {list_text(claim.cpus)}"
