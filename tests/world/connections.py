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
        if self.is_closed or other is None or other.is_closed:
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
        other.arrives(bytes(data), delay)

    def send(self, data: bytes) -> int:
        self.sendall(data)
        return len(data)

    def arrives(self, data: bytes, delay: float) -> None:
        when = threads().now + delay
        if self._coming:
            when = max(when, self._coming[-1][0])
        if data:
            self._coming.append((when, data))

    def is_readable(self) -> bool:
        if self._coming:
            return self._coming[0][0] <= threads().now
        return self.is_closed or self.other is None or self.other.is_closed

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
