"""``mooring capacity``: how many more pods like this one fit? The answer is a document, or text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from mooring.answers.base.inputs.node import question_of
from mooring.cli import options
from mooring.cli.options import NodeOptions
from mooring.cli.output import NO, YES, Verb, check_destination, emit, emit_document, json_text, tell, warn
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.explanations.phrases import joined, nodes, plural, size
from mooring.lazy import lazily

with lazily():
    import rich.console as rich_console
    import rich.text as rich_text

    from mooring.answers.base import picture as pictures
    from mooring.answers.base import plan as planning
    from mooring.answers.base import plan_text as plan_texts
    from mooring.answers.base import rows as plan_rows
    from mooring.answers.capacity import answer as counted
    from mooring.answers.capacity import eviction
    from mooring.cli import terminal
    from mooring.engine.memorymanager import policy
    from mooring.explanations import why as reasons
    from mooring.inputs.pods import defaults
    from mooring.views import console, tables, wording
    from mooring.views.svg import picture as svg

if TYPE_CHECKING:
    from rich.console import RenderableType

    from mooring.answers.base.plan import AnyPlan, Plan
    from mooring.answers.capacity.fragmentation import FragmentationPart, NodeSharePart
    from mooring.views.view import PlacementRow


EPILOG = """\b
Examples:
  mooring capacity -f pod.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml
  mooring capacity data/database -f pods.yaml --machine epyc-7763-2s-nps4 --config kubelet.yaml -o wide
  mooring capacity --shape cpu=8,memory=16Gi --node node.tar.gz --at-least 3
  mooring capacity web -f web.yaml --active running.yaml --config kubelet.yaml -o svg --to node.svg
