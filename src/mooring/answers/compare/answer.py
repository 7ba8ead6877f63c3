"""A comparison: every variant is run through the trace; the best comes first, those that decide alike together.

The same node and pods under several kubelet releases, and the rules by which two of them decide differently.

A rule is a reason for a pod where the newer release decides differently about it with this rule alone as in the older
one; where no rule does, the older release with a rule alone as in the newer one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Literal, TypeAlias

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import AnyPlan, Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.plan_document import differing, held_devices, placement_part, pod_part
from mooring.answers.base.pods import pods_of
from mooring.answers.base.trace import Trace, shapes
from mooring.answers.compare.measures import VariantPart, digest, measures, observed_key, rank_key
from mooring.answers.compare.trial import run_trials
from mooring.answers.compare.variant import Variant
from mooring.documents import plan as parts
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.releases.rule import ReleaseRule
from mooring.engine.releases.rules import RULES
from mooring.service.daemon import worker_processes


class LeftOutPart(parts.DocumentPart):
    """Variants with which the kubelet would not start."""

    count: parts.Count
    start_error_stage: str
    start_error: str
    start_error_code: parts.Code


class ComparisonDocument(parts.DocumentPart, kw_only=True):
    """What mooring compare -o json prints: variants, best first."""

    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["Comparison"] = "Comparison"
    kubelet: parts.KubeletRelease
    by: Annotated[str, parts.told("The measure by which variants are ordered.")]
    pods: parts.Count
    steps: parts.Count
    variants: list[VariantPart]
    left_out: list[LeftOutPart]
    never_admitted: Annotated[list[str], parts.told("Pods that no variant admits.")]
    findings: list[parts.FindingPart]


@dataclass(frozen=True, slots=True)
class VariantOutcome:
    """What became of a variant, small enough to be sent from one process to another."""

    part: VariantPart
    digest: str
    """Equal for variants that decide everything alike, see :func:`~mooring.answers.compare.measures.digest`."""
    admitted: frozenset[int] = frozenset()
    """Positions of the admitted pods among those of the trace."""


def judge(trace: Trace, variants: Mapping[int, Variant], shapes: Sequence[Pod]) -> dict[int, VariantOutcome]:
    """Run variants through the trace and measure what comes of them: position of each variant -> its outcome.

    Args:
        trace: what happens to each.
        variants: position -> variant, see :func:`~mooring.answers.compare.trial.run_trials`.
        shapes: of the pods in the trace.
    """
    # Where plugins order the pods, none of them is there twice.
    places = {pod.uid: place for place, pod in enumerate(trace.pods)} if trace.waits else {}
    outcomes: dict[int, VariantOutcome] = {}
    for trial in run_trials(trace, variants):
        new = [admission for admission in trial.admissions if not admission.running]
        admitted = frozenset(places.get(one.pod.uid, place) for place, one in enumerate(new) if one.decision.admitted)
        text = digest(trial)
        for position, found in measures(trace, trial, variants, shapes).items():
            outcomes[position] = VariantOutcome(found, text, admitted)
    return outcomes


@dataclass(frozen=True, slots=True)
class Comparison:
    """The answer to "which is best?"."""

    document: ComparisonDocument
    """Variants of one machine that decide everything alike, to the last CPU, and measure alike are a group; the first
    of it departs least from what was given. Variants with which the kubelet would not start are last."""
    variants: tuple[Variant, ...]
    """In the same order."""
    is_yes: bool
    """Whether at least one variant admits everything; of pods that are alone, whether one admits each."""


def ranked(trace: Trace, variants: Sequence[Variant], outcomes: Iterable[VariantOutcome], by: str) -> Comparison:
    """Put the variants in order.

    A combination with which the kubelet would not start, for another reason than the state files, is no variant and is
    left out; a configuration as it was given stays, so that it is reported.

    Args:
        trace: that was run.
        variants: that were compared.
        outcomes: one for each, in their order.
        by: the measure that counts first.
    """
    results: list[tuple[Variant, VariantOutcome]] = []
    refused = Counter[tuple[str, str, parts.Code]]()
    for variant, outcome in zip(variants, outcomes, strict=True):
        part = outcome.part
        if not part.starts and not part.as_given and part.start_error_stage != "start":
            refused[part.start_error_stage, part.start_error, part.start_error_code] += 1
        else:
            results.append((variant, outcome))
    # Among equals the one that is given comes first, then the one that changes least.
    results.sort(key=lambda one: (not one[1].part.starts, *rank_key(one[1].part, by), len(one[1].part.changes)))
    together: dict[tuple[int, str, str], list[tuple[Variant, VariantOutcome]]] = {}
    for variant, outcome in results:
        # Decisions can be alike where measures are not: what fits into the rest depends on options, too.
        key = (id(variant.machine), outcome.digest, outcome.part.figures)
        together.setdefault(key, []).append((variant, outcome))
    for number, group in enumerate(together.values(), 1):
        for _, outcome in group:
            outcome.part.group = number
    order = [one for group in together.values() for one in group]
    admitted = {position for _, outcome in order for position in outcome.admitted}
    running = {(trace.pods[position].namespace, trace.pods[position].name) for position in admitted}
    names = dict.fromkeys((pod.namespace, pod.name) for pod in trace.pods)
    document = ComparisonDocument(
        kubelet=order[0][0].mooring.release.tag,
        by=by,
        pods=len(trace.pods),
        steps=len(trace.steps),
        variants=[outcome.part for _, outcome in order],
        left_out=[LeftOutPart(count, *refusal) for refusal, count in refused.most_common()],
        never_admitted=[f"{namespace}/{name}" for namespace, name in names if (namespace, name) not in running],
        findings=[],
    )
    is_yes = not document.never_admitted if trace.alone else any(one.is_yes for one in document.variants)
    return Comparison(document, tuple(variant for variant, _ in order), is_yes)


def lucky_variant(variants: Sequence[VariantPart]) -> VariantPart | None:
    """Return a variant that aligns more than the best one in this run, admits as much, and guarantees nothing."""
    best = variants[0]
    return next(
        (
            found
            for found in variants
            if found.is_luck
            and not best.is_luck
            and (found.lost, -found.admitted) <= (best.lost, -best.admitted)
            and observed_key(found) < observed_key(best)
        ),
        None,
    )


FEW = 4000
"""Steps of all trials together below which starting workers costs more than it saves."""

Watch = Callable[[Iterable[VariantOutcome]], Iterable[VariantOutcome]]
"""Receives each outcome, for progress."""


def compare(
    trace: Trace, variants: Sequence[Variant], *, by: str = "guaranteed", jobs: int = 1, watch: Watch = iter
) -> Comparison:
    """Run every variant through the trace and rank them.

    Args:
        trace: what happens to each.
        variants: what is compared.
        by: the measure that counts first, see :data:`~mooring.answers.compare.measures.MEASURES`.
        jobs: how many processes to use at most; the answer does not depend on it.
        watch: is handed the outcomes as they come, and passes them on.
    """
    numbers: dict[Hashable, int] = {}
    groups: list[dict[int, Variant]] = []
    for position, variant in enumerate(variants):
        number = numbers.setdefault(variant.shared_by, len(groups))
        groups += [{}] if number == len(groups) else []
        groups[number][position] = variant
    workers = min(jobs, len(groups))
    # Plugins are functions of this process, and cannot be sent to another.
    plugged = any(one.mooring.plugins.plugins for one in variants)
    is_little = len(variants) * (len(trace.steps) + len(trace.active)) < FEW
    pods = shapes(trace)
    is_alone = workers < 2 or is_little or plugged
    here = (judge(trace, members, pods) for members in groups)
    outcomes = here if is_alone else _spread(trace, groups, pods, workers)

    def in_order() -> Iterator[VariantOutcome]:
        """Yield the outcomes of variants in the order of the variants, in which the groups come too."""
        found: dict[int, VariantOutcome] = {}
        for position in range(len(variants)):
            while position not in found:
                found |= next(outcomes)
            yield found.pop(position)

    return ranked(trace, variants, watch(in_order()), by)


def _spread(
    trace: Trace, groups: Sequence[Mapping[int, Variant]], pods: Sequence[Pod], workers: int
) -> Iterator[dict[int, VariantOutcome]]:
    """Yield the outcomes of each group in order, from worker processes; what a killed one had, this process does."""
    with worker_processes(workers) as pool:
        futures: list[Future[dict[int, VariantOutcome]]] = []
        with suppress(OSError, BrokenExecutor):
            futures += (pool.submit(judge, trace, members, pods) for members in groups)
        for number, members in enumerate(groups):
            try:
                found = futures[number].result() if number < len(futures) else judge(trace, members, pods)
            except BrokenExecutor:
                found = judge(trace, members, pods)
            yield found


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


Ask: TypeAlias = Callable[[Release], Question]
"""Returns the question as a kubelet of a release reads it."""


class ReleaseDecisionPart(parts.DocumentPart):
    """What the kubelet of one release decides about a pod."""

    kubelet: parts.KubeletRelease
    admitted: bool
    reason: str
    message: str
    code: parts.Code
    containers: dict[str, parts.PlacementPart]
    pod: parts.PlacementPart
    devices: parts.HeldDeviceTable


class ReleasePodPart(parts.DocumentPart):
    """A pod under every release."""

    uid: str
    namespace: str
    name: str
    same: Annotated[bool, parts.told("Whether all releases decide the same.")]
    decisions: Annotated[list[ReleaseDecisionPart], parts.told("One a release that asks about the pod.")]


class SeparatingRulePart(parts.DocumentPart):
    """A rule by which two releases decide differently about this node."""

    rule: str
    releases: Annotated[str, parts.told("The releases that follow the rule.")]
    says: str
    instead: Annotated[str, parts.told("What later releases do.")]
    source: str
    pods: Annotated[list[parts.PodPart], parts.told("The pods that the rule alone changes.")]


class ReleaseDifferencePart(parts.DocumentPart):
    """What separates two releases that follow one another."""

    older: parts.KubeletRelease
    newer: parts.KubeletRelease
    pods: Annotated[list[parts.PodPart], parts.told("About which they decide differently.")]
    rules: list[SeparatingRulePart]
    unexplained: Annotated[
        list[parts.PodPart], parts.told("Those that no rule alone changes: gates, option stages and file formats do.")
    ]


class ReleaseComparisonDocument(parts.DocumentPart, kw_only=True, dict=True):
    """What mooring compare --kubelet-version A,B -o json prints: one node under several releases."""

    # No member of the document: the codes of the start errors, in their order.
    start_error_codes = tuple[parts.Code, ...]()
    api_version: parts.APIVersion = parts.API_VERSION
    kind: Literal["ReleaseComparison"] = "ReleaseComparison"
    kubelets: Annotated[list[str], parts.told("The releases, the oldest first.")]
    start_errors: Annotated[dict[str, str], parts.told("Release -> message of a kubelet that would not start.")]
    pods: list[ReleasePodPart]
    differences: list[ReleaseDifferencePart]
    findings: list[parts.FindingPart]


def compare_releases(ask: Ask, releases: Sequence[Release]) -> ReleaseComparisonDocument:
    """Plan the same question under several releases; return what they decide differently.

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
    refusals = {plan.release.tag: plan.refusal for plan in plans if isinstance(plan, RefusedPlan)}
    document = ReleaseComparisonDocument(
        kubelets=[plan.release.tag for plan in plans],
        start_errors={release: refusal.message for release, refusal in refusals.items()},
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
        findings=parts.finding_parts(dict.fromkeys(one for plan in plans for one in plan.findings)),
    )
    document.start_error_codes = tuple(refusal.code for refusal in refusals.values())
    return document


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
            field = rule.name.replace("-", "_")
            rules = replace(plan.release.rules, **{field: getattr(like.release.rules, field)})
            uids = changed & differing(plan, make_plan(ask(replace(plan.release, rules=rules))))
            if uids:
                yield rule, uids
