"""What every text for the terminal is made of: styles, bars of signs, cells that break where it makes sense.

Printing respects what the terminal can do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from io import StringIO

from rich.color import Color
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from mooring.engine.core.errors import printable
from mooring.lazy import dataclass
from mooring.views.view import OWNER_COLOURS, RESERVED_FILL, SIXTEEN, SIXTEEN_RESERVED, text_on

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
    "broken": Style(bold=True, reverse=True),
    **{
        f"exclusive-{index}": Style(color=text_on(colour), bgcolor=colour) for index, colour in enumerate(OWNER_COLOURS)
    },
}
"""What the style names of :mod:`mooring.views.view` look like in a terminal."""

_STANDARD: Mapping[tuple[Color | None, Color | None], Style] = {
    (STYLES[name].color, STYLES[name].bgcolor): Style(color=text, bgcolor=fill)
    for name, (text, fill) in {
        "reserved": SIXTEEN_RESERVED,
        **{f"exclusive-{index}": SIXTEEN[index % len(SIXTEEN)] for index in range(len(OWNER_COLOURS))},
    }.items()
}
"""Colours of the styles -> what stands for them on a terminal of 16 colours."""


def terminal_segments(console: Console, renderable: RenderableType) -> Segments:
    """Return what is drawn as a terminal gets it: texts are only texts, and colours are readable where there are few.

    The escapes that a terminal obeys are those of the styles. Left to itself, a terminal of 16 colours takes for text
    and fill the nearest that it has, each by itself.
    """
    few = console.color_system in ("standard", "windows")
    found = []
    for segment in console.render(renderable, console.options.update(highlight=False)):
        style = segment.style
        other = _STANDARD.get((style.color, style.bgcolor)) if few and style is not None else None
        text = segment.text if segment.control else printable(segment.text)
        found.append(Segment(text, style if style is None or other is None else style + other, segment.control))
    return Segments(found)


_ASCII = str.maketrans(
    {
        **dict.fromkeys("╭╮╰╯┏┓┗┛┌┐└┘├", "+"),
        **dict.fromkeys("─━╌", "-"),
        **dict.fromkeys("│┃╎", "|"),
        **dict(zip("█·×†–…“”✗✓", '=.x%-~""x*', strict=True)),
    }
)


def write(console: Console, renderable: RenderableType) -> None:
    """Print ``renderable``. Without colour (``NO_COLOR``, a pipe, a dumb terminal) no escape code is written.

    A terminal that cannot show the signs, because its encoding is not a Unicode one, gets plain ones.
    """
    if not (console.no_color or console.color_system is None or console.options.ascii_only):
        console.print(terminal_segments(console, renderable), crop=False)
        return
    # rich keeps bold and dim when it drops colours, and those are escape codes too.
    text = plain(renderable, console.width)
    if console.options.ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    console.out(text, end="", highlight=False)


def plain(renderable: RenderableType, width: int) -> str:
    """Return ``renderable`` as a terminal of ``width`` columns without any colour or style shows it."""
    console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(terminal_segments(console, renderable), crop=False)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def markdown(renderable: RenderableType) -> str:
    r"""Return ``renderable`` as Markdown, as GitHub reads it in a pull request: no foreign text is more than text.

    >>> print(markdown(Group(Text("Pods", "bold"), Text("@a rejects <b>: http://c.d"))))
    **Pods**
    <BLANKLINE>
    @<!-- -->a rejects \<b\>: http:\//c.d
    """
    return "\n\n".join(_blocks(renderable))


_MARKS = str.maketrans({**{sign: f"\\{sign}" for sign in "\\`*_[]<>#|~&$"}, "@": "@<!-- -->", "\n": " "})
"""What Markdown reads in a text, and names that notify a person."""


def _escaped(text: str) -> str:
    return printable(text).translate(_MARKS).replace("://", ":\\//").replace("www.", "www\\.").strip()


def _blocks(part: RenderableType) -> Iterator[str]:
    if isinstance(part, (str, Text)) and "\n" not in str(part).strip():
        mark = "**" if isinstance(part, Text) and "bold" in str(part.style) else ""
        if text := _escaped(str(part)):
            yield f"{mark}{text}{mark}"
    elif isinstance(part, Group):
        for one in part.renderables:
            yield from _blocks(one)
    elif isinstance(part, Padding):
        yield from _blocks(part.renderable)
    elif isinstance(part, Table):
        heads = [_cell(column.header) for column in part.columns]
        sides = ["--:" if column.justify == "right" else "---" for column in part.columns]
        cells = zip(*([_cell(cell) for cell in column.cells] for column in part.columns), strict=True)
        yield "\n".join(f"| {' | '.join(row)} |" for row in (heads, sides, *cells))
    elif isinstance(part, Listing):
        yield from _blocks(part.table())
    else:
        text = plain(part, 100).rstrip()
        fence = "`" * max(3, 1 + max(map(len, re.findall("`+", text)), default=0))
        yield f"{fence}\n{text}\n{fence}"


def _cell(cell: RenderableType) -> str:
    return _escaped(cell if isinstance(cell, str) else plain(cell, 10_000))


def new_table(*headings: str, right: Collection[int] = ()) -> Table:
    """Return an empty table without lines; the columns of these numbers are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=STYLES["quiet"])
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="right" if number in right else "left")
    return table


