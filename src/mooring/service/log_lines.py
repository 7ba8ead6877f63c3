"""Lines of the log on their way to somebody who may have stopped reading them: who logs never waits for him.

A pipe that is full holds whoever writes to it, and the thread that answers the runtime logs too. A journal that hangs
would keep containers from being created, while the agent looks as if it were ready.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections.abc import Callable
from contextlib import suppress

MOST_WAITING = 4096
"""Lines that wait at most, one or two megabytes; what comes while so many wait is left out and counted."""

LAST_LINES = 2.0
"""Seconds for the last lines at the end of a process, when nobody reads them."""


class Lines:
    """What a log handler writes to: a queue, and a thread that writes to a descriptor."""

    def __init__(self, descriptor: int, left_out: Callable[[int], object], size: int = MOST_WAITING) -> None:
        """Begin to write.

        Args:
            descriptor: where lines go; one that cannot be written takes them all.
            left_out: is told how many lines were left out once all others are written; it may log.
            size: how many lines may wait.
        """
        self._descriptor = descriptor
        self._tell = left_out
        self._left_out = 0
        self._lock = threading.Lock()
        self._waiting: queue.Queue[str | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Have a text written as soon as possible, or leave it out. Never waits."""
        try:
            self._waiting.put_nowait(text)
        except queue.Full:
            with self._lock:
                self._left_out += 1
        return len(text)

    def finish(self, patience: float) -> None:
        """Write what waits, and end; waits for that for some seconds."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=patience)
            self._thread.join(patience)

    def _run(self) -> None:
        while (text := self._waiting.get()) is not None:
            with suppress(OSError):
                self._write(text.encode(errors="backslashreplace"))
            if self._waiting.empty() and (count := self._counted()):
                self._tell(count)

    def _counted(self) -> int:
        with self._lock:
            count, self._left_out = self._left_out, 0
            return count

    def _write(self, data: bytes) -> None:
        # Not through sys.stderr: its lock, held by a thread that waits, would abort the process at its end.
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:
                select.select((), (self._descriptor,), ())
