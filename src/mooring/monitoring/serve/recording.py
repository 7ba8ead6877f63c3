"""The node over time: the newest snapshots, in memory."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from mooring.monitoring.serve.feed import Feed
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.service.daemon import Heartbeat

MOST_CELLS: Final = 150_000
"""CPUs of all recorded snapshots together: about 40 MB."""
MOST_SNAPSHOTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Recorded:
    """A snapshot and when it was new."""

    number: int
    """From 1, growing."""
    at: float
    """Unix time."""
    snapshot: NodeSnapshot


class Recording:
    """Takes snapshots of one node; usable from any thread."""

    def __init__(self, first: NodeSnapshot, clock: Callable[[], float] = time.time) -> None:
        """Begin with a snapshot of the node now; the clock gives Unix time."""
        self.feed = Feed()
        self._clock, self._lock = clock, threading.Lock()
        self.heartbeat = Heartbeat(time.monotonic)
        """Of what reads the node."""
        self.trouble = ""
        """Why the node cannot be read at the moment."""
        cpus = max(1, sum(1 for _ in first.view.cpus()))
        self._past: deque[Recorded] = deque(maxlen=max(20, min(MOST_SNAPSHOTS, MOST_CELLS // cpus)))
        self._now = Recorded(1, clock(), first)

    @property
    def now(self) -> Recorded:
        """The newest snapshot."""
        return self._now

    def take(self, snapshot: NodeSnapshot) -> bool:
        """Take a snapshot; one that shows the same as the newest is not recorded, but asked from now on."""
        with self._lock:
            before = self._now
            troubled, self.trouble = bool(self.trouble), ""
            if snapshot == before.snapshot:
                self._now = Recorded(before.number, before.at, snapshot)
                if not troubled:
                    return False
            else:
                self._past.append(Recorded(before.number, before.at, before.snapshot.bare()))
                self._now = Recorded(before.number + 1, self._clock(), snapshot)
        self.feed.changed()
        return True

    def fail(self, problem: str) -> None:
        """Take it that the node cannot be read; its last snapshot stays."""
        if problem != self.trouble:
            self.trouble = problem
            self.feed.changed()

    def span(self) -> tuple[int, Recorded]:
        """Return the number of the oldest moment and the newest moment, as they are at one time."""
        with self._lock:
            return self._past[0].number if self._past else self._now.number, self._now

    def in_memory(self) -> list[Recorded]:
        """Return the moments that are in memory, the newest last."""
        with self._lock:
            return [*self._past, self._now]

    def at(self, number: int) -> Recorded:
        """Return the moment of a number; the oldest one for one that is forgotten, the newest for 0."""
        found = self.in_memory()
        if not number:
            return found[-1]
        return next((one for one in found if one.number >= number), found[-1])
