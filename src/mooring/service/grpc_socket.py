"""A gRPC service on a Unix socket, whose name appears when it can be asked and goes with it.

gRPC takes 13 MB of memory and three threads that wake up several times a second. Most agents are never asked, so it is
imported when the first client connects. Then gRPC's own socket replaces the one that was there, and what the first
clients send is relayed to it.

Methods of a gRPC service, its errors and its limits, for the socket and for gRPC's own part behind it.

Apart from both, because a socket imports gRPC when the first client connects.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

from mooring.engine.core.errors import InputError
from mooring.service import daemon
from mooring.service.logs import Log

if TYPE_CHECKING:
    from google.protobuf.message import Message

Code: TypeAlias = Literal["INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "UNKNOWN"]
"""Status codes of gRPC."""


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How much a service does at once."""

    threads: int = 2
    waiting: int = 16
    """Requests at once; more are refused with RESOURCE_EXHAUSTED."""
    grace: float = 1.0
    """Seconds for requests under way when the service is closed."""


_Request = TypeVar("_Request", bound="Message")


@dataclass(frozen=True, slots=True)
class Method(Generic[_Request]):
    """A method: the class of its requests, and what answers one, or answers it again and again."""

    request: type[_Request]
    answer: Callable[[_Request], Message | Iterator[Message]]
    is_stream: bool = False


Methods: TypeAlias = Mapping[str, Method[Any]]
"""Methods of a service by their names, those of another service as SERVICE/NAME; each has requests of its own."""


class CallRefusedError(Exception):
    """The answer to a call is an error of gRPC.

    Attributes:
        code: of gRPC.
        text: for the caller.
    """

    def __init__(self, code: Code, text: str) -> None:
        self.code: Code = code
        self.text = text
        super().__init__(text)


_PIECE = 64 * 1024
_PATIENCE = 5.0
"""Seconds for a thread that ends."""


class GRPCSocket:
    """Serves until it is closed."""

    def __init__(self, path: str, service: str, methods: Methods, log: Log) -> None:
        """Begin to serve.

        Args:
            path: of the socket.
            service: full name of the service.
            methods: by name.
            log: of the daemon.

        Raises:
            InputError: there can be no such socket.
        """
        self._path, self._service, self._methods, self._log = path, service, methods, log
        self._serving = ExitStack()
        self._listener = daemon.listening(path)
        self._closing, self._close = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="grpc-socket", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving and remove the socket's name."""
        with suppress(OSError):
            self._close.send(b"x")
        self._thread.join(_PATIENCE)
        daemon.remove(self._path)
        self._serving.close()
        for one in (self._listener, self._closing, self._close):
            one.close()

    def _run(self) -> None:
        ready, _, _ = select.select([self._listener, self._closing], [], [])
        if self._closing in ready:
            return
        from mooring.service.grpc_server import serve  # noqa: PLC0415 - late, as the module says

        try:
            end = serve(self._path, self._service, self._methods, self._log, CallLimits())
        except (InputError, OSError, RuntimeError) as error:
            self._log.error("a gRPC service cannot be served", service=self._service, problem=str(error))
            self._listener.close()
            return
        self._serving.callback(end)
        # Connections that were made before the name was replaced; there will be no others.
        self._listener.setblocking(False)
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=_relay, args=(client, self._path), name="grpc-relay", daemon=True).start()


def _relay(client: socket.socket, path: str) -> None:
    """Pass on what a client and the server behind a path send each other, until one of them ends."""
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server, suppress(OSError):
        client.setblocking(True)
        server.connect(path)
        other = {client: server, server: client}
        while True:
            for one in select.select([client, server], [], [])[0]:
                data = one.recv(_PIECE)
                if not data:
                    return
                other[one].sendall(data)
