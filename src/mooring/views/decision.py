"""A decision as a picture: NUMA nodes as columns, one row for each thing that was requested.

The values here say what is drawn, :mod:`mooring.views.decision` fills the rows, and
:mod:`mooring.views.svg.decision` draws them. Every mark has a sign besides its colour.

The rows of a decision's picture: what each provider says of each NUMA node, and what was allocated there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from itertools import compress

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.decision import Shortage
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.devicemanager.facts import DeviceHintsAsked, DevicesTaken
from mooring.engine.memorymanager.facts import MemoryAssigned
from mooring.engine.memorymanager.policy import is_memory
from mooring.explanations.lines import chapter_title, merge_line, step_line
from mooring.explanations.phrases import amounts_text, joined, nodes, nodes_of, plural, size
from mooring.explanations.story import NO, Chapter, Opinion, Step, Story, Taking
from mooring.lazy import dataclass, replace
from mooring.views.devices import DeviceView


class Mark(Enum):
    """What a provider says about one NUMA node, or what became of the node."""

    PREFERRED = "preferred"
    WITH_OTHERS = "preferred together with others"
    POSSIBLE = "possible with others, not preferred"
    ANY = "no opinion"
    BARRED = "not possible"
    CONFLICT = "too little here: the NUMA node is out"
    ENOUGH = "enough of this alone"
    CHOSEN = "chosen"
    REFUSED = "best possible set, rejected"
    LEFT = "not chosen"


SIGNS: Mapping[Mark, str] = {
    Mark.PREFERRED: "✓",
    Mark.WITH_OTHERS: "+",
    Mark.POSSIBLE: "(+)",
    Mark.ANY: "~",
    Mark.BARRED: "×",
    Mark.CONFLICT: "≠",
    Mark.ENOUGH: "=",
    Mark.CHOSEN: "●",
    Mark.REFUSED: "!",
    Mark.LEFT: "",
}
"""One sign for each mark; the legend says what it means."""

REQUIRED_SIGN = "◆"
REQUIRED = "required: earlier containers of the pod have CPUs there, which count"
"""How a NUMA node is marked that every hint must hold."""


@dataclass(frozen=True, slots=True)
class DecisionCell:
    """One NUMA node in one row."""

    mark: Mark
    text: str = ""
    """Such as what is free there."""
    more: str = ""
    """What counts besides, on a line of its own."""
    tooltip: str = ""
    required: bool = False
    """Whether the pod is bound to the NUMA node, because earlier containers of it have CPUs there."""


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One row: its name, and one cell for each NUMA node."""

    name: str
    cells: tuple[DecisionCell, ...]
    note: str = ""
    """A few words below the name."""


@dataclass(frozen=True, slots=True)
class DecisionPanel:
    """What was decided for one container, or for the pod as a whole."""

    title: str
    nodes: tuple[int, ...]
    """Ids of the NUMA nodes, one for each column."""
    rows: tuple[DecisionRow, ...]
    verdict: str
    """One sentence about the merge, or about what was done."""
    refused: bool


@dataclass(frozen=True, slots=True)
class DecisionView:
    """The whole picture."""

    title: str
    """What became of which pod, with the code."""
    cause: str
    circumstances: str
    panels: tuple[DecisionPanel, ...]
    notes: tuple[str, ...]
    """Sentences below: what can be done, what else is to be known."""
    lacks: tuple[Shortage, ...] = ()
    """What the whole node has too little of; each is a bar."""


def decision_view(
    story: Story,
    nodes: Sequence[int],
    topology: Topology | None,
    helps: Sequence[str] = (),
    devices: Sequence[DeviceView] = (),
) -> DecisionView:
    """Return the picture of a story.

    Args:
        story: of the pod.
        nodes: ids of the NUMA nodes of the machine, ascending.
        topology: of the node; None when the kubelet would not start.
        helps: sentences about what can be done.
        devices: of the node, as they were before the decision.
    """
    panels = [_panel(chapter, tuple(nodes), topology, devices) for chapter in story.chapters]
    reason = f": {story.reason}" if story.reason else ""
    return DecisionView(
        title=f"{story.why.code} · {story.name} is {story.verdict}{reason}",
        cause=story.why.sentence,
        circumstances=story.circumstances,
        panels=tuple(panel for panel in panels if panel.rows),
        lacks=tuple(_lacks(story, topology, devices)),
        notes=(
            *(f"Help: {text}" for text in helps),
            *(f"{remark.code}: {remark.sentence}." for remark in story.remarks),
            *_device_notes(story, devices),
        ),
    )


