"""What changes over time, as SVG: series stacked on each other, each held until the next moment.

Many nodes over time as one picture: a row for each node, or for several alike, a column for each moment.

The darker a cell, the more of the resource is requested. Cells of one shade are one path, so that the picture stays
small; a page's script finds row and column under the pointer from the numbers in the root element.

Of a simulated cluster, nodes are the rows, group by group, the most used ones first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, pairwise
from math import ceil
from typing import Final

import numpy as np
import numpy.typing as npt

from mooring.engine.core.errors import clean
from mooring.explanations.phrases import plural
from mooring.fleet.nodes import NodeHistory, NodesSeen
from mooring.fleet.simulation import Simulation
from mooring.views.svg import elements as svg

_WIDTH, _HEIGHT = 560, 130
_LEFT, _TOP, _RIGHT = 58, 28, 12


Series = tuple[str, str, Sequence[float]]
"""Label, a style of the pictures such as ``exclusive-0``, and a value for each moment."""


def time_chart_svg(
    title: str,
    moments: Sequence[float],
    series: Sequence[Series],
    figure: Callable[[float], str] = lambda value: f"{value:g}",
    most: float = 0.0,
) -> str:
    """Return series over the same time as a picture, without styles, for a page that has them.

    Args:
        title: of the picture.
        moments: seconds since the beginning, ascending.
        series: from the bottom up.
        figure: writes a value.
        most: what fills the height at least.
    """
    x, row, keys = 0.0, 0, list[str]()
    for label, style, _ in reversed(series):
        width = 18 + svg.text_width(label, svg.TEXT_SIZE) + 16
        if x and x + width > _WIDTH:
            x, row = 0.0, row + 1
        y = _TOP - 6 + 18 * row
        keys += [svg.rect(x + 0.5, y + 1.5, 12, 12, style, round_=2), svg.text(x + 18, y + 12, label, "plain")]
        x += width
    top = _TOP + 18 * (1 + row)
    high = max([most, *map(sum, zip(*(values for *_, values in series), strict=True))]) or 1.0
    height, first, last = top + _HEIGHT + 26, moments[0], moments[-1]

    def place(moment: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * ((moment - first) / (last - first) if last > first else 0.0)

    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring timeline" role="img" width="{_WIDTH}" '
        f'height="{height}" viewBox="0 0 {_WIDTH} {height}" aria-label="{svg.escape(title)}">'
    )
    parts = (
        svg.text(0, 14, title, "node-title"),
        *keys,
        svg.rect(_LEFT - 1, top, _WIDTH - _LEFT - _RIGHT + 1, _HEIGHT, "bar"),
        svg.text(_LEFT - 6, top + 9, figure(high), "small", anchor="end"),
        svg.text(_LEFT - 6, top + _HEIGHT, figure(0), "small", anchor="end"),
        *_areas(series, [place(moment) for moment in moments], top, high),
        *_time_axis(first, last, place, top + _HEIGHT),
    )
    return "".join(f"{part}\n" for part in (root, *parts, "</svg>"))


def _areas(series: Sequence[Series], edges: Sequence[float], top: float, high: float) -> Iterator[str]:
    below = [0.0] * len(edges)
    ends = [*edges[1:], _WIDTH - _RIGHT]

    def y(value: float) -> str:
        return svg.number(top + _HEIGHT * (1 - value / high))

    for label, style, values in series:
        above = [low + value for low, value in zip(below, values, strict=True)]
        if any(values):
            forth = "".join(f"H{svg.number(x)}V{y(value)}" for x, value in zip(edges, above, strict=True))
            back = "".join(
                f"V{y(value)}H{svg.number(x)}" for x, value in zip(reversed(edges), reversed(below), strict=True)
            )
            path = f"M{svg.number(edges[0])} {y(below[0])}{forth}H{svg.number(ends[-1])}{back}z"
            yield svg.group(f'<path class="{style}" d="{path}"/>', title=label)
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
        x, half = place(moment), svg.text_width(name, svg.SMALL_SIZE) / 2
        yield svg.rect(min(x, place(last) - 1), bottom, 1, 5, "used")
        yield svg.text(
            max(min(x, place(last) - half), place(first) + half), bottom + 17, name, "small", anchor="middle"
        )


SHADES = 8
"""Steps between nothing and all of a resource."""
WIDTH = 1144
MARGIN = 24
_LABELS = 150
"""Pixels left of the cells, for names."""
_ROWS_HEIGHT = 600
"""Pixels of all rows together, about."""
_TALLEST, _LOWEST = 20, 2.5
_GAP = 22
"""Pixels above the rows of a group, for its name."""
_TICKS = 6
FILL = "exclusive-0"
"""Style of the cells; how much is used is their opacity, which reads on light and dark ground alike."""


HeatRow = tuple[str, Sequence[float | None]]
"""Name of the node, or of the first and how many more, and what is requested at each moment, 0 to 1; None where the
node offers none of the resource."""
HeatGroup = tuple[str, Sequence[HeatRow]]
"""Name and rows of a group of nodes."""


def rows_for(counts: Sequence[int], most: int = 240) -> list[int]:
    """Return how many rows groups of nodes get: one for each node, or shares of ``most`` rows, one at least.

    >>> rows_for([3, 2]), rows_for([4000, 1000, 1], most=100)
    ([3, 2], [80, 20, 1])
    """
    total = sum(counts)
    if total <= most:
        return list(counts)
    return [max(1, round(count * most / total)) if count else 0 for count in counts]


def heatmap_svg(
    title: str, line: str, moments: Sequence[float], groups: Sequence[HeatGroup], *, alone: bool = True
) -> str:
    """Return the picture as a deterministic SVG document.

    Args:
        title: of the picture.
        line: below the title.
        moments: seconds since the beginning, ascending; each is a column.
        groups: of nodes.
        alone: whether it carries title and styles; not so inside a page that has both.
    """
    row = max(_LOWEST, min(_TALLEST, _ROWS_HEIGHT / max(sum(len(rows) for _, rows in groups), 1)))
    margin = MARGIN if alone else 0
    left, column = margin + _LABELS, (WIDTH - 2 * margin - _LABELS) / max(len(moments), 1)
    labels, paths, tops = [], [""] * (SHADES + 1), []
    bottom: float = margin + (svg.TITLE_SIZE + 30 if alone else 0)
    for name, rows in groups:
        bottom += _GAP
        labels.append(svg.text(left, bottom - 6, svg.fitting(name, WIDTH - left, svg.SMALL_SIZE), "strong"))
        for label, shares in rows:
            tops.append(svg.number(bottom))
            if row >= svg.SMALL_SIZE:
                short = svg.fitting(label, _LABELS - 8, svg.SMALL_SIZE)
                labels.append(svg.text(left - 8, bottom + row / 2 + 4, short, "small", anchor="end"))
            x: float = left
            for shade, run in groupby(map(shade_of, shares)):
                width, tall = column * sum(1 for _ in run), row - (1 if row >= 6 else 0)
                left_edge, upper, wide = map(svg.number, (x, bottom, width))
                paths[shade] += f"M{left_edge} {upper}h{wide}v{svg.number(tall)}h-{wide}z"
                x += width
            bottom += row
        high = row * len(rows)
        labels.append(svg.rect(left - 0.5, bottom - high - 0.5, column * len(moments) + 1, high + 1, "bar"))
    cells = [_cells(shade, path) for shade, path in enumerate(paths) if shade and path]

    def place(moment: float) -> float:
        after = bisect_right(moments, moment)
        start, end = moments[after - 1], moments[min(after, len(moments) - 1)]
        return left + column * (after - 1 + ((moment - start) / (end - start) if end > start else 0.0))

    axis = list(_time_axis(moments[0], moments[-1], place, bottom)) if moments else []
    height = svg.number(bottom + 62 + margin)
    root = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring heatmap" role="img" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" aria-label="{svg.escape(f"{title}. {line}")}" '
        f'data-left="{svg.number(left)}" data-column="{column:.4f}" data-row="{row:.4f}" data-tops="{" ".join(tops)}">'
    )
    head = (
        svg.tooltip(title),
        svg.style_sheet(),
        svg.rect(0, 0, WIDTH, float(height), "page", round_=8),
        svg.text(
            margin,
            margin + svg.TITLE_SIZE - 4,
            svg.fitting(title, (WIDTH - 2 * margin) / svg.BOLD, svg.TITLE_SIZE),
            "name",
        ),
        svg.text(margin, margin + svg.TITLE_SIZE + 16, svg.fitting(line, WIDTH - 2 * margin, svg.TEXT_SIZE), "quiet"),
    )
    legend = _legend(margin, bottom + 44)
    return "".join(f"{one}\n" for one in (root, *(head if alone else ()), *cells, *labels, *axis, *legend, "</svg>"))


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
    yield svg.text(left, y + 11, "requested", "small")
    x = left + 70
    for shade in range(SHADES + 1):
        yield svg.rect(x + 0.5, y + 0.5, 25, 13, "bar")
        if shade:
            yield _cells(shade, f"M{svg.number(x + 1)} {svg.number(y + 1)}h24v12h-24z")
        x += 26
    yield svg.text(x + 6, y + 11, "none to all of what the node offers", "small")


def group_label(name: str, nodes: int, rows: int) -> str:
    """Return the name of a group with what a row stands for.

    >>> group_label("gpu", 40, 40), group_label("gpu", 4000, 200)
    ('gpu: 40 nodes', 'gpu: 4000 nodes, about 20 in a row')
    """
    several = f", about {round(nodes / rows)} in a row" if rows and rows < nodes else ""
    return f"{name}: {plural(nodes, 'node')}{several}"


CPU: Final = "cpu"
Shares = npt.NDArray[np.float64]
NodeRows = dict[str, list[tuple[int, ...]]]
"""Group -> the places of the nodes of each of its rows in the heat maps."""


def heat_svg(result: Simulation, history: NodeHistory) -> str:
    """Return the heat map of the CPUs, as a picture of its own."""
    shares = shares_of(result, history.moments, CPU)
    return heat_map(result, rows_of(result, shares), shares, [at for at, *_ in history.moments], CPU)


def shares_of(result: Simulation, moments: Sequence[NodesSeen], resource: str) -> Shares:
    """Return the requested share of a resource, nodes over moments; nothing where a node offers none."""
    table = result.nodes.table
    offered = table.row(table.offered, resource)
    used = np.stack([requested[table.resources[resource]] for _, requested, _ in moments], axis=1)
    return np.where(offered[:, None] > 0, used / np.maximum(offered, 1)[:, None], np.nan)


def rows_of(result: Simulation, shares: Shares) -> NodeRows:
    """Return the rows; nodes of a group are ordered by what is requested of their CPUs over time."""
    mean = np.nan_to_num(shares).mean(axis=1)
    groups: dict[str, list[int]] = {}
    for place, member in enumerate(result.nodes.table.members):
        groups.setdefault(member.group.name, []).append(place)
    counts = rows_for([len(places) for places in groups.values()])
    found: NodeRows = {}
    for (name, places), count in zip(groups.items(), counts, strict=True):
        ordered = sorted(places, key=lambda place: (-mean[place], place))
        edges = [len(ordered) * row // count for row in range(count + 1)]
        found[name] = [tuple(ordered[first:end]) for first, end in pairwise(edges)]
    return found


def heat_map(
    result: Simulation, rows: NodeRows, shares: Shares, moments: Sequence[float], resource: str, *, alone: bool = True
) -> str:
    """Return the heat map of a resource; a row of several nodes shows their mean."""
    members = result.nodes.table.members
    groups = []
    for name, places in rows.items():
        found = []
        for row in places:
            known = shares[list(row)]
            known = known[~np.isnan(known[:, 0])]
            values = tuple(float(share) for share in known.mean(axis=0)) if len(known) else (None,) * len(moments)
            first = members[row[0]].name
            found.append((clean(first if len(row) == 1 else f"{first} and {len(row) - 1} more"), values))
        groups.append((group_label(clean(name), sum(map(len, places)), len(places)), found))
    title = f"{clean(result.cluster.name)}: {resource} of the nodes over time"
    line = f"{clean(result.work.name)}, {result.strategy.name}; rows are nodes, the most used ones of a group first"
    return heatmap_svg(title, line, moments, groups, alone=alone)
