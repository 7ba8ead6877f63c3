"""``mooring capacity -o text`` and ``-o wide``: the answer for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import AnyPlan, Plan, RefusedPlan
from mooring.answers.base.plan_text import head_lines, plan_text
from mooring.answers.base.rows import plan_rows, pool_lines
from mooring.answers.capacity.answer import (
    ADMITTED,
    EMPTY_REFUSES,
    NOBODY,
    AdvicePart,
    Capacity,
    LargestRequestsDocument,
    NextReplicaPart,
    ReplicaPart,
    askable,
)
from mooring.answers.capacity.eviction import DESCRIBED, EvictedPodPart, EvictionPart
from mooring.answers.capacity.fragmentation import HUGEPAGES, FragmentationPart, NodeSharePart
from mooring.cli.terminal import text_for, width_for
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import clean
from mooring.engine.core.pod import Pod
from mooring.explanations.phrases import joined, nodes, plural, size
from mooring.explanations.story import PodVerdict
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


def capacity_text(capacity: Capacity, *, wide: bool, to: str) -> str:
    """Return the answer as text for the terminal, or without any styling for the file ``to``."""
    if isinstance(capacity.plan, RefusedPlan) or isinstance(capacity.after, RefusedPlan):
        return plan_text(capacity.plan, wide=wide, to=to)
    return text_for(Group(*_parts(capacity, capacity.plan, capacity.after, width_for(to), wide=wide)), to)


def largest_text(plan: AnyPlan, largest: LargestRequestsDocument, *, to: str) -> str:
    """Return the table of the largest requests."""
    if isinstance(plan, RefusedPlan) or askable(plan) is None:
        return plan_text(plan, wide=False, to=to)
    return text_for(Group(*_largest(plan, largest, width_for(to))), to)


def _largest(plan: Plan, largest: LargestRequestsDocument, width: int) -> Iterator[RenderableType]:
    yield from head_lines(plan_view(plan), plan.kubelet)
    refused = sum(not answer.admitted for answer in plan.answers)
    if refused:
        was = "was rejected and is" if refused == 1 else "were rejected and are"
        yield Text(f"{plural(refused, 'pod')} of those given {was} not counted.")
        yield Text("")
    if largest.resources:
        yield from _fragmentation(largest.resources, width)
    else:
        yield Text("No manager assigns a resource by NUMA node: the scheduler's sums decide. Count pods with --shape.")


def _parts(capacity: Capacity, plan: Plan, after: Plan, width: int, *, wide: bool) -> Iterator[RenderableType]:
    document = capacity.document
    yield from head_lines(plan_view(plan), plan.kubelet)
    if askable(plan) is None:
        last = plan.answers[-1].pod
        yield Text(f"Nothing can be counted: the kubelet would not return from {clean(_name(last))}.", "bold")
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
    for line in pool_lines(after):
        yield Text("")
        yield Text(clean(line), "bold red")
    if document.next is not None:
        yield from _next(document.count + 1, document.next)
    for advice in document.advice:
        yield from _advice(advice)
    if document.fragmentation:
        yield Text("")
        yield from _fragmentation(document.fragmentation, width)


def headline(capacity: Capacity) -> str:
    """Return how many more pods fit, in a sentence."""
    document, shape = capacity.document, _shape(capacity.shape)
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


def _shape(pod: Pod) -> str:
    if pod.uid == DESCRIBED:
        amounts = ", ".join(f"{resource}={amount}" for resource, amount in pod.containers[0].limits.items())
        return f"with {clean(amounts)}"
    return f"like {clean(_name(pod))}"


def _name(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.namespace else pod.name


def _next(number: int, answer: NextReplicaPart) -> Iterator[RenderableType]:
    subject = f"Number {number}" if number > 1 else "The first one"
    mark = f" [{answer.code}]" if answer.code else ""
    verdict = f"is refused: {answer.reason}"
    if answer.crash:
        verdict = "would crash the kubelet"
    elif answer.endless:
        verdict = "would never be answered"
    yield Text("")
    yield Text(f"{subject} {verdict}{mark}.", "bold")
    yield Padding(Text(clean(answer.why)), _INDENT)
    if answer.message:
        yield Padding(Text(f"The kubelet says: “{clean(answer.message)}”."), _INDENT)


def _advice(advice: AdvicePart) -> Iterator[RenderableType]:
    if advice.remark == NOBODY:
        return
    yield Text("")
    yield Text(_purpose(advice), "bold")
    if advice.remark == EMPTY_REFUSES:
        yield Padding(Text("No eviction helps: even the empty node refuses it."), _INDENT)
    elif advice.remark:
        yield Padding(Text("No eviction was found that helps."), _INDENT)
    for position, eviction in enumerate(advice.evictions):
        yield Padding(Text(f"{'or ' if position else ''}evict {_evicted(eviction)}"), _INDENT)


def _purpose(advice: AdvicePart) -> str:
    if advice.goal == ADMITTED:
        return "To admit one more:" if advice.replica > 1 else "To admit it:"
    return f"Number {advice.replica} is spread over more NUMA nodes than it needs. To align it:"


def _evicted(eviction: EvictionPart) -> str:
    return joined([f"{clean(_evicted_name(pod))} ({_holding(pod)})" for pod in eviction.pods])


def _evicted_name(pod: EvictedPodPart) -> str:
    return f"{pod.namespace}/{pod.name}" if pod.namespace else f"the pod with uid {pod.name}"


def _holding(pod: EvictedPodPart) -> str:
    cpus = f"{pod.milli_cpu / 1000:.3f}".rstrip("0").rstrip(".")
    parts = [f"{cpus} CPU{'' if pod.milli_cpu == 1000 else 's'}"]
    parts += [size(pod.bytes)] if pod.bytes else []
    parts += [nodes(pod.numa_nodes)] if pod.numa_nodes else []
    return ", ".join(parts)


_GAP = 2
_BAR = 10


def _table(*headings: tuple[str, str]) -> Table:
    """Return a table with headings, each left or right."""
    table = new_table()
    for heading, side in headings:
        table.add_column(heading, justify="right" if side == "right" else "left")
    return table


@dataclass(frozen=True, slots=True)
class _Group:
    """Replicas that lie alike."""

    cpus: int
    cpu_nodes: tuple[int, ...]
    memory_nodes: tuple[int, ...]
    device_nodes: tuple[int, ...]
    alignment: str


def _groups(replicas: Sequence[ReplicaPart], rows: Sequence[PlacementRow]) -> RenderableType:
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
    groups: dict[_Group, list[ReplicaPart]] = {}
    for one in replicas:
        groups.setdefault(_group(one, "; ".join(words.get(one.name, []))), []).append(one)
    with_memory = any(group.memory_nodes for group in groups)
    with_devices = any(group.device_nodes for group in groups)
    table = _table(
        ("pods", "right"),
        ("CPUs each", "right"),
        ("NUMA", "left"),
        *([("memory", "left")] if with_memory else []),
        *([("devices", "left")] if with_devices else []),
        ("alignment", "left"),
        ("CPU list", "left"),
    )
    for group, members in groups.items():
        every = CPUSet()
        for one in members:
            every |= CPUSet.parse(one.cpus)
        table.add_row(
            Text(str(len(members))),
            Text(str(group.cpus or "–")),
            Breaking(numbers(group.cpu_nodes)),
            *([Breaking(numbers(group.memory_nodes))] if with_memory else []),
            *([Breaking(numbers(group.device_nodes))] if with_devices else []),
            Text(group.alignment or "shared pool"),
            Breaking(str(every) or "–"),
        )
    return table


def _group(one: ReplicaPart, alignment: str) -> _Group:
    held = [devices for resources in one.devices.values() for devices in resources.values()]
    near = {node for devices in held for numa in devices.numa for node in numa}
    cpus = len(CPUSet.parse(one.cpus))
    return _Group(cpus, tuple(one.cpu_nodes), tuple(one.memory_nodes), tuple(sorted(near)), alignment)


def _fragmentation(found: Sequence[FragmentationPart], width: int) -> Iterator[RenderableType]:
    """Yield the largest requests by resource, then by NUMA node with bars where ``width`` columns leave room."""
    yield Text("The largest request that one pod could make on the node as it is", "bold")
    yield _summary(found)
    groups = list(_fitting([one for one in found if one.numa_nodes], width))
    for resources in groups:
        yield Text("")
        yield _by_node(resources, width)
    if any(_bar_width(resources, width) for resources in groups):
        yield Text("Bars: · what one request can get of what an empty NUMA node gives, █ the rest.", "dim")


def _summary(found: Sequence[FragmentationPart]) -> RenderableType:
    table = _table(
        ("resource", "left"), ("one NUMA node", "right"), ("at all", "right"), ("free", "right"), ("lost", "right")
    )
    for one in found:
        share = f" ({round(100 * one.lost / one.gathered)} %)" if one.lost else ""
        figures = (one.largest_aligned, one.largest, one.free)
        table.add_row(
            Breaking(_resource(one), "/"),
            *(Text(_amount(one, figure)) for figure in figures),
            Text(f"{_amount(one, one.lost)}{share}"),
        )
    return table


def _fitting(found: Sequence[FragmentationPart], width: int) -> Iterator[list[FragmentationPart]]:
    """Yield resources in groups whose columns fit beside each other."""
    group: list[FragmentationPart] = []
    for one in found:
        if group and _needed([*group, one]) > width:
            yield group
            group = []
        group.append(one)
    if group:
        yield group


def _bar_width(resources: Sequence[FragmentationPart], width: int) -> int:
    """Return how many columns a bar has; 0 when there is no room for bars."""
    room = min(_BAR, (width - _needed(resources)) // len(resources) - _GAP)
    return room if room >= NARROWEST_BAR else 0


def _needed(resources: Sequence[FragmentationPart]) -> int:
    return len("NUMA") + sum(_GAP + _text_width(one) for one in resources)


def _text_width(one: FragmentationPart) -> int:
    return max(len(_resource(one)), *(len(_cell(one, share)) for share in one.numa_nodes), 0)


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
                cells.append(_bar(one, share, room) if share is not None else Text(""))
        table.add_row(*cells)
    return table


def _cell(one: FragmentationPart, share: NodeSharePart) -> str:
    return f"{_amount(one, share.largest)} of {_amount(one, share.most)}"


def _bar(one: FragmentationPart, share: NodeSharePart, width: int) -> Text:
    most = max(other.most for other in one.numa_nodes)
    return bar([(share.most - share.largest, "█", ""), (share.largest, "·", "free")], most, width)


def _resource(one: FragmentationPart) -> str:
    return "CPUs" if one.resource == "cpu" else clean(one.resource)


def _amount(one: FragmentationPart, amount: int) -> str:
    in_bytes = one.resource == "memory" or one.resource.startswith(HUGEPAGES)
    return size(amount) if in_bytes else str(amount)
