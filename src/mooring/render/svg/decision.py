"""The picture of a decision as SVG: one self-contained, deterministic text in the style of the other pictures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from mooring.render.decision import SIGNS, DecisionCell, DecisionPanel, DecisionRow, DecisionView, Mark
from mooring.render.svg.elements import (
    MONO,
    NODE_SIZE,
    PATTERNS,
    SMALL_SIZE,
    SOCKET_SIZE,
    TEXT_SIZE,
    fitting,
    group,
    rect,
    style_sheet,
    text,
    text_width,
    tooltip,
)
from mooring.render.svg.legend import wrapped
from mooring.render.wording import shorten

MARGIN = 24
_NARROWEST_PAGE = 640
_GAP = 6
_CELL_HEIGHT = 36
_NARROWEST_CELL = 72
_WIDEST_CELL = 168
_PAD = 12
_BOLD = 1.1
"""By how much bold text is wider than the estimate."""

_STYLES = {
    Mark.PREFERRED: "exclusive-4",
    Mark.WITH_OTHERS: "exclusive-11",
    Mark.POSSIBLE: "free",
    Mark.ANY: "shared",
    Mark.BARRED: "offline",
    Mark.CHOSEN: "exclusive-0",
    Mark.REFUSED: "contested",
    Mark.LEFT: "offline",
}
"""Styles of the cells, all of the common palette."""


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where the columns of a panel stand."""

    names: int
    """Pixels for the names of the rows."""
    cell: int
    """Pixels for a cell."""
    columns: int
    """NUMA nodes beside one another; further ones stand below."""

    def x(self, column: int) -> int:
        """Return the left edge of a column."""
        return MARGIN + _PAD + self.names + column * (self.cell + _GAP)

    @property
    def width(self) -> int:
        """The width of a panel."""
        return 2 * _PAD + self.names + self.columns * (self.cell + _GAP) - _GAP


def decision_svg(view: DecisionView, width: int = 1000) -> str:
    """Return the picture as an SVG document of at most ``width`` pixels."""
    grid = _grid(view, max(width, _NARROWEST_PAGE) - 2 * MARGIN)
    page = max(_NARROWEST_PAGE, grid.width + 2 * MARGIN)
    parts: list[str] = []
    y = _heading(view, page, parts)
    for panel in view.panels:
        y = _panel(panel, grid, y, parts) + 16
    y = _below(view, page, y, parts)
    height = y + MARGIN
    size = f'width="{page}" height="{height}" viewBox="0 0 {page} {height}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring" role="img" {size}>',
        tooltip(f"{view.title}. {view.cause}"),
        style_sheet(),
        PATTERNS,
        rect(0, 0, page, height, "page", round_=8),
        *parts,
        "</svg>",
    )
    return "".join(f"{line}\n" for line in lines)


