"""Tables for the terminal: owners, NUMA nodes in figures, and the rows of a plan.

They hold at 80 columns and without colour: CPU lists break at commas only, nothing is cut off, bars are made of signs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mooring.core.cpuset import CPUSet
from mooring.render.terminal_styles import STYLES
from mooring.render.palette import owner_style
from mooring.render.view import CPUUse, MemoryUse, NodeView, NUMAView, PlacementRow
from mooring.render.wording import MARKS, clean, numbers, size

BAR_WIDTH = 20
"""Columns of a bar."""

_SIGNS = {**MARKS, CPUUse.EXCLUSIVE: "█"}


@dataclass(frozen=True, slots=True)
class CPUList:
    """A CPU list that a table may break, but only after commas."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tell the table the narrowest and the widest form."""
        del console
        widest = max(len(self.text), 1)
        narrowest = min(max(len(part) for part in self._parts()), widest)
        return Measurement(narrowest, widest).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines."""
        del console
        line = ""
        for part in self._parts():
            if line and len(line) + len(part) > options.max_width:
                yield from (Segment(line), Segment.line())
                line = ""
            line += part
        yield from (Segment(line), Segment.line())

    def _parts(self) -> list[str]:
        *front, last = self.text.split(",")
        return [f"{part}," for part in front] + [last]


def owners_table(view: NodeView) -> Table:
    """Return who holds which CPUs, one owner per line, with the mark that the map uses."""
    table = _table()
    table.add_column("")
    table.add_column("owner", overflow="fold", ratio=None)
    table.add_column("CPUs", justify="right")
    table.add_column("CPU list")
    table.add_column("NUMA", justify="left")
    with_memory = any(owner.memory_nodes for owner in view.owners)
    if with_memory:
        table.add_column("memory")
    for owner in view.owners:
        cells: list[RenderableType] = [
            Text(f" {owner.mark} ", STYLES[owner_style(owner)]),
            Text(owner.label),
            Text(str(len(owner.cpus))),
            CPUList(str(owner.cpus) or "–"),
            CPUList(numbers(owner.cpu_nodes)),
        ]
        table.add_row(*cells, *([CPUList(numbers(owner.memory_nodes))] if with_memory else []))
    return table


def numa_table(view: NodeView) -> Table:
    """Return the NUMA nodes in figures: CPUs per use, memory, and a bar for each."""
    uses = [use for use in CPUUse if any(node.counts.get(use) for node in view.numa)]
    with_memory = any(node.memory for node in view.numa)
    table = _table()
    table.add_column("NUMA")
    table.add_column("CPUs", justify="right")
    table.add_column("", no_wrap=True)
    for use in uses:
        table.add_column(use.value, justify="right")
    table.add_column("memory", justify="right")
    if with_memory:
        table.add_column("", no_wrap=True)
        table.add_column("free", justify="right")
    most = max((len(node.cpus) for node in view.numa), default=0)
    for node in view.numa:
        figures = [Text(str(node.counts.get(use, 0) or "–")) for use in uses]
        memory = [_memory_bar(node), Text(_free_memory(node))] if with_memory else []
        table.add_row(
            Text(str(node.id)),
            Text(str(len(node.cpus) or "–")),
            _cpu_bar(node, most),
            *figures,
            Text(size(node.memory_bytes)),
            *memory,
        )
    return table


def placements_table(rows: Sequence[PlacementRow], *, wide: bool = False) -> RenderableType:
    """Return the answer of a plan: a table, and below it the reasons; ``wide`` puts the reasons into the table.

    Rows of one pod must follow each other; the pod is named once.
    """
    table = _table()
    table.add_column("pod / container", overflow="fold")
    table.add_column("verdict")
    table.add_column("CPUs", justify="right")
    table.add_column("CPU list")
    table.add_column("NUMA")
    with_memory = any(row.memory_nodes for row in rows)
    if with_memory:
        table.add_column("memory")
    table.add_column("alignment")
    if wide:
        table.add_column("why", overflow="fold")
    for pod, containers in groupby(rows, key=lambda row: row.pod):
        listed = list(containers)
        if not (len(listed) == 1 and not listed[0].container):
            table.add_row(Text(clean(pod), "bold"))
        for row in listed:
            name = f"  {clean(row.container)}" if row.container else clean(pod)
            cells: list[RenderableType] = [
                Text(name),
                Text(clean(row.verdict), "" if row.admitted else "bold"),
                Text(str(len(row.cpus) or "–")),
                CPUList(str(row.cpus) or "–"),
                CPUList(numbers(row.cpu_nodes)),
            ]
            cells += [CPUList(numbers(row.memory_nodes))] if with_memory else []
            cells += [Text(clean(row.alignment))]
            table.add_row(*cells, *([Text(clean(row.why))] if wide else []))
    return table if wide else Group(table, *_reasons(rows))


def _reasons(rows: Sequence[PlacementRow]) -> Iterator[Text]:
    told = [row for row in rows if row.why]
    if told:
        yield Text("")
    for row in told:
        name = f"{row.pod}/{row.container}" if row.container else row.pod
        yield Text.assemble((f"{clean(name)}: ", "bold"), clean(row.why))


def bar(parts: Sequence[tuple[int, str, str]], total: int, width: int = BAR_WIDTH) -> Text:
    """Return a bar of ``width`` columns for ``total``: per part its amount, its sign and its style name.

    An amount above zero shows at least one sign as long as there is room; rounding goes to the largest remainder.

    >>> bar([(1, "#", "reserved"), (50, "█", ""), (49, "·", "")], 100, 10).plain
    '#█████····'
    """
    if total <= 0:
        return Text("")
    exact = [amount * width / total for amount, _, _ in parts]
    lengths = [max(1, int(share)) if share else 0 for share in exact]
    wanted = min(width, round(sum(exact)))
    while sum(lengths) != wanted and any(lengths):
        grow = sum(lengths) < wanted
        error = [share - length for share, length in zip(exact, lengths, strict=True)]
        candidates = [index for index, length in enumerate(lengths) if exact[index] and (grow or length > 1)]
        if not candidates:
            break
        chosen = (max if grow else min)(candidates, key=lambda index: error[index])
        lengths[chosen] += 1 if grow else -1
    pieces = ((sign * length, STYLES[style]) for (_, sign, style), length in zip(parts, lengths, strict=True))
    return Text.assemble(*pieces)
