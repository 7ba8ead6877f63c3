"""``mooring whatif -o json``: changes made, and changes found, as documents."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.answers.base.changes.change import Cost, PlannedChange, sentence
from mooring.answers.base.changes.difference import ContainerPlace, PodDifference, PodOutcome, differences
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.outcome import placement_part
from mooring.answers.base.plan import Plan
from mooring.answers.base.plan_document import plan_document, pod_part
from mooring.answers.base.question import Question
from mooring.documents.changes import (
    AlignmentLostPart,
    ChangePart,
    CostPart,
    DifferencePart,
    ExtentPart,
    NearestChangesDocument,
    OutcomePart,
    OutcomePlacePart,
    ProposalPart,
    WhatIfDocument,
)
from mooring.documents.parts import finding_parts
from mooring.engine.core.pod import Pod
from mooring.explain.alignment import AlignmentLevel


def what_if_document(question: Question, changes: Sequence[PlannedChange], before: Plan, after: Plan) -> WhatIfDocument:
    """Return the document of changes that were asked about.

    Args:
        question: without the changes.
        changes: what was changed.
        before: the plan without them.
        after: the plan with them.
    """
    return WhatIfDocument(
        kubelet=before.release.tag,
        machine=before.machine.name,
        changes=_change_parts(changes, question),
        differences=[_difference(one) for one in differences(before, after) if not one.is_none],
        before=plan_document(before),
        after=plan_document(after),
    )


def nearest_document(
    question: Question, pod: Pod | None, proposals: Iterable[Proposal], plan: Plan
) -> NearestChangesDocument:
    """Return the document of changes that were found.

    Args:
        question: the one that was searched.
        pod: the pod that they admit; None when every pod is admitted without a change.
        proposals: the nearest first.
        plan: the question as it is.
    """
    answer = next((answer for answer in plan.answers if pod is not None and answer.pod.uid == pod.uid), None)
    return NearestChangesDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=plan.refusal.message if plan.refusal is not None else "",
        pod=pod_part(pod) if pod is not None else None,
        admitted=pod is None or (answer is not None and answer.admitted),
        reason=answer.decision.reason if answer is not None else "",
        code=answer.code if answer is not None else "",
        why=answer.why if answer is not None else "",
        proposals=[proposal_part(proposal, question) for proposal in proposals],
        findings=finding_parts(plan.findings),
    )


def _change_parts(changes: Iterable[PlannedChange], question: Question) -> list[ChangePart]:
    """Return changes with what they are, how they read, and the option that makes them."""
    return [ChangePart(change.kind, sentence([change], question), *change.option) for change in changes]


def _cost(cost: Cost) -> CostPart:
    return CostPart(
        guarantees=cost.guarantees,
        pods_touched=cost.touched,
        restarts=cost.restarts,
        state_files=cost.state_files,
        devices_added=cost.devices_added,
        devices=cost.devices,
        milli_cpus=cost.cpus,
        bytes=cost.bytes,
    )


def proposal_part(proposal: Proposal, question: Question) -> ProposalPart:
    """Return a proposal with its cost, its changes, and where the pod would be."""
    return ProposalPart(
        text=proposal.text,
        cost=_cost(proposal.cost),
        guarantees_given_up=[one.value for one in proposal.guarantees],
        alignment_lost=AlignmentLostPart(*(proposal.alignment_lost.get(level, 0) for level in AlignmentLevel)),
        changes=_change_parts(proposal.changes, question),
        containers={name: placement_part(place) for name, place in proposal.decision.containers.items()},
        pod=placement_part(proposal.decision.pod),
    )


def _difference(difference: PodDifference) -> DifferencePart:
    pod = difference.pod
    return DifferencePart(pod.uid, pod.namespace, pod.name, _outcome(difference.before), _outcome(difference.after))


def _outcome(outcome: PodOutcome) -> OutcomePart:
    return OutcomePart(
        state=outcome.state,
        reason=outcome.reason,
        code=outcome.code,
        why=outcome.why,
        containers={place.container: _place(place) for place in outcome.places if place.container},
        pod=next((_place(place) for place in outcome.places if not place.container), None),
    )


def _place(place: ContainerPlace) -> OutcomePlacePart:
    extents = [ExtentPart(one.level.name.lower(), one.held, one.needed) for one in place.extents]
    return OutcomePlacePart(str(place.cpus), ",".join(map(str, place.mems)), list(place.devices), extents)
