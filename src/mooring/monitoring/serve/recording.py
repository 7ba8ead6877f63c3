"""The node over time: the newest snapshots, in memory.

Tells clients of the page that something has changed; the version grows with every change.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.service.daemon import Heartbeat


class Feed:
    """One source of changes, many clients; changes come from any thread, clients wait in the server's loop."""

    def __init__(self) -> None:
        """Begin at version 0."""
        self.version = 0
        self._lock = threading.Lock()
        self._waiting: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}

    def changed(self) -> None:
        """Take it that something has changed."""
        with self._lock:
            self.version += 1
            waiting, self._waiting = self._waiting, {}
        for event, loop in waiting.items():
            # The loop is closed when the server stops.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(event.set)

    async def after(self, version: int, seconds: float) -> int:
        """Wait until there is a version after a known one, and return it; the known one when the time is over."""
        event = asyncio.Event()
        with self._lock:
            if self.version > version:
                return self.version
            self._waiting[event] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return version
        finally:
            with self._lock:
                self._waiting.pop(event, None)
        return self.version


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
