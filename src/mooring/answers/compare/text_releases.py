"""``mooring compare --kubelet-version A,B -o text``: several releases side by side, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.plan import AnyPlan, RefusedPlan
from mooring.answers.compare.releases import (
    ReleaseComparisonDocument,
    ReleaseDecisionPart,
    ReleasePodPart,
)
from mooring.cli.terminal import text_for
from mooring.documents.plan import PlacementPart, PodPart
from mooring.engine.core.errors import clean
from mooring.explain.phrases import joined, plural
from mooring.views.console import STYLES, Breaking, new_table
from mooring.views.wording import numbers

_INDENT = (0, 0, 0, 2)
_NAMED_PODS = 5
"""How many of the pods that a rule changes are named."""


def release_comparison_text(plans: Sequence[AnyPlan], comparison: ReleaseComparisonDocument, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``.

    Args:
        plans: one a release, of which the codes of refused starts are.
        comparison: the answer.
        to: the destination.
    """
    return text_for(Group(*_parts(plans, comparison)), to)


def _parts(plans: Sequence[AnyPlan], comparison: ReleaseComparisonDocument) -> Iterator[RenderableType]:
    yield Text(
        f"{plural(len(comparison.pods), 'pod')} under kubelets {', '.join(comparison.kubelets)}.", STYLES["title"]
    )
    for plan in plans:
        if isinstance(plan, RefusedPlan):
            yield Text(f"Kubelet {plan.release} would not start: [{plan.refusal.code}]")
            yield Padding(Text(clean(plan.refusal.message)), _INDENT)
    groups = _groups(comparison)
    differing = [pod for pod in comparison.pods if not pod.same]
    if not differing:
        yield from [Text(f"{_releases(group)}: the same decisions.") for group in groups]
        return
    yield Text("")
    yield _table(groups, differing)
    same = len(comparison.pods) - len(differing)
    yield from [Text(""), Text(f"The same decisions about {plural(same, 'other pod')}.")] if same else []
    for difference in comparison.differences:
        yield Text("")
        yield Text(f"{difference.older} and {difference.newer} differ by:", STYLES["title"])
        for one in difference.rules:
            text = f"{one.rule} ({one.releases}): {one.says}. Later: {one.instead}. ({_names(one.pods)})"
            yield Padding(Text(text), _INDENT)
        if difference.unexplained:
            text = f"feature gates, stages of options or formats of state files ({_names(difference.unexplained)})"
            yield Padding(Text(text), _INDENT)


def _groups(comparison: ReleaseComparisonDocument) -> list[list[str]]:
    """Return the releases that start, those that decide alike together."""
    newer = {one.newer for one in comparison.differences}
    groups: list[list[str]] = []
    for release in comparison.kubelets:
        if release not in comparison.start_errors:
            if not groups or release in newer:
                groups.append([])
            groups[-1].append(release)
    return groups


def _releases(group: Sequence[str]) -> str:
    return group[0] if len(group) == 1 else f"{group[0]} to {group[-1]}"


def _table(groups: Sequence[Sequence[str]], pods: Sequence[ReleasePodPart]) -> RenderableType:
    table = new_table("", *map(_releases, groups))
    for pod in pods:
        by_release = {one.kubelet: one for one in pod.decisions}
        decisions = [by_release.get(group[0]) for group in groups]
        table.add_row(Breaking(_name(pod), "/", "title"), *map(_verdict, decisions))
        admitted = [one.containers if one is not None and one.admitted else {} for one in decisions]
        for container in dict.fromkeys(name for containers in admitted for name in containers):
            places = [_place(containers.get(container)) for containers in admitted]
            table.add_row(Text(f"  {clean(container)}"), *(Breaking(place) for place in places))
    return table


def _verdict(decision: ReleaseDecisionPart | None) -> Text:
    if decision is None:
        return Text("not asked")
    if decision.admitted:
        return Text("admitted")
    return Text(f"rejected: {clean(decision.reason or 'the kubelet does not answer')}")


def _place(placement: PlacementPart | None) -> str:
    if placement is None:
        return ""
    memory = f", memory {numbers(map(int, placement.mems.split(',')))}" if placement.mems else ""
    return f"{placement.cpus or 'shared pool'}{memory}"


def _names(pods: Sequence[PodPart]) -> str:
    named = [_name(pod) for pod in pods[:_NAMED_PODS]]
    more = len(pods) - len(named)
    return joined([*named, plural(more, "other pod")] if more else named)


def _name(pod: PodPart | ReleasePodPart) -> str:
    return clean(f"{pod.namespace}/{pod.name}")
