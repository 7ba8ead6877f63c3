"""A node that is read again only when one of its files has changed, and now and then."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.monitoring.serve.snapshot import NodeSnapshot

AGAIN: Final = 30.0
"""Seconds after which a node is read again although no file has changed: its pods can have."""
STATE_FILES: Final = (CPU_FILE, MEMORY_FILE, DEVICE_FILE)
Read = Callable[[], tuple[NodeSnapshot, Sequence[Path]]]
Marks = tuple[tuple[int, int, int] | None, ...]


class WatchedNode:
    """Returns the newest snapshot of a node when it is called; used by one thread."""

    def __init__(self, read: Read, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet.

        Args:
            read: reads the node, and names the files that show when it has changed.
            clock: seconds that only go forward.
        """
        self._read, self._clock = read, clock
        self._files: Sequence[Path] = ()
        self._marks: Marks = ()
        self._until = 0.0
        self._known: NodeSnapshot | None = None

    def __call__(self) -> NodeSnapshot:
        """Return the node.

        Raises:
            InputError: it cannot be read.
        """
        marks = _marks(self._files)
        if self._known is None or marks != self._marks or self._clock() >= self._until:
            # Marks are older than what is read, so that a change meanwhile is read the next time.
            self._known, files = self._read()
            self._marks = marks if files == self._files else ()
            self._files, self._until = files, self._clock() + AGAIN
        return self._known


def _marks(files: Sequence[Path]) -> Marks:
    return tuple(_mark(file) for file in files)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
