"""A proxy between an agent and its runtime that knows frames and does harm to one of them.

It listens where the agent connects and passes everything on to the runtime, frame by frame, both ways. A
:class:`Fault` names the frame, counted from the moment when it was planned, and what is done instead of passing it on.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from mooring.agent.nri.connection import frame_reader

_HEADER = struct.Struct(">II")
_ANY_LENGTH = 1 << 32


class Way(Enum):
    """Which way a frame goes."""

    TO_RUNTIME = "to-runtime"
    TO_PLUGIN = "to-plugin"


@dataclass(eq=False)
class Pipe:
    """One direction of one connection."""

    way: Way
    source: socket.socket
    sink: socket.socket
    wire: Wire
    is_deaf: bool = False
    """Whether what comes is thrown away."""
    held: bytes = b""
    """A frame that waits for the next one to go first."""

    def pass_on(self, data: bytes) -> None:
        """Send bytes; when the sink does not want them, the connection is over."""
        try:
            self.sink.sendall(data)
        except OSError:
            self.wire.cut()

    def take(self, frame: bytes, fault: Fault | None) -> None:
        """Pass a frame on, or do to it what was planned."""
        if self.is_deaf or self.wire.is_silent:
            return
        if fault is not None:
            fault.act(self, frame)
            return
        self.pass_on(frame + self.held)
        self.held = b""


@dataclass(eq=False)
class Wire:
    """One connection of the agent, with the one to the runtime that belongs to it."""

    plugin: socket.socket
    runtime: socket.socket
    stopped: threading.Event = field(default_factory=threading.Event)
    is_silent: bool = False
    """Whether nothing is passed on any more, and no end learns when the other hangs up."""
    pumping: int = 2
    """How many directions are still open."""

    def close(self) -> None:
        """Give both sockets back."""
        self.plugin.close()
        self.runtime.close()

    def cut(self) -> None:
        """Hang up on both."""
        for end in (self.plugin, self.runtime):
            hang_up(end)

    def ended(self, end: socket.socket) -> None:
        """Learn that one end has hung up."""
        hang_up(end)
        if not self.is_silent:
            self.cut()


def hang_up(end: socket.socket) -> None:
    """Shut a socket down, so that whoever reads from it comes back."""
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


Act = Callable[[Pipe, bytes], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """Harm to one frame."""

    way: Way
    number: int
    """From 0, among the frames that go this way."""
    act: Act


def frame_of(connection: int, payload: bytes, *, announced: int | None = None) -> bytes:
    """Return a frame, which may announce another length than it has."""
    return _HEADER.pack(connection, len(payload) if announced is None else announced) + payload


class FaultProxy:
    """Listens at one path and passes everything on to another."""

    def __init__(self, path: Path, upstream: Path) -> None:
        """Begin, without harm.

        Args:
            path: where the agent connects.
            upstream: where the runtime listens.
        """
        self.path = path
        self._upstream = upstream
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._passed = dict.fromkeys(Way, 0)
        self._wires: list[Wire] = []
        self._threads: list[threading.Thread] = []
        self.done: queue.SimpleQueue[Fault] = queue.SimpleQueue()
        """Gets every fault that came to pass."""
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        self._begin(self._accept)

    def plan(self, fault: Fault | None) -> None:
        """Have one thing go wrong, in place of what was planned before; frames are counted anew."""
        with self._lock:
            self._fault, self._passed = fault, dict.fromkeys(Way, 0)

    @property
    def passed(self) -> dict[Way, int]:
        """How many frames went each way since the last plan."""
        with self._lock:
            return dict(self._passed)

    def cut(self) -> None:
        """Hang up on everybody who is connected now."""
        with self._lock:
            wires, self._wires = self._wires, []
        for wire in wires:
            wire.stopped.set()
            wire.cut()

    def close(self) -> None:
        """End every connection, and all threads."""
        hang_up(self._listener)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive(), thread.name

    def _begin(self, work: Callable[..., None], *about: object) -> None:
        thread = threading.Thread(target=work, args=about, name="fault-proxy", daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                plugin, _ = self._listener.accept()
            except OSError:
                self.cut()
                return
            runtime = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                runtime.connect(str(self._upstream))
            except OSError:
                runtime.close()
                plugin.close()
                continue
            wire = Wire(plugin, runtime)
            with self._lock:
                self._wires.append(wire)
            self._begin(self._pump, Pipe(Way.TO_RUNTIME, plugin, runtime, wire))
            self._begin(self._pump, Pipe(Way.TO_PLUGIN, runtime, plugin, wire))

    def _pump(self, pipe: Pipe) -> None:
        frames = frame_reader(_ANY_LENGTH)
        with contextlib.suppress(OSError):
            while data := pipe.source.recv(1 << 16):
                for frame in frames.feed(data):
                    fault = self._next(pipe)
                    # Told before: who notices the harm may look at once.
                    if fault is not None:
                        self.done.put(fault)
                    pipe.take(frame_of(frame.connection, frame.payload), fault)
        pipe.wire.ended(pipe.source)
        with self._lock:
            pipe.wire.pumping -= 1
            is_last = not pipe.wire.pumping
        if is_last:
            pipe.wire.close()

    def _next(self, pipe: Pipe) -> Fault | None:
        """Count a frame, and return the harm that is meant for it."""
        with self._lock:
            number = self._passed[pipe.way]
            self._passed[pipe.way] += 1
            fault = self._fault
            if fault is None or (fault.way, fault.number) != (pipe.way, number):
                return None
            self._fault = None
            return fault
