"""Texts for the terminal of the present width, or for a file."""

from __future__ import annotations

from io import StringIO

from rich.console import Console, RenderableType

from mooring.cli.output import STANDARD_OUTPUT
from mooring.render.console import plain, write

_FILE_WIDTH = 100
"""Columns of a text in a file, unless the terminal is wider."""


def width_for(to: str) -> int:
    """Return how many columns an answer has: those of the terminal (or ``COLUMNS``), in a file at least 100."""
    width = Console().width
    return width if to in ("", STANDARD_OUTPUT) else max(width, _FILE_WIDTH)


def text_for(body: RenderableType, to: str, width: int = 0) -> str:
    """Return a text with what the terminal can show: colours, or none in a pipe, a file and under ``NO_COLOR``.

    Args:
        body: what to say.
        to: the destination.
        width: columns; 0 for those of :func:`width_for`.
    """
    width = width or width_for(to)
    if to not in ("", STANDARD_OUTPUT):
        return plain(body, width)
    console = Console()
    # Captured, and written in one go: an answer is on the screen whole or not at all.
    captured = Console(
        file=_Captured(console.encoding),
        width=width,
        force_terminal=console.is_terminal,
        no_color=console.no_color,
        color_system="auto" if console.is_terminal else None,
    )
    write(captured, body)
    output = captured.file
    return output.getvalue() if isinstance(output, StringIO) else ""


class _Captured(StringIO):
    """A text in memory with the encoding of the terminal for which it is made."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a StringIO has none
        """The terminal's encoding."""
        return self._encoding