def _lacks(story: Story, topology: Topology | None, devices: Sequence[DeviceView]) -> Iterator[Shortage]:
    """Yield what the whole node has too little of for the pod."""
    if story.shortage is not None:
        yield story.shortage
    for chapter in story.chapters if not story.admitted else ():
        wanted: list[tuple[str, int, int]] = []
        if (taking := chapter.refusal(Taking)) is not None:
            wanted.append(("cpu", taking.need, taking.pool.bit_count()))
        if (taken := chapter.refusal(DevicesTaken)) is not None:
            wanted.append((taken.resource, taken.need, sum(_of(taken.resource, devices, "free"))))
        if chapter.merge is not None and not chapter.merge.admitted:
            for opinion in chapter.opinions:
                free = [(kind, sum(one.get(kind, 0) for one in opinion.free.values())) for kind in opinion.need]
                wanted += [(kind, opinion.need[kind], amount) for kind, amount in free]
        for resource, need, free_amount in wanted:
            count = topology.num_cpus if resource == "cpu" and topology else len(list(_of(resource, devices)))
            total, scale = max(count, free_amount), 1000 if resource == "cpu" else 1
            if free_amount < need:
                yield Shortage(resource, need * scale, (total - free_amount) * scale, total * scale)


def _of(resource: str, devices: Sequence[DeviceView], state: str = "") -> Iterator[bool]:
    return (True for one in devices if one.resource == resource and state in ("", one.state))


_MOST_IDS = 8
"""Devices of one holder and NUMA node that are named."""


def _device_notes(story: Story, devices: Sequence[DeviceView]) -> Iterator[str]:
    """Yield a line for each resource and NUMA node of what the pod requests, where it was refused: who has what."""
    if story.admitted:
        return
    wanted = {opinion.resource for chapter in story.chapters for opinion in chapter.opinions}
    wanted |= {step.resource for chapter in story.chapters for step in chapter.steps if isinstance(step, DevicesTaken)}
    places: dict[tuple[str, tuple[int, ...]], dict[str, list[str]]] = {}
    for one in devices:
        if one.resource in wanted:
            state = f"{one.state} by {one.owner}" if one.owner else one.state
            places.setdefault((one.resource, one.numa), {}).setdefault(state, []).append(one.id)
    for (resource, numa), states in places.items():
        told = (
            f"{len(ids)} {state} ({', '.join(ids[:_MOST_IDS])}{', …' if len(ids) > _MOST_IDS else ''})"
            for state, ids in states.items()
        )
        yield f"{resource} on {nodes(numa) if numa else 'no known NUMA node'}: {'; '.join(told)}"


def _panel(
    chapter: Chapter, nodes: tuple[int, ...], topology: Topology | None, devices: Sequence[DeviceView]
) -> DecisionPanel:
    rows = [row for opinion in chapter.opinions for row in _opinion_rows(opinion, nodes, topology, devices)]
    if (merge := chapter.merge) is not None:
        name, best = f"merged: {merge.policy}", mask_of(nodes) if merge.result.mask is None else merge.result.mask
        if merge.admitted:
            rows.append(DecisionRow(name, _chosen(best, nodes), ""))
        else:
            refused = _chosen(best if merge.result.mask and merge.rule == "narrowest" else 0, nodes, mark=Mark.REFUSED)
            rows = _in_conflict(rows, DecisionRow(name, refused, "rejected"), merge.policy)
    rows += [row for step in chapter.steps for row in _step_rows(step, nodes, topology, devices)]
    # The verdict is the line that says how it ended.
    lines = [merge_line(merge, by_distance=chapter.by_distance)] if merge is not None else []
    lines += [step_line(step, topology) for step in chapter.steps]
    told = [line for line in lines if line.mark == NO] or [line for line in lines if not line.detail]
    title, verdict = chapter_title(chapter), told[-1].text if told else ""
    return DecisionPanel(f"{title[0].upper()}{title[1:]}", nodes, tuple(rows), verdict, chapter.failed)


def _in_conflict(rows: Sequence[DecisionRow], merged: DecisionRow, policy: str) -> list[DecisionRow]:
    """Return the rows of a merge that was rejected: where each request is in the way, and what each node lacks."""
    able = {Mark.PREFERRED, Mark.ANY, Mark.ENOUGH} | ({Mark.WITH_OTHERS} if policy != "single-numa-node" else set())
    lacking: list[list[str]] = [[] for _ in merged.cells]
    found = []
    for row in rows:
        barred = [cell.mark not in able for cell in row.cells]
        marked = (replace(one, mark=Mark.CONFLICT) if bar else one for one, bar in zip(row.cells, barred, strict=True))
        found.append(replace(row, cells=tuple(marked)))
        words = {"cpu": "CPUs", "memory": "memory"}.get(row.name, "devices" if "/" in row.name else "huge pages")
        for lack in compress(lacking, barred):
            lack.extend({f"no {words}"}.difference(lack))
    told = (
        replace(cell, text=lack[0], more="; ".join(lack[1:2]), tooltip=f"{cell.tooltip}; {', '.join(lack)}")
        if lack
        else cell
        for cell, lack in zip(merged.cells, lacking, strict=True)
    )
    return [*found, replace(merged, cells=tuple(told))]


