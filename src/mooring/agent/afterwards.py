"""Work that no answer waits for: one thread, and a bounded queue before it."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

MOST_WAITING = 4096
"""Pieces of work that wait at most. What is left out beyond that is made up for by the next look at everything."""


class Afterwards:
    """Does one piece of work after another in a thread of its own."""

    def __init__(self, failed: Callable[[Exception], object], size: int = MOST_WAITING) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            failed: is told what went wrong with a piece of work.
            size: how many may wait.
        """
        self._failed = failed
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-afterwards", daemon=True)
        self.dropped = 0
        """How often there was no room."""

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def put(self, work: Callable[[], object]) -> bool:
        """Have something done as soon as possible; tell whether there was room. Never waits."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def finish(self, patience: float) -> None:
        """Do what waits, and end; waits for that for a while."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=patience)
            except queue.Full:
                return
            self._thread.join(patience)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - without this thread nothing would be verified any more
                self._failed(error)