def _grid(view: DecisionView, room: int) -> _Grid:
    """Return columns wide enough for the cells, and as many as there is room for."""
    rows = [row for panel in view.panels for row in panel.rows]
    widest = max((text_width(row.name, NODE_SIZE) for row in rows), default=0)
    noted = max((text_width(row.note, SMALL_SIZE) for row in rows), default=0)
    names = min(int(max(widest, noted) * _BOLD) + 12, 280)
    needed = max((_signs(cell) for row in rows for cell in row.cells), default=0) + 20
    narrowest = min(max(_NARROWEST_CELL, needed), _WIDEST_CELL)
    nodes = max((len(panel.nodes) for panel in view.panels), default=1)
    columns = max(1, min(nodes, (room - 2 * _PAD - names + _GAP) // (narrowest + _GAP)))
    cell = (room - 2 * _PAD - names + _GAP) // columns - _GAP
    return _Grid(names, max(narrowest, min(cell, _WIDEST_CELL)), columns)


def _signs(cell: DecisionCell) -> int:
    """Return the pixels of the content of a cell."""
    return ceil((len(SIGNS[cell.mark]) + len(cell.text) + 1) * MONO * SMALL_SIZE)


def _heading(view: DecisionView, page: int, parts: list[str]) -> int:
    """Draw what stands above the panels, and return where it ends."""
    y = MARGIN + 16
    for line in wrapped(view.title, page - 2 * MARGIN, SOCKET_SIZE + 2):
        parts.append(text(MARGIN, y, line, "socket-title"))
        y += 20
    for sentence, style in ((view.cause, "plain"), (view.circumstances, "quiet")):
        for line in wrapped(sentence, page - 2 * MARGIN, TEXT_SIZE):
            parts.append(text(MARGIN, y, line, style))
            y += 17
    return y + 4


def _panel(panel: DecisionPanel, grid: _Grid, top: int, parts: list[str]) -> int:
    """Draw one panel and return where it ends."""
    frame = len(parts)
    room = grid.width - 2 * _PAD
    y = top + 22
    parts.append(text(MARGIN + _PAD, y, fitting(panel.title, room / _BOLD, SOCKET_SIZE), "socket-title"))
    y += 12
    for first in range(0, len(panel.nodes), grid.columns):
        y = _band(panel, first, grid, y, parts)
    sign = "× " if panel.refused else "● "
    y += TEXT_SIZE
    for line in wrapped(f"{sign}{panel.verdict}", room / _BOLD, TEXT_SIZE):
        parts.append(text(MARGIN + _PAD, y, line, "strong"))
        y += 17
    parts.insert(frame, rect(MARGIN + 0.5, top + 0.5, grid.width - 1, y - top - 1, "socket", round_=8))
    return y


def _band(panel: DecisionPanel, first: int, grid: _Grid, y: int, parts: list[str]) -> int:
    """Draw as many NUMA nodes as stand beside one another, and return where they end."""
    shown = slice(first, first + grid.columns)
    for column, node in enumerate(panel.nodes[shown]):
        parts.append(text(grid.x(column) + grid.cell / 2, y + 12, f"NUMA {node}", "node-title", anchor="middle"))
    y += 20
    for row in panel.rows:
        parts.extend(_row(row, row.cells[shown], grid, y))
        y += _CELL_HEIGHT + _GAP
    return y + 4


def _row(row: DecisionRow, cells: Sequence[DecisionCell], grid: _Grid, y: int) -> Iterator[str]:
    x, room = MARGIN + _PAD, grid.names - 10
    baseline = y + (15 if row.note else 22)
    yield text(x, baseline, fitting(row.name, room / _BOLD, NODE_SIZE), "node-title")
    if row.note:
        yield text(x, y + 30, fitting(row.note, room, SMALL_SIZE), "small")
    for column, cell in enumerate(cells):
        yield _cell(cell, grid.x(column), y, grid.cell)


def _cell(cell: DecisionCell, x: int, y: int, width: int) -> str:
    style, sign = _STYLES[cell.mark], SIGNS[cell.mark]
    parts = [rect(x + 0.5, y + 0.5, width - 1, _CELL_HEIGHT - 1, style, round_=4)]
    if sign:
        parts.append(text(x + 8, y + 22, sign, f"mark on-{style}"))
    if cell.text:
        room = int((width - 18) / (MONO * SMALL_SIZE)) - len(sign)
        words = shorten(cell.text, max(room, 1))
        parts.append(text(x + width - 7, y + 22, words, f"mark on-{style}", anchor="end"))
    return group(*parts, title=cell.tooltip or cell.mark.value)


def _below(view: DecisionView, page: int, y: int, parts: list[str]) -> int:
    """Draw legend and notes, and return where they end."""
    x = MARGIN
    used = {cell.mark for panel in view.panels for row in panel.rows for cell in row.cells}
    for mark in (mark for mark in Mark if mark in used and SIGNS[mark]):
        needed = 34 + text_width(mark.value, TEXT_SIZE) + 18
        if x > MARGIN and x + needed > page - MARGIN:
            x, y = MARGIN, y + 22
        style = _STYLES[mark]
        parts.append(rect(x + 0.5, y + 0.5, 27, 15, style, round_=2))
        parts.append(text(x + 14, y + 12, SIGNS[mark], f"mark on-{style}", anchor="middle"))
        parts.append(text(x + 34, y + 12, mark.value, "quiet"))
        x += int(needed)
    if used:
        y += 26
    for note in view.notes:
        for line in wrapped(note, page - 2 * MARGIN, TEXT_SIZE):
            parts.append(text(MARGIN, y + TEXT_SIZE, line, "plain"))
            y += 17
        y += 3
    return y
