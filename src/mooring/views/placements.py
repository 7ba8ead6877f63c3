"""The table of a plan: what every container gets, in a narrow form for people and a wide form for ``grep``.

It holds at 60 columns and without colour: lists break at commas only, and nothing is cut off.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mooring.engine.core.errors import clean
from mooring.views.console import STYLES, Breaking
from mooring.views.view import PlacementRow
from mooring.views.wording import numbers

_HEADINGS = ("container", "verdict", "CPUs", "NUMA", "memory", "alignment")
_SPEAKING = frozenset({"container", "verdict", "alignment"})
"""Cells that need no heading to be understood."""

_COUNT = 2
_GAP = 2
_INDENT = 2
_NARROWEST_LIST = 18
"""Columns below which a CPU list moves to a line of its own."""


def placements_table(rows: Sequence[PlacementRow], *, wide: bool = False) -> RenderableType:
    """Return the answer of a plan. Rows of one pod must follow each other.

    The usual form names a pod once, lists its containers below it and gives reasons on lines of their own; it adapts to
    the width of the console. ``wide`` is one line per container with everything in it, as long as it needs to be.
    """
    return _wide(rows) if wide else _Listing(tuple(rows))


def _wide(rows: Sequence[PlacementRow]) -> RenderableType:
    heading = ("POD", *(name.upper() for name in _HEADINGS), "CPU LIST", "WHY")
    lines = [heading, *((clean(row.pod), *_cells(row), str(row.cpus) or "–", clean(row.why) or "–") for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heading))]
    padded = (
        (" " * _GAP).join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )
    # Printed alone, a Text would be joined with others into one that wraps.
    return Group(Text("\n".join(padded), no_wrap=True, overflow="ignore"))


def _cells(row: PlacementRow) -> tuple[str, ...]:
    """Return holder, verdict, number of CPUs, NUMA nodes of CPUs and of memory, alignment; a dash for nothing."""
    texts = (row.holder, row.verdict, str(len(row.cpus) or ""))
    nodes = (numbers(row.cpu_nodes), numbers(row.memory_nodes))
    return (*(clean(text) or "–" for text in texts), *nodes, clean(row.alignment) or "–")


@dataclass(frozen=True, slots=True)
class _Listing:
    """The usual form."""

    rows: tuple[PlacementRow, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield heading, pods and containers."""
        del console
        contained = [row for row in self.rows if row.holder]
        columns = _columns(contained, options.max_width)
        if contained and columns.fits:
            yield columns.line(_HEADINGS, "CPU list" if columns.list_width else "", "quiet")
        for pod, rows in groupby(self.rows, key=lambda row: row.pod):
            yield from _pod(clean(pod), list(rows), columns)


def _pod(pod: str, rows: Sequence[PlacementRow], columns: _Columns) -> Iterator[RenderableType]:
    refused = [row for row in rows if not row.holder]
    heading = Text(pod, STYLES["title"])
    for row in refused:
        heading.append(f"  {clean(row.verdict)}", STYLES["title"])
    yield heading
    for row in refused:
        yield from _why(row)
    for row in rows:
        if row.holder:
            yield columns.line(_cells(row), str(row.cpus))
            yield from _why(row)


def _why(row: PlacementRow) -> Iterator[RenderableType]:
    if row.why:
        yield Padding(Text(clean(row.why), STYLES["quiet"]), (0, 0, 0, 2 * _INDENT))


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths that all lines of one listing share."""

    widths: tuple[int, ...]
    """Per cell of :func:`_cells`; 0 for a column that is empty throughout."""
    list_width: int
    """Columns for the CPU list; 0 when it stands on a line of its own."""
    fits: bool
    """False where not even the columns fit; then a line becomes a sentence that wraps."""

    def line(self, cells: Sequence[str], cpus: str, style: str = "") -> RenderableType:
        """Return one line; the CPU list breaks after commas, beside the other cells or below them."""
        below = [Padding(Breaking(cpus), (0, 0, 0, 2 * _INDENT))] if cpus and not self.list_width else []
        if not self.fits:
            return Group(Padding(Text(_sentence(cells), STYLES[style]), (0, 0, 0, _INDENT)), *below)
        table = Table.grid(padding=(0, _GAP, 0, 0))
        found: list[RenderableType] = []
        for position, (cell, width) in enumerate(zip(cells, self.widths, strict=True)):
            if width:
                table.add_column(width=width, justify="right" if position == _COUNT else "left")
                found.append(Breaking(cell, "-", style) if position == 0 else Text(cell, STYLES[style]))
        if self.list_width:
            table.add_column(width=self.list_width)
            found.append(Breaking(cpus, ",", style))
        table.add_row(*found)
        return Group(Padding(table, (0, 0, 0, _INDENT)), *below)


def _sentence(cells: Sequence[str]) -> str:
    named = [
        cell if name in _SPEAKING else f"{name} {cell}"
        for name, cell in zip(_HEADINGS, cells, strict=True)
        if cell != "–"
    ]
    return ", ".join(dict.fromkeys(named))


def _columns(rows: Sequence[PlacementRow], width: int) -> _Columns:
    """Return the widths for ``rows`` on a console of ``width`` columns."""
    cells = [_cells(row) for row in rows]
    widths = [max((len(line[column]) for line in (_HEADINGS, *cells)), default=0) for column in range(len(_HEADINGS))]
    for column in range(_COUNT + 1, len(_HEADINGS)):
        if all(line[column] == "–" for line in cells):
            widths[column] = 0
    # Names and alignments may wrap; a name more readily than to a dozen columns, an alignment to ten.
    for column, least in ((0, max(width // 3, 12)), (len(widths) - 1, 10)):
        widths[column] -= max(0, min(widths[column] - least, _taken(widths) - width))
    spare = width - _taken(widths) - _GAP
    longest = max((len(str(row.cpus)) for row in rows), default=0)
    wanted = min(max(longest, len("CPU list")), _NARROWEST_LIST)
    return _Columns(tuple(widths), spare if spare >= wanted else 0, fits=_taken(widths) <= width)


def _taken(widths: Sequence[int]) -> int:
    used = [width for width in widths if width]
    return _INDENT + sum(used) + _GAP * (len(used) - 1)
