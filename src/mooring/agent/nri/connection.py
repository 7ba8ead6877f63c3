"""One socket that carries several connections, and the two layers of framing on it: frames and ttRPC's messages.

A frame is a connection id and a length, four bytes each, then the payload. A connection is a stream of bytes, which
frames cut anywhere. On it travel messages: length and stream id of four bytes each, one byte each of type and flags,
then the body. All numbers are big-endian.

A thread of its own reads and hands every piece to the opener of the connection; writing is done by the thread that has
something to say. Both sides of NRI use it: a runtime differs from a plugin only in the direction of the calls.

Source: containerd/nri pkg/net/multiplex; containerd/ttrpc PROTOCOL.md and channel.go.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from enum import IntEnum
from typing import Generic, NamedTuple, TypeVar

from mooring.agent.nri.types import ConnectionLostError, NRIError, OversizedError, ProtocolError

FRAME_LIMIT = 4096
"""Largest payload of a frame that a runtime takes: it reads each frame through a buffer of this size."""

BODY_LIMIT = 4 << 20
"""Largest body of a message in bytes (ttRPC)."""

QUEUE_LIMIT = 256
"""Frames that a runtime queues for a connection; one more while it is busy and it hangs up."""

SEND_LIMIT = FRAME_LIMIT * QUEUE_LIMIT
"""Largest message that is sent, header included, in bytes: what the runtime's queue surely takes. Far beyond any reply:
an update of one container takes about 150 bytes."""

_FRAME_HEADER = struct.Struct(">II")
_MESSAGE_HEADER = struct.Struct(">IIBB")
RECEIVED_FRAME_LIMIT = BODY_LIMIT + _MESSAGE_HEADER.size
"""Largest payload of a frame that a runtime sends: a whole message."""


_Part = TypeVar("_Part")


class MessageType(IntEnum):
    """Kinds of messages; ``DATA`` belongs to streaming calls, which NRI does not have."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


class Frame(NamedTuple):
    """A piece of a connection's stream of bytes."""

    connection: int
    payload: bytes


class TTRPCMessage(NamedTuple):
    """A ttRPC message; ``type`` may be a number that is not in :class:`MessageType`."""

    stream: int
    type: int
    body: bytes
    flags: int = 0


def encode_frames(connection: int, data: bytes) -> bytes:
    """Return data as frames of at most :data:`FRAME_LIMIT` bytes each, one after another.

    >>> encode_frames(1, b"abc").hex(" ")
    '00 00 00 01 00 00 00 03 61 62 63'
    """
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    for start in range(0, len(data), FRAME_LIMIT):
        piece = view[start : start + FRAME_LIMIT]
        parts += [_FRAME_HEADER.pack(connection, len(piece)), piece]
    return b"".join(parts)


def encode_message(message: TTRPCMessage) -> bytes:
    """Return a message with its header.

    Raises:
        OversizedError: when the message is beyond :data:`SEND_LIMIT`.
    """
    size = _MESSAGE_HEADER.size + len(message.body)
    if size > SEND_LIMIT:
        raise OversizedError(f"a message of {size} bytes is beyond the limit of {SEND_LIMIT} bytes")
    return _MESSAGE_HEADER.pack(len(message.body), message.stream, message.type, message.flags) + message.body


