"""``mooring capacity -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from mooring.answers.base.answering import Answer
from mooring.answers.base.holdings import pool_lines
from mooring.answers.base.plan_text import plan_text
from mooring.answers.base.views.picture import plan_view, policies
from mooring.answers.base.views.rows import plan_rows
from mooring.answers.capacity.capacity import ADMITTED, EMPTY_REFUSES, NOBODY, Advice, Capacity, LargestRequests
from mooring.answers.capacity.eviction import Evicted, Eviction
from mooring.answers.capacity.replicas import DESCRIBED
from mooring.answers.capacity.text_tables import fragmentation_tables, groups_table
from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.explain.phrases import joined, nodes, plural, size
from mooring.views.tables import placements_table

_INDENT = (0, 0, 0, 2)
_ORDER = (
    "Counted as if they were created now, one after the other. In another order, or with other pods in between, the "
    "number can differ."
)


def capacity_text(capacity: Capacity, at_least: int, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    if capacity.plan.kubelet is None:
        return plan_text(capacity.plan, wide=wide, to=to)
    return text_for(Group(*_parts(capacity, at_least, width_for(to), wide=wide)), to)


def largest_text(largest: LargestRequests, *, to: str) -> str:
    """Return the table of the largest requests."""
    if not largest.can_be_asked:
        return plan_text(largest.plan, wide=False, to=to)
    return text_for(Group(*_largest(largest, width_for(to))), to)


def _largest(largest: LargestRequests, width: int) -> Iterator[RenderableType]:
    if largest.plan.kubelet is None:
        return
    view = plan_view(largest.plan)
    yield Text.assemble((view.name, "bold"), f": {view.title}")
    yield Text(policies(largest.plan.kubelet.settings), "dim")
    yield Text("")
    refused = sum(not answer.admitted for answer in largest.plan.answers)
    if refused:
        was = "was rejected and is" if refused == 1 else "were rejected and are"
        yield Text(f"{plural(refused, 'pod')} of those given {was} not counted.")
        yield Text("")
    if largest.resources:
        yield from fragmentation_tables(largest.resources, width)
    else:
        yield Text("No manager assigns a resource by NUMA node: the scheduler's sums decide. Count pods with --shape.")


def _parts(capacity: Capacity, at_least: int, width: int, *, wide: bool) -> Iterator[RenderableType]:
    plan = capacity.plan
    if plan.kubelet is None:
        return
    view = plan_view(plan)
    yield Text.assemble((view.name, "bold"), f": {view.title}")
    yield Text(policies(plan.kubelet.settings), "dim")
    yield Text("")
    if not capacity.can_be_asked:
        last = plan.answers[-1].pod
        yield Text(f"Nothing can be counted: the kubelet would not return from {clean(_name(last))}.", "bold")
        return
    yield Text(_headline(capacity, at_least), "bold")
    refused = sum(not answer.admitted for answer in plan.answers)
    if refused:
        was, is_not = ("was", "is not") if refused == 1 else ("were", "are not")
        yield Text(f"{plural(refused, 'pod')} of those given {was} rejected and {is_not} counted.")
    if capacity.replicas:
        yield Text("")
        yield _where(capacity, wide=wide)
        yield from [Text(_ORDER, "dim")] if len(capacity.replicas) > 1 else []
    for line in pool_lines(capacity.after):
        yield Text("")
        yield Text(clean(line), "bold red")
    yield from _next(capacity)
    yield from _advice(capacity)
    if capacity.fragmentation:
        yield Text("")
        yield from fragmentation_tables(capacity.fragmentation, width)


def _headline(capacity: Capacity, at_least: int) -> str:
    count, shape = len(capacity.replicas), _shape(capacity.shape)
    verb = "fits" if count == 1 else "fit"
    if not count:
        text = f"No more pods {shape} fit"
    elif capacity.is_limited:
        text = f"At least {plural(count, 'more pod')} {shape} {verb}; counting stopped there"
    else:
        text = f"{plural(count, 'more pod')} {shape} {verb}"
    return f"{text}; {at_least} were wanted." if count < at_least and at_least > 1 else f"{text}."


def _shape(pod: Pod) -> str:
    if pod.uid == DESCRIBED:
        amounts = ", ".join(f"{resource}={amount}" for resource, amount in pod.containers[0].limits.items())
        return f"with {clean(amounts)}"
    return f"like {clean(_name(pod))}"


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.namespace else pod.name


def _where(capacity: Capacity, *, wide: bool) -> RenderableType:
    names = {one.pod.uid for one in capacity.replicas}
    only = replace(capacity.after, answers=tuple(one for one in capacity.after.answers if one.pod.uid in names))
    rows = plan_rows(only, wide=True)
    if wide:
        return placements_table([replace(row, why="") for row in rows], wide=True)
    return groups_table(capacity.replicas, rows)


def _next(capacity: Capacity) -> Iterator[RenderableType]:
    answer = capacity.next
    if answer is None:
        return
    number = len(capacity.replicas) + 1
    subject = f"Number {number}" if number > 1 else "The first one"
    mark = f" [{answer.code}]" if answer.code else ""
    yield Text("")
    yield Text(f"{subject} {_verdict(answer)}{mark}.", "bold")
    yield Padding(Text(clean(answer.why)), _INDENT)
    if answer.decision.message:
        yield Padding(Text(f"The kubelet says: “{clean(answer.decision.message)}”."), _INDENT)


def _verdict(answer: Answer) -> str:
    if answer.crash:
        return "would crash the kubelet"
    if answer.decision.endless is not None:
        return "would never be answered"
    return f"is refused: {answer.decision.reason}"


def _advice(capacity: Capacity) -> Iterator[RenderableType]:
    for advice in capacity.advice:
        if advice.remark == NOBODY:
            continue
        yield Text("")
        yield Text(_purpose(advice), "bold")
        if advice.remark == EMPTY_REFUSES:
            yield Padding(Text("No eviction helps: even the empty node refuses it."), _INDENT)
        elif advice.remark:
            yield Padding(Text("No eviction was found that helps."), _INDENT)
        for position, eviction in enumerate(advice.evictions):
            yield Padding(Text(f"{'or ' if position else ''}evict {_evicted(eviction)}"), _INDENT)


def _purpose(advice: Advice) -> str:
    if advice.goal == ADMITTED:
        return "To admit one more:" if advice.replica > 1 else "To admit it:"
    return f"Number {advice.replica} is spread over more NUMA nodes than it needs. To align it:"


def _evicted(eviction: Eviction) -> str:
    return joined([f"{clean(_evicted_name(pod))} ({_holding(pod)})" for pod in eviction.pods])


def _evicted_name(pod: Evicted) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.namespace else f"the pod with uid {pod.name}"


def _holding(pod: Evicted) -> str:
    cpus = f"{pod.milli / 1000:.3f}".rstrip("0").rstrip(".")
    parts = [f"{cpus} CPU{'' if pod.milli == 1000 else 's'}"]
    parts += [size(pod.bytes)] if pod.bytes else []
    parts += [nodes(pod.nodes)] if pod.nodes else []
    return ", ".join(parts)
