"""What a program has of its system: signals, its service manager, worker processes, the time since boot, Unix sockets.

A socket on which it listens is there with its permissions at once, and gone afterwards.

Source: systemd's sd_notify(3): lines of KEY=VALUE in one datagram to the socket that the environment names.
"""

from __future__ import annotations

import gc
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from mooring.engine.core.errors import InputError
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
_TURN = 0.0005
"""Seconds that a thread may compute while others wait. With Python's 5 ms, a reply can wait for two such turns."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and SIGINT set; at the end of the block they do again what they did before."""
    stop = threading.Event()
    with handled_signals(dict.fromkeys((signal.SIGTERM, signal.SIGINT), stop.set)):
        yield stop


@contextmanager
def handled_signals(calls: Mapping[signal.Signals, Callable[[], object]]) -> Iterator[None]:
    """Make a call at each of some signals; at the end of the block they do again what they did before."""

    def handle(number: int, _frame: FrameType | None) -> None:
        calls[signal.Signals(number)]()

    before = {number: signal.signal(number, handle) for number in calls}
    try:
        yield
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


MODE = 0o660
"""Permissions of a socket: its owner and its group may connect, which means to write."""

_KNOCKING = 1.0  # seconds


def socket_path(path: str) -> Path:
    """Return the path for a new socket, with its folder made; a socket that no process serves may be in its place.

    Raises:
        InputError: something else lies there, another process listens there already, or the folder cannot be made.
    """
    place = Path(path)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        found = place.lstat().st_mode
    except FileNotFoundError:
        return place
    except (OSError, ValueError) as error:
        raise _unusable(path, error) from None
    if not stat.S_ISSOCK(found):
        raise InputError("exists and is not a socket", source=path, remedy="remove it, or name another path")
    if is_answered(path):
        raise InputError("another process listens there already", source=path, remedy="stop the other agent")
    return place


def is_answered(path: str) -> bool:
    """Tell whether a process accepts connections on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
        knocking.settimeout(_KNOCKING)
        try:
            knocking.connect(path)
        except OSError:
            return False
    return True


def beside(place: Path) -> Path:
    """Return the path under which a socket is made before it takes its place, free of an earlier one.

    Raises:
        InputError: the folder cannot be written.
    """
    first = place.with_name(f".{os.getpid()}.{place.name[-40:]}")
    try:
        first.unlink(missing_ok=True)
    except OSError as error:
        raise _unusable(str(place), error) from None
    return first


def put_in_place(first: Path, place: Path) -> None:
    """Give a new socket its permissions and then its name, so that no client connects without them."""
    first.chmod(MODE)
    first.replace(place)


def listening(path: str) -> socket.socket:
    """Return a socket that listens on a path.

    Raises:
        InputError: as :func:`socket_path`, or the socket cannot be made.
    """
    place = socket_path(path)
    first = beside(place)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(first))
        put_in_place(first, place)
        made.listen()
    except (OSError, ValueError) as error:
        made.close()
        remove(str(first))
        raise _unusable(path, error) from None
    return made


def remove(path: str) -> None:
    """Remove a socket's name, if it is still there."""
    with suppress(OSError):
        Path(path).unlink(missing_ok=True)


def _unusable(path: str, error: OSError | ValueError) -> InputError:
    words = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
    remedy = "check the folder and its permissions"
    return InputError(f"no socket can be created there: {words.lower()}", source=path, remedy=remedy)


@contextmanager
def short_turns() -> Iterator[None]:
    """Let no thread compute for long while another one has a reply to give."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
