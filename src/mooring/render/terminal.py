"""The picture in a terminal: a map with one cell per CPU, then who owns what, then the NUMA nodes in figures.

Small machines get the CPU number in every cell; where that would fill more than a screen or two, a cell is only the mark and
the numbers of a row stand before it. Without colour nothing is lost: letters and signs say the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mooring.core.cpuset import CPUSet
from mooring.render.canvas import FRAMES, Canvas
from mooring.render.layout import Insets, Layout, Metrics, PlacedBox, PlacedRow, arrange
from mooring.render.palette import OWNER_COLOURS, RESERVED_FILL, cpu_style, owner_style, text_on, use_style
from mooring.render.tables import CPUList, numa_table
from mooring.render.view import BoxKind, BoxView, CPUUse, CPUView, NodeView, NUMAView
from mooring.render.wording import MARKS, box_titles, numbers, plural

TALLEST_NUMBERED_MAP = 48
"""Lines; a map that would be taller with a number in every cell is drawn with marks alone."""

_FRAMED = Insets(2, 1, 2, 1)
_TITLED = Insets(0, 1, 0, 0)
_INSETS = {
    BoxKind.SOCKET: _FRAMED,
    BoxKind.NUMA: _FRAMED,
    BoxKind.OFFLINE: _FRAMED,
    BoxKind.L3: _TITLED,
    BoxKind.CORE_KIND: _TITLED,
    None: _TITLED,
}
_LINES = {BoxKind.SOCKET: "heavy", BoxKind.NUMA: "light", BoxKind.OFFLINE: "dashed"}

STYLES = {
    "": Style(),
    "title": Style(bold=True),
    "quiet": Style(dim=True),
    "reserved": Style(color=text_on(RESERVED_FILL), bgcolor=RESERVED_FILL),
    "shared": Style(),
    "free": Style(),
    "left-out": Style(italic=True),
    "offline": Style(dim=True),
    "contested": Style(bold=True, reverse=True),
    **{
        f"exclusive-{index}": Style(color=text_on(colour), bgcolor=colour) for index, colour in enumerate(OWNER_COLOURS)
    },
}
"""What the style names of :mod:`mooring.render.palette` look like in a terminal."""


@dataclass(frozen=True, slots=True)
class _Cells:
    """How a CPU is written: with its number, or as its mark alone."""

    numbered: bool
    digits: int
    """Digits of the largest CPU id."""
    mark: int
    """Length of the longest mark."""

    @property
    def width(self) -> int:
        return self.digits * self.numbered + self.mark + 1

    def text(self, cpu: CPUView, view: NodeView) -> str:
        mark = mark_of(cpu, view).ljust(self.mark)
        return f" {cpu.cpu:>{self.digits}}{mark}" if self.numbered else f"{mark} "


def show(view: NodeView, console: Console) -> None:
    """Print the whole picture. Without colour (``NO_COLOR``, a pipe, a dumb terminal) no escape code is written."""
    picture = Group(*_parts(view, console.width))
    if console.no_color or console.color_system is None:
        # rich keeps bold and dim when it drops colours, and those are escape codes too.
        console.out(plain(picture, console.width), end="", highlight=False)
    else:
        console.print(picture, highlight=False)


def plain(renderable: RenderableType, width: int) -> str:
    """Return what a terminal of ``width`` columns without any colour or style would show."""
    console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable, highlight=False)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def text(view: NodeView, width: int = 100) -> str:
    """Return the picture as plain text for a terminal of ``width`` columns."""
    return plain(Group(*_parts(view, width)), width)


def _parts(view: NodeView, width: int) -> Sequence[RenderableType]:
    heading = Text(f"{view.name}: ", style="bold") + Text(view.title)
    parts: list[RenderableType] = [heading]
    if view.subtitle:
        parts.append(Text(view.subtitle, style=STYLES["quiet"]))
    parts += [Text(""), node_map(view, width), Text(""), *_legend(view)]
    if view.owners:
        parts += [Text(""), owners_table(view)]
    if view.numa:
        parts += [Text(""), numa_table(view)]
    if view.rejected:
        parts += [Text(""), *_rejected(view)]
    return [*parts, Text(""), *(Text(line, style=STYLES["quiet"]) for line in view.caption)]


def node_map(view: NodeView, width: int) -> Text:
    """Return the map of the machine, at most ``width`` columns wide if it can be."""
    digits = len(str(max((cpu.cpu for cpu in view.cpus()), default=0)))
    mark = max((len(owner.mark) for owner in view.owners), default=1)
    cells = _Cells(numbered=True, digits=digits, mark=mark)
    layout = _arrange(view, cells, width)
    if layout.height > TALLEST_NUMBERED_MAP:
        cells = _Cells(numbered=False, digits=digits, mark=mark)
        layout = _arrange(view, cells, width)
    canvas = Canvas(layout.width, layout.height)
    for box in layout.boxes:
        _draw_box(canvas, box, view)
        for row in box.rows:
            _draw_row(canvas, row, cells, view)
    lines = (Text.assemble(*((run, STYLES[style]) for run, style in line)) for line in canvas.lines())
    found = Text("\n").join(lines)
    found.no_wrap, found.overflow = True, "crop"
    return found


def mark_of(cpu: CPUView, view: NodeView) -> str:
    """Return the letters or the sign that stand for what ``cpu`` is used for."""
    if cpu.owner is not None and cpu.use is not CPUUse.CONTESTED:
        return view.owners[cpu.owner].mark
    return MARKS[cpu.use]


def _arrange(view: NodeView, cells: _Cells, width: int) -> Layout:
    metrics = Metrics(
        cell_width=cells.width,
        cell_height=1,
        insets=_INSETS,
        title_width=lambda box: len(box_titles(box, view)[-1]) + (4 if _is_framed(box) else 0),
        label_width=0 if cells.numbered else 2 * cells.digits + 2,
        gap_x=2,
    )
    return arrange(view.boxes, metrics, width)


def _is_framed(box: BoxView) -> bool:
    return bool(box.labels) and box.labels[0].kind in _LINES


def _draw_box(canvas: Canvas, box: PlacedBox, view: NodeView) -> None:
    x, room = box.x, box.width
    if _is_framed(box.view):
        canvas.frame(box.x, box.y, box.width, box.height, FRAMES[_LINES[box.view.labels[0].kind]], "quiet")
        x, room = x + 2, room - 4
    titles = box_titles(box.view, view)
    title = next((title for title in titles if len(title) <= room - 2), titles[-1])
    if _is_framed(box.view):
        canvas.write(x - 1, box.y, f" {title} ", "title")
    else:
        canvas.write(x, box.y, title, "quiet")


def _draw_row(canvas: Canvas, row: PlacedRow, cells: _Cells, view: NodeView) -> None:
    if not cells.numbered:
        for thread, cpus in _lines_of(row).items():
            canvas.write(row.x, row.y + thread, _range_text(cpus).rjust(2 * cells.digits + 1), "quiet")
    for core in row.cells:
        for cell in core:
            canvas.write(cell.x, cell.y, cells.text(cell.view, view), cpu_style(cell.view, view.owners))


def _lines_of(row: PlacedRow) -> dict[int, CPUSet]:
    lines: dict[int, list[int]] = {}
    for core in row.cells:
        for cell in core:
            lines.setdefault(cell.y - row.y, []).append(cell.view.cpu)
    return {line: CPUSet.from_ids(cpus) for line, cpus in lines.items()}


def _range_text(cpus: CPUSet) -> str:
    """Return ``first-last`` for CPUs without holes, ``first…last`` with holes."""
    listed = str(cpus)
    if "," not in listed:
        return listed
    ids = list(cpus)
    return f"{ids[0]}…{ids[-1]}"


def _legend(view: NodeView) -> Sequence[RenderableType]:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for entry in view.legend:
        mark = "a" if entry.use is CPUUse.EXCLUSIVE else MARKS[entry.use]
        style = "" if entry.use is CPUUse.EXCLUSIVE else use_style(entry.use)
        table.add_row(Text(f" {mark} ", STYLES[style]), Text(entry.use.value), Text(str(entry.count)), Text(entry.meaning))
    return [table]
