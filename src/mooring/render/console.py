"""How pictures reach a terminal: style names as rich styles, and printing that respects what the terminal can do."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType
from rich.style import Style

from mooring.render.palette import OWNER_COLOURS, RESERVED_FILL, text_on

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
"""What the style names of :mod:`mooring.render.palette` look like in a terminal."""

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
        console.print(renderable, highlight=False, crop=False)
        return
    # rich keeps bold and dim when it drops colours, and those are escape codes too.
    text = plain(renderable, console.width)
    if console.options.ascii_only:
        text = text.translate(_ASCII).encode("ascii", "replace").decode("ascii")
    console.out(text, end="", highlight=False)


def plain(renderable: RenderableType, width: int) -> str:
    """Return ``renderable`` as a terminal of ``width`` columns without any colour or style shows it."""
    console = Console(file=StringIO(), width=width, color_system=None, legacy_windows=False)
    with console.capture() as capture:
        console.print(renderable, highlight=False, crop=False)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
