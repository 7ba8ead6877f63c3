"""Connections of a world: pairs of stream sockets in memory, with delays, losses and pieces."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.world.files import Faults
from tests.world.threads import Program, StandIn, threads


def _frame(number: int, payload: bytes, announced: int | None = None) -> bytes:
    return number.to_bytes(4, "big") + (len(payload) if announced is None else announced).to_bytes(4, "big") + payload


def _message(length: int, stream: int, kind: int, body: bytes = b"") -> bytes:
    return length.to_bytes(4, "big") + stream.to_bytes(4, "big") + bytes((kind, 0)) + body


STRAYS = (
    _frame(1, b"\xde\xad\xbe\xef" * 20),  # without sense
    _frame(7, b"who is there"),  # of a connection that nobody opened
    _frame(1, b"", (4 << 20) + 11),  # announces more than there may be
    _frame(1, _message((4 << 20) + 1, 3, 1)),  # a message that does
    _frame(1, _message(4 << 20, 9999, 1)),  # announces as much as there may be: what follows counts as its body
    _frame(1, _message(1_000_000, 99_999, 1, b"\x08" * 1_000_000)),  # a request of a megabyte, of no method
    _frame(2, _message(0, 77, 2)),  # an answer to a call that was never made
)
"""Frames that nobody sent."""


class Network:
    """Who listens where."""

    def __init__(self, faults: Faults) -> None:
        self.faults = faults
        self.listening: dict[str, Callable[[MemorySocket], object]] = {}
        self.ends: list[MemorySocket] = []

    def end(self, program: Program) -> None:
        """Close the sockets of a program, as the kernel does when it ends."""
        for one in [each for each in self.ends if each.program is program]:
            one.shut()

    def reset(self) -> None:
        """Forget what is closed on both sides."""
        self.ends = [one for one in self.ends if not one.is_closed]


class CurrentNetwork:
    """The network of this process's world."""

    network: Network


class MemorySocket:
    """In place of ``socket.socket``."""

    def __init__(self, family: int = socket.AF_UNIX, *_: Any, **__: Any) -> None:
        if family != socket.AF_UNIX:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        self.program = threads().task.program
        self.other: MemorySocket | None = None
        self.is_closed = self.is_connected = False
        self.is_deaf = self.is_silent = False
        """Whether what is sent is thrown away, and whether the other side does not even hear that this one hangs up."""
        self._held = b""
        """What waits for the next message to go first."""
        self._coming: deque[tuple[float, bytes]] = deque()
        CurrentNetwork.network.ends.append(self)

    def settimeout(self, _seconds: float | None) -> None:
        pass

    def setsockopt(self, *_: object) -> None:
        pass

    def connect(self, path: str) -> None:
        threads().step()
        take = CurrentNetwork.network.listening.get(path)
        if take is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        other = MemorySocket()
        self.other, other.other = other, self
        self.is_connected = other.is_connected = True
        take(other)

    def sendall(self, data: bytes) -> None:
        threads().step()
        other, faults = self.other, CurrentNetwork.network.faults
        if not self.is_connected:
            faults = Faults("", {})
        if self.is_closed or other is None or (other.is_closed and not self.is_silent):
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        numbers = faults.numbers("sending")
        if faults.hit("reset"):
            other.arrives(bytes(data[: numbers.randrange(len(data))]), 0.0)
            other.shut()
            self.shut()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        delay = numbers.choice([0.01, 0.3, 1.0, 4.0]) if faults.hit("delay") else 0.0
        if faults.hit("pieces"):
            middle = numbers.randrange(len(data))
            other.arrives(bytes(data[:middle]), delay)
            data, delay = data[middle:], delay + numbers.choice([0.0, 0.02, 0.2])
        other.arrives(self._harmed(bytes(data), other, faults), delay)

    def _harmed(self, data: bytes, other: MemorySocket, faults: Faults) -> bytes:
        """Return what comes of a message on a connection on which anything can come."""
        if faults.hit("silent"):
            self.is_silent = other.is_silent = True
        if faults.hit("deaf"):
            self.is_deaf = True
        if self.is_silent or self.is_deaf or faults.hit("lost"):
            return b""
        data, self._held = data + self._held, b""
        if faults.hit("swapped"):
            data, self._held = b"", data
        if faults.hit("garbled"):
            data = data[:8] + bytes((7 * place + 131) % 256 for place in range(len(data) - 8))
        if faults.hit("stray"):
            data = faults.numbers("strays").choice(STRAYS) + data
        if faults.hit("half closed"):
            self.is_deaf = other.is_half_closed = True
        return data * 2 if faults.hit("twice") else data

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def arrives(self, data: bytes, delay: float) -> None:
        when = threads().now + delay
        if self._coming:
            when = max(when, self._coming[-1][0])
        if data:
            self._coming.append((when, data))

    is_half_closed = False
    """Whether the other side sends no more."""

    def is_readable(self) -> bool:
        if self._coming:
            return self._coming[0][0] <= threads().now
        has_hung_up = self.other is None or (self.other.is_closed and not self.is_silent)
        return self.is_closed or has_hung_up or self.is_half_closed

    def recv(self, count: int) -> bytes:
        world = threads()
        world.step()
        while not self.is_readable():
            if self._coming:
                world.sleep(self._coming[0][0] - world.now)
            else:
                world.wait(lambda: bool(self._coming) or self.is_readable())
        if self.is_closed or not self._coming:
            return b""
        when, data = self._coming.popleft()
        if len(data) > count:
            self._coming.appendleft((when, data[count:]))
        return data[:count]

    def shutdown(self, _how: int) -> None:
        self.shut()

    def close(self) -> None:
        self.shut()

    def shut(self) -> None:
        self.is_closed = True


def _pair() -> tuple[MemorySocket, MemorySocket]:
    one, other = MemorySocket(), MemorySocket()
    one.other, other.other = other, one
    return one, other


SOCKET = StandIn(socket, socket=MemorySocket, socketpair=_pair, gethostname=lambda: "edge-7")
