"""What a program has of its system: signals that end it, its service manager, worker processes, the time since boot.

Source: systemd's sd_notify(3): lines of KEY=VALUE in one datagram to the socket that the environment names.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from mooring.engine.core.moment import Moment
from mooring.lazy import lazily

with lazily():
    import multiprocessing
    from concurrent import futures

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

SOCKET = "NOTIFY_SOCKET"
"""Environment variable with the socket; without it there is no service manager."""
WATCHDOG = "WATCHDOG_USEC"
"""Environment variable with the microseconds after which a silent agent is restarted."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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


@contextmanager
def uncollected() -> Iterator[None]:
    """Switch the garbage collector off, until :func:`settle` at the latest until the end of the block.

    While a daemon starts it would look through modules and classes again and again: a tenth of the agent's start.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


def settle(*, whole: bool = False) -> None:
    """Free what the start has left behind, and let the garbage collector leave out the rest from now on.

    Modules and classes are most of a daemon; with them a full collection holds up every thread for 30 ms (Python 3.11).

    Args:
        whole: whether what was left out before is looked through as well: cycles in it are freed in no other way.
    """
    if whole:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.enable()


def notify(fields: Mapping[str, str], environment: Mapping[str, str] | None = None) -> bool:
    """Send fields such as ``READY=1`` or ``STATUS=...`` and return whether they were received.

    It never waits and never fails: a service manager that is gone is no reason to stop placing containers.

    Args:
        fields: what to say; line breaks in values become spaces.
        environment: the process's by default.
    """
    address = (os.environ if environment is None else environment).get(SOCKET, "")
    if not address.startswith(("/", "@")):
        return False
    lines = (f"{name}={' '.join(value.splitlines())}" for name, value in fields.items())
    data = "\n".join(lines).encode(errors="backslashreplace")
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        # A name in the abstract namespace begins with a zero byte, which @ stands for.
        sender.sendto(data, f"\0{address[1:]}" if address[0] == "@" else address)
        return True
    return False


def watchdog_seconds(environment: Mapping[str, str] | None = None) -> float:
    """Return how often ``WATCHDOG=1`` is to be sent: in half of the time that is allowed. 0 means never.

    >>> watchdog_seconds({WATCHDOG: "30000000"}), watchdog_seconds({})
    (15.0, 0.0)
    """
    text = (os.environ if environment is None else environment).get(WATCHDOG, "")
    return int(text) / 2_000_000 if text.isascii() and text.isdigit() else 0.0


class Heartbeat:
    """When a thread last ran its periodic work, for liveness probes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with a beat.

        Args:
            clock: seconds that only go forward.
        """
        self._clock = clock
        self._last = clock()

    def beat(self) -> None:
        """Say that the thread is alive."""
        self._last = self._clock()

    def age(self) -> float:
        """Return the seconds since the last beat."""
        return self._clock() - self._last


def present_moment() -> Moment:
    """Return the time since boot, without time spent in suspend; the boot is empty where the kernel does not tell."""
    return Moment(time.monotonic_ns(), _boot())


@cache
def _boot() -> str:
    """Return which boot this is; a process lives in one only."""
    try:
        return BOOT_ID.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


@contextmanager
def worker_processes(count: int) -> Iterator[ProcessPoolExecutor]:
    """Give processes that work; at the end of the block they finish what they have begun."""
    pool = futures.ProcessPoolExecutor(count, initializer=_worker_begins)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _worker_begins() -> None:
    """Leave interrupts, which a terminal sends to every process, to the parent; end when that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