def indented(content: RenderableType, style: str | Style = "", *, by: int = 2) -> Padding:
    """Return a text, or anything else that is drawn, some columns to the right."""
    return Padding(Text(content, style) if isinstance(content, str) else content, (0, 0, 0, by))


@dataclass(frozen=True, slots=True)
class Listing:
    """What is a table in Markdown, and lines of another form in a terminal."""

    table: Callable[[], Table]
    lines: Callable[[Console, ConsoleOptions], Iterable[RenderableType | Segment]]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        """Yield the lines."""
        yield from self.lines(console, options)


BAR_WIDTH = 20
"""Columns of a bar where there is room."""

NARROWEST_BAR = 8
"""Columns below which a bar says nothing and is left out."""


def bar(parts: Sequence[tuple[int, str, str]], total: int, width: int = BAR_WIDTH) -> Text:
    """Return a bar of ``width`` columns for ``total``: per part its amount, its sign and its style name.

    An amount above zero shows at least one sign as long as there is room; rounding goes to the largest remainder.

    >>> bar([(1, "#", "reserved"), (50, "█", ""), (49, "·", "")], 100, 10).plain
    '#█████····'
    """
    if total <= 0:
        return Text("")
    exact = [amount * width / total for amount, _, _ in parts]
    lengths = [max(1, int(share)) if share else 0 for share in exact]
    wanted = min(width, round(sum(exact)))
    while sum(lengths) != wanted and any(lengths):
        grow = sum(lengths) < wanted
        error = [share - length for share, length in zip(exact, lengths, strict=True)]
        candidates = [index for index, length in enumerate(lengths) if exact[index] and (grow or length > 1)]
        if not candidates:
            break
        chosen = (max if grow else min)(candidates, key=lambda index: error[index])
        lengths[chosen] += 1 if grow else -1
    pieces = ((sign * length, STYLES[style]) for (_, sign, style), length in zip(parts, lengths, strict=True))
    return Text.assemble(*pieces)


@dataclass(frozen=True, slots=True)
class Breaking:
    """A text that a table may break after certain signs only: CPU lists after commas, names after slashes."""

    text: str
    after: str = ","
    style: str = ""

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """Tell the table the narrowest and the widest form."""
        del console
        narrowest = max(len(part) for part in self._parts(len(self.text) or 1))
        return Measurement(narrowest, max(len(self.text), 1)).with_maximum(options.max_width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines."""
        del console
        line = ""
        for part in self._parts(options.max_width):
            if line and len(line) + len(part) > options.max_width:
                yield from (Segment(line, STYLES[self.style]), Segment.line())
                line = ""
            line += part
        yield from (Segment(line, STYLES[self.style]), Segment.line())

    def _parts(self, longest: int) -> Iterator[str]:
        """Yield the pieces; one that is longer than a whole line is cut where the line ends."""
        *front, last = self.text.split(self.after)
        for piece in (*(part + self.after for part in front), last):
            yield from (piece[start : start + longest] for start in range(0, max(len(piece), 1), longest))
