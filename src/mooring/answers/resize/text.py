"""``mooring resize -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.outcome import span_text
from mooring.answers.base.plan import shared_cpus
from mooring.answers.base.plan_text import plan_text
from mooring.answers.base.views.picture import plan_view, policies
from mooring.answers.resize.largest import Largest
from mooring.answers.resize.resize import ResizeAnswer
from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Container
from mooring.engine.kubelet.events import Amounts
from mooring.engine.node.resize.feasibility import Resize
from mooring.explain.phrases import cpus_text, plural, size
from mooring.views.console import Breaking, new_table
from mooring.views.tables import numa_table

_INDENT = (0, 0, 0, 2)
_KEPT = (
    "Kubelet v1.37.1 changes the amounts and not the CPUs of a container; when it starts again it finds another number "
    "than it expects, and may refuse the pod. The extension exclusive-resize resizes the CPUs too."
)


def resize_text(resized: ResizeAnswer, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    if resized.plan.kubelet is None:
        return plan_text(resized.plan, wide=wide, to=to)
    return text_for(Group(*_parts(resized, width_for(to), wide=wide)), to)


def _parts(resized: ResizeAnswer, width: int, *, wide: bool) -> Iterator[RenderableType]:
    plan, answer = resized.plan, resized.answer
    if plan.kubelet is None:
        return
    view = plan_view(plan)
    yield Text.assemble((view.name, "bold"), f": {view.title}")
    yield Text(policies(plan.kubelet.settings), "dim")
    yield Text("")
    if answer is None:
        yield from _not_running(resized)
        return
    yield Text(_headline(resized, answer), "bold")
    if resized.reason is not None:
        yield Padding(Text(resized.reason.sentence), _INDENT)
        yield Padding(Text(f"The kubelet says: “{clean(answer.message)}”."), _INDENT)
        yield from [Padding(Text(resized.reason.remedy), _INDENT)] if resized.reason.remedy else []
    yield Text("")
    yield _table(resized, answer, wide=wide)
    yield from (Text(line) for line in _releases(resized, answer))
    if resized.keeps_other_cpus:
        yield Text(_KEPT)
    yield from (Text(line) for line in _sizes(resized))
    if wide:
        yield Text(f"Shared pool: {shared_cpus(resized.after or plan.kubelet) or 'empty'}.")
        yield Text(f"Events: {', '.join(answer.events) or 'none'}.")
        yield Text("")
        yield numa_table(view, width)


def _not_running(resized: ResizeAnswer) -> Iterator[RenderableType]:
    standing = resized.standing
    yield Text(f"{_name(resized)} does not run and cannot be resized.", "bold")
    if standing is not None and not standing.admitted:
        yield Padding(Text(f"{clean(standing.why)} [{standing.code}]"), _INDENT)


def _name(resized: ResizeAnswer) -> str:
    return clean(f"{resized.pod.namespace}/{resized.pod.name}")


def _headline(resized: ResizeAnswer, answer: Resize) -> str:
    asked = "; ".join(
        f"{name} {' '.join(f'{resource} {amount}' for resource, amount in amounts.requests.items())}"
        for name, amounts in resized.asked.containers.items()
    )
    subject = f"{_name(resized)} to {clean(asked)}"
    if resized.reason is not None and answer.rejection is not None:
        return f"{subject}: {answer.reason}, {clean(answer.rejection.reason)} [{resized.reason.code}]."
    return f"{subject}: {'accepted' if answer.accepted else 'nothing changes'}."


def _table(resized: ResizeAnswer, answer: Resize, *, wide: bool) -> Table:
    """Return one row for each container that is resized; with ``wide`` for all of them."""
    table = new_table("container", "asks", "CPUs now", "CPUs then", "baseline")
    with_memory = wide and any(one.mems for one in answer.containers.values())
    if with_memory:
        table.add_column("memory")
    for container in resized.pod.containers:
        asked = resized.asked.containers.get(container.name)
        if asked is None and not wide:
            continue
        before, after = resized.before[container.name], answer.containers[container.name]
        release = answer.releases.get(container.name)
        cells: list[RenderableType] = [
            Breaking(clean(container.name)),
            Text(_asks(container, asked)),
            Breaking(_cpus(before.cpus)),
            Breaking(_cpus(release.cpus if release is not None else after.cpus)),
            Breaking(str(answer.baseline.get(container.name, CPUSet())) or "–"),
        ]
        mems = ",".join(map(str, after.mems)) or "–"
        table.add_row(*cells, *([Text(mems)] if with_memory else []))
    return table


def _asks(container: Container, asked: Amounts | None) -> str:
    if asked is None:
        return "–"
    before = container.requests
    return ", ".join(
        f"{resource} {before.get(resource, 'none')} → {amount}" for resource, amount in asked.requests.items()
    )


def _cpus(cpus: CPUSet) -> str:
    return f"{len(cpus)}: {cpus}" if cpus else "shared"


def _releases(resized: ResizeAnswer, answer: Resize) -> Iterator[str]:
    """Say which CPUs go back later."""
    for name, release in answer.releases.items():
        kept = answer.containers[name].cpus
        leaving = CPUSet(kept.mask & ~release.cpus.mask)
        after = span_text(release.left(resized.after.node.moment)) if resized.after is not None else ""
        yield (
            f"{clean(name)} keeps {cpus_text(leaving)} for at least {after}; no other container gets "
            f"{'it' if len(leaving) == 1 else 'them'} before."
        )


def _sizes(resized: ResizeAnswer) -> Iterator[str]:
    for name, largest in resized.largest.items():
        sizes = list(_size(largest))
        if sizes:
            yield f"{clean(name)} can have at most {' or '.join(sizes)} now."


def _size(largest: Largest) -> Iterator[str]:
    if largest.cpus is not None:
        yield plural(largest.cpus, "CPU")
    if largest.milli_cpus is not None:
        yield f"{largest.milli_cpus}m of CPU"
    if largest.memory is not None:
        yield f"{size(largest.memory)} of memory"
