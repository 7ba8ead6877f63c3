"""The node over time: the newest snapshots of the status of an agent, or of what the options describe.

It is read again only when one of its files has changed, and now and then. Clients of the page learn that something has
changed by a version that grows with every change.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mooring.answers.base.inputs.checks import STANDARD_INPUT
from mooring.answers.base.inputs.node import question_of
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.core.errors import InputError
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.inputs.decoding.files import FileMark, file_mark
from mooring.lazy import lazily
from mooring.monitoring.serve.snapshot import NodeSnapshot
from mooring.service.daemon import Heartbeat

with lazily():
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.monitoring.serve import snapshot
    from mooring.service import agent_status as status_api
    from mooring.views import build as pictures

if TYPE_CHECKING:
    from mooring.cli.options import NodeOptions


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
        self._now = Recorded(1, at := clock(), first.dated((), at))

    @property
    def now(self) -> Recorded:
        """The newest snapshot."""
        return self._now

    def take(self, snapshot: NodeSnapshot) -> bool:
        """Take a snapshot; one that shows the same as the newest is not recorded, but asked from now on."""
        with self._lock:
            before, at = self._now, self._clock()
            snapshot = snapshot.dated(before.snapshot.pods, at)
            troubled, self.trouble = bool(self.trouble), ""
            if snapshot == before.snapshot:
                self._now = Recorded(before.number, before.at, snapshot)
                if not troubled:
                    return False
            else:
                self._past.append(Recorded(before.number, before.at, before.snapshot.bare()))
                self._now = Recorded(before.number + 1, at, snapshot)
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


AGAIN: Final = 30.0
"""Seconds after which a node is read again although no file has changed: its pods can have."""
STATE_FILES: Final = (CPU_FILE, MEMORY_FILE, DEVICE_FILE)
Read = Callable[[], tuple[NodeSnapshot, Sequence[Path]]]


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
        self._marks: tuple[FileMark | None, ...] = ()
        self._until = 0.0
        self._known: NodeSnapshot | None = None

    def __call__(self) -> NodeSnapshot:
        """Return the node.

        Raises:
            InputError: it cannot be read.
        """
        marks = tuple(map(file_mark, self._files))
        if self._known is None or marks != self._marks or self._clock() >= self._until:
            # Marks are older than what is read, so that a change meanwhile is read the next time.
            self._known, files = self._read()
            self._marks = marks if files == self._files else ()
            self._files, self._until = files, self._clock() + AGAIN
        return self._known


def agent_source(socket: str) -> Callable[[], NodeSnapshot]:
    """Return what asks an agent.

    Raises:
        InputError: no agent answers.
    """
    path = socket or status_api.STATUS_SOCKET
    machine = status_api.ask_machine(path)

    def source() -> NodeSnapshot:
        document = status_api.ask_status(path)
        return snapshot.snapshot_of_status(pictures.status_view(machine, status_api.read_status(document)), document)

    return source


def described_source(inputs: NodeOptions) -> Callable[[], NodeSnapshot]:
    """Return what reads the node that options describe; without any, that of the kubelet of this computer."""

    def read() -> tuple[NodeSnapshot, list[Path]]:
        asked = running_inputs.with_running_kubelet(inputs)
        kubelet = asked.running.kubelet if asked.running is not None else None
        folders = [inputs.state, *([running_inputs.state_folder(kubelet)] if kubelet is not None else [])]
        files = [Path(folder) / name for folder in folders if folder for name in STATE_FILES]
        files += [Path(name) for name in (*inputs.manifests, *inputs.active, *inputs.config, inputs.node) if name]
        return snapshot.snapshot_of(question_of(asked)), files

    return WatchedNode(read)


def check_rereadable(inputs: NodeOptions) -> None:
    """Refuse standard input: a live page reads the node again and again, and standard input is empty the second time.

    Raises:
        InputError: an option names it.
    """
    if STANDARD_INPUT in (*inputs.manifests, *inputs.active, *inputs.config, *inputs.machine.split("\n")):
        problem = "can be read only once, and the page reads the node periodically"
        raise InputError(problem, source="standard input", remedy="name a file, or write one page with --export")
