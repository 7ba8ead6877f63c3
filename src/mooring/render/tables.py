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
from rich.table import Table
from rich.text import Text

from mooring.render.console import STYLES
from mooring.render.palette import owner_style, use_style
from mooring.render.view import CPUUse, NodeView, NUMAView, PlacementRow
from mooring.render.wording import MARKS, clean, free_bytes, numbers, size

BAR_WIDTH = 20
"""Columns of a bar where there is room."""

NARROWEST_BAR = 8
"""Columns below which a bar says nothing and is left out."""

_SIGNS = {**MARKS, CPUUse.EXCLUSIVE: "█"}


@dataclass(frozen=True, slots=True)
class Breaking:
    """A text that a table may break after certain signs only: CPU lists after commas, names after slashes."""

    text: str
    after: str = ","
    style: str = ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tell the table the narrowest and the widest form."""
        del console
        narrowest = max(len(part) for part in self._parts(len(self.text) or 1))
        return Measurement(narrowest, max(len(self.text), 1)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines."""
        del console
        line = ""
        for part in self._parts(options.max_width):
            if line and len(line) + len(part) > options.max_width:
                yield from (Segment(line, STYLES[self.style]), Segment.line())
                line = ""
            line += part
        yield from (Segment(line, STYLES[self.style]), Segment.line())

    def _parts(self, longest: int) -> Iterator[str]:
        """Yield the pieces; one that is longer than a whole line is cut where the line ends."""
        *front, last = self.text.split(self.after)
        for piece in (*(part + self.after for part in front), last):
            yield from (piece[start : start + longest] for start in range(0, max(len(piece), 1), longest))


def owners_table(view: NodeView) -> Table:
    """Return who holds which CPUs, one owner per line, with the mark that the map uses."""
    table = _table()
    with_memory = any(owner.memory_nodes for owner in view.owners)
    table.add_column("")
    table.add_column("owner")
    table.add_column("CPUs", justify="right")
    table.add_column("CPU list")
    table.add_column("NUMA")
    if with_memory:
        table.add_column("memory")
    for owner in view.owners:
        cells: list[RenderableType] = [
            Text(f" {owner.mark} ", STYLES[owner_style(owner)]),
            Breaking(owner.label, "/"),
            Text(str(len(owner.cpus))),
            Breaking(str(owner.cpus) or "–"),
            Breaking(numbers(owner.cpu_nodes)),
        ]
        table.add_row(*cells, *([Breaking(numbers(owner.memory_nodes))] if with_memory else []))
    return table


def numa_table(view: NodeView, width: int = 80) -> Table:
    """Return the NUMA nodes in figures: CPUs per use, memory, and a bar for each where ``width`` columns leave room."""
    uses = [use for use in CPUUse if any(node.counts.get(use) for node in view.numa)]
    with_memory = any(node.memory for node in view.numa)
    columns = [("NUMA", [str(node.id) for node in view.numa]), ("CPUs", [_dash(len(node.cpus)) for node in view.numa])]
    columns += [(use.value, [_dash(node.counts.get(use, 0)) for node in view.numa]) for use in uses]
    columns.append(("memory", [size(node.memory_bytes) for node in view.numa]))
    if with_memory:
        columns.append(("unused", [_free_memory(node) for node in view.numa]))
    spare = width - sum(max(len(cell) for cell in (name, *cells)) + 2 for name, cells in columns)
    bars = _bars(view, spare + 2, with_memory=with_memory)
    table = _table()
    for name, _ in columns:
        table.add_column(name, justify="left" if name == "NUMA" else "right", no_wrap=True)
    for name in bars:
        table.add_column(name, no_wrap=True)
    for index in range(len(view.numa)):
        cells = [Text(values[index]) for _, values in columns]
        table.add_row(*cells, *(bar_[index] for bar_ in bars.values()))
    return table


def _bars(view: NodeView, room: int, *, with_memory: bool) -> dict[str, list[Text]]:
    """Return the bars that fit into ``room`` columns, gaps included, by heading."""
    names = ["CPUs", "memory"] if with_memory else ["CPUs"]
    while names and room // len(names) - 2 < NARROWEST_BAR:
        names.pop()
    if not names:
        return {}
    width = min(BAR_WIDTH, room // len(names) - 2)
    most = max((len(node.cpus) for node in view.numa), default=0)
    found = {"CPUs": [_cpu_bar(node, most, width) for node in view.numa]}
    if "memory" in names:
        found["memory"] = [_memory_bar(node, width) for node in view.numa]
    return found


def _dash(count: int) -> str:
    return str(count or "–")


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
                Breaking(str(row.cpus) or "–"),
                Breaking(numbers(row.cpu_nodes)),
            ]
            cells += [Breaking(numbers(row.memory_nodes))] if with_memory else []
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


def _table() -> Table:
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=STYLES["quiet"])


def _cpu_bar(node: NUMAView, most: int, width: int) -> Text:
    """Return a bar whose full width stands for ``most`` CPUs, so that smaller nodes have shorter bars."""
    parts = [(count, _SIGNS[use], _bar_style(use)) for use in CPUUse if (count := node.counts.get(use, 0))]
    return bar(parts, most, width)


def _bar_style(use: CPUUse) -> str:
    return "" if use is CPUUse.EXCLUSIVE else use_style(use)


def _memory_bar(node: NUMAView, width: int) -> Text:
    if node.memory is None:
        return Text("")
    parts = [
        (node.memory.reserved, _SIGNS[CPUUse.RESERVED], "reserved"),
        (node.memory.assigned, _SIGNS[CPUUse.EXCLUSIVE], ""),
        (free_bytes(node), _SIGNS[CPUUse.FREE], "free"),
    ]
    return bar(parts, node.memory_bytes, width)


def _free_memory(node: NUMAView) -> str:
    return "–" if node.memory is None else size(free_bytes(node))
