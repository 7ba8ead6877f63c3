"""Tells clients of the page that something has changed; the version grows with every change."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress


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
