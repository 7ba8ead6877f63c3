"""A progress bar on standard error, for people who watch."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def counted(items: Iterable[Item], what: str, *, quiet: bool = False) -> Iterator[Item]:
    """Yield the items and show how many there were; nothing is shown where nobody watches."""
    if quiet or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console  # noqa: PLC0415 - only for the bar
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as above

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=None)
        for item in items:
            yield item
            progress.advance(task)
