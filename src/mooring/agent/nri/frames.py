"""The two layers of framing as pure functions over bytes: the multiplexer's frames and ttRPC's messages.

A frame is a connection id and a length, four bytes each, then the payload. A connection is a stream of bytes, which
frames cut anywhere. On it travel messages: length and stream id of four bytes each, one byte each of type and flags,
then the body. All numbers are big-endian.

Source: containerd/nri pkg/net/multiplex; containerd/ttrpc PROTOCOL.md and channel.go.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from mooring.agent.nri.types import OversizedError, ProtocolError

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


class MessageType(IntEnum):
    """Kinds of messages; ``DATA`` belongs to streaming calls, which NRI does not have."""

    REQUEST = 1
    RESPONSE = 2
    DATA = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """A piece of a connection's stream of bytes."""

    connection: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class TTRPCMessage:
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


class FrameReader:
    """Finds frames in bytes that come in pieces of any size."""

    def __init__(self, limit: int = RECEIVED_FRAME_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    @property
    def in_the_middle(self) -> bool:
        """Whether part of a frame has come and the rest has not."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that are complete now.

        Raises:
            ProtocolError: when a frame announces more than the limit.
        """
        self._rest += data
        found: list[Frame] = []
        start = 0
        while len(self._rest) - start >= _FRAME_HEADER.size:
            connection, length = _FRAME_HEADER.unpack_from(self._rest, start)
            if length > self._limit:
                raise ProtocolError(f"a frame announces {length} bytes, the limit is {self._limit}")
            end = start + _FRAME_HEADER.size + length
            if end > len(self._rest):
                break
            found.append(Frame(connection, bytes(self._rest[start + _FRAME_HEADER.size : end])))
            start = end
        del self._rest[:start]
        return found


class MessageReader:
    """Finds messages in the stream of one connection, which comes in pieces of any size."""

    def __init__(self, limit: int = BODY_LIMIT) -> None:
        self._limit = limit
        self._rest = bytearray()

    @property
    def in_the_middle(self) -> bool:
        """Whether part of a message has come and the rest has not."""
        return bool(self._rest)

    def feed(self, data: bytes) -> list[TTRPCMessage]:
        """Return the messages that are complete now.

        Raises:
            ProtocolError: when a message announces more than the limit.
        """
        self._rest += data
        found: list[TTRPCMessage] = []
        start = 0
        while len(self._rest) - start >= _MESSAGE_HEADER.size:
            length, stream, kind, flags = _MESSAGE_HEADER.unpack_from(self._rest, start)
            if length > self._limit:
                raise ProtocolError(f"a message announces {length} bytes, the limit is {self._limit}")
            end = start + _MESSAGE_HEADER.size + length
            if end > len(self._rest):
                break
            found.append(TTRPCMessage(stream, kind, bytes(self._rest[start + _MESSAGE_HEADER.size : end]), flags))
            start = end
        del self._rest[:start]
        return found
