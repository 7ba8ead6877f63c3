"""The picture of a decision as SVG: one self-contained, deterministic text in the style of the other pictures."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.engine.core.decision import Shortage
from mooring.explanations.why import amount_of
from mooring.views import decision as panels
from mooring.views.svg import elements as svg
from mooring.views.svg.legend import wrapped
from mooring.views.wording import shorten

MARGIN = 24
_NARROWEST_PAGE = 640
_GAP = 6
_CELL_HEIGHT = 36
_NARROWEST_CELL = 92
"""Pixels of a cell at least: eight of them stand in a row of the usual width beside the longest names."""

_WIDEST_CELL = 168
_WIDEST_BAR = 760
_PAD = 12

_STYLES = {
    panels.Mark.PREFERRED: "exclusive-4",
    panels.Mark.WITH_OTHERS: "exclusive-11",
    panels.Mark.POSSIBLE: "free",
    panels.Mark.ANY: "shared",
    panels.Mark.BARRED: "offline",
    panels.Mark.CONFLICT: "exclusive-5",
    panels.Mark.ENOUGH: "free",
    panels.Mark.CHOSEN: "exclusive-0",
    panels.Mark.REFUSED: "contested",
    panels.Mark.LEFT: "offline",
}
"""Styles of the cells, all of the common palette."""


def decision_svg(view: panels.DecisionView, width: int = 1200) -> str:
    """Return the picture as an SVG document of at most ``width`` pixels."""
    # Columns wide enough for the cells, and as many as there is room for
    room = max(width, _NARROWEST_PAGE) - 2 * MARGIN
    rows = [row for panel in view.panels for row in panel.rows]
    widest = max((svg.text_width(row.name, svg.NODE_SIZE) for row in rows), default=0)
    noted = max((svg.text_width(row.note, svg.SMALL_SIZE) for row in rows), default=0)
    names = min(int(max(widest, noted) * svg.BOLD) + 12, 230)
    nodes = max((len(panel.nodes) for panel in view.panels), default=1)
    fitting_columns = max(1, (room - 2 * _PAD - names + _GAP) // (_NARROWEST_CELL + _GAP))
    bands = -(-nodes // fitting_columns)
    columns = -(-nodes // bands)
    cell = (room - 2 * _PAD - names + _GAP) // columns - _GAP
    cell = min(cell, _WIDEST_CELL)
    lefts = [MARGIN + _PAD + names + column * (cell + _GAP) for column in range(columns)]
    page = max(_NARROWEST_PAGE, lefts[-1] + cell + _PAD + MARGIN)
    parts: list[str] = []
    # What stands above the panels.
    y = MARGIN + 16
    for line in wrapped(view.title, page - 2 * MARGIN, svg.SOCKET_SIZE + 2):
        parts.append(svg.text(MARGIN, y, line, "socket-title"))
        y += 20
    for sentence, style in ((view.cause, "plain"), (view.circumstances, "quiet")):
        for line in wrapped(sentence, page - 2 * MARGIN, svg.TEXT_SIZE):
            parts.append(svg.text(MARGIN, y, line, style))
            y += 17
    y += 4
    for lack in view.lacks:
        y = _lack(lack, min(page - 2 * MARGIN, _WIDEST_BAR), y, parts) + 14
    for panel in view.panels:
        y = _panel(panel, lefts, cell, y, parts) + 16
    y = _below(view, page, y, parts)
    return svg.document(f"{view.title}. {view.cause}", page, y + MARGIN, parts)


def _lack(lack: Shortage, room: int, top: int, parts: list[str]) -> int:
    """Draw a bar of what is in use, free and missing, and return where it ends."""
    name, asked, used, total = lack
    missing, most = max(used + asked - total, 0), max(total, used + asked)
    noun = "CPUs" if name == "cpu" else name

    def told(amount: int) -> str:
        return f"{amount / 1000:g}" if name == "cpu" else amount_of(name, amount, of=False)

    left = f"{told(max(total - used, 0))} of {told(total)}" if used else told(total)
    words = f"{left} {noun} free, {told(asked)} requested, {told(missing)} missing"
    parts.append(svg.text(MARGIN, top + svg.TEXT_SIZE, svg.fitting(words, room / svg.BOLD, svg.TEXT_SIZE), "strong"))
    x, y = float(MARGIN), top + 20
    for amount, style, label in (
        (min(used, total), "used", "in use"),
        (max(total - used, 0), "exclusive-4", "free"),
        (missing, "exclusive-5", "missing"),
    ):
        width = room * amount / most
        shown = svg.fitting_form((f"{told(amount)} {label}",), width / svg.BOLD - 12, svg.SMALL_SIZE)
        if amount:
            parts.append(svg.rect(x, y, max(width, 2), 24, style))
            parts.append(svg.text(x + 6, y + 16, shown, f"mark on-{style}") if shown else "")
        x += width
    return y + 24


def _panel(panel: panels.DecisionPanel, lefts: Sequence[int], width: int, top: int, parts: list[str]) -> int:
    """Draw one panel and return where it ends.

    Args:
        panel: to draw.
        lefts: the left edges of as many NUMA nodes as stand beside one another; further ones stand below.
        width: of a cell.
        top: where the panel begins.
        parts: of the picture.
    """
    frame = len(parts)
    room = lefts[-1] + width - MARGIN - _PAD
    y = top + 22
    parts.append(svg.text(MARGIN + _PAD, y, svg.fitting(panel.title, room / svg.BOLD, svg.SOCKET_SIZE), "socket-title"))
    y += 12
    required = {node for row in panel.rows for node, cell in zip(panel.nodes, row.cells, strict=True) if cell.required}
    for first in range(0, len(panel.nodes), len(lefts)):
        shown = slice(first, first + len(lefts))
        for left, node in zip(lefts, panel.nodes[shown], strict=False):
            name = f"{panels.REQUIRED_SIGN} NUMA {node}" if node in required else f"NUMA {node}"
            parts.append(svg.text(left + width / 2, y + 12, name, "node-title", anchor="middle"))
        y += 20
        for row in panel.rows:
            x = MARGIN + _PAD
            name = svg.fitting(row.name, (lefts[0] - x - 10) / svg.BOLD, svg.NODE_SIZE)
            parts.append(svg.text(x, y + (15 if row.note else 22), name, "node-title"))
            if row.note:
                parts.append(svg.text(x, y + 30, svg.fitting(row.note, lefts[0] - x - 10, svg.SMALL_SIZE), "small"))
            parts += (_cell(cell, left, y, width) for left, cell in zip(lefts, row.cells[shown], strict=False))
            y += _CELL_HEIGHT + _GAP
        y += 4
    sign = "× " if panel.refused else "● "
    y += svg.TEXT_SIZE
    for line in wrapped(f"{sign}{panel.verdict}", room / svg.BOLD, svg.TEXT_SIZE):
        parts.append(svg.text(MARGIN + _PAD, y, line, "strong"))
        y += 17
    parts.insert(frame, svg.rect(MARGIN + 0.5, top + 0.5, room + 2 * _PAD - 1, y - top - 1, "socket", round_=8))
    return y


def _cell(cell: panels.DecisionCell, x: int, y: int, width: int) -> str:
    style, sign = _STYLES[cell.mark], panels.SIGNS[cell.mark]
    parts = [svg.rect(x + 0.5, y + 0.5, width - 1, _CELL_HEIGHT - 1, style, round_=4)]
    if cell.required:
        parts.append(svg.rect(x + 1.5, y + 1.5, width - 3, _CELL_HEIGHT - 3, "required", round_=3))
    if sign:
        parts.append(svg.text(x + 8, y + 22, sign, f"mark on-{style}"))
    room = int((width - 15) / (svg.MONO * svg.SMALL_SIZE)) - len(sign)
    lines = _cell_lines(cell, max(room, 1))
    for number, words in enumerate(lines):
        baseline = y + 22 + (14 * number - 7 if len(lines) > 1 else 0)
        parts.append(svg.text(x + width - 7, baseline, words, f"mark on-{style}", anchor="end"))
    return svg.group(*parts, title=cell.tooltip or cell.mark.value)


def _cell_lines(cell: panels.DecisionCell, room: int) -> tuple[str, ...]:
    """Return the one or two lines of a cell, each of at most ``room`` characters; lists break after a comma."""
    if cell.more or len(cell.text) <= room:
        return tuple(shorten(line, room) for line in (cell.text, cell.more) if line)
    place = max(cell.text.rfind(",", 0, room), cell.text.rfind(" ", 0, room))
    if place < 0:
        return (shorten(cell.text, room),)
    first, rest = cell.text[: place + 1].strip(), cell.text[place + 1 :]
    if len(rest) > room:
        rest = f"{rest[: room - 1].rpartition(',')[0] or rest[: room - 1]}…"
    return (first, rest)


def _below(view: panels.DecisionView, page: int, y: int, parts: list[str]) -> int:
    """Draw legend and notes, and return where they end."""
    x = MARGIN
    cells = [cell for panel in view.panels for row in panel.rows for cell in row.cells]
    used = {cell.mark for cell in cells}
    entries = [
        (mark.value, _STYLES[mark], panels.SIGNS[mark]) for mark in panels.Mark if mark in used and panels.SIGNS[mark]
    ]
    entries += [(panels.REQUIRED, "free", panels.REQUIRED_SIGN)] if any(cell.required for cell in cells) else []
    for words, style, sign in entries:
        needed = 34 + svg.text_width(words, svg.TEXT_SIZE) + 18
        if x > MARGIN and x + needed > page - MARGIN:
            x, y = MARGIN, y + 22
        parts.append(svg.rect(x + 0.5, y + 0.5, 27, 15, style, round_=2))
        if words == panels.REQUIRED:
            parts.append(svg.rect(x + 1.5, y + 1.5, 25, 13, "required", round_=1))
        parts.append(svg.text(x + 14, y + 12, sign, f"mark on-{style}", anchor="middle"))
        parts.append(svg.text(x + 34, y + 12, words, "quiet"))
        x += int(needed)
    if used:
        y += 26
    for note in view.notes:
        for line in wrapped(note, page - 2 * MARGIN, svg.TEXT_SIZE):
            parts.append(svg.text(MARGIN, y + svg.TEXT_SIZE, line, "plain"))
            y += 17
        y += 3
    return y