"""


@click.command("capacity", cls=Verb, epilog=EPILOG)
@click.argument("pod", default="", metavar="[[NAMESPACE/]POD]", shell_complete=options.complete_pod)
@options.pods("Pods: the one to count, and others that are admitted before it; repeatable.")
@options.node_options("offline", "devices")
@options.text(
    "--shape",
    "RESOURCE=AMOUNT,...",
    "Count Guaranteed pods of one container with these amounts, such as cpu=4,memory=8Gi, instead of POD; "
    "memory is 1Mi unless given.",
)
@options.number(
    "--limit",
    range(1, 100_001),
    "Stop counting at this number. Default: when one is rejected, at most 1000 or the number of CPUs.",
)
@options.number("--at-least", range(100_001), "How many must fit for exit code 0.", default=1)
@options.output(("text", "wide", "json", "svg"), "text")
@options.to_file
def command(pod: str, shape: str, limit: int | None, at_least: int, form: str, to: str, inputs: NodeOptions) -> int:
    """Count how many more pods of a shape fit on a node now; show where, what stops the next, and which pods could go.

    Without POD, --shape and -f, the largest requests that the node still takes are shown. The other pods of -f are
    admitted first. POD is a pod, or a workload such as a Deployment whose pods are given; where -f has
    nothing else, it needs no name.

    Exit code 1 when fewer than --at-least fit, or the kubelet would not start.
    """
    if pod and shape:
        raise click.UsageError("give either POD or --shape")
    if limit is not None and limit < at_least:
        raise click.UsageError(f"--limit {limit} is below --at-least {at_least}")
    check_destination(to)
    question = question_of(replace(inputs, named=(pod,) if pod else ()), counts_scaled_down=True)
    if not (pod or shape or question.pods or question.scaled_down):
        if click.get_current_context().get_parameter_source("at_least") is not ParameterSource.DEFAULT:
            raise click.UsageError("--at-least counts pods of a shape: give POD, --shape or -f")
        plan, largest = counted.largest_requests(question)
        if form == "json":
            emit_document(json_text(largest), to)
        elif form == "svg":
            raise click.UsageError("-o svg draws the node with pods of a shape: give --shape or POD")
        else:
            warn(largest.findings)
            emit(largest_text(plan, largest, to=to), to)
        return YES if counted.askable(plan) is not None else NO
    if shape:
        gates = defaults.PodGates.of_node(question.config, question.mooring)
        subject = eviction.Subject(eviction.described_pod(shape, gates), question)
    else:
        subject = eviction.named_subject(question, pod)
    capacity = counted.capacity_of(subject, limit, at_least)
    if form == "json":
        emit_document(json_text(capacity.document), to)
    else:
        warn(capacity.document.findings)
        if form == "svg":
            emit_document(_svg(capacity), to)
        else:
            emit(capacity_text(capacity, wide=form == "wide", to=to), to)
    return YES if capacity.can_be_asked and capacity.document.enough else NO


def _svg(capacity: counted.Capacity) -> str:
    if isinstance(capacity.plan, planning.RefusedPlan):
        tell(capacity.plan.sentence)
    view = pictures.plan_view(capacity.after, hypothetical={one.pod.uid for one in capacity.replicas})
    if capacity.can_be_asked:
        stops = capacity.document.next
        caption = (f"The next one: {stops.why}", *view.caption) if stops is not None else view.caption
        view = replace(view, headline=headline(capacity), rejected=(), caption=caption)
    return svg.svg_text(view)


_ORDER = (
    "Counted as if they were created now, one after the other. In another order, or with other pods in between, the "
    "number can differ."
)


def capacity_text(capacity: counted.Capacity, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    if isinstance(capacity.plan, planning.RefusedPlan) or isinstance(capacity.after, planning.RefusedPlan):
        return plan_texts.plan_text(capacity.plan, to=to)
    return terminal.text_for(
        rich_console.Group(*_parts(capacity, capacity.plan, capacity.after, terminal.width_for(to), wide=wide)), to
    )


def largest_text(plan: AnyPlan, largest: counted.LargestRequestsDocument, *, to: str) -> str:
    """Return the table of the largest requests."""
    if isinstance(plan, planning.RefusedPlan) or counted.askable(plan) is None:
        return plan_texts.plan_text(plan, to=to)
    parts = list(plan_texts.head_lines(pictures.plan_view(plan)))
    rejected = _rejected(plan)
    parts += [*rejected, rich_text.Text("")] if rejected else []
    if largest.resources:
        parts += _fragmentation(largest.resources, terminal.width_for(to))
    else:
        none = "No manager assigns a resource by NUMA node: the scheduler's sums decide. Count pods with --shape."
        parts.append(rich_text.Text(none))
    return terminal.text_for(rich_console.Group(*parts), to)


def _parts(capacity: counted.Capacity, plan: Plan, after: Plan, width: int, *, wide: bool) -> Iterator[RenderableType]:
    document = capacity.document
    yield from plan_texts.head_lines(pictures.plan_view(plan))
    if counted.askable(plan) is None:
        last = plan.answers[-1].pod
        yield rich_text.Text(
            f"Nothing can be counted: the kubelet would not return from {clean(f'{last.namespace}/{last.name}')}.",
            "bold",
        )
        return
    yield rich_text.Text(headline(capacity), "bold")
    yield from _rejected(plan)
    if document.replicas:
        yield rich_text.Text("")
        rows = plan_rows.plan_rows(replace(after, answers=capacity.replicas), wide=True)
        if wide:
            yield tables.placements_table([replace(row, why="") for row in rows], wide=True)
        else:
            yield _groups(document.replicas, rows)
        yield from [rich_text.Text(_ORDER, "dim")] if document.count > 1 else []
    for line in plan_rows.pool_lines(after.findings):
        yield rich_text.Text("")
        yield rich_text.Text(clean(line), "bold red")
    if (answer := document.next) is not None:
        subject = f"Number {document.count + 1}" if document.count else "The first one"
        mark = f" [{answer.code}]" if answer.code else ""
        never = "would never be answered" if answer.endless else f"is refused: {answer.reason}"
        yield rich_text.Text("")
        yield rich_text.Text(f"{subject} {'would crash the kubelet' if answer.crash else never}{mark}.", "bold")
        yield console.indented(clean(answer.why))
        if answer.message:
            yield console.indented(f"The kubelet says: “{clean(answer.message)}”.")
    for advice in document.advice:
        yield from _advice(advice)
    if document.fragmentation:
        yield rich_text.Text("")
        yield from _fragmentation(document.fragmentation, width)


def _rejected(plan: Plan) -> list[RenderableType]:
    """Return the line about pods that are not counted because they are not on the node; none where all are."""
    rejected = sum(not answer.admitted for answer in plan.answers)
    were = "was rejected and is" if rejected == 1 else "were rejected and are"
    return [rich_text.Text(f"{plural(rejected, 'pod')} of those given {were} not counted.")] if rejected else []


def headline(capacity: counted.Capacity) -> str:
    """Return how many more pods fit, in a sentence."""
    document, pod = capacity.document, capacity.shape
    shape = f"like {clean(f'{pod.namespace}/{pod.name}' if pod.namespace else pod.name)}"
    if pod.uid == eviction.DESCRIBED:
        amounts = ", ".join(f"{resource}={amount}" for resource, amount in pod.containers[0].limits.items())
        shape = f"with {clean(amounts)}"
    count, at_least = document.count, document.at_least
    pods = plural(count, "pod" if capacity.itself else "more pod")
    verb = "fits" if count == 1 else "fit"
    if not count:
        text = f"No more pods {shape} fit"
    elif document.limited:
        text = f"At least {pods} {shape} {verb}; counting stopped there"
    else:
        text = f"{pods} {shape} {verb}"
    text += ", itself counted" if capacity.itself and count else ""
    return f"{text}; {at_least} were wanted." if count < at_least and at_least > 1 else f"{text}."


def _advice(advice: counted.AdvicePart) -> Iterator[RenderableType]:
    if advice.remark == counted.NOBODY:
        return
    purpose = f"Number {advice.replica} is spread over more NUMA nodes than it needs. To align it:"
    if advice.goal == counted.ADMITTED:
        purpose = "To admit one more:" if advice.replica > 1 else "To admit it:"
    yield rich_text.Text("")
    yield rich_text.Text(purpose, "bold")
    if advice.remark == counted.EMPTY_REFUSES:
        yield console.indented("No eviction helps: even the empty node refuses it.")
    elif advice.remark:
        yield console.indented("No eviction was found that helps.")
    for position, eviction in enumerate(advice.evictions):
        pods = []
        for pod in eviction.pods:
            name = f"{pod.namespace}/{pod.name}" if pod.namespace else f"the pod with uid {pod.name}"
            holding = [reasons.amount_of("cpu", pod.milli_cpu), *([size(pod.bytes)] if pod.bytes else [])]
            holding += [nodes(pod.numa_nodes)] if pod.numa_nodes else []
            pods.append(f"{clean(name)} ({', '.join(holding)})")
        yield console.indented(f"{'or ' if position else ''}evict {joined(pods)}")


_GAP = 2
_BAR = 10


def _groups(replicas: Sequence[counted.ReplicaPart], rows: Sequence[PlacementRow]) -> RenderableType:
    """Return where replicas go, those that lie alike in one line.

    Args:
        replicas: in the order of their admission.
        rows: the containers of all of them.
    """
    words: dict[str, list[str]] = {}
    for row in rows:
        name = row.pod.rpartition("/")[2]
        if row.alignment and row.alignment not in words.setdefault(name, []):
            words[name].append(row.alignment)
    groups: dict[tuple[int, tuple[tuple[int, ...], ...], str], list[counted.ReplicaPart]] = {}
    for one in replicas:
        held = [devices for resources in one.devices.values() for devices in resources.values()]
        near = {node for devices in held for numa in devices.numa for node in numa}
        lies = (tuple(one.cpu_nodes), tuple(one.memory_nodes), tuple(sorted(near)))
        alike = (len(CPUSet.parse(one.cpus)), lies, "; ".join(words.get(one.name, [])))
        groups.setdefault(alike, []).append(one)
    with_memory, with_devices = (any(lies[place] for _, lies, _ in groups) for place in (1, 2))
    of_some = [*(["memory"] if with_memory else []), *(["devices"] if with_devices else [])]
    table = console.new_table("pods", "CPUs each", "NUMA", *of_some, "alignment", "CPU list", right=(0, 1))
    for (cpus, (of_cpus, of_memory, of_devices), alignment), members in groups.items():
        every = CPUSet()
        for one in members:
            every |= CPUSet.parse(one.cpus)
        table.add_row(
            rich_text.Text(str(len(members))),
            rich_text.Text(str(cpus or "–")),
            console.Breaking(wording.numbers(of_cpus)),
            *([console.Breaking(wording.numbers(of_memory))] if with_memory else []),
            *([console.Breaking(wording.numbers(of_devices))] if with_devices else []),
            rich_text.Text(alignment or "shared pool"),
            console.Breaking(str(every) or "–"),
        )
    return table


def _fragmentation(found: Sequence[FragmentationPart], width: int) -> Iterator[RenderableType]:
    """Yield the largest requests by resource, then by NUMA node with bars where ``width`` columns leave room."""
    yield rich_text.Text("The largest request that one pod could make on the node as it is", "bold")
    table = console.new_table("resource", "one NUMA node", "at all", "free", "lost", right=(1, 2, 3, 4))
    groups: list[list[FragmentationPart]] = []
    for one in found:
        share = f" ({round(100 * one.lost / one.gathered)} %)" if one.lost else ""
        figures = [_amount(one, figure) for figure in (one.largest_aligned, one.largest, one.free, one.lost)]
        table.add_row(
            console.Breaking(_resource(one), "/"),
            *map(rich_text.Text, figures[:3]),
            rich_text.Text(f"{figures[3]}{share}"),
        )
        if one.numa_nodes and groups and _needed([*groups[-1], one]) <= width:
            groups[-1].append(one)
        elif one.numa_nodes:
            groups.append([one])
    yield table
    for resources in groups:
        yield rich_text.Text("")
        yield _by_node(resources, width)
    if any(_bar_width(resources, width) for resources in groups):
        yield rich_text.Text("Bars: · what one request can get of what an empty NUMA node gives, █ the rest.", "dim")


def _bar_width(resources: Sequence[FragmentationPart], width: int) -> int:
    """Return how many columns a bar has; 0 when there is no room for bars."""
    room = min(_BAR, (width - _needed(resources)) // len(resources) - _GAP)
    return room if room >= console.NARROWEST_BAR else 0


def _needed(resources: Sequence[FragmentationPart]) -> int:
    return len("NUMA") + sum(
        _GAP + max(len(_resource(one)), *(len(_cell(one, share)) for share in one.numa_nodes), 0) for one in resources
    )


def _by_node(resources: Sequence[FragmentationPart], width: int) -> RenderableType:
    room = _bar_width(resources, width)
    table = console.new_table("NUMA")
    for one in resources:
        table.add_column(_resource(one), justify="right", no_wrap=True)
        if room:
            table.add_column("", no_wrap=True)
    for node in sorted({share.node for one in resources for share in one.numa_nodes}):
        cells: list[RenderableType] = [rich_text.Text(str(node))]
        for one in resources:
            share = next((share for share in one.numa_nodes if share.node == node), None)
            cells.append(rich_text.Text(_cell(one, share) if share is not None else "–"))
            if room:
                most = max(other.most for other in one.numa_nodes)
                parts = [(share.most - share.largest, "█", ""), (share.largest, "·", "free")] if share else []
                cells.append(console.bar(parts, most, room) if share is not None else rich_text.Text(""))
        table.add_row(*cells)
    return table


def _cell(one: FragmentationPart, share: NodeSharePart) -> str:
    return f"{_amount(one, share.largest)} of {_amount(one, share.most)}"


def _resource(one: FragmentationPart) -> str:
    return "CPUs" if one.resource == "cpu" else clean(one.resource)


def _amount(one: FragmentationPart, amount: int) -> str:
    in_bytes = policy.is_memory(one.resource)
    return size(amount) if in_bytes else str(amount)
