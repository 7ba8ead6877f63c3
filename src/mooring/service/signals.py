"""Signals that end a daemon, as an event."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; at the end of the block they do again what they did before."""
    stop = threading.Event()

    def ending(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, ending) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
