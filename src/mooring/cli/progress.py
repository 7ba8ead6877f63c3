"""A progress bar on standard error, on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from mooring.lazy import lazily

with lazily():
    from rich import console as rich_console
    from rich import progress as rich_progress


if TYPE_CHECKING:
    from rich.progress import Progress

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
                    self._progress = self._begun(done)
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

    def _begun(self, done: int) -> rich_progress.Progress:
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
        return progress


def _is_terminal(stream: TextIO | None) -> bool:
    """Tell whether the stream is a terminal; a closed stream is None."""
    return stream is not None and stream.isatty()
