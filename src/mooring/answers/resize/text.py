"""``mooring resize -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import AnyPlan, RefusedPlan
from mooring.answers.base.plan_document import plan_document, span_text
from mooring.answers.base.plan_text import head_lines, refusal_lines
from mooring.answers.resize.answer import ResizedContainerPart, ResizeDocument
from mooring.answers.resize.sizes import LargestAmountsPart
from mooring.cli.terminal import width_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.quantity import Quantity
from mooring.explanations.phrases import cpus_text, plural, size
from mooring.views.console import Breaking, new_table
from mooring.views.tables import numa_table

_INDENT = (0, 0, 0, 2)
_KEPT = (
    "Kubelet v1.37.1 changes the amounts and not the CPUs of a container; when it starts again it finds another number "
    "than it expects, and may refuse the pod. The extension exclusive-resize resizes the CPUs too."
)


def resize_parts(plan: AnyPlan, resized: ResizeDocument, to: str, *, wide: bool) -> Iterator[RenderableType]:
    """Yield the answer for people.

    Args:
        plan: the node before the resize, of which the head and the table of ``wide`` are.
        resized: the answer.
        to: the destination, which has a width.
        wide: whether all containers are shown, and the NUMA nodes.
    """
    if isinstance(plan, RefusedPlan):
        yield from refusal_lines(plan_document(plan))
        return
    view = plan_view(plan)
    yield from head_lines(view)
    if not resized.runs:
        yield Text(f"{_name(resized)} does not run and cannot be resized.", "bold")
        if resized.not_running:
            code = next(one.code for one in plan.answers if one.pod.uid == resized.uid)
            yield Padding(Text(f"{clean(resized.not_running)} [{code}]"), _INDENT)
        return
    yield Text(_headline(resized), "bold")
    if resized.why:
        yield Padding(Text(resized.why), _INDENT)
        yield Padding(Text(f"The kubelet says: “{clean(resized.message)}”."), _INDENT)
        yield from [Padding(Text(resized.remedy), _INDENT)] if resized.remedy else []
    yield Text("")
    yield _table(resized, wide=wide)
    yield from (Text(line) for line in _releases(resized))
    if _is_resized(resized) and any(_keeps_other_cpus(one) for one in resized.containers):
        yield Text(_KEPT)
    yield from (Text(line) for line in _sizes(resized))
    if wide:
        yield Text(f"Shared pool: {resized.shared_pool or 'empty'}.")
        yield Text(f"Events: {', '.join(resized.events) or 'none'}.")
        yield Text("")
        yield numa_table(view, width_for(to))


def _name(resized: ResizeDocument) -> str:
    return clean(f"{resized.namespace}/{resized.name}")


def _is_resized(resized: ResizeDocument) -> bool:
    """Tell whether the pod is given other resources: a resize that is taken back is neither accepted nor refused."""
    return "ResizeStarted" in resized.events


def _headline(resized: ResizeDocument) -> str:
    asked = "; ".join(
        f"{one.name} {' '.join(f'{resource} {amount}' for resource, amount in one.asks.items())}"
        for one in resized.containers
        if one.asks
    )
    subject = f"{_name(resized)} to {clean(asked)}"
    if resized.refused_by:
        return f"{subject}: {resized.reason}, {clean(resized.refused_by)} [{resized.code}]."
    return f"{subject}: {'accepted' if _is_resized(resized) else 'nothing changes'}."


def _keeps_other_cpus(container: ResizedContainerPart) -> bool:
    """Tell whether a container gets another number of CPUs on paper, and keeps those that it has.

    So it is with the gate InPlacePodVerticalScalingExclusiveCPUs of kubelet v1.37.1 and without the extension.
    """
    held = CPUSet.parse(container.after.cpus) if container.after is not None else CPUSet()
    if not held or container.pending is not None or "cpu" not in container.asks:
        return False
    return Quantity.parse(container.asks["cpu"]).milli != 1000 * len(held)


def _table(resized: ResizeDocument, *, wide: bool) -> Table:
    """Return one row for each container that is resized; with ``wide`` for all of them."""
    table = new_table("container", "asks", "CPUs now", "CPUs then", "baseline")
    with_memory = wide and any(one.after is not None and one.after.mems for one in resized.containers)
    if with_memory:
        table.add_column("memory")
    for one in resized.containers:
        if one.before is None or one.after is None or not (one.asks or wide):
            continue
        cells: list[RenderableType] = [
            Breaking(clean(one.name)),
            Text(", ".join(f"{name} {one.has.get(name, 'none')} → {size}" for name, size in one.asks.items()) or "–"),
            Breaking(_cpus(one.before.cpus)),
            Breaking(_cpus(one.pending.cpus if one.pending is not None else one.after.cpus)),
            Breaking(one.baseline or "–"),
        ]
        table.add_row(*cells, *([Text(one.after.mems or "–")] if with_memory else []))
    return table


def _cpus(cpus: str) -> str:
    return f"{len(CPUSet.parse(cpus))}: {cpus}" if cpus else "shared"


def _releases(resized: ResizeDocument) -> Iterator[str]:
    """Say which CPUs go back later."""
    for one in resized.containers:
        if one.pending is not None and one.after is not None:
            leaving = CPUSet.parse(one.after.cpus) - CPUSet.parse(one.pending.cpus)
            yield (
                f"{clean(one.name)} keeps {cpus_text(leaving)} for at least "
                f"{span_text(one.pending.delay_milliseconds * 10**6)}; no other container gets "
                f"{'it' if len(leaving) == 1 else 'them'} before."
            )


def _sizes(resized: ResizeDocument) -> Iterator[str]:
    for one in resized.containers:
        sizes = list(_size(one.largest)) if one.largest is not None else []
        if sizes:
            yield f"{clean(one.name)} can have at most {' or '.join(sizes)} now."


def _size(largest: LargestAmountsPart) -> Iterator[str]:
    if largest.cpus is not None:
        yield plural(largest.cpus, "CPU")
    if largest.milli_cpus is not None:
        yield f"{largest.milli_cpus}m of CPU"
    if largest.memory_bytes is not None:
        yield f"{size(largest.memory_bytes)} of memory"
