"""What changes over time, as SVG: series stacked on each other, each held until the next moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from mooring.explain.phrases import duration
from mooring.views.svg.elements import SMALL_SIZE, TEXT_SIZE, escape, group, number, rect, text, text_width

_WIDTH, _HEIGHT = 560, 130
_LEFT, _TOP, _RIGHT = 58, 28, 12
_TICKS = 5


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
        *_axis(line, top + _HEIGHT),
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


def _axis(line: TimeChart, bottom: float) -> Iterator[str]:
    first, last = line.moments[0], line.moments[-1]
    for tick in range(_TICKS):
        moment = first + (last - first) * tick / (_TICKS - 1)
        x = _x(line, moment)
        yield rect(min(x, _WIDTH - _RIGHT - 1), bottom, 1, 4, "used")
        anchor = "end" if tick == _TICKS - 1 else "middle" if tick else ""
        yield text(x, bottom + 5 + SMALL_SIZE, duration(moment), "small", anchor=anchor)
        if last <= first:
            return
