"""Unary calls over one connection: a client that calls and a server that is called.

Whatever breaks the protocol ends the connection: bytes that are out of step once never fall into step again. What is
merely unwelcome, such as an unknown method, is answered with a status.

Source: containerd/ttrpc PROTOCOL.md, client.go and server.go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from google.protobuf.message import DecodeError

from mooring.agent.nri.connection import Connection, MessageType, TTRPCMessage, encode_message, message_reader
from mooring.agent.nri.types import CallTimeoutError, ConnectionLostError, ProtocolError, RemoteError
from mooring.service.messages import Int32, Int64, Repeated, TypedMessage, at


class TTRPCKeyValueMessage(TypedMessage, package="ttrpc"):
    """A header of a call (request.proto of containerd/ttrpc v1.2.7, as those below)."""

    key: str = at(1)
    value: str = at(2)


class TTRPCRequestMessage(TypedMessage, package="ttrpc"):
    """The body of a request."""

    service: str = at(1)
    method: str = at(2)
    payload: bytes = at(3)
    timeout_nano: Int64 = at(4)
    metadata: Repeated[TTRPCKeyValueMessage] = at(5)


class TTRPCStatusMessage(TypedMessage, package="ttrpc"):
    """google.rpc.Status."""

    code: Int32 = at(1)
    message: str = at(2)


class TTRPCResponseMessage(TypedMessage, package="ttrpc"):
    """The body of a response."""

    status: TTRPCStatusMessage = at(1)
    payload: bytes = at(2)


class Status(IntEnum):
    """The gRPC status codes that matter here."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


@dataclass(frozen=True, slots=True)
class Request:
    """A call that has come in."""

    stream: int
    service: str
    method: str
    payload: bytes
    timeout: float | None = None
    """Seconds that the caller waits, or None when it did not say."""


class TTRPCServer:
    """Takes calls on one connection; each is answered once, by any thread, in any order."""

    def __init__(self, connection: Connection, number: int, take: Callable[[Request], None]) -> None:
        """Open the connection for calls.

        Args:
            connection: not yet started.
            number: which of the multiplexed connections.
            take: gets every call, in the reader's thread: it must be quick.
        """
        self._connection = connection
        self._number = number
        self._take = take
        self._messages = message_reader()
        self._last_stream = 0
        connection.open(number, self._receive)

    def answer(self, request: Request, payload: bytes) -> None:
        """Answer a call.

        Raises:
            ConnectionLostError: when the caller is gone.
            OversizedError: when the answer is too large; nothing was sent.
        """
        self._send(request, TTRPCResponseMessage(payload=payload, status=TTRPCStatusMessage()).SerializeToString())

    def refuse(self, request: Request, code: Status, text: str) -> None:
        """Answer a call with an error.

        Raises:
            ConnectionLostError: when the caller is gone.
        """
        status = TTRPCStatusMessage(code=int(code), message=text)
        self._send(request, TTRPCResponseMessage(status=status).SerializeToString())

    def _send(self, request: Request, body: bytes) -> None:
        data = encode_message(TTRPCMessage(request.stream, MessageType.RESPONSE, body))
        self._connection.send(self._number, data)

    def _receive(self, data: bytes) -> None:
        for message in self._messages.feed(data):
            if message.type != MessageType.REQUEST:
                raise ProtocolError(f"a message of type {message.type} where a request was expected")
            # A client counts its streams upwards with odd numbers, so a repeated or belated request shows.
            if message.stream % 2 != 1 or message.stream <= self._last_stream:
                raise ProtocolError(f"a request on stream {message.stream} after one on stream {self._last_stream}")
            self._last_stream = message.stream
            try:
                request = TTRPCRequestMessage.FromString(message.body)
            except DecodeError as error:
                raise ProtocolError(f"the request on stream {message.stream} is not protobuf") from error
            timeout = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
            self._take(Request(message.stream, request.service, request.method, request.payload, timeout))


@dataclass(slots=True)
class PendingCall:
    """A call whose answer has not come yet."""

    done: threading.Event = field(default_factory=threading.Event)
    body: bytes | None = None


class TTRPCClient:
    """Makes calls on one connection, from any thread."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self._messages = message_reader()
        self._lock = threading.Lock()
        self._last_stream = -1
        self._waiting: dict[int, PendingCall] = {}
        connection.open(number, self._receive)
        connection.when_closed(self._give_up)

    def call(self, service: str, method: str, payload: bytes, timeout: float) -> bytes:
        """Call a method and return the payload of its answer.

        Args:
            service: full name of the service.
            method: short name of the method.
            payload: the serialised request.
            timeout: seconds to wait.

        Raises:
            RemoteError: when the answer is an error.
            CallTimeoutError: when there is no answer in time.
            ConnectionLostError: when the connection is closed before the answer.
        """
        request = TTRPCRequestMessage(service=service, method=method, payload=payload, timeout_nano=int(timeout * 1e9))
        call = PendingCall()
        with self._lock:
            # Streams must reach the other side in order, so the number is drawn under the same lock.
            self._last_stream += 2
            stream = self._last_stream
            self._waiting[stream] = call
            body = request.SerializeToString()
            try:
                self._connection.send(self._number, encode_message(TTRPCMessage(stream, MessageType.REQUEST, body)))
            except Exception:
                del self._waiting[stream]
                raise
        in_time = call.done.wait(timeout)
        with self._lock:
            self._waiting.pop(stream, None)
        if call.body is not None:
            try:
                response = TTRPCResponseMessage.FromString(call.body)
            except DecodeError as error:
                raise RemoteError(Status.INTERNAL, "the response is not protobuf") from error
            if response.status.code != Status.OK:
                raise RemoteError(response.status.code, response.status.message)
            return response.payload
        if in_time:
            raise self._connection.lost or ConnectionLostError("closed by this side")
        raise CallTimeoutError(f"no answer to {method} within {timeout:g} s")

    def _receive(self, data: bytes) -> None:
        for message in self._messages.feed(data):
            if message.type != MessageType.RESPONSE:
                raise ProtocolError(f"a message of type {message.type} where a response was expected")
            with self._lock:
                if message.stream % 2 != 1 or message.stream > self._last_stream:
                    raise ProtocolError(f"a response on stream {message.stream}, on which nothing was requested")
                call = self._waiting.pop(message.stream, None)
            if call is not None:
                call.body = message.body
                call.done.set()

    def _give_up(self, _: ConnectionLostError) -> None:
        # Without the lock: a caller may hold it while its own writing breaks the connection.
        for call in list(self._waiting.values()):
            call.done.set()
