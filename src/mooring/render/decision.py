"""A decision as a picture: NUMA nodes as columns, one row for each thing that was requested.

The values here say what is drawn; :mod:`mooring.render.svg.decision` draws them. Every mark has a sign besides its
colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from mooring.core.bits import list_text, mask_of
from mooring.core.topology import Topology
from mooring.devicemanager.facts import DevicesTaken
from mooring.explain.lines import chapter_title
from mooring.explain.opinion_lines import merge_line
from mooring.explain.phrases import amounts_text, joined, plural, size
from mooring.explain.step_lines import step_line
from mooring.explain.story import NO, Chapter, Opinion, Step, Story, Taking
from mooring.memorymanager.facts import MemoryAssigned
from mooring.memorymanager.machine import is_memory
from mooring.topologymanager.facts import HintsMerged


class Mark(Enum):
    """What a provider says about one NUMA node, or what became of the node."""

    PREFERRED = "preferred"
    WITH_OTHERS = "preferred together with others"
    POSSIBLE = "possible with others, not preferred"
    ANY = "no opinion"
    BARRED = "not possible"
    CHOSEN = "chosen"
    REFUSED = "best possible set, rejected"
    LEFT = "not chosen"


SIGNS: Mapping[Mark, str] = {
    Mark.PREFERRED: "✓",
    Mark.WITH_OTHERS: "+",
    Mark.POSSIBLE: "(+)",
    Mark.ANY: "~",
    Mark.BARRED: "×",
    Mark.CHOSEN: "●",
    Mark.REFUSED: "!",
    Mark.LEFT: "",
}
"""One sign for each mark; the legend says what it means."""


@dataclass(frozen=True, slots=True)
class DecisionCell:
    """One NUMA node in one row."""

    mark: Mark
    text: str = ""
    """Such as what is free there."""
    tooltip: str = ""


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


def decision_view(
    story: Story, nodes: Sequence[int], topology: Topology | None, helps: Sequence[str] = ()
) -> DecisionView:
    """Return the picture of a story.

    Args:
        story: of the pod.
        nodes: ids of the NUMA nodes of the machine, ascending.
        topology: of the node; None when the kubelet would not start.
        helps: sentences about what can be done.
    """
    panels = [_panel(chapter, tuple(nodes), topology) for chapter in story.chapters]
    reason = f": {story.reason}" if story.reason else ""
    return DecisionView(
        title=f"{story.why.code} · {story.name} is {story.verdict}{reason}",
        cause=story.why.sentence,
        circumstances=story.circumstances,
        panels=tuple(panel for panel in panels if panel.rows),
        notes=(
            *(f"Help: {text}" for text in helps),
            *(f"{remark.code}: {remark.sentence}." for remark in story.remarks),
        ),
    )


def _panel(chapter: Chapter, nodes: tuple[int, ...], topology: Topology | None) -> DecisionPanel:
    rows = [row for opinion in chapter.opinions for row in _opinion_rows(opinion, nodes)]
    if chapter.merge is not None:
        rows.append(_merge_row(chapter.merge, nodes))
    rows += [row for step in chapter.steps for row in _step_rows(step, nodes, topology)]
    title = chapter_title(chapter)
    return DecisionPanel(
        f"{title[0].upper()}{title[1:]}", nodes, tuple(rows), _verdict(chapter, topology), chapter.failed
    )


def _verdict(chapter: Chapter, topology: Topology | None) -> str:
    """Return the line that says how it ended."""
    lines = [merge_line(chapter.merge, by_distance=chapter.by_distance)] if chapter.merge is not None else []
    lines += [step_line(step, topology) for step in chapter.steps]
    told = [line for line in lines if line.mark == NO] or [line for line in lines if not line.detail]
    return told[-1].text if told else ""


def _opinion_rows(opinion: Opinion, nodes: Sequence[int]) -> Iterator[DecisionRow]:
    """Yield one row for each type that was requested; the types of memory share their hints."""
    for kind, need in opinion.need.items():
        cells = []
        for node in nodes:
            known = opinion.free.get(node)
            free = _amount(kind, known.get(kind, 0)) if known is not None else ""
            mark = _mark(opinion, node)
            cells.append(DecisionCell(mark, f"{free} free" if free else "", f"NUMA node {node}: {mark.value}"))
        asked = f"{_amount(kind, need)} requested"
        yield DecisionRow(kind, tuple(cells), f"{asked}; nothing fits" if opinion.nothing_fits else asked)


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


def _merge_row(merge: HintsMerged, nodes: Sequence[int]) -> DecisionRow:
    name = f"merged: {merge.policy}"
    if merge.admitted:
        everywhere = merge.result.mask is None
        return DecisionRow(name, _chosen(mask_of(nodes) if everywhere else merge.result.mask or 0, nodes), "")
    best = merge.result.mask or 0 if merge.rule == "narrowest" else 0
    return DecisionRow(name, _chosen(best, nodes, mark=Mark.REFUSED), "rejected")


def _chosen(
    chosen: int, nodes: Sequence[int], texts: Mapping[int, str] | None = None, mark: Mark = Mark.CHOSEN
) -> tuple[DecisionCell, ...]:
    found = []
    for node in nodes:
        own = mark if chosen >> node & 1 else Mark.LEFT
        words = (texts or {}).get(node, "")
        found.append(DecisionCell(own, words, f"NUMA node {node}: {words or own.value}"))
    return tuple(found)


def _step_rows(step: Step, nodes: Sequence[int], topology: Topology | None) -> Iterator[DecisionRow]:
    """Yield where CPUs, memory and devices were taken; nothing for what failed and for what took nothing."""
    if isinstance(step, Taking) and step.taken and topology is not None:
        texts = {node: list_text(mask & step.taken) for node, mask in topology.numa.items() if mask & step.taken}
        mask = mask_of(node for node in texts if node >= 0)
        note = plural(step.taken.bit_count(), "CPU")
        yield DecisionRow("CPUs allocated", _chosen(mask, nodes, texts), note)
    elif isinstance(step, MemoryAssigned) and not step.error:
        note = amounts_text({block.type: block.size for block in step.blocks})
        yield DecisionRow("memory allocated", _chosen(step.mask, nodes), note)
    elif isinstance(step, DevicesTaken) and step.taken and step.near:
        yield DecisionRow(f"{step.resource} allocated", _chosen(step.near, nodes), joined(step.taken))
