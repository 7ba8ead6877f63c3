"""Bars that compare: one row for each thing compared, as SVG in the style of the other pictures.

A row has a mark in the column of each setting that it has, a bar of counts side by side, shares beside it, and figures.
Counts are distinguished by colour, by a letter, and by what is written in them.
"""

from __future__ import annotations

from math import ceil, radians, sin

from mooring.explanations.phrases import plural
from mooring.lazy import dataclass
from mooring.views.svg import elements as svg
from mooring.views.svg.legend import wrapped

MARGIN = 24
WIDTH = 1100

_RANK = 36
_BAR_SHARE = 0.52
_COLUMN = 60
"""Pixels of a column of shares or figures at least."""

_SETTINGS = MARGIN + _RANK
"""Where the columns of settings begin."""

_SETTING = 22
"""Pixels of the column of a setting."""

_TILT = 60
"""Degrees by which the names of settings are turned."""

_BAR = 20
_LONGEST_NAME = 230
"""Pixels of the longest name of a setting."""

_LINE = 17
_SHARE_BAR = 8


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of what is counted."""

    label: str
    style: str
    """A style of the pictures, such as ``exclusive-0``."""
    mark: str
    """A letter that stands for it beside its colour; may be empty."""


@dataclass(frozen=True, slots=True)
class PlotRow:
    """One thing compared."""

    rank: str
    lines: tuple[str, ...]
    """What is to be said about it; the first line is the important one."""
    is_strong: bool
    """Whether it is to be found at once."""
    settings: tuple[bool, ...] = ()
    """Whether it has each of the settings."""
    counts: tuple[int, ...] = ()
    """One for each kind; empty where there is nothing to count."""
    shares: tuple[tuple[int, int], ...] = ()
    """Part and whole for each heading of shares."""
    figures: tuple[str, ...] = ()
    """One for each heading of figures."""


@dataclass(frozen=True, slots=True)
class Plot:
    """The whole picture."""

    title: str
    lines: tuple[str, ...]
    """Below the title."""
    noun: str
    """What is counted, in the singular."""
    kinds: tuple[Kind, ...]
    share_headings: tuple[str, ...]
    figure_headings: tuple[str, ...]
    rows: tuple[PlotRow, ...]
    notes: tuple[str, ...] = ()
    """Sentences below the bars."""
    settings: tuple[str, ...] = ()
    """Names of the settings in which the rows differ."""

    @property
    def bars(self) -> tuple[int, float]:
        """Where the bars begin, in pixels from the left, and how wide the widest is."""
        left = _SETTINGS + (len(self.settings) * _SETTING + 12 if self.settings else 0)
        count = len(self.share_headings) + len(self.figure_headings)
        return left, min((WIDTH - left - MARGIN) * _BAR_SHARE, WIDTH - left - MARGIN - count * _COLUMN - 16)

    @property
    def columns(self) -> tuple[tuple[int, ...], float]:
        """Where the columns of shares and figures begin, and how wide they are."""
        left, width = self.bars
        count = len(self.share_headings) + len(self.figure_headings)
        step = (WIDTH - MARGIN - left - width) / count if count else 0
        return tuple(ceil(left + width + 16 + step * number) for number in range(count)), step - 16


def plot_svg(plot: Plot) -> str:
    """Return the plot as a self-contained, deterministic SVG document."""
    y: float = MARGIN + svg.TITLE_SIZE - 4
    lines = [svg.text(MARGIN, y, svg.fitting(plot.title, (WIDTH - 2 * MARGIN) / svg.BOLD, svg.TITLE_SIZE), "name")]
    y += 6
    for line in plot.lines:
        for piece in wrapped(line, WIDTH - 2 * MARGIN, svg.TEXT_SIZE):
            y += _LINE
            lines.append(svg.text(MARGIN, y, piece, "quiet"))
    # The pixels above the bars that the names of the settings need
    names = [svg.fitting(name, _LONGEST_NAME, svg.SMALL_SIZE) for name in plot.settings]
    widest = max((svg.text_width(name, svg.SMALL_SIZE) for name in names), default=0)
    y += 34 + max(0, ceil(widest * sin(radians(_TILT))) - 14)
    for number, name in enumerate(names):
        middle = _SETTINGS + number * _SETTING + _SETTING / 2 + 4
        lines.append(svg.turned(svg.text(middle, y, name, "small"), -_TILT, middle, y))
    lines.append(svg.text(plot.bars[0], y, f"{plot.noun}s", "small"))
    columns, width = plot.columns
    for x, heading in zip(columns, (*plot.share_headings, *plot.figure_headings), strict=True):
        lines.append(svg.text(x, y, svg.fitting(heading, width + 12, svg.SMALL_SIZE), "small"))
    y += 8
    for row in plot.rows:
        elements, y = _row(row, plot, y)
        lines += elements
    left, y = float(MARGIN), y + 20
    for kind in plot.kinds:
        needed = 60 + svg.text_width(kind.label, svg.TEXT_SIZE)
        if left > MARGIN and left + needed > WIDTH - MARGIN:
            left, y = MARGIN, y + 22
        swatch = svg.rect(left + 0.5, y + 0.5, 27, 15, kind.style, round_=2)
        mark = svg.text(left + 14, y + 12, kind.mark, f"mark on-{kind.style}", anchor="middle")
        lines += [svg.group(swatch, mark), svg.text(left + 36, y + 12, kind.label, "plain")]
        left += needed
    y += 24
    for note in plot.notes:
        for piece in wrapped(note, WIDTH - 2 * MARGIN, svg.TEXT_SIZE):
            y += _LINE
            lines.append(svg.text(MARGIN, y, piece, "quiet"))
    return svg.document(plot.title, WIDTH, ceil(y + MARGIN), lines)


def _row(row: PlotRow, plot: Plot, y: float) -> tuple[list[str], float]:
    """Return the elements of a row and where it ends."""
    found = []
    style = "strong" if row.is_strong else "plain"
    # Bold letters are wider than the estimate.
    room = (WIDTH - MARGIN - _SETTINGS) * (0.88 if row.is_strong else 1)
    y += 10 if row.lines else 4
    for number, line in enumerate(row.lines):
        for piece in wrapped(line, room, svg.TEXT_SIZE):
            y += _LINE
            found.append(svg.text(_SETTINGS, y, piece, style if number == 0 else "quiet"))
    y += 6
    found.append(svg.text(_SETTINGS - svg.GAP, y + _BAR - 6, row.rank, style, anchor="end"))
    # A mark for each setting that the row has, and a dot for each that it has not
    for number, (name, on) in enumerate(zip(plot.settings, row.settings, strict=False)):
        x = _SETTINGS + number * _SETTING
        ground = "contested" if on else "free"
        mark = [svg.text(x + 9, y + _BAR - 6, "✓", f"mark on-{ground}", anchor="middle")] if on else []
        cell = svg.rect(x + 0.5, y + 1.5, 17, _BAR - 3, ground, round_=3)
        found.append(svg.group(cell, *mark, title=name if on else f"not {name}"))
    # The counts one after the other, all on the scale of the longest bar
    start, widest = plot.bars
    most, left = max(1, *(sum(one.counts) for one in plot.rows)), float(start)
    for kind, amount in zip(plot.kinds, row.counts, strict=False):
        width = widest * amount / most
        forms = (f"{amount} {kind.mark}".strip(), str(amount))
        fit = next((form for form in forms if svg.text_width(form, svg.SMALL_SIZE) + 6 <= width), "")
        bar = svg.rect(left + 0.5, y + 0.5, max(width - 1, 1), _BAR - 1, kind.style, round_=2)
        words = svg.text(left + width / 2, y + _BAR - 6, fit, f"mark on-{kind.style}", anchor="middle") if fit else ""
        if amount:
            found.append(svg.group(bar, words, title=f"{plural(amount, plot.noun)} {kind.label}"))
        left += width
    # Shares, then figures
    columns, widest = plot.columns
    count = len(plot.share_headings)
    width = min(widest, 60)
    for x, heading, (part, whole) in zip(columns, plot.share_headings, row.shares, strict=False):
        words = svg.text(x, y + 8, f"{part}/{whole}" if whole else "–", "small")
        share = svg.rect(x, y + 12, width * part / whole if whole else 0, _SHARE_BAR, "used")
        whole_bar = svg.rect(x, y + 12, width, _SHARE_BAR, "bar")
        found.append(svg.group(words, whole_bar, share, title=f"{heading}: {part} of {whole}"))
    for x, heading, figure in zip(columns[count:], plot.figure_headings, row.figures, strict=False):
        found.append(svg.group(svg.text(x, y + _BAR - 6, figure, "plain"), title=f"{heading}: {figure}"))
    return found, y + _BAR
