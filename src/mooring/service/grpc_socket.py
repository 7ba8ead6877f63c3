"""A gRPC service on a Unix socket, whose name appears when it can be asked and goes with it.

gRPC takes 13 MB of memory and three threads that wake up several times a second. Most agents are never asked, so it is
imported when the first client connects. Then gRPC's own socket replaces the one that was there, and what the first
clients send is relayed to it.

A peer that may connect may also send bytes that are no message. That is one line in the log and an error for the peer:
neither a traceback nor an event of the daemon.

Unary questions are asked on h2: one connection, one question at a time. gRPC's own library takes 14 MB for this, a
fifth of a publisher or a shadow. Source: gRPC over HTTP2 (grpc/grpc, doc/PROTOCOL-HTTP2.md): requests, responses and
Trailers-Only.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias, TypeVar
from urllib.parse import unquote

from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from mooring.engine.core.errors import InputError, MooringError
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


def serve(path: str, service: str, methods: Methods, log: Log, limits: CallLimits) -> Callable[[], object]:
    """Serve on a socket that replaces what has the name now; return what ends that.

    Raises:
        OSError: the socket cannot be made.
        RuntimeError: as above.
    """
    place = Path(path)
    first = daemon.beside(place)
    workers = futures.ThreadPoolExecutor(limits.threads, service)
    server = grpc.server(workers, maximum_concurrent_rpcs=limits.waiting)
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
    return lambda: server.stop(limits.grace).wait()


def serve_at_once(
    path: str, service: str, methods: Methods, log: Log, limits: CallLimits, remedy: str
) -> Callable[[], object]:
    """Serve on a new socket, for a client that treats the appearance of its name as the start of the service.

    Args:
        path: of the socket.
        service: full name of the service.
        methods: by name.
        log: of the daemon.
        limits: of requests at once.
        remedy: for a socket that cannot be made.

    Returns:
        What ends it and removes the name.

    Raises:
        InputError: there can be no such socket.
    """
    daemon.socket_path(path)
    try:
        end = serve(path, service, methods, log, limits)
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
        try:
            if not isinstance(asked, str):
                return method.answer(asked)
            log.warning("a malformed gRPC request was refused", method=name, problem=asked)
            code, text = "INVALID_ARGUMENT", asked
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        except Exception as error:
            log.exception("internal error; the gRPC request was refused", method=name)
            code, text = "INTERNAL", f"internal error: {type(error).__name__}"
        context.abort(grpc.StatusCode[code], text)
        raise AssertionError("abort does not return")

    kind = grpc.unary_stream_rpc_method_handler if method.is_stream else grpc.unary_unary_rpc_method_handler
    return kind(called, request_deserializer=read, response_serializer=lambda answer: answer.SerializeToString())


_PREFIX: Final = struct.Struct(">BI")
"""Before a message: whether it is compressed, and its length."""
_HEADERS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
_DIGITS: Final = 3
"""Of a status code at most."""


class CallStatus(IntEnum):
    """Codes of answers; others stay numbers."""

    UNKNOWN = 2
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    RESOURCE_EXHAUSTED = 8
    UNAVAILABLE = 14


class CallError(MooringError):
    """There is no answer, or it is an error.

    Attributes:
        status: code of the answer; :attr:`CallStatus.UNAVAILABLE` where there is none.
    """

    def __init__(self, status: int, problem: str) -> None:
        self.status = status
        super().__init__(problem)


@dataclass(slots=True)
class _Answer:
    headers: dict[bytes, bytes] = field(default_factory=dict)
    """Trailers included."""
    body: bytearray = field(default_factory=bytearray)
    is_whole: bool = False

    def message(self) -> bytes:
        """Return the message; raise :class:`CallError` where there is no single one."""
        status = self.headers.get(b"grpc-status", b"")
        if status != b"0":
            text = unquote(self.headers.get(b"grpc-message", b"").decode("ascii", "replace"))
            is_code = status.isdigit() and len(status) <= _DIGITS
            raise CallError(int(status) if is_code else CallStatus.UNAVAILABLE, text or "the answer has no status")
        if len(self.body) < _PREFIX.size or _PREFIX.unpack_from(self.body) != (0, len(self.body) - _PREFIX.size):
            raise CallError(CallStatus.UNAVAILABLE, "the answer is no single message")
        return bytes(self.body[_PREFIX.size :])


@dataclass(slots=True)
class UnaryClient:
    """Asks the services of one socket; used by one thread."""

    path: str
    """Of the socket."""
    largest: int
    """Bytes of an answer."""
    _socket: socket.socket | None = field(default=None, init=False)
    _http: H2Connection = field(default_factory=H2Connection, init=False)

    def ask(self, method: str, request: bytes, timeout: float) -> bytes:
        """Return the answer as it came.

        Args:
            method: ``package.Service/Method``; on a connection that served before, it can be asked twice.
            request: message.
            timeout: seconds for the answer.

        Raises:
            CallError: there is none, or it is an error.
        """
        end = time.monotonic() + timeout
        is_older = self._socket is not None
        try:
            try:
                return self._asked(method, request, end)
            except (ConnectionError, ProtocolError):
                self.close()
                if not is_older:
                    raise
                # What served the connection may have ended since the last question.
                return self._asked(method, request, end)
        except TimeoutError:
            self.close()
            raise CallError(CallStatus.DEADLINE_EXCEEDED, "no answer in time") from None
        except (OSError, ProtocolError) as error:
            self.close()
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise CallError(CallStatus.UNAVAILABLE, reason.lower() or type(error).__name__) from None

    def close(self) -> None:
        """Close the connection; the next question opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _asked(self, method: str, request: bytes, end: float) -> bytes:
        if self._socket is None:
            made = socket.socket(socket.AF_UNIX)
            try:
                made.settimeout(max(end - time.monotonic(), 0.001))
                made.connect(self.path)
            except OSError:
                made.close()
                raise
            self._socket, self._http = made, H2Connection()
            self._http.initiate_connection()
        there = self._socket
        stream = self._http.get_next_available_stream_id()
        seconds = ("grpc-timeout", f"{max(int((end - time.monotonic()) * 1000), 1)}m")
        self._http.send_headers(stream, [(":path", f"/{method}"), *_HEADERS, seconds])
        body, frame = _PREFIX.pack(0, len(request)) + request, self._http.max_outbound_frame_size
        for begin in range(0, len(body), frame):
            self._http.send_data(stream, body[begin : begin + frame])
        self._http.end_stream(stream)
        answer = _Answer()
        while not answer.is_whole:
            self._send(there, end)
            received = there.recv(_PIECE)
            if not received:
                raise ConnectionResetError("the connection was closed")
            self._take(received, stream, answer)
        self._send(there, end)
        return answer.message()

    def _send(self, there: socket.socket, end: float) -> None:
        there.settimeout(max(end - time.monotonic(), 0.001))
        # A peer that receives nothing any more can have answered before.
        with suppress(ConnectionError):
            there.sendall(self._http.data_to_send())

    def _take(self, received: bytes, stream: int, answer: _Answer) -> None:
        for event in self._http.receive_data(received):
            match event:
                case ConnectionTerminated():
                    raise ConnectionResetError("the connection was ended")
                case StreamReset(stream_id=number) if number == stream:
                    raise CallError(CallStatus.UNAVAILABLE, f"the answer was cut (HTTP/2 error {event.error_code})")
                case ResponseReceived(stream_id=number) | TrailersReceived(stream_id=number) if number == stream:
                    answer.headers.update(event.headers)
                case DataReceived(stream_id=number) if number == stream:
                    answer.body += event.data
                    self._http.acknowledge_received_data(event.flow_controlled_length, stream)
                    if len(answer.body) > self.largest + _PREFIX.size:
                        # What is still on its way would use up the connection's window.
                        self.close()
                        raise CallError(CallStatus.RESOURCE_EXHAUSTED, f"the answer has more than {self.largest} bytes")
                case StreamEnded(stream_id=number) if number == stream:
                    answer.is_whole = True
