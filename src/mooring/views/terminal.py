"""The picture in a terminal: a map with one cell per CPU, then the owners, then the NUMA nodes in figures.

Small machines get the CPU number in every cell; on larger ones a cell is only the mark, and rows start with their CPU
range. Letters and signs say the same without colour.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain, groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from mooring.engine.core.cpuset import CPUSet
from mooring.explanations.phrases import plural
from mooring.views.console import STYLES, indented
from mooring.views.devices import device_names, most_of_one_kind
from mooring.views.layout import CellMetrics, Insets, PictureLayout, arrange
from mooring.views.tables import devices_table, numa_table, owners_table
from mooring.views.view import BoxKind, BoxView, CPUUse, NodeView, cpu_style, device_style, use_style
from mooring.views.wording import MARKS, box_titles, cpu_mark, device_mark, shorten, title_text, wanted_title

FRAMES = {"light": tuple("╭─╮│╰╯"), "heavy": tuple("┏━┓┃┗┛"), "dashed": tuple("┌╌┐╎└┘")}
"""Corner, horizontal, corner, vertical, corner, corner."""


class _Canvas:
    """Characters at coordinates; what is drawn later covers what was drawn earlier, what lies outside is cut off."""

    def __init__(self, width: int, height: int) -> None:
        self._chars = [[" "] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]

    def write(self, x: int, y: int, text: str, style: str = "") -> None:
        """Write ``text`` from (x, y) to the right; every character must be one column wide."""
        if not 0 <= y < len(self._chars):
            return
        for column, char in enumerate(text, start=x):
            if 0 <= column < len(self._chars[y]):
                self._chars[y][column] = char
                self._styles[y][column] = style

    def frame(self, x: int, y: int, width: int, height: int, lines: tuple[str, ...], style: str) -> None:
        """Draw a frame with ``lines``, one of :data:`FRAMES`."""
        left, across, right, down, low_left, low_right = lines
        self.write(x, y, left + across * (width - 2) + right, style)
        for row in range(y + 1, y + height - 1):
            self.write(x, row, down, style)
            self.write(x + width - 1, row, down, style)
        self.write(x, y + height - 1, low_left + across * (width - 2) + low_right, style)

    def lines(self) -> Iterator[list[tuple[str, str]]]:
        """Yield every line as runs of text in one style, without trailing blanks."""
        for chars, styles in zip(self._chars, self._styles, strict=True):
            pairs = list(zip(chars, styles, strict=True))
            while pairs and pairs[-1] == (" ", ""):
                pairs.pop()
            yield [("".join(char for char, _ in run), style) for style, run in groupby(pairs, key=lambda pair: pair[1])]


TALLEST_NUMBERED_MAP = 48
"""Lines; a map that would be taller with a number in every cell is drawn with marks alone."""

_MOST_NAMED_DEVICES = 12
"""Devices of one resource at one NUMA node up to which each is named on the map; more are marks alone."""

_LONGEST_ID = 14

_FRAMED = Insets(2, 1, 2, 1)
_TITLED = Insets(0, 1, 0, 0)


def picture(view: NodeView, width: int) -> RenderableType:
    """Return the whole picture for ``width`` columns."""
    heading = Text.assemble((view.name, "bold"), f": {view.title}" if view.name else view.title)
    if view.subtitle:
        heading.append(f"\n{view.subtitle}", STYLES["quiet"])
    caption = (Text(line, STYLES["quiet"]) for line in view.caption)
    layout, metrics = map_layout(view, width)
    parts: list[RenderableType] = [heading, "", _drawn(layout, view, numbered=not metrics.label_width)]
    if metrics.label_width:
        parts.append(Text("Rows start with their CPU range; … marks gaps.", STYLES["quiet"]))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    marks = [owner.mark for owner in view.owners]
    for use, (cpus, meaning) in view.legend.items():
        sign = "…".join(dict.fromkeys((marks[0], marks[-1]))) if use is CPUUse.EXCLUSIVE else MARKS[use]
        style = "" if use is CPUUse.EXCLUSIVE else use_style(use)
        words = Text(use.value), Text(plural(len(cpus), "CPU")), Text(meaning)
        table.add_row(Text.assemble((f" {sign} ", STYLES[style])), *words)
    parts += ["", *caption, "", table]
    if view.owners:
        parts += ["", owners_table(view)]
    if view.devices:
        parts += ["", devices_table(view)]
    if view.numa:
        parts += ["", numa_table(view, width)]
    if view.rejected:
        parts += ["", Text("Not admitted", STYLES["title"])]
    for pod in view.rejected:
        parts.append(indented(f"{pod.name}: {pod.reason}" if pod.reason else pod.name, by=1))
        parts += [indented(pod.why, by=3)] if pod.why else []
    return Group(*parts)


def map_layout(view: NodeView, width: int) -> tuple[PictureLayout, CellMetrics]:
    """Arrange the map: CPUs with their numbers, or as marks alone with labels of rows where that would be too tall."""
    metrics = _metrics(view, numbered=True)
    layout = arrange(view.boxes, metrics, width)
    if layout.height > TALLEST_NUMBERED_MAP:
        metrics = _metrics(view, numbered=False)
        layout = arrange(view.boxes, metrics, width)
    return layout, metrics


def _digits(view: NodeView) -> int:
    """Return how many digits the largest CPU id has."""
    return len(str(max((cpu.cpu for cpu in view.cpus()), default=0)))


def _longest_mark(view: NodeView) -> int:
    return max((len(owner.mark) for owner in view.owners), default=1)


def _names(view: NodeView) -> Mapping[tuple[str, str], str]:
    """Return what is written for each device, by resource and id; nothing where devices are marks alone."""
    named = most_of_one_kind(view.devices) <= _MOST_NAMED_DEVICES
    return device_names(view.devices, _LONGEST_ID) if named else {}


def _drawn(layout: PictureLayout, view: NodeView, *, numbered: bool) -> Text:
    canvas = _Canvas(layout.width, layout.height)
    digits, longest, names = _digits(view), _longest_mark(view), _names(view)
    for box in layout.boxes:
        framed = _is_framed(box.view)
        titles = [title_text(title) for title in box_titles(box.view, view)]
        title = next((title for title in titles if len(title) <= box.width - (5 if framed else 0)), titles[-1])
        if framed:
            frame = "heavy" if box.view.labels[0].kind is BoxKind.SOCKET else "light"
            frame = "dashed" if box.view.is_apart() else frame
            canvas.frame(box.x, box.y, box.width, box.height, FRAMES[frame], "quiet")
            canvas.write(box.x + 1, box.y, f" {title} ", "title")
        else:
            canvas.write(box.x, box.y, title, "quiet")
        for row in box.rows:
            lines: dict[int, list[int]] = {}
            for cell in chain(*row.cells):
                lines.setdefault(cell.y - row.y, []).append(cell.view.cpu)
                mark = cpu_mark(cell.view, view).ljust(longest)
                words = f" {cell.view.cpu:>{digits}}{mark}" if numbered else f"{mark} "
                canvas.write(cell.x, cell.y, words, cpu_style(cell.view, view.owners))
            for thread, ids in lines.items() if not numbered else ():
                listed = str(CPUSet.from_ids(ids))
                words = f"{min(ids)}…{max(ids)}" if "," in listed else listed
                canvas.write(row.x, row.y + thread, words.rjust(2 * digits + 1), "quiet")
        for placed in box.devices:
            forms = placed.group.headings
            heading = next((form for form in forms if len(form) <= placed.width), shorten(forms[-1], placed.width))
            canvas.write(placed.x, placed.y, heading, "quiet")
            for device in placed.devices:
                name = names.get((device.view.resource, device.view.id), "")
                words = f" {name}" if name else ""
                mark = device_mark(device.view, view.owners)
                canvas.write(device.x, device.y, words + mark, device_style(device.view, view.owners))
    found = Text("\n").join(Text.assemble(*((run, STYLES[style]) for run, style in line)) for line in canvas.lines())
    found.no_wrap, found.overflow = True, "crop"
    return found


def _metrics(view: NodeView, *, numbered: bool) -> CellMetrics:
    digits, longest = _digits(view), _longest_mark(view)
    return CellMetrics(
        cell_width=digits * numbered + longest + 1,
        cell_height=1,
        insets=lambda box: _FRAMED if _is_framed(box) else _TITLED,
        title_width=lambda box, roomy: (
            len(title_text(wanted_title(box, view, roomy=roomy))) + (5 if _is_framed(box) else 0)
        ),
        label_width=0 if numbered else 2 * digits + 2,
        # Between rows of cores with several threads, a line marks where one core ends and the next begins.
        row_gap=1 if any(len(core.cpus) > 1 for box in view.boxes for core in box.all_cores()) else 0,
        gap_x=2,
        slack=12,
        device_width=max((len(name) + 1 for name in _names(view).values()), default=0) + longest,
    )


def _is_framed(box: BoxView) -> bool:
    return box.is_apart() or box.holds_numa_nodes()
