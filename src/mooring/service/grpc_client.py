"""Unary questions of gRPC over a Unix socket, on h2: one connection, one question at a time.

gRPC's own library takes 14 MB for this, a fifth of a publisher or a shadow.

Source: gRPC over HTTP2 (grpc/grpc, doc/PROTOCOL-HTTP2.md): requests, responses and Trailers-Only.
"""

from __future__ import annotations

import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final
from urllib.parse import unquote

from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset, TrailersReceived
from h2.exceptions import ProtocolError

from mooring.engine.core.errors import MooringError

_PREFIX: Final = struct.Struct(">BI")
"""Before a message: whether it is compressed, and its length."""
_HEADERS: Final = (
    (":method", "POST"),
    (":scheme", "http"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
_READ: Final = 65536
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
        """Return the message.

        Raises:
            CallError: the answer is an error, or no single message.
        """
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
            received = there.recv(_READ)
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