def _opinion_rows(
    opinion: Opinion, nodes: Sequence[int], topology: Topology | None, devices: Sequence[DeviceView]
) -> Iterator[DecisionRow]:
    """Yield one row for each type that was requested; the types of memory share their hints."""
    if isinstance(opinion.asked, DeviceHintsAsked) and opinion.asked.follows:
        # Devices are held already, and CPUs and memory follow them.
        held = []
        for node in nodes:
            names = joined(sorted(name for name, mask in opinion.asked.free.items() if mask >> node & 1))
            mark = _mark(opinion, node)
            held.append(DecisionCell(mark, names, tooltip=f"NUMA node {node}: {names or 'none'} held, {mark.value}"))
        yield DecisionRow(opinion.resource, tuple(held), f"{opinion.asked.need} held, CPUs and memory follow")
        return
    # CPUs that earlier containers of the pod left on each NUMA node, besides the free ones.
    asked, left = opinion.asked, dict[int, int]()
    if isinstance(asked, CPUHintsAsked) and topology is not None:
        own = asked.reusable & ~asked.available
        left = {node: (topology.numa[node] & own).bit_count() for node in nodes_of(topology, own) if node >= 0}
    for kind, need in opinion.need.items():
        cells = []
        for node in nodes:
            known = opinion.free.get(node)
            here = [device for device in devices if device.resource == kind and node in device.numa]
            amount = 0 if known is None else known.get(kind, 0)
            free = "" if known is None else f"{f'{amount}/{len(here)}' if here else _amount(kind, amount)} free"
            mark = _mark(opinion, node)
            if mark in (Mark.BARRED, Mark.POSSIBLE) and known and known.get(kind, 0) >= need:
                mark = Mark.ENOUGH
            required = bool(opinion.bound >> node & 1)
            count, more = left.get(node, 0), _unhealthy(here)
            words = f"{free}, {mark.value}" if free else mark.value
            if count:
                more = f"+{count} own"
                words += f"; {count} held by earlier containers of the pod count too"
            tooltip = "; ".join([f"NUMA node {node}: {words}", *(one.sentence for one in here)])
            if required:
                tooltip += f"; {REQUIRED}"
            cells.append(DecisionCell(mark, free, more, tooltip, required))
        requested = f"{_amount(kind, need)} requested"
        yield DecisionRow(kind, tuple(cells), f"{requested}; nothing fits" if opinion.nothing_fits else requested)


def _unhealthy(here: Sequence[DeviceView]) -> str:
    count = sum(not device.healthy for device in here)
    return f"{count} unhealthy" if count else ""


def _amount(kind: str, amount: int) -> str:
    return size(amount) if is_memory(kind) else str(amount)


def _mark(opinion: Opinion, node: int) -> Mark:
    if opinion.nothing_fits:
        return Mark.BARRED
    if opinion.indifferent:
        return Mark.ANY
    bit = 1 << node
    if opinion.alone & bit:
        return Mark.PREFERRED
    if opinion.together & bit:
        return Mark.WITH_OTHERS
    return Mark.POSSIBLE if opinion.nodes & bit and opinion.narrowest else Mark.BARRED


def _chosen(
    chosen: int, nodes: Sequence[int], texts: Mapping[int, str] | None = None, mark: Mark = Mark.CHOSEN
) -> tuple[DecisionCell, ...]:
    found = []
    for node in nodes:
        own = mark if chosen >> node & 1 else Mark.LEFT
        words = (texts or {}).get(node, "")
        found.append(DecisionCell(own, words, tooltip=f"NUMA node {node}: {words or own.value}"))
    return tuple(found)


def _step_rows(
    step: Step, nodes: Sequence[int], topology: Topology | None, devices: Sequence[DeviceView]
) -> Iterator[DecisionRow]:
    """Yield where CPUs, memory and devices were taken, and where devices were too few; nothing for what took none."""
    if isinstance(step, Taking) and step.taken and topology is not None:
        texts = {node: list_text(mask & step.taken) for node, mask in topology.numa.items() if mask & step.taken}
        mask = mask_of(node for node in texts if node >= 0)
        note = plural(step.taken.bit_count(), "CPU")
        yield DecisionRow("CPUs allocated", _chosen(mask, nodes, texts), note)
    elif isinstance(step, MemoryAssigned) and not step.error:
        note = amounts_text({block.type: block.size for block in step.blocks})
        yield DecisionRow("memory allocated", _chosen(step.mask, nodes), note)
    elif isinstance(step, DevicesTaken) and step.error:
        known = [device for device in devices if device.resource == step.resource]
        cells = []
        for node in nodes:
            here = [device for device in known if node in device.numa]
            free = sum(device.state == "free" for device in here)
            text = f"{free}/{len(here)} free" if here else "none"
            sentences = "; ".join(device.sentence for device in here) or f"no {step.resource}"
            cells.append(DecisionCell(Mark.BARRED, text, _unhealthy(here), f"NUMA node {node}: {sentences}"))
        free = sum(device.state == "free" for device in known)
        yield DecisionRow(step.resource, tuple(cells), f"{step.need} requested, {free} free on the node")
    elif isinstance(step, DevicesTaken) and step.taken:
        near = {(one.resource, one.id): one.numa for one in devices}
        texts = {
            node: joined([id_ for id_ in step.taken if node in near.get((step.resource, id_), ())])
            for node in members(step.near)
        }
        yield DecisionRow(f"{step.resource} allocated", _chosen(step.near, nodes, texts), joined(step.taken))
