"""The same node and pods under several kubelet releases, and the rules by which two of them decide differently.

A rule is a reason for a pod where the newer release decides differently about it with this rule alone as in the older
one; where no rule does, the older release with a rule alone as in the newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.plan_document import differing, held_devices, placement_part, pod_part
from mooring.answers.base.pods import pods_of
from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Code,
    DocumentPart,
    FindingPart,
    HeldDeviceTable,
    KubeletRelease,
    PlacementPart,
    PodPart,
    finding_parts,
    told,
)
from mooring.engine.core.release import Release
from mooring.engine.releases.rule import ReleaseRule
from mooring.engine.releases.rules import RULES

Ask: TypeAlias = Callable[[Release], Question]
"""Returns the question as a kubelet of a release reads it."""


class ReleaseDecisionPart(DocumentPart):
    """What the kubelet of one release decides about a pod."""

    kubelet: KubeletRelease
    admitted: bool
    reason: str
    message: str
    code: Code
    containers: dict[str, PlacementPart]
    pod: PlacementPart
    devices: HeldDeviceTable


class ReleasePodPart(DocumentPart):
    """A pod under every release."""

    uid: str
    namespace: str
    name: str
    same: Annotated[bool, told("Whether all releases decide the same.")]
    decisions: Annotated[list[ReleaseDecisionPart], told("One a release that asks about the pod.")]


class SeparatingRulePart(DocumentPart):
    """A rule by which two releases decide differently about this node."""

    rule: str
    releases: Annotated[str, told("The releases that follow the rule.")]
    says: str
    instead: Annotated[str, told("What later releases do.")]
    source: str
    pods: Annotated[list[PodPart], told("The pods that the rule alone changes.")]


class ReleaseDifferencePart(DocumentPart):
    """What separates two releases that follow one another."""

    older: KubeletRelease
    newer: KubeletRelease
    pods: Annotated[list[PodPart], told("About which they decide differently.")]
    rules: list[SeparatingRulePart]
    unexplained: Annotated[
        list[PodPart], told("Those that no rule alone changes: gates, option stages and file formats do.")
    ]


class ReleaseComparisonDocument(DocumentPart, kw_only=True):
    """What mooring compare --kubelet-version A,B -o json prints: one node under several releases."""

    api_version: APIVersion = API_VERSION
    kind: Literal["ReleaseComparison"] = "ReleaseComparison"
    kubelets: Annotated[list[str], told("The releases, the oldest first.")]
    start_errors: Annotated[dict[str, str], told("Release -> message of a kubelet that would not start.")]
    pods: list[ReleasePodPart]
    differences: list[ReleaseDifferencePart]
    findings: list[FindingPart]


def compare_releases(ask: Ask, releases: Sequence[Release]) -> tuple[list[AnyPlan], ReleaseComparisonDocument]:
    """Plan the same question under several releases; return the plans, and what they decide differently.

    Args:
        ask: reads the question.
        releases: the oldest first, each once.

    Raises:
        InputError: the question cannot be read.
    """
    plans = [make_plan(ask(release)) for release in releases]
    started = [plan for plan in plans if isinstance(plan, Plan)]
    pairs = [pair for pair in pairwise(started) if differing(*pair)]
    different = {uid for _, newer in pairs for uid in differing(started[0], newer)}
    pods = {pod.uid: pod for plan in plans for pod in pods_of(plan)}
    return plans, ReleaseComparisonDocument(
        kubelets=[plan.release.tag for plan in plans],
        start_errors={plan.release.tag: plan.refusal.message for plan in plans if isinstance(plan, RefusedPlan)},
        pods=[
            ReleasePodPart(
                uid,
                pod.namespace,
                pod.name,
                same=uid not in different,
                decisions=[_decision(plan, one) for plan in plans for one in plan.answers if one.pod.uid == uid],
            )
            for uid, pod in pods.items()
        ],
        differences=[_difference(ask, *pair) for pair in pairs],
        findings=finding_parts(dict.fromkeys(one for plan in plans for one in plan.findings)),
    )


def _decision(plan: AnyPlan, answer: Answer) -> ReleaseDecisionPart:
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


def _difference(ask: Ask, older: Plan, newer: Plan) -> ReleaseDifferencePart:
    changed = differing(older, newer)
    pods = {pod.uid: pod for pod in (*pods_of(older), *pods_of(newer)) if pod.uid in changed}
    found = dict(_separating(ask, newer, older, changed))
    # Where several rules agree, each alone changes nothing in the newer release, but the last of them in the older.
    explained = {uid for uids in found.values() for uid in uids}
    if explained != changed:
        for rule, uids in _separating(ask, older, newer, changed - explained):
            found[rule] = found.get(rule, set()) | uids
    explained = {uid for uids in found.values() for uid in uids}
    return ReleaseDifferencePart(
        older=older.release.tag,
        newer=newer.release.tag,
        pods=[pod_part(pod) for pod in pods.values()],
        rules=[
            SeparatingRulePart(
                rule.name,
                rule.span,
                rule.says,
                rule.instead,
                rule.source,
                [pod_part(pod) for uid, pod in pods.items() if uid in found[rule]],
            )
            for rule in RULES
            if rule in found
        ],
        unexplained=[pod_part(pod) for uid, pod in pods.items() if uid not in explained],
    )


def _separating(ask: Ask, plan: Plan, like: Plan, changed: set[str]) -> Iterator[tuple[ReleaseRule, set[str]]]:
    """Yield the rules that alone, as in another release, change the decision about some of the pods."""
    different = {*plan.release.rules.names()} ^ {*like.release.rules.names()}
    for rule in RULES:
        if rule.name in different:
            uids = changed & differing(plan, make_plan(ask(_with_rule(plan.release, rule, like.release))))
            if uids:
                yield rule, uids


def _with_rule(release: Release, rule: ReleaseRule, like: Release) -> Release:
    """Return a release that follows one rule as another release does."""
    field = rule.name.replace("-", "_")
    return replace(release, rules=replace(release.rules, **{field: getattr(like.rules, field)}))
