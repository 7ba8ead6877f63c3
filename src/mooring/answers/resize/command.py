"""``mooring resize``: what would happen if this pod were resized?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import click

from mooring.answers.base.inputs.node import question_of
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.quantity import Quantity
from mooring.explanations.phrases import cpus_text, plural, size
from mooring.inputs.decoding.quantities import resource_list
from mooring.lazy import lazily

with lazily():
    import rich.console as rich_console
    import rich.table as rich_table
    import rich.text as rich_text

    from mooring.answers.base import picture, plan_document, plan_text
    from mooring.answers.base import plan as planning
    from mooring.answers.resize import answer
    from mooring.cli import terminal
    from mooring.views import console, tables


EPILOG = """\b
Examples:
  mooring resize core/upf-0 --cpu 24 -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring resize core/upf-0/upf --cpu 12 --memory 24Gi --node node.tar.gz
  mooring resize web-0 --cpu app=4 --cpu proxy=2 -f web.yaml --config kubelet.yaml -o wide
"""


@click.command("resize", cls=Verb, epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD[/CONTAINER]]", shell_complete=options.complete_pod)
@options.texts("--cpu", "[CONTAINER=]N", "CPUs that a container will have; repeatable for several containers.")
@options.texts("--memory", "[CONTAINER=]AMOUNT", "Memory that a container will have, such as 4Gi; repeatable.")
@options.pods("Pods that are admitted first, including the one to resize; repeatable.")
@options.node_options("devices")
@options.output(("text", "wide", "json"), "text")
@options.to_file
def command(pod: str, cpu: tuple[str, ...], memory: tuple[str, ...], form: str, to: str, inputs: NodeOptions) -> int:
    """Resize a pod in place: accepted, deferred or infeasible, with which CPUs, and how far it can grow now.

    Limits follow where they are equal to the requests. Nothing is written.

    Exit code 1 when the resize is refused, the pod does not run, or the kubelet would not start.
    """
    if not (cpu or memory):
        raise click.UsageError("name the new amount: --cpu N or --memory AMOUNT")
    asked = [*wanted("cpu", cpu), *wanted("memory", memory)]
    plan, resized = answer.resize_of(question_of(replace(inputs, named=(pod,) if pod else ())), pod, asked)
    parts = resize_parts(plan, resized, to, wide=form == "wide")
    terminal.print_answer(form, to, resized, parts, resized.findings)
    return YES if resized.accepted else NO


_KEPT = (
    "Kubelet v1.37.1 changes the amounts and not the CPUs of a container; when it starts again it finds another number "
    "than it expects, and may refuse the pod. The extension exclusive-resize resizes the CPUs too."
)


def resize_parts(
    plan: planning.AnyPlan, resized: answer.ResizeDocument, to: str, *, wide: bool
) -> Iterator[rich_console.RenderableType]:
    """Yield the answer for people.

    Args:
        plan: the node before the resize, of which the head and the table of ``wide`` are.
        resized: the answer.
        to: the destination, which has a width.
        wide: whether all containers are shown, and the NUMA nodes.
    """
    if isinstance(plan, planning.RefusedPlan):
        yield from plan_text.refusal_lines(plan_document.plan_document(plan))
        return
    view = picture.plan_view(plan)
    yield from plan_text.head_lines(view)
    if not resized.runs:
        yield rich_text.Text(f"{_name(resized)} does not run and cannot be resized.", "bold")
        if resized.not_running:
            code = next(one.code for one in plan.answers if one.pod.uid == resized.uid)
            yield console.indented(f"{clean(resized.not_running)} [{code}]")
        return
    asked = "; ".join(
        f"{one.name} {' '.join(f'{resource} {amount}' for resource, amount in one.asks.items())}"
        for one in resized.containers
        if one.asks
    )
    outcome = "accepted" if _is_resized(resized) else "nothing changes"
    if resized.refused_by:
        outcome = f"{resized.reason}, {clean(resized.refused_by)} [{resized.code}]"
    yield rich_text.Text(f"{_name(resized)} to {clean(asked)}: {outcome}.", "bold")
    if resized.why:
        yield console.indented(resized.why)
        yield console.indented(f"The kubelet says: “{clean(resized.message)}”.")
        yield from [console.indented(resized.remedy)] if resized.remedy else []
    yield rich_text.Text("")
    yield _table(resized, wide=wide)
    yield from map(rich_text.Text, _remarks(resized))
    if wide:
        yield rich_text.Text(f"Shared pool: {resized.shared_pool or 'empty'}.")
        yield rich_text.Text(f"Events: {', '.join(resized.events) or 'none'}.")
        yield rich_text.Text("")
        yield tables.numa_table(view, terminal.width_for(to))


def _name(resized: answer.ResizeDocument) -> str:
    return clean(f"{resized.namespace}/{resized.name}")


def _is_resized(resized: answer.ResizeDocument) -> bool:
    """Tell whether the pod is given other resources: a resize that is taken back is neither accepted nor refused."""
    return "ResizeStarted" in resized.events


def _keeps_other_cpus(container: answer.ResizedContainerPart) -> bool:
    """Tell whether a container gets another number of CPUs on paper, and keeps those that it has.

    So it is with the gate InPlacePodVerticalScalingExclusiveCPUs of kubelet v1.37.1 and without the extension.
    """
    held = CPUSet.parse(container.after.cpus) if container.after is not None else CPUSet()
    if not held or container.pending is not None or "cpu" not in container.asks:
        return False
    return Quantity.parse(container.asks["cpu"]).milli != 1000 * len(held)


def _table(resized: answer.ResizeDocument, *, wide: bool) -> rich_table.Table:
    """Return one row for each container that is resized; with ``wide`` for all of them."""
    table = console.new_table("container", "asks", "CPUs now", "CPUs then", "baseline")
    with_memory = wide and any(one.after is not None and one.after.mems for one in resized.containers)
    if with_memory:
        table.add_column("memory")
    for one in resized.containers:
        if one.before is None or one.after is None or not (one.asks or wide):
            continue
        cells: list[rich_console.RenderableType] = [
            console.Breaking(clean(one.name)),
            rich_text.Text(
                ", ".join(f"{name} {one.has.get(name, 'none')} → {size}" for name, size in one.asks.items()) or "–"
            ),
            console.Breaking(_cpus(one.before.cpus)),
            console.Breaking(_cpus(one.pending.cpus if one.pending is not None else one.after.cpus)),
            console.Breaking(one.baseline or "–"),
        ]
        table.add_row(*cells, *([rich_text.Text(one.after.mems or "–")] if with_memory else []))
    return table


def _cpus(cpus: str) -> str:
    return f"{len(CPUSet.parse(cpus))}: {cpus}" if cpus else "shared"


def _remarks(resized: answer.ResizeDocument) -> Iterator[str]:
    """Say which CPUs go back later, that CPUs stay as they are, and what containers can have at most."""
    for one in resized.containers:
        if one.pending is not None and one.after is not None:
            leaving = CPUSet.parse(one.after.cpus) - CPUSet.parse(one.pending.cpus)
            yield (
                f"{clean(one.name)} keeps {cpus_text(leaving)} for at least "
                f"{plan_document.span_text(one.pending.delay_milliseconds * 10**6)}; no other container gets "
                f"{'it' if len(leaving) == 1 else 'them'} before."
            )
    if _is_resized(resized) and any(_keeps_other_cpus(one) for one in resized.containers):
        yield _KEPT
    for one in resized.containers:
        if (most := one.largest) is None:
            continue
        sizes = [plural(most.cpus, "CPU")] if most.cpus is not None else []
        sizes += [f"{most.milli_cpus}m of CPU"] if most.milli_cpus is not None else []
        sizes += [f"{size(most.memory_bytes)} of memory"] if most.memory_bytes is not None else []
        if sizes:
            yield f"{clean(one.name)} can have at most {' or '.join(sizes)} now."


def wanted(resource: str, texts: Iterable[str]) -> list[answer.Wanted]:
    """Read the values of an option.

    Raises:
        InputError: a value is no amount.

    >>> [(container, str(amount)) for _, container, amount in wanted("cpu", ["4", "app=2"])]
    [('', '4'), ('app', '2')]
    """
    found = []
    for text in texts:
        container, _, amount = text.rpartition("=")
        try:
            quantity = resource_list({"amount": {resource: amount.strip()}}, "amount")[resource]
        except InputError as error:
            raise InputError(error.problem, field=f"--{resource}", remedy=error.remedy) from None
        if quantity.nano <= 0:
            raise InputError(f"must be more than 0, but is {amount:.40}", field=f"--{resource}")
        found.append((resource, container.strip(), quantity))
    return found
