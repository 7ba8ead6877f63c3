"""``mooring whatif`` as documents: two plans side by side, and changes that were found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mooring.answers.base.answering import Answer
from mooring.answers.base.changes.change import PlannedChange
from mooring.answers.base.changes.nearest import change_parts, proposal_part
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.plan import AnyPlan, Question, RefusedPlan, start_error
from mooring.answers.base.plan_document import plan_document, pod_part
from mooring.answers.base.pods import pods_of
from mooring.documents import explanation as parts
from mooring.documents.plan import finding_parts
from mooring.engine.core.decision import Placement
from mooring.engine.core.pod import Pod
from mooring.explanations.alignment import extents
from mooring.explanations.story import PodVerdict

UNASKED = "unasked"
"""The state of a pod that was not asked, as these documents call it."""


def what_if_document(
    question: Question, changes: Sequence[PlannedChange], before: AnyPlan, after: AnyPlan
) -> parts.WhatIfDocument:
    """Return the document of changes that were asked about.

    Args:
        question: without the changes.
        changes: what was changed.
        before: the plan without them.
        after: the plan with them.
    """
    return parts.WhatIfDocument(
        kubelet=before.release.tag,
        machine=before.machine.name,
        changes=change_parts(changes, question),
        differences=[one for one in differences(before, after) if differs(one)],
        before=plan_document(before),
        after=plan_document(after),
    )


def nearest_document(
    question: Question, pod: Pod | None, proposals: Iterable[Proposal], plan: AnyPlan
) -> parts.NearestChangesDocument:
    """Return the document of changes that were found.

    Args:
        question: the one that was searched.
        pod: the pod that they admit; None when every pod is admitted without a change.
        proposals: the nearest first.
        plan: the question as it is.
    """
    answer = next((answer for answer in plan.answers if pod is not None and answer.pod.uid == pod.uid), None)
    return parts.NearestChangesDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        pod=pod_part(pod) if pod is not None else None,
        admitted=pod is None or (answer is not None and answer.admitted),
        reason=answer.decision.reason if answer is not None else "",
        code=answer.code if answer is not None else "",
        why=answer.why if answer is not None else "",
        proposals=[proposal_part(proposal, question) for proposal in proposals],
        findings=finding_parts(plan.findings),
        remedy=plan.remedy if isinstance(plan, RefusedPlan) else "",
    )


def differences(before: AnyPlan, after: AnyPlan) -> list[parts.DifferencePart]:
    """Return all pods of both plans, in the order of the first and then of the second, as they are called after."""
    old, new = _outcomes(before), _outcomes(after)
    pods = {pod.uid: pod for pod in (*pods_of(before), *pods_of(after))}
    names = {**pods, **{pod.uid: pod for pod in pods_of(after)}}
    absent = parts.OutcomePart(PodVerdict.ABSENT, "", "", "", {}, None)
    return [
        parts.DifferencePart(uid, names[uid].namespace, names[uid].name, old.get(uid, absent), new.get(uid, absent))
        for uid in pods
    ]


def differs(one: parts.DifferencePart) -> bool:
    """Tell whether something changes for a pod; why it is rejected may read differently."""
    old, new = one.before, one.after
    return (old.state, old.reason, old.containers, old.pod) != (new.state, new.reason, new.containers, new.pod)


def _outcomes(plan: AnyPlan) -> dict[str, parts.OutcomePart]:
    found = {answer.pod.uid: _outcome(plan, answer) for answer in plan.answers}
    return found | {pod.uid: parts.OutcomePart(UNASKED, "", "", "", {}, None) for pod in plan.unasked}


def _outcome(plan: AnyPlan, answer: Answer) -> parts.OutcomePart:
    decision = answer.decision
    if not answer.admitted:
        return parts.OutcomePart(answer.verdict, decision.reason, answer.code, answer.why, {}, None)
    found = extents(answer.circumstances.settings, answer.decided, answer.pod, decision)
    containers = {
        name: _place(
            placement,
            sorted(device.id for devices in decision.devices.get(name, {}).values() for device in devices),
            [parts.ExtentPart(one.level.name.lower(), one.held, one.needed) for one in found.get(name, ())],
        )
        for name, placement in decision.containers.items()
    }
    whole = _place(decision.pod, [], []) if decision.pod.cpus or decision.pod.mems else None
    state = PodVerdict.LEFT if answer.pod.uid in plan.left else PodVerdict.ADMITTED
    return parts.OutcomePart(state, "", answer.code, "", containers, whole)


def _place(placement: Placement, devices: list[str], alignment: list[parts.ExtentPart]) -> parts.OutcomePlacePart:
    return parts.OutcomePlacePart(str(placement.cpus), ",".join(map(str, placement.mems)), devices, alignment)
