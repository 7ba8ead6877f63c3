"""``mooring compare --kubelet-version A,B -o json``: several releases as a document."""

from __future__ import annotations

from mooring.answers.base.answering import Answer
from mooring.answers.base.outcome import held_devices, placement_part
from mooring.answers.base.plan import Plan
from mooring.answers.base.plan_document import pod_part
from mooring.answers.compare.by_release import ReleaseComparison, ReleaseDifference, SeparatingRule
from mooring.documents.comparison import (
    ReleaseComparisonDocument,
    ReleaseDecisionPart,
    ReleaseDifferencePart,
    ReleasePodPart,
    SeparatingRulePart,
)
from mooring.documents.parts import finding_parts


def release_comparison_document(comparison: ReleaseComparison) -> ReleaseComparisonDocument:
    """Return the document."""
    differing = {pod.uid for pod in comparison.differing}
    return ReleaseComparisonDocument(
        kubelets=[plan.release.tag for plan in comparison.plans],
        start_errors={plan.release.tag: plan.refusal.message for plan in comparison.plans if plan.refusal is not None},
        pods=[
            ReleasePodPart(
                pod.uid,
                pod.namespace,
                pod.name,
                same=pod.uid not in differing,
                decisions=[_decision(plan, answer) for plan in comparison.plans for answer in _answers(plan, pod.uid)],
            )
            for pod in comparison.pods
        ],
        differences=[_difference(one) for one in comparison.differences],
        findings=finding_parts(dict.fromkeys(one for plan in comparison.plans for one in plan.findings)),
    )


def _answers(plan: Plan, uid: str) -> list[Answer]:
    return [answer for answer in plan.answers if answer.pod.uid == uid]


def _decision(plan: Plan, answer: Answer) -> ReleaseDecisionPart:
    decision = answer.decision
    return ReleaseDecisionPart(
        kubelet=plan.release.tag,
        admitted=decision.admitted,
        reason=decision.reason,
        message=decision.message,
        code=answer.code,
        containers={name: placement_part(placement) for name, placement in decision.containers.items()},
        pod=placement_part(decision.pod),
        devices=held_devices(decision),
    )


def _difference(difference: ReleaseDifference) -> ReleaseDifferencePart:
    return ReleaseDifferencePart(
        older=difference.older.tag,
        newer=difference.newer.tag,
        pods=[pod_part(pod) for pod in difference.pods],
        rules=[_rule(one) for one in difference.rules],
        unexplained=[pod_part(pod) for pod in difference.unexplained],
    )


def _rule(one: SeparatingRule) -> SeparatingRulePart:
    rule = one.rule
    return SeparatingRulePart(
        rule.name, rule.span, rule.says, rule.instead, rule.source, [pod_part(pod) for pod in one.pods]
    )
