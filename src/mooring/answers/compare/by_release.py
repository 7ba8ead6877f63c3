"""The same node and pods under several kubelet releases, and the rules by which two of them decide differently.

A rule is a reason for a pod where the newer release decides differently about it with this rule alone as in the older
one; where no rule does, the older release with a rule alone as in the newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeAlias

from mooring.answers.base.outcome import differing
from mooring.answers.base.plan import Plan, make_plan
from mooring.answers.base.pod_names import pods_of
from mooring.answers.base.question import Question
from mooring.engine.core.pod import Pod
from mooring.engine.core.release import Release
from mooring.engine.releases.rule import ReleaseRule
from mooring.engine.releases.rules import RULES

Ask: TypeAlias = Callable[[Release], Question]
"""Returns the question as a kubelet of a release reads it."""


@dataclass(frozen=True, slots=True)
class SeparatingRule:
    """A rule by which two releases decide differently."""

    rule: ReleaseRule
    pods: tuple[Pod, ...]
    """Those it changes."""


@dataclass(frozen=True, slots=True)
class ReleaseDifference:
    """What separates two releases that follow one another in a comparison."""

    older: Release
    newer: Release
    pods: tuple[Pod, ...]
    """About which the two decide differently."""
    rules: tuple[SeparatingRule, ...]

    @property
    def unexplained(self) -> tuple[Pod, ...]:
        """The pods that no rule alone changes: gates, stages of options and formats of files differ too."""
        explained = {pod.uid for one in self.rules for pod in one.pods}
        return tuple(pod for pod in self.pods if pod.uid not in explained)


@dataclass(frozen=True, slots=True)
class ReleaseComparison:
    """One plan a release."""

    plans: tuple[Plan, ...]
    """The oldest release first."""
    groups: tuple[tuple[Plan, ...], ...]
    """Neighbours that decide alike, of the kubelets that start."""
    differences: tuple[ReleaseDifference, ...]
    """Between a group and the next."""

    @property
    def is_same(self) -> bool:
        """Tell whether all start and decide the same, or none starts."""
        return len(self.groups) < 2 and len({plan.refusal is None for plan in self.plans}) == 1

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods, each once."""
        return tuple({pod.uid: pod for plan in self.plans for pod in pods_of(plan)}.values())

    @property
    def differing(self) -> tuple[Pod, ...]:
        """Pods about which not all kubelets that start decide the same."""
        found = {uid for group in self.groups[1:] for uid in differing(self.groups[0][0], group[0])}
        return tuple(pod for pod in self.pods if pod.uid in found)


def compare_releases(ask: Ask, releases: Sequence[Release]) -> ReleaseComparison:
    """Plan the same question under several releases.

    Args:
        ask: reads the question.
        releases: the oldest first, each once.

    Raises:
        InputError: the question cannot be read.
    """
    plans = tuple(make_plan(ask(release)) for release in releases)
    started = [plan for plan in plans if plan.refusal is None]
    groups: list[tuple[Plan, ...]] = []
    for plan in started:
        if groups and not differing(groups[-1][-1], plan):
            groups[-1] = (*groups[-1], plan)
        else:
            groups.append((plan,))
    differences = tuple(_difference(ask, before[-1], after[0]) for before, after in pairwise(groups))
    return ReleaseComparison(plans, tuple(groups), differences)


def _difference(ask: Ask, older: Plan, newer: Plan) -> ReleaseDifference:
    changed = differing(older, newer)
    pods = {pod.uid: pod for pod in (*pods_of(older), *pods_of(newer)) if pod.uid in changed}
    found = dict(_separating(ask, newer, older, changed))
    # Where several rules agree, each alone changes nothing in the newer release, but the last of them in the older.
    explained = {uid for uids in found.values() for uid in uids}
    if explained != changed:
        for rule, uids in _separating(ask, older, newer, changed - explained):
            found[rule] = found.get(rule, set()) | uids
    return ReleaseDifference(
        older.release,
        newer.release,
        tuple(pods.values()),
        tuple(
            SeparatingRule(rule, tuple(pod for uid, pod in pods.items() if uid in found[rule]))
            for rule in RULES
            if rule in found
        ),
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
