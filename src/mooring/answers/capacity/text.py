"""``mooring capacity -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan
from mooring.answers.base.plan_document import plan_answer
from mooring.answers.base.plan_text import head_lines, plan_text
from mooring.answers.base.rows import plan_rows, pool_lines
from mooring.answers.capacity import answer as counted
from mooring.answers.capacity.eviction import DESCRIBED
from mooring.answers.capacity.fragmentation import HUGEPAGES, FragmentationPart, NodeSharePart
from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.explanations.phrases import joined, nodes, plural, size
from mooring.explanations.story import PodVerdict
from mooring.explanations.why import amount_of
from mooring.views.console import NARROWEST_BAR, Breaking, bar, new_table
from mooring.views.tables import placements_table
from mooring.views.view import PlacementRow
from mooring.views.wording import numbers

_NO = {PodVerdict.CRASH: "would crash the kubelet", PodVerdict.ENDLESS: "would never be answered"}
_INDENT = (0, 0, 0, 2)
_ORDER = (
    "Counted as if they were created now, one after the other. In another order, or with other pods in between, the "
    "number can differ."
)


def capacity_text(capacity: counted.Capacity, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    if isinstance(capacity.plan, RefusedPlan) or isinstance(capacity.after, RefusedPlan):
        return plan_text(plan_answer(capacity.plan), to=to)
    return text_for(Group(*_parts(capacity, capacity.plan, capacity.after, width_for(to), wide=wide)), to)


def largest_text(plan: AnyPlan, largest: counted.LargestRequestsDocument, *, to: str) -> str:
    """Return the table of the largest requests."""
    if isinstance(plan, RefusedPlan) or counted.askable(plan) is None:
        return plan_text(plan_answer(plan), to=to)
    parts = list(head_lines(plan_view(plan)))
    refused = sum(not answer.admitted for answer in plan.answers)
    if refused:
        was = "was rejected and is" if refused == 1 else "were rejected and are"
        parts += [Text(f"{plural(refused, 'pod')} of those given {was} not counted."), Text("")]
    if largest.resources:
        parts += _fragmentation(largest.resources, width_for(to))
    else:
        none = "No manager assigns a resource by NUMA node: the scheduler's sums decide. Count pods with --shape."
        parts.append(Text(none))
    return text_for(Group(*parts), to)


def _parts(capacity: counted.Capacity, plan: Plan, after: Plan, width: int, *, wide: bool) -> Iterator[RenderableType]:
    document = capacity.document
    yield from head_lines(plan_view(plan))
    if counted.askable(plan) is None:
        last = plan.answers[-1].pod
        yield Text(
            f"Nothing can be counted: the kubelet would not return from {clean(f'{last.namespace}/{last.name}')}.",
            "bold",
        )
        return
    yield Text(headline(capacity), "bold")
    refused = sum(not answer.admitted for answer in plan.answers)
    if refused:
        was, is_not = ("was", "is not") if refused == 1 else ("were", "are not")
        yield Text(f"{plural(refused, 'pod')} of those given {was} rejected and {is_not} counted.")
    if document.replicas:
        yield Text("")
        rows = plan_rows(replace(after, answers=capacity.replicas), wide=True)
        if wide:
            yield placements_table([replace(row, why="") for row in rows], wide=True)
        else:
            yield _groups(document.replicas, rows)
        yield from [Text(_ORDER, "dim")] if document.count > 1 else []
    for line in pool_lines(after.findings):
        yield Text("")
        yield Text(clean(line), "bold red")
    if (answer := document.next) is not None:
        subject = f"Number {document.count + 1}" if document.count else "The first one"
        mark = f" [{answer.code}]" if answer.code else ""
        never = "would never be answered" if answer.endless else f"is refused: {answer.reason}"
        yield Text("")
        yield Text(f"{subject} {'would crash the kubelet' if answer.crash else never}{mark}.", "bold")
        yield Padding(Text(clean(answer.why)), _INDENT)
        if answer.message:
            yield Padding(Text(f"The kubelet says: “{clean(answer.message)}”."), _INDENT)
    for advice in document.advice:
        yield from _advice(advice)
    if document.fragmentation:
        yield Text("")
        yield from _fragmentation(document.fragmentation, width)


def headline(capacity: counted.Capacity) -> str:
    """Return how many more pods fit, in a sentence."""
    document, pod = capacity.document, capacity.shape
    shape = f"like {clean(f'{pod.namespace}/{pod.name}' if pod.namespace else pod.name)}"
    if pod.uid == DESCRIBED:
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
    yield Text("")
    yield Text(purpose, "bold")
    if advice.remark == counted.EMPTY_REFUSES:
        yield Padding(Text("No eviction helps: even the empty node refuses it."), _INDENT)
    elif advice.remark:
        yield Padding(Text("No eviction was found that helps."), _INDENT)
    for position, eviction in enumerate(advice.evictions):
        pods = []
        for pod in eviction.pods:
            name = f"{pod.namespace}/{pod.name}" if pod.namespace else f"the pod with uid {pod.name}"
            holding = [amount_of("cpu", pod.milli_cpu), *([size(pod.bytes)] if pod.bytes else [])]
            holding += [nodes(pod.numa_nodes)] if pod.numa_nodes else []
            pods.append(f"{clean(name)} ({', '.join(holding)})")
        yield Padding(Text(f"{'or ' if position else ''}evict {joined(pods)}"), _INDENT)


_GAP = 2
_BAR = 10


def _table(*headings: tuple[str, str]) -> Table:
    """Return a table with headings, each left or right."""
    table = new_table()
    for heading, side in headings:
        table.add_column(heading, justify="right" if side == "right" else "left")
    return table


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
    table = _table(
        ("pods", "right"),
        ("CPUs each", "right"),
        ("NUMA", "left"),
        *([("memory", "left")] if with_memory else []),
        *([("devices", "left")] if with_devices else []),
        ("alignment", "left"),
        ("CPU list", "left"),
    )
    for (cpus, (of_cpus, of_memory, of_devices), alignment), members in groups.items():
        every = CPUSet()
        for one in members:
            every |= CPUSet.parse(one.cpus)
        table.add_row(
            Text(str(len(members))),
            Text(str(cpus or "–")),
            Breaking(numbers(of_cpus)),
            *([Breaking(numbers(of_memory))] if with_memory else []),
            *([Breaking(numbers(of_devices))] if with_devices else []),
            Text(alignment or "shared pool"),
            Breaking(str(every) or "–"),
        )
    return table


def _fragmentation(found: Sequence[FragmentationPart], width: int) -> Iterator[RenderableType]:
    """Yield the largest requests by resource, then by NUMA node with bars where ``width`` columns leave room."""
    yield Text("The largest request that one pod could make on the node as it is", "bold")
    table = _table(
        ("resource", "left"), ("one NUMA node", "right"), ("at all", "right"), ("free", "right"), ("lost", "right")
    )
    groups: list[list[FragmentationPart]] = []
    for one in found:
        share = f" ({round(100 * one.lost / one.gathered)} %)" if one.lost else ""
        figures = [_amount(one, figure) for figure in (one.largest_aligned, one.largest, one.free, one.lost)]
        table.add_row(Breaking(_resource(one), "/"), *map(Text, figures[:3]), Text(f"{figures[3]}{share}"))
        if one.numa_nodes and groups and _needed([*groups[-1], one]) <= width:
            groups[-1].append(one)
        elif one.numa_nodes:
            groups.append([one])
    yield table
    for resources in groups:
        yield Text("")
        yield _by_node(resources, width)
    if any(_bar_width(resources, width) for resources in groups):
        yield Text("Bars: · what one request can get of what an empty NUMA node gives, █ the rest.", "dim")


def _bar_width(resources: Sequence[FragmentationPart], width: int) -> int:
    """Return how many columns a bar has; 0 when there is no room for bars."""
    room = min(_BAR, (width - _needed(resources)) // len(resources) - _GAP)
    return room if room >= NARROWEST_BAR else 0


def _needed(resources: Sequence[FragmentationPart]) -> int:
    return len("NUMA") + sum(
        _GAP + max(len(_resource(one)), *(len(_cell(one, share)) for share in one.numa_nodes), 0) for one in resources
    )


def _by_node(resources: Sequence[FragmentationPart], width: int) -> RenderableType:
    room = _bar_width(resources, width)
    table = _table(("NUMA", "left"))
    for one in resources:
        table.add_column(_resource(one), justify="right", no_wrap=True)
        if room:
            table.add_column("", no_wrap=True)
    for node in sorted({share.node for one in resources for share in one.numa_nodes}):
        cells: list[RenderableType] = [Text(str(node))]
        for one in resources:
            share = next((share for share in one.numa_nodes if share.node == node), None)
            cells.append(Text(_cell(one, share) if share is not None else "–"))
            if room:
                most = max(other.most for other in one.numa_nodes)
                parts = [(share.most - share.largest, "█", ""), (share.largest, "·", "free")] if share else []
                cells.append(bar(parts, most, room) if share is not None else Text(""))
        table.add_row(*cells)
    return table


def _cell(one: FragmentationPart, share: NodeSharePart) -> str:
    return f"{_amount(one, share.largest)} of {_amount(one, share.most)}"


def _resource(one: FragmentationPart) -> str:
    return "CPUs" if one.resource == "cpu" else clean(one.resource)


def _amount(one: FragmentationPart, amount: int) -> str:
    in_bytes = one.resource == "memory" or one.resource.startswith(HUGEPAGES)
    return size(amount) if in_bytes else str(amount)
