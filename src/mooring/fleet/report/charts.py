"""What changes over time, as SVG: series stacked on each other, each held until the next moment.

Many nodes over time as one picture: a row for each node, or for several alike, a column for each moment.

The darker a cell, the more of the resource is requested. Cells of one shade are one path, so that the picture stays
small; a page's script finds row and column under the pointer from the numbers in the root element.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil

from mooring.explanations.phrases import plural
from mooring.views.svg.elements import (
    BOLD,
    SMALL_SIZE,
    TEXT_SIZE,
    TITLE_SIZE,
    escape,
    fitting,
    group,
    number,
    rect,
    style_sheet,
    text,
    text_width,
    tooltip,
)

_WIDTH, _HEIGHT = 560, 130
_LEFT, _TOP, _RIGHT = 58, 28, 12


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """One series."""

    label: str
    style: str
    """A style of the pictures, such as ``exclusive-0``."""
    values: tuple[float, ...]
    """One for each moment."""


@dataclass(frozen=True, slots=True)
class TimeChart:
    """Series over the same time."""

    title: str
    moments: tuple[float, ...]
    """Seconds since the beginning, ascending."""
    series: tuple[TimeSeries, ...]
    """From the bottom up."""
    figure: Callable[[float], str] = lambda value: f"{value:g}"
    """Writes a value."""
    most: float = 0.0
    """What fills the height at least."""


def time_chart_svg(line: TimeChart) -> str:
    """Return the picture, without styles, for a page that has them."""
    keys = list(_keys(line))
    top = _TOP + 18 * (1 + max((row for _, row, _ in keys), default=0))
    high = max([line.most, *(sum(values) for values in zip(*(one.values for one in line.series), strict=True))]) or 1.0
    height = top + _HEIGHT + 26
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring timeline" role="img" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" aria-label="{escape(line.title)}">'
    )
    parts = [text(0, 14, line.title, "node-title")]
    for one, row, x in keys:
        y = _TOP - 6 + 18 * row
        parts += [rect(x + 0.5, y + 1.5, 12, 12, one.style, round_=2), text(x + 18, y + 12, one.label, "plain")]
    parts += [
        rect(_LEFT - 1, top, _WIDTH - _LEFT - _RIGHT + 1, _HEIGHT, "bar"),
        text(_LEFT - 6, top + 9, line.figure(high), "small", anchor="end"),
        text(_LEFT - 6, top + _HEIGHT, line.figure(0), "small", anchor="end"),
        *_areas(line, top, high),
        *_time_axis(line.moments[0], line.moments[-1], lambda moment: _x(line, moment), top + _HEIGHT),
    ]
    return "".join(f"{part}\n" for part in (root, *parts, "</svg>"))


def _keys(line: TimeChart) -> Iterator[tuple[TimeSeries, int, float]]:
    """Yield every series with row and left edge of its name."""
    x, row = 0.0, 0
    for one in reversed(line.series):
        width = 18 + text_width(one.label, TEXT_SIZE) + 16
        if x and x + width > _WIDTH:
            x, row = 0.0, row + 1
        yield one, row, x
        x += width


def _x(line: TimeChart, moment: float) -> float:
    first, last = line.moments[0], line.moments[-1]
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((moment - first) / (last - first) if last > first else 0.0)


def _areas(line: TimeChart, top: float, high: float) -> Iterator[str]:
    below = [0.0] * len(line.moments)
    edges = [_x(line, moment) for moment in line.moments]
    ends = [*edges[1:], _WIDTH - _RIGHT]

    def y(value: float) -> str:
        return number(top + _HEIGHT * (1 - value / high))

    for one in line.series:
        above = [low + value for low, value in zip(below, one.values, strict=True)]
        if any(one.values):
            forth = "".join(f"H{number(x)}V{y(value)}" for x, value in zip(edges, above, strict=True))
            back = "".join(
                f"V{y(value)}H{number(x)}" for x, value in zip(reversed(edges), reversed(below), strict=True)
            )
            path = f"M{number(edges[0])} {y(below[0])}{forth}H{number(ends[-1])}{back}z"
            yield group(f'<path class="{one.style}" d="{path}"/>', title=one.label)
        below = above


_STEPS = (1, 5, 15, 60, 300, 900, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800, 2419200)
"""Seconds between two marks of an axis."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def round_times(first: float, last: float, most: int) -> Iterator[tuple[float, str]]:
    """Yield round times from one to another with their names, about ``most`` of them.

    >>> [name for _, name in round_times(0, 9500, 5)], [name for _, name in round_times(7000, 100000, 5)]
    (['0 h', '1 h', '2 h'], ['6 h', '12 h', '18 h', '24 h'])
    """
    step = next((one for one in _STEPS if (last - first) / one <= most), _STEPS[-1])
    unit, name = next((unit, name) for unit, name in _UNITS if step % unit == 0)
    for count in range(ceil(first / step), int(last // step) + 1):
        yield count * step, f"{count * step // unit} {name}"


def _time_axis(first: float, last: float, place: Callable[[float], float], bottom: float) -> Iterator[str]:
    """Yield the marks of round times below a picture; ``place`` returns where a moment is."""
    for moment, name in round_times(first, last, _TICKS):
        x, half = place(moment), text_width(name, SMALL_SIZE) / 2
        yield rect(min(x, place(last) - 1), bottom, 1, 5, "used")
        yield text(max(min(x, place(last) - half), place(first) + half), bottom + 17, name, "small", anchor="middle")


SHADES = 8
"""Steps between nothing and all of a resource."""
WIDTH = 1144
MARGIN = 24
_LABELS = 150
"""Pixels left of the cells, for names."""
_HEIGHT = 600
"""Pixels of all rows together, about."""
_TALLEST, _LOWEST = 20, 2.5
_GAP = 22
"""Pixels above the rows of a group, for its name."""
_TICKS = 6
FILL = "exclusive-0"
"""Style of the cells; how much is used is their opacity, which reads on light and dark ground alike."""


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One row."""

    label: str
    """Name of the node, or of the first and the last of several."""
    shares: tuple[float | None, ...]
    """What is requested at each moment, 0 to 1; None where the node offers none of the resource."""


@dataclass(frozen=True, slots=True)
class HeatGroup:
    """The rows of one group of nodes."""

    label: str
    rows: tuple[HeatRow, ...]


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The whole picture."""

    title: str
    line: str
    """Below the title."""
    moments: tuple[float, ...]
    """Seconds since the beginning, ascending; each is a column."""
    groups: tuple[HeatGroup, ...]


def rows_for(counts: Sequence[int], most: int = 240) -> list[int]:
    """Return how many rows groups of nodes get: one for each node, or shares of ``most`` rows, one at least.

    >>> rows_for([3, 2]), rows_for([4000, 1000, 1], most=100)
    ([3, 2], [80, 20, 1])
    """
    total = sum(counts)
    if total <= most:
        return list(counts)
    return [max(1, round(count * most / total)) if count else 0 for count in counts]


def heatmap_svg(heat: HeatMap, *, alone: bool = True) -> str:
    """Return the picture as a deterministic SVG document.

    Args:
        heat: what is drawn.
        alone: whether it carries title and styles; not so inside a page that has both.
    """
    rows = sum(len(group.rows) for group in heat.groups)
    row = max(_LOWEST, min(_TALLEST, _HEIGHT / max(rows, 1)))
    margin = MARGIN if alone else 0
    left, width = margin + _LABELS, (WIDTH - 2 * margin - _LABELS) / max(len(heat.moments), 1)
    top = margin + (TITLE_SIZE + 30 if alone else 0)
    body, tops, bottom = _body(heat, _Grid(left, top, width, row))
    first, last = (heat.moments[0], heat.moments[-1]) if heat.moments else (0.0, 0.0)

    def place(moment: float) -> float:
        after = bisect_right(heat.moments, moment)
        start, end = heat.moments[after - 1], heat.moments[min(after, len(heat.moments) - 1)]
        return left + width * (after - 1 + ((moment - start) / (end - start) if end > start else 0.0))

    axis = list(_time_axis(first, last, place, bottom)) if heat.moments else []
    legend = list(_legend(margin, bottom + 44))
    height = number(bottom + 62 + margin)
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring heatmap" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" aria-label="{escape(f"{heat.title}. {heat.line}")}" '
        f'data-left="{number(left)}" data-column="{width:.4f}" data-row="{row:.4f}" data-tops="{" ".join(tops)}">'
    )
    head = (
        tooltip(heat.title),
        style_sheet(),
        rect(0, 0, WIDTH, float(height), "page", round_=8),
        text(margin, margin + TITLE_SIZE - 4, fitting(heat.title, (WIDTH - 2 * margin) / BOLD, TITLE_SIZE), "name"),
        text(margin, margin + TITLE_SIZE + 16, fitting(heat.line, WIDTH - 2 * margin, TEXT_SIZE), "quiet"),
    )
    return "".join(f"{line}\n" for line in (root, *(head if alone else ()), *body, *axis, *legend, "</svg>"))


@dataclass(frozen=True, slots=True)
class _Grid:
    """Where cells are, in pixels."""

    left: float
    top: float
    column: float
    row: float


def _body(heat: HeatMap, grid: _Grid) -> tuple[list[str], list[str], float]:
    """Return the elements of all rows, the top of each row, and where they end."""
    labels, paths, tops, y = [], [""] * (SHADES + 1), [], grid.top
    for nodes in heat.groups:
        y += _GAP
        labels.append(text(grid.left, y - 6, fitting(nodes.label, WIDTH - grid.left, SMALL_SIZE), "strong"))
        for one in nodes.rows:
            tops.append(number(y))
            if grid.row >= SMALL_SIZE:
                name = fitting(one.label, _LABELS - 8, SMALL_SIZE)
                labels.append(text(grid.left - 8, y + grid.row / 2 + 4, name, "small", anchor="end"))
            for shade, x, width in _runs(one.shares, grid):
                tall = grid.row - (1 if grid.row >= 6 else 0)
                paths[shade] += f"M{number(x)} {number(y)}h{number(width)}v{number(tall)}h-{number(width)}z"
            y += grid.row
        width = grid.column * len(heat.moments)
        high = grid.row * len(nodes.rows)
        labels.append(rect(grid.left - 0.5, y - high - 0.5, width + 1, high + 1, "bar"))
    cells = [_cells(shade, path) for shade, path in enumerate(paths) if shade and path]
    return [*cells, *labels], tops, y


def _runs(shares: Sequence[float | None], grid: _Grid) -> Iterator[tuple[int, float, float]]:
    """Yield shade, left edge and width of every run of cells of one shade."""
    x = grid.left
    for shade, run in groupby(shade_of(share) for share in shares):
        width = grid.column * sum(1 for _ in run)
        yield shade, x, width
        x += width


def shade_of(share: float | None) -> int:
    """Return the shade of a share: 0 for nothing, the last one for all.

    >>> [shade_of(share) for share in (None, 0, 0.01, 0.5, 1)]
    [0, 0, 1, 4, 8]
    """
    if not share:
        return 0
    return max(1, min(SHADES, round(share * SHADES)))


def _cells(shade: int, path: str) -> str:
    return f'<path class="{FILL}" fill-opacity="{0.12 + 0.88 * shade / SHADES:.2f}" d="{path}"/>'


def _legend(left: float, y: float) -> Iterator[str]:
    yield text(left, y + 11, "requested", "small")
    x = left + 70
    for shade in range(SHADES + 1):
        yield rect(x + 0.5, y + 0.5, 25, 13, "bar")
        if shade:
            yield _cells(shade, f"M{number(x + 1)} {number(y + 1)}h24v12h-24z")
        x += 26
    yield text(x + 6, y + 11, "none to all of what the node offers", "small")


def group_label(name: str, nodes: int, rows: int) -> str:
    """Return the name of a group with what a row stands for.

    >>> group_label("gpu", 40, 40), group_label("gpu", 4000, 200)
    ('gpu: 40 nodes', 'gpu: 4000 nodes, about 20 in a row')
    """
    several = f", about {round(nodes / rows)} in a row" if rows and rows < nodes else ""
    return f"{name}: {plural(nodes, 'node')}{several}"
