"""gRPC of a world: a call is a thread of the program that serves it, and may be lost, late, or made twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.world.connections import CurrentNetwork
from tests.world.threads import threads

from mooring.service.grpc_client import CallError, CallStatus

RATES = {
    "call refused": (0.02, 0.1),
    "call lost": (0.01, 0.05),
    "call late": (0.05, 0.2),
    "call twice": (0.05, 0.2),
    "reply lost": (0.02, 0.1),
    "reply late": (0.02, 0.1),
}
"""By kind of fault: what share of the calls may have it."""


class Server:
    """In place of ``GRPCSocket`` and ``serve_at_once``."""

    listening: dict[str, Server] = {}  # noqa: RUF012 - of this process's world
    """By path."""

    def __init__(self, path: str, _service: str, methods: Any, *_: object) -> None:
        self.path, self._methods, self._program = path, methods, threads().task.program
        self._is_closed = False
        self.listening[path] = self

    @property
    def is_over(self) -> bool:
        return self._is_closed or self._program.is_dead

    def close(self) -> None:
        self._is_closed = True

    def answer(self, name: str, data: bytes) -> list[bytes]:
        """Begin to answer; what is returned has the answer some time."""
        found: list[bytes] = []
        method = self._methods[name]

        def work() -> None:
            found.append(method.answer(method.request.FromString(data)).SerializeToString())

        threads().spawn(self._program, f"call {threads().switches}", work)
        return found


def served(*given: Any, **_: object) -> Callable[[], object]:
    return Server(*given).close


class Client:
    """In place of ``UnaryClient``."""

    def __init__(self, path: str, *_: object) -> None:
        self._path = path

    def close(self) -> None:
        pass

    def ask(self, method: str, data: bytes, seconds: float) -> bytes:
        world, faults = threads(), CurrentNetwork.network.faults
        world.step()
        server, numbers, end = Server.listening.get(self._path), faults.numbers("calling"), world.now + seconds
        if server is None or server.is_over or faults.hit("call refused"):
            raise CallError(CallStatus.UNAVAILABLE, "connection refused")
        if faults.hit("call lost"):
            world.sleep(seconds)
            raise CallError(CallStatus.UNAVAILABLE, "timed out")
        if faults.hit("call late"):
            world.sleep(numbers.choice([0.02, 0.5, 3.0]))
        if server.is_over:
            raise CallError(CallStatus.UNAVAILABLE, "connection reset by peer")
        name = method.rpartition("/")[2]
        found = both = server.answer(name, data)
        if faults.hit("call twice"):
            # As of one that starts again meanwhile; nobody goes on before both are answered.
            both = server.answer(name, data)
        world.wait(lambda: bool(found and both) or server.is_over, end - world.now)
        if faults.hit("reply late"):
            world.sleep(numbers.choice([0.02, 0.5, 3.0]))
        if not found or faults.hit("reply lost"):
            raise CallError(CallStatus.UNAVAILABLE, "no answer")
        return found[0]
