"""The rows of a comparison: which figures stand in them, and how they are lined up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.text import Text

from mooring.planner.compare.entries import Row, not_started
from mooring.planner.compare.measures import Measures
from mooring.planner.compare.words import reasons_words, settings_words
from mooring.render.wording import clean

GAP = 2


Cell = Callable[[Measures], str]

CELLS: dict[str, Cell] = {
    "admitted": lambda found: f"{found.admitted} of {found.asked}",
    "lost": lambda found: str(found.lost),
    "NUMA": lambda found: _share(found.aligned.numa, found),
    "socket": lambda found: _share(found.aligned.socket, found),
    "L3": lambda found: _share(found.aligned.l3, found),
    "core": lambda found: _share(found.aligned.core, found),
    "stranded": lambda found: str(found.stranded.total),
    "spread": lambda found: f"{float(found.spread):.2f}" if found.exclusive else "–",
    "memory": lambda found: f"+{found.memory_beyond}",
}
"""Heading -> cell."""

DISPENSABLE = ("socket", "spread", "memory", "core", "L3")
"""Columns that are left out where there is no room, in this order."""


def _share(part: int, found: Measures) -> str:
    return f"{part}/{found.exclusive}" if found.exclusive else "–"


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of one answer, and their widths."""

    widths: dict[str, int]
    rank: int
    """Width of the ranks."""

    def heading(self) -> Text:
        """Return the first line."""
        return self._joined(" " * self.rank, self.widths, "dim")

    def line(self, row: Row) -> Text:
        """Return the figures of one entry; none of a kubelet that would not start."""
        rank = f"{row.rank}.".rjust(self.rank)
        if not_started(row.result):
            return Text(f"{rank}{' ' * GAP}not started", "bold")
        found = row.result.outcome.measures
        return self._joined(rank, [CELLS[name](found) for name in self.widths], "bold" if row.is_given else "")

    def _joined(self, rank: str, cells: Sequence[str] | dict[str, int], style: str) -> Text:
        padded = [cell.rjust(width) for cell, width in zip(cells, self.widths.values(), strict=True)]
        return Text((" " * GAP).join([rank, *padded]), style)

    @property
    def total(self) -> int:
        """Width of a line."""
        return self.rank + sum(self.widths.values()) + GAP * len(self.widths)


def chosen_columns(rows: Sequence[Row], width: int) -> Columns:
    """Return the columns that say something and fit into ``width``."""
    measures = [row.result.outcome.measures for row in rows]
    names = [name for name in CELLS if name not in _silent(measures)]
    widths = {name: max(len(text) for text in (name, *(CELLS[name](found) for found in measures))) for name in names}
    columns = Columns(widths, len(str(max(row.rank for row in rows))) + 1)
    for name in DISPENSABLE:
        if columns.total > width and name in columns.widths:
            rest = {other: wide for other, wide in columns.widths.items() if other != name}
            columns = replace(columns, widths=rest)
    return columns


def _silent(measures: Sequence[Measures]) -> set[str]:
    """Return the columns that nobody needs here."""
    silent = set() if any(found.lost for found in measures) else {"lost"}
    return silent if any(found.memory_beyond for found in measures) else {*silent, "memory"}


WIDE = ("RANK", "SAME", "NAME", "MACHINE", "ADMITTED", "ASKED", "LOST", "EXCLUSIVE", "NUMA", "SOCKET", "L3", "CORE")
WIDE_REST = ("SPREAD", "STRANDED", "INIT", "SIBLINGS", "FRAGMENTS", "MEMORY", "REJECTED", "SETTINGS")


def wide_lines(rows: Sequence[Row]) -> Iterator[str]:
    """Yield one line for each entry with everything in it, lined up under headings."""
    lines = [(*WIDE, *WIDE_REST), *(_wide_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield (" " * GAP).join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def _wide_cells(row: Row) -> tuple[str, ...]:
    variant, found, refusal = row.result.variant, row.result.outcome.measures, row.result.outcome.refusal
    aligned, stranded = found.aligned, found.stranded
    figures = (found.admitted, found.asked, found.lost, found.exclusive)
    levels = (aligned.numa, aligned.socket, aligned.l3, aligned.core)
    wasted = (stranded.total, stranded.init, stranded.siblings, stranded.fragments, found.memory_beyond)
    reason = f"not started: {refusal.message}" if refusal is not None else reasons_words(found.rejected)
    return (
        str(row.rank),
        str(row.others),
        clean(variant.name if variant.is_given else f"{variant.name} changed"),
        clean(variant.machine.name),
        *(str(number) for number in (*figures, *levels)),
        f"{float(found.spread):.2f}",
        *(str(number) for number in wasted),
        clean(reason) or "–",
        settings_words(variant.config),
    )
