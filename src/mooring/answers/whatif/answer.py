"""``mooring whatif``: two plans side by side, or the changes that were found; every form is made of one of these."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.answers.base.changes.change import PlannedChange, asked_about, sentence
from mooring.answers.base.changes.nearest import (
    change_parts,
    exclusive_changes,
    is_exclusive,
    nearest_changes,
    outcome_command,
    proposal_part,
)
from mooring.answers.base.changes.search import Proposal
from mooring.answers.base.inputs.node import NodeInputs
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan, start_error
from mooring.answers.base.plan_document import plan_document, pod_part
from mooring.answers.base.pods import Named, find_pod, first_refused, pods_of
from mooring.answers.base.start import advice_to_start
from mooring.documents import explanation as parts
from mooring.documents.plan import finding_parts
from mooring.engine.core.decision import Placement
from mooring.engine.node.settings import policies
from mooring.explanations.alignment import extents
from mooring.explanations.codes import SHARED_BY_AMOUNT, SHARED_BY_GATE, SHARED_BY_POLICY, SHARED_BY_QOS
from mooring.explanations.story import PodVerdict

UNASKED = "unasked"
"""The state of a pod that was not asked, as these documents call it."""
_SHARED = frozenset({SHARED_BY_AMOUNT, SHARED_BY_GATE, SHARED_BY_POLICY, SHARED_BY_QOS})


def changed(
    question: Question, changes: Sequence[PlannedChange], before: AnyPlan, after: AnyPlan
) -> parts.WhatIfDocument:
    """Compare the plans of a question without and with changes; the document is without their pods.

    Args:
        question: without the changes.
        changes: what was changed.
        before: the plan without them.
        after: the plan with them.
    """
    pods = {one.uid: one for one in differences(before, after)}
    old, new = (policies(one.kubelet.settings) if isinstance(one, Plan) else "" for one in (before, after))
    document = parts.WhatIfDocument(
        kubelet=before.release.tag,
        machine=before.machine.name,
        changes=change_parts(changes, question),
        differences=[one for one in pods.values() if differs(one)],
        before=plan_document(before, with_pods=False),
        after=plan_document(after, with_pods=False),
    )
    document.title, document.policies, document.pods = sentence(changes, question), (old, new), (*pods.values(),)
    document.refused = tuple(pods[answer.pod.uid] for answer in after.answers if not answer.admitted)
    return document


def nearest(
    read: NodeInputs, question: Question, made: Sequence[PlannedChange], name: str, goal: str, limit: int
) -> parts.NearestChangesDocument:
    """Search for changes.

    Args:
        read: the options of the call.
        question: with the changes that are made already.
        made: those changes.
        name: of the pod; empty for the first that is not admitted.
        goal: ``admitted`` or ``exclusive``.
        limit: how many changes at most.

    Raises:
        InputError: no pod has this name.
    """
    plan = make_plan(question)
    pod = find_pod(asked_about(question), name) if name else first_refused(plan)
    answer = next((one for one in plan.answers if pod is not None and one.pod.uid == pod.uid), None)
    admitted = pod is None or (answer is not None and answer.admitted)
    lacks = goal == "exclusive" and answer is not None and not is_exclusive(answer.decision)
    found: tuple[Proposal, ...] = ()
    if pod is not None and (lacks or not admitted):
        found = exclusive_changes(question, pod.uid, limit) if goal == "exclusive" else ()
        if not admitted:
            found = found or nearest_changes(question, pod.uid, limit)
            found = tuple(one for one in found if goal != "exclusive" or is_exclusive(one.decision))
    document = parts.NearestChangesDocument(
        kubelet=plan.release.tag,
        machine=plan.machine.name,
        start_error=start_error(plan),
        pod=pod_part(pod) if pod is not None else None,
        admitted=admitted,
        reason=answer.decision.reason if answer is not None else "",
        code=answer.code if answer is not None else "",
        why=answer.why if answer is not None else "",
        proposals=[proposal_part(one, question) for one in found],
        findings=finding_parts(plan.findings),
        remedy=plan.remedy if isinstance(plan, RefusedPlan) else "",
    )
    if pod is not None:
        for one, part in zip(found, document.proposals, strict=True):
            replaced = {change.target for change in one.changes} - {""}
            kept = [change.option for change in made if change.target not in replaced]
            part.command = outcome_command(read, (*kept, *one.options), pod)
        if admitted and document.code in _SHARED:
            document.exclusive_command = ("whatif", Named(pod).full, *read.options.words, "--goal", "exclusive")
    starts = isinstance(plan, RefusedPlan) and advice_to_start(plan.question, plan.refusal)
    document.exclusive = goal == "exclusive" and (lacks or not admitted)
    document.advice = answer.remedy if answer is not None else ""
    document.is_yes = bool(found or starts) or not (lacks or not admitted)
    return document


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
    found = {pod.uid: parts.OutcomePart(UNASKED, "", "", "", {}, None) for pod in plan.unasked}
    for answer in plan.answers:
        uid, decision = answer.pod.uid, answer.decision
        if not answer.admitted:
            found[uid] = parts.OutcomePart(answer.verdict, decision.reason, answer.code, answer.why, {}, None)
            continue
        lies = extents(answer.circumstances.settings, answer.decided, answer.pod, decision)
        containers = {
            name: _place(
                placement,
                sorted(device.id for devices in decision.devices.get(name, {}).values() for device in devices),
                lies.get(name, []),
            )
            for name, placement in decision.containers.items()
        }
        whole = _place(decision.pod, [], []) if decision.pod.cpus or decision.pod.mems else None
        state = PodVerdict.LEFT if uid in plan.left else PodVerdict.ADMITTED
        found[uid] = parts.OutcomePart(state, "", answer.code, "", containers, whole)
    return found


def _place(placement: Placement, devices: list[str], alignment: list[parts.ExtentPart]) -> parts.OutcomePlacePart:
    return parts.OutcomePlacePart(str(placement.cpus), ",".join(map(str, placement.mems)), devices, alignment)
