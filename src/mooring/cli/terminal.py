"""Texts for the terminal of the present width, or for a file.

A progress bar on standard error, on a terminal.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import TYPE_CHECKING, TextIO, TypeVar

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment

from mooring.cli.output import STANDARD_OUTPUT, StyledText, emit, emit_document, json_text, warn
from mooring.engine.core.errors import clean
from mooring.lazy import dataclass, lazily
from mooring.views.console import markdown, plain, write

with lazily():
    from rich import console as rich_console
    from rich import progress as rich_progress

if TYPE_CHECKING:
    from rich.progress import Progress

    from mooring.documents.plan import FindingPart
    from mooring.engine.core.machine import Finding


MARKDOWN = "markdown"
"""The form of ``-o`` for pull requests; every text has it."""
_FILE_WIDTH = 100
"""Columns of a text in a file, unless the terminal is wider."""


def width_for(to: str) -> int:
    """Return how many columns an answer has: those of the terminal (or ``COLUMNS``), in a file at least 100."""
    width = Console().width
    return width if to in ("", STANDARD_OUTPUT) else max(width, _FILE_WIDTH)


def text_for(body: RenderableType, to: str, width: int = 0) -> str:
    """Return a text with what the terminal can show: colours, or none in a pipe, a file and under ``NO_COLOR``.

    With ``-o markdown`` it is Markdown instead, whatever the destination.

    Args:
        body: what to say.
        to: the destination.
        width: columns; 0 for those of :func:`width_for`.
    """
    context = click.get_current_context(silent=True)
    if context is not None and context.params.get("form") == MARKDOWN:
        return markdown(body)
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
        markup=False,
    )
    write(captured, body)
    output = captured.file
    return StyledText(output.getvalue() if isinstance(output, StringIO) else "")


def print_answer(
    form: str,
    to: str,
    document: object,
    parts: Iterable[RenderableType],
    findings: Iterable[Finding | FindingPart] = (),
) -> None:
    """Print an answer, or write it to a file: its document as JSON, else its text, with warnings on standard error."""
    if form == "json":
        emit_document(json_text(document), to)
        return
    warn(findings)
    emit(text_for(Group(*parts), to), to)


@dataclass(frozen=True, slots=True)
class CommandLine:
    r"""A command of Mooring as a shell takes it; where it is longer than a line, the lines end with a backslash.

    >>> from mooring.views.console import plain
    >>> print(plain(CommandLine(("whatif", "--machine", "sockets=1 cores=8", "--strict"), "1  "), 40), end="")
    1  mooring whatif \
         --machine 'sockets=1 cores=8' \
         --strict
    """

    words: tuple[str, ...]
    before: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        """Yield the lines; a word that is longer than a line stays whole."""
        del console
        line, indent = f"{self.before}mooring", " " * (len(self.before) + 2)
        # Words as they are typed, an option with its value
        parts: list[str] = []
        for word in (clean(shlex.quote(word)) for word in self.words):
            if parts and parts[-1].startswith("-") and not word.startswith("-"):
                parts[-1] += f" {word}"
            else:
                parts.append(word)
        for part in parts:
            if len(line) + len(part) + len(" \\") >= options.max_width and line.strip():
                yield from (Segment(f"{line} \\"), Segment.line())
                line = f"{indent}{part}"
            else:
                line = f"{line} {part}"
        yield from (Segment(line), Segment.line())


class _Captured(StringIO):
    """A text in memory with the encoding of the terminal for which it is made."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]  # a StringIO has none
        """The terminal's encoding."""
        return self._encoding


Item = TypeVar("Item")

PATIENCE = 0.7
"""Seconds that a run may take without a bar."""


class Watched:
    """Items counted on a terminal: after a while a bar appears, and lines are printed above it.

    Nothing is drawn where standard error is no terminal.
    """

    def __init__(self, what: str, total: Callable[[], int | None], *, on_screen: bool) -> None:
        """Prepare the bar.

        Args:
            what: its title.
            total: returns the number of items; called only when the bar is drawn.
            on_screen: whether there is to be a bar also where standard output is a terminal.
        """
        self._what = what
        self._total = total
        self._watched = _is_terminal(sys.stderr) and (on_screen or not _is_terminal(sys.stdout))
        self._progress: Progress | None = None

    def items(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items and count them."""
        if not self._watched:
            yield from items
            return
        begin, done = time.monotonic(), 0
        try:
            for item in items:
                yield item
                done += 1
                if self._progress is not None:
                    self._progress.update(self._progress.task_ids[0], completed=done)
                elif time.monotonic() - begin > PATIENCE:
                    progress = rich_progress.Progress(
                        rich_progress.TextColumn("{task.description}", markup=False),
                        rich_progress.BarColumn(),
                        rich_progress.MofNCompleteColumn(),
                        rich_progress.TimeElapsedColumn(),
                        rich_progress.TimeRemainingColumn(),
                        console=rich_console.Console(stderr=True),
                        transient=True,
                        # Answers on standard output are not the bar's business, least of all when they go to a file.
                        redirect_stdout=False,
                        redirect_stderr=False,
                    )
                    progress.add_task(self._what, total=self._total(), completed=done)
                    progress.start()
                    self._progress = progress
        finally:
            if self._progress is not None:
                self._progress.stop()
                self._progress = None

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Let something be printed while the bar stands aside."""
        if self._progress is None or not _is_terminal(sys.stdout):
            yield
            return
        self._progress.stop()
        yield
        sys.stdout.flush()
        self._progress.start()


def _is_terminal(stream: TextIO | None) -> bool:
    """Tell whether the stream is a terminal; a closed stream is None."""
    return stream is not None and stream.isatty()