class PartReader(Generic[_Part]):
    """Finds frames, or messages, in bytes that come in pieces of any size."""

    def __init__(
        self, what: str, header: struct.Struct, length_at: int, limit: int, made: Callable[..., _Part]
    ) -> None:
        """Begin before the first one.

        Args:
            what: is found, in words.
            header: before each.
            length_at: which of the header's fields tells how many bytes follow.
            limit: of these.
            made: makes one of the header's fields and of what follows.
        """
        self._what, self._header, self._length_at, self._limit, self._made = what, header, length_at, limit, made
        self._rest = bytearray()

    @property
    def in_the_middle(self) -> bool:
        """Whether a part of one has come and the rest has not."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[_Part]:
        """Return what is complete now.

        Raises:
            ProtocolError: when more than the limit is announced.
        """
        self._rest += data
        found: list[_Part] = []
        start = 0
        while len(self._rest) - start >= self._header.size:
            fields = self._header.unpack_from(self._rest, start)
            length, begin = fields[self._length_at], start + self._header.size
            if length > self._limit:
                raise ProtocolError(f"{self._what} announces {length} bytes, the limit is {self._limit}")
            if begin + length > len(self._rest):
                break
            start = begin + length
            found.append(self._made(*fields, bytes(self._rest[begin:start])))
        del self._rest[:start]
        return found


def frame_reader(limit: int = RECEIVED_FRAME_LIMIT) -> PartReader[Frame]:
    """Return what finds frames."""
    return PartReader("a frame", _FRAME_HEADER, 1, limit, lambda number, _, body: Frame(number, body))


def message_reader() -> PartReader[TTRPCMessage]:
    """Return what finds messages in the stream of one connection."""
    return PartReader(
        "a message",
        _MESSAGE_HEADER,
        0,
        BODY_LIMIT,
        lambda _, stream, kind, flags, body: TTRPCMessage(stream, kind, body, flags),
    )


PLUGIN_CONNECTION = 1
"""Where the plugin answers and the runtime calls."""

RUNTIME_CONNECTION = 2
"""Where the runtime answers and the plugin calls."""

_READ_SIZE = 1 << 16
SEND_TIMEOUT_SECONDS = 5.0
"""How long the other side may not read before it is given up."""


class Connection:
    """A multiplexed socket; it owns the socket and closes it."""

    def __init__(self, trunk: socket.socket, *, send_timeout: float = SEND_TIMEOUT_SECONDS) -> None:
        self._trunk = trunk
        # A runtime that has stopped reading must not block a writer for ever. Reading has no limit: silence is normal.
        seconds, rest = divmod(send_timeout, 1.0)
        trunk.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(rest * 1e6)))
        self._write_lock = threading.Lock()
        self._close_lock = threading.Lock()
        self._receivers: dict[int, Callable[[bytes], None]] = {}
        self._closers: list[Callable[[ConnectionLostError], None]] = []
        self._lost: ConnectionLostError | None = None
        self._reader = threading.Thread(target=self._read, name="nri-reader", daemon=True)

    @property
    def lost(self) -> ConnectionLostError | None:
        """Why the connection is closed, or None while it is open."""
        return self._lost

    def open(self, connection: int, receive: Callable[[bytes], None]) -> None:
        """Hand the bytes of a connection to ``receive``, in the reader's thread. Only before :meth:`start`."""
        self._receivers[connection] = receive

    def when_closed(self, call: Callable[[ConnectionLostError], None]) -> None:
        """Call something once when the connection is lost, from any thread. Only before :meth:`start`."""
        self._closers.append(call)

    def start(self) -> None:
        """Begin to read."""
        self._reader.start()

    def send(self, connection: int, data: bytes) -> None:
        """Write data on a connection, whole and in one piece as far as other writers go.

        Raises:
            ConnectionLostError: when the connection is closed or breaks on the way.
        """
        frames = encode_frames(connection, data)
        try:
            with self._write_lock:
                if self._lost is not None:
                    raise self._lost
                self._trunk.sendall(frames)
        except OSError as error:
            # Part of a frame may be out: nothing that follows could be understood.
            broken = ConnectionLostError(f"cannot write: {error.strerror or error}")
            self.close(broken)
            raise broken from error

    def close(self, why: ConnectionLostError | None = None) -> None:
        """Close the connection; the first reason counts. Waits for the reader unless called by it."""
        self._shut(why or ConnectionLostError("closed by this side"))
        if self._reader.ident is None:
            self._trunk.close()
        elif threading.current_thread() is not self._reader:
            self._reader.join()

    def _shut(self, why: ConnectionLostError) -> None:
        with self._close_lock:
            if self._lost is not None:
                return
            self._lost = why
        with contextlib.suppress(OSError):
            self._trunk.shutdown(socket.SHUT_RDWR)
        for call in self._closers:
            call(why)

    def _read(self) -> None:
        frames = frame_reader()
        try:
            while self._lost is None:
                data = self._trunk.recv(_READ_SIZE)
                if not data:
                    where = " in the middle of a frame" if frames.in_the_middle else ""
                    raise ConnectionLostError(f"the other side has closed the connection{where}")
                for frame in frames.feed(data):
                    receive = self._receivers.get(frame.connection)
                    if receive is None:
                        raise ProtocolError(f"a frame of connection {frame.connection}, which was never opened")
                    receive(frame.payload)
        except NRIError as error:
            self._shut(error if isinstance(error, ConnectionLostError) else ProtocolError(str(error)))
        except OSError as error:
            self._shut(ConnectionLostError(f"cannot read: {error.strerror or error}"))
        finally:
            # Whatever ended the reading, no thread may continue to wait for input.
            self._shut(ConnectionLostError("reading has stopped"))
            with self._write_lock:
                self._trunk.close()
