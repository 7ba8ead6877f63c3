"""A gRPC service on a Unix socket, whose name appears when it can be asked and goes with it.

gRPC takes 13 MB of memory and three threads that wake up several times a second. Most agents are never asked, so it is
imported when the first client connects. Then gRPC's own socket replaces the one that was there, and what the first
clients send is relayed to it.

A peer that may connect may also send bytes that are no message. That is one line in the log and an error for the peer:
neither a traceback nor an event of the daemon.
"""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

from mooring.engine.core.errors import InputError
from mooring.lazy import lazily
from mooring.service import daemon
from mooring.service.logs import Log

with lazily():
    from concurrent import futures

    import grpc
    from google.protobuf import message as protobuf

if TYPE_CHECKING:
    from google.protobuf.message import Message

Code: TypeAlias = Literal["INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "UNAVAILABLE", "UNKNOWN"]
"""Status codes of gRPC."""


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
        try:
            end = serve(self._path, self._service, self._methods, self._log)
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


def serve(
    path: str, service: str, methods: Methods, log: Log, *, threads: int = 2, waiting: int = 16, grace: float = 1.0
) -> Callable[[], object]:
    """Serve on a socket that replaces what has the name now; return what ends that.

    Args:
        path: of the socket.
        service: full name of the service.
        methods: by name.
        log: of the daemon.
        threads: that answer.
        waiting: requests at once; more are refused with RESOURCE_EXHAUSTED.
        grace: seconds for requests under way when the service is closed.

    Raises:
        OSError: the socket cannot be made.
        RuntimeError: as above.
    """
    place = Path(path)
    first = daemon.beside(place)
    workers = futures.ThreadPoolExecutor(threads, service)
    server = grpc.server(workers, maximum_concurrent_rpcs=waiting)
    for key, method in methods.items():
        own, _, name = key.rpartition("/")
        handlers = {name: _handler(f"{own or service}/{name}", method, log)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(own or service, handlers),))
    try:
        server.add_insecure_port(f"unix:{first}")
        server.start()
        daemon.put_in_place(first, place)
    except (OSError, RuntimeError):
        server.stop(None)
        daemon.remove(str(first))
        raise
    return lambda: server.stop(grace).wait()


def serve_at_once(
    path: str, service: str, methods: Methods, log: Log, remedy: str, *, threads: int, waiting: int, grace: float
) -> Callable[[], object]:
    """Serve on a new socket, for a client that treats the appearance of its name as the start of the service.

    Args:
        path: of the socket.
        service: full name of the service.
        methods: by name.
        log: of the daemon.
        remedy: for a socket that cannot be made.
        threads: as in :func:`serve`.
        waiting: as in :func:`serve`.
        grace: as in :func:`serve`.

    Returns:
        What ends it and removes the name.

    Raises:
        InputError: there can be no such socket.
    """
    daemon.socket_path(path)
    try:
        end = serve(path, service, methods, log, threads=threads, waiting=waiting, grace=grace)
    except (OSError, RuntimeError) as error:
        raise InputError(f"no socket can be created there: {error}", source=path, remedy=remedy) from None

    def close() -> None:
        daemon.remove(path)
        end()

    return close


def _handler(name: str, method: Method[_Request], log: Log) -> grpc.RpcMethodHandler[Message, Message]:
    def read(data: bytes) -> Any:
        # An exception here would be logged by gRPC itself, with a traceback; a text says what is wrong with the bytes.
        try:
            return method.request.FromString(data)
        except protobuf.DecodeError as error:
            return f"{len(data)} bytes are no {method.request.DESCRIPTOR.name}: {error}"

    def called(asked: _Request | str, context: grpc.ServicerContext) -> Message | Iterator[Message]:
        if isinstance(asked, str):
            log.warning("a malformed gRPC request was refused", method=name, problem=asked)
            _abort(context, "INVALID_ARGUMENT", asked)
        try:
            return method.answer(asked)
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        except Exception as error:
            log.exception("internal error; the gRPC request was refused", method=name)
            code, text = "INTERNAL", f"internal error: {type(error).__name__}"
        _abort(context, code, text)

    def written(answer: Message) -> bytes:
        return answer.SerializeToString()

    kind = grpc.unary_stream_rpc_method_handler if method.is_stream else grpc.unary_unary_rpc_method_handler
    return kind(called, request_deserializer=read, response_serializer=written)


def _abort(context: grpc.ServicerContext, code: Code, text: str) -> NoReturn:
    context.abort(grpc.StatusCode[code], text)
    raise AssertionError("abort does not return")
