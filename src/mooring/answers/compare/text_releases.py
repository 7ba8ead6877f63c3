"""``mooring compare --kubelet-version A,B -o text``: several releases side by side, and why they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.answering import Answer
from mooring.answers.base.plan import Plan
from mooring.answers.compare.by_release import ReleaseComparison, ReleaseDifference
from mooring.cli.terminal import text_for
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.explain.phrases import joined, plural
from mooring.views.console import STYLES, Breaking, new_table
from mooring.views.wording import numbers

_INDENT = (0, 0, 0, 2)
_NAMED_PODS = 5
"""How many of the pods that a rule changes are named."""


def release_comparison_text(comparison: ReleaseComparison, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    return text_for(Group(*_parts(comparison)), to)


def _parts(comparison: ReleaseComparison) -> Iterator[RenderableType]:
    tags = ", ".join(str(plan.release) for plan in comparison.plans)
    yield Text(f"{plural(len(comparison.pods), 'pod')} under kubelets {tags}.", STYLES["title"])
    for plan in comparison.plans:
        if plan.refusal is not None:
            yield Text(f"Kubelet {plan.release} would not start: [{plan.refusal_code}]")
            yield Padding(Text(clean(plan.refusal.message)), _INDENT)
    differing = comparison.differing
    if not differing:
        yield from [Text(f"{_releases(group)}: the same decisions.") for group in comparison.groups]
        return
    yield Text("")
    yield _table(comparison, differing)
    same = len(comparison.pods) - len(differing)
    yield from [Text(""), Text(f"The same decisions about {plural(same, 'other pod')}.")] if same else []
    for difference in comparison.differences:
        yield Text("")
        yield from _reasons(difference)


def _releases(group: tuple[Plan, ...]) -> str:
    first, last = str(group[0].release), str(group[-1].release)
    return first if first == last else f"{first} to {last}"


def _table(comparison: ReleaseComparison, pods: tuple[Pod, ...]) -> RenderableType:
    table = new_table("", *(_releases(group) for group in comparison.groups))
    answers = [{answer.pod.uid: answer for answer in group[0].answers} for group in comparison.groups]
    for pod in pods:
        table.add_row(Breaking(_name(pod), "/", "title"), *(_verdict(found.get(pod.uid)) for found in answers))
        for container in pod.containers:
            places = [_place(found.get(pod.uid), container.name) for found in answers]
            if any(places):
                table.add_row(Text(f"  {clean(container.name)}"), *(Breaking(place) for place in places))
    return table


def _verdict(answer: Answer | None) -> Text:
    if answer is None:
        return Text("not asked")
    if answer.admitted:
        return Text("admitted")
    return Text(f"rejected: {clean(answer.decision.reason or 'the kubelet does not answer')}")


def _place(answer: Answer | None, container: str) -> str:
    placement = answer.decision.containers.get(container) if answer is not None and answer.admitted else None
    if placement is None:
        return ""
    memory = f", memory {numbers(placement.mems)}" if placement.mems else ""
    return f"{placement.cpus or 'shared pool'}{memory}"


def _reasons(difference: ReleaseDifference) -> Iterator[RenderableType]:
    yield Text(f"{difference.older} and {difference.newer} differ by:", STYLES["title"])
    for one in difference.rules:
        rule = one.rule
        text = f"{rule.name} ({rule.span}): {rule.says}. Later: {rule.instead}. ({_names(one.pods)})"
        yield Padding(Text(text), _INDENT)
    if difference.unexplained:
        text = f"feature gates, stages of options or formats of state files ({_names(difference.unexplained)})"
        yield Padding(Text(text), _INDENT)


def _names(pods: Sequence[Pod]) -> str:
    named = [_name(pod) for pod in pods[:_NAMED_PODS]]
    more = len(pods) - len(named)
    return joined([*named, plural(more, "other pod")] if more else named)


def _name(pod: Pod) -> str:
    return clean(f"{pod.namespace}/{pod.name}")
