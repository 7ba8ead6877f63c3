"""A connection that says what no runtime says: it is closed with a reason, and nothing hangs."""

from __future__ import annotations

import itertools
import queue
import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.nri.runtime_side import (
    CONTAINER,
    FOLDER,
    POD,
    TIMEOUT,
    Listening,
    Piece,
    Pinning,
    Scripted,
    about,
    read_recording,
    worked,
)

from mooring.agent.nri.connection import (
    BODY_LIMIT,
    FRAME_LIMIT,
    SEND_LIMIT,
    Connection,
    Frame,
    MessageType,
    TTRPCMessage,
    encode_frames,
    encode_message,
    frame_reader,
    message_reader,
)
from mooring.agent.nri.messages import PLUGIN_SERVICE, TTRPCRequestMessage
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError, NRIError, OversizedError, ProtocolError


def request(stream: int, method: str = "CreateContainer", payload: bytes | None = None) -> bytes:
    body = TTRPCRequestMessage(
        service=PLUGIN_SERVICE,
        method=method,
        payload=about(POD, CONTAINER).SerializeToString() if payload is None else payload,
    )
    return encode_message(TTRPCMessage(stream, MessageType.REQUEST, body.SerializeToString()))


def end_after(data: bytes) -> tuple[NRIError, list[bytes], Pinning]:
    """Send bytes to a session and hang up; return why it ended, what it answered and what its handler saw."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(TIMEOUT)
    handler = Pinning()
    session = Session(ours, handler, PluginOptions(budget=TIMEOUT), Listening())
    theirs.sendall(data)
    theirs.shutdown(socket.SHUT_WR)
    why: NRIError | None = None
    try:
        while True:
            assert session.step(TIMEOUT), "the session hangs"
    except NRIError as error:
        why = error
    session.close()
    answered = b""
    while received := theirs.recv(1 << 16):
        answered += received
    theirs.close()
    return why, [frame.payload for frame in frame_reader().feed(answered)], handler


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=80))
def test_garbage_ends_the_connection_and_never_reaches_the_handler(garbage: bytes) -> None:
    why, _, handler = end_after(garbage)
    assert isinstance(why, ConnectionLostError)
    assert handler.calls == []


@settings(deadline=None, max_examples=80)
@given(st.integers(0, 400), st.integers(0, 7))
def test_a_request_with_one_bit_turned_ends_orderly(place: int, bit: int) -> None:
    wire = bytearray(encode_frames(1, request(1)))
    wire[place % len(wire)] ^= 1 << bit
    why, _, handler = end_after(bytes(wire))
    assert isinstance(why, ConnectionLostError)
    assert len(handler.calls) <= 1


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"\0\0\0\1\xff\0\0\0", "a frame announces"),
        (encode_frames(1, b"\xff\0\0\0\0\0\0\1\1\0"), "a message announces"),
        (encode_frames(7, b"x"), "connection 7, which was never opened"),
        (encode_frames(0, b""), "closed the connection"),
        (encode_frames(1, encode_message(TTRPCMessage(1, 3, b""))), "type 3 where a request was expected"),
        (encode_frames(2, encode_message(TTRPCMessage(1, 1, b""))), "type 1 where a response was expected"),
        (encode_frames(2, encode_message(TTRPCMessage(1, 2, b""))), "stream 1, on which nothing was requested"),
        (encode_frames(1, request(2)), "a request on stream 2"),
        (encode_frames(1, request(3) + request(1)), "stream 1 after one on stream 3"),
        (encode_frames(1, encode_message(TTRPCMessage(1, 1, b"\xff\xff"))), "the request on stream 1 is not protobuf"),
        (encode_frames(1, request(1))[:-1], "closed the connection in the middle of a frame"),
    ],
    ids=[
        "endless-frame",
        "endless-message",
        "unknown-connection",
        "empty-frame",
        "data-to-server",
        "request-to-client",
        "answer-to-nothing",
        "even-stream",
        "reordered",
        "broken-envelope",
        "cut",
    ],
)
def test_what_breaks_the_protocol_is_named(data: bytes, text: str) -> None:
    why, _, _ = end_after(data)
    assert text in str(why)


def test_a_request_that_comes_twice_is_carried_out_at_most_once() -> None:
    why, _, handler = end_after(encode_frames(1, request(1)) * 2)
    assert isinstance(why, ProtocolError)
    assert len(handler.calls) <= 1


def test_a_runtime_that_does_not_read_is_given_up() -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, send_timeout=0.05)
    connection.start()
    with pytest.raises(ConnectionLostError, match="cannot write"):
        connection.send(1, bytes(SEND_LIMIT))
    with pytest.raises(ConnectionLostError, match="cannot write"):
        connection.send(1, b"after")
    connection.close()
    theirs.close()


def test_a_flood_of_requests_ends_the_connection() -> None:
    ours, theirs = socket.socketpair()
    handler = Pinning()
    session = Session(ours, handler, PluginOptions(budget=TIMEOUT), Listening())
    # The connection may end before the last byte is written.
    with suppress(BrokenPipeError):
        theirs.sendall(encode_frames(1, b"".join(request(stream, "Shutdown", b"") for stream in range(1, 2401, 2))))
    theirs.settimeout(TIMEOUT)
    with suppress(ConnectionResetError):
        while theirs.recv(65536):
            pass
    with pytest.raises(ProtocolError, match="more than 1024 requests at once"):
        session.step(TIMEOUT)
    session.close()
    theirs.close()


def test_a_request_in_frames_of_one_byte_is_answered() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(TIMEOUT)
    session = Session(ours, Pinning(), PluginOptions(budget=TIMEOUT), Listening())
    for byte in request(1):
        theirs.sendall(encode_frames(1, bytes([byte])))
    assert session.step(TIMEOUT)
    frames, messages, found = frame_reader(), message_reader(), list[TTRPCMessage]()
    while not found:
        for frame in frames.feed(theirs.recv(1 << 16)):
            found += messages.feed(frame.payload)
    assert (found[0].stream, found[0].type) == (1, MessageType.RESPONSE)
    session.close()
    theirs.close()


def test_a_defect_in_the_reader_of_the_bytes_ends_the_connection_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours)
    lost: queue.SimpleQueue[ConnectionLostError] = queue.SimpleQueue()
    # The thread's own traceback is no warning here.
    monkeypatch.setattr("threading.excepthook", lambda _: None)

    def broken(_: bytes) -> None:
        raise KeyError("surprise")

    connection.open(1, broken)
    connection.when_closed(lost.put)
    connection.start()
    theirs.sendall(encode_frames(1, b"abc"))
    assert str(lost.get(timeout=TIMEOUT)) == "reading has stopped"
    connection.close()
    theirs.close()


# Frames and messages over bytes that come in any pieces.


bodies = st.binary(max_size=3 * FRAME_LIMIT)
messages = st.builds(TTRPCMessage, st.integers(0, 2**32 - 1), st.integers(0, 255), bodies, st.integers(0, 255))


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in itertools.pairwise(places)]


@settings(deadline=None, max_examples=60)
@given(st.lists(messages, max_size=4), st.lists(st.integers(0, 2**20), max_size=8))
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(sent: list[TTRPCMessage], cuts: list[int]) -> None:
    wire = b"".join(encode_frames(1, encode_message(message)) for message in sent)
    frames, reader = frame_reader(), message_reader()
    received = [
        message
        for piece in pieces(wire, cuts)
        for frame in frames.feed(piece)
        for message in reader.feed(frame.payload)
    ]
    assert received == sent
    assert not frames.in_the_middle
    assert not reader.in_the_middle


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 5 * FRAME_LIMIT))
def test_no_frame_is_larger_than_what_a_runtime_takes(size: int) -> None:
    found = frame_reader().feed(encode_frames(1, bytes(size)))
    assert [len(frame.payload) for frame in found[:-1]] == [FRAME_LIMIT] * (len(found) - 1)
    assert sum(len(frame.payload) for frame in found) == size
    assert all(frame.connection == 1 for frame in found)


def test_the_largest_message_of_a_runtime_is_taken_in_one_frame() -> None:
    body = bytes(BODY_LIMIT)
    wire = BODY_LIMIT.to_bytes(4, "big") + b"\0\0\0\1\1\0" + body
    found = frame_reader().feed(b"\0\0\0\1" + len(wire).to_bytes(4, "big") + wire)
    assert found == [Frame(1, wire)]
    assert message_reader().feed(found[0].payload) == [TTRPCMessage(1, 1, body)]


def test_a_message_beyond_the_runtimes_queue_is_not_encoded() -> None:
    assert len(encode_message(TTRPCMessage(1, 2, bytes(SEND_LIMIT - 10)))) == SEND_LIMIT
    with pytest.raises(OversizedError, match=f"beyond the limit of {SEND_LIMIT} bytes"):
        encode_message(TTRPCMessage(1, 2, bytes(SEND_LIMIT - 9)))


# What real runtimes sent, sent again: the plugin answers byte for byte what those runtimes took.


RECORDINGS = sorted(FOLDER.glob("containerd-*.txt"))
SHORT = [path for path in RECORDINGS if path.stem.endswith("-synchronize")]

LIFE = [
    "RUN_POD_SANDBOX web",
    "Create web/first shares=1024",
    "POST_CREATE_CONTAINER web/first",
    "START_CONTAINER web/first",
    "POST_START_CONTAINER web/first",
    "Create web/second shares=256",
    "POST_CREATE_CONTAINER web/second",
    "START_CONTAINER web/second",
    "POST_START_CONTAINER web/second",
    "Update web/first shares=512",
    "POST_UPDATE_CONTAINER web/first",
    "Stop web/second",
    "REMOVE_CONTAINER web/second",
]
SEEN = {
    "containerd-2.1.9": ["Configure '' containerd 2.1.9+unknown", "Synchronize", *LIFE],
    "containerd-2.1.9-synchronize": ["Configure '' containerd 2.1.9+unknown", "Synchronize web first=0-1"],
    "containerd-2.4.2": ["Configure '' containerd v2.4.2", "Synchronize", *LIFE],
    "containerd-2.4.2-synchronize": ["Configure '' containerd v2.4.2", "Synchronize web first=0-1"],
}


def replay(pieces: Sequence[Piece], handler: Scripted, *, until: int | None = None) -> NRIError:
    """Play the runtime, comparing what the plugin says; hang up at the end or after ``until`` bytes of the runtime."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(TIMEOUT)
    session = Session(ours, handler, PluginOptions(budget=TIMEOUT), Listening())
    thread, ended = worked(session)
    left = until
    for piece in pieces:
        if piece.from_runtime:
            part = piece.data if left is None else piece.data[:left]
            theirs.sendall(part)
            if left is not None:
                left -= len(part)
                if len(part) < len(piece.data):
                    break
        else:
            assert read_exactly(theirs, len(piece.data)) == piece.data
    theirs.close()
    why = ended.get(timeout=TIMEOUT)
    session.close()
    thread.join(TIMEOUT)
    return why


def read_exactly(trunk: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = trunk.recv(size - len(found))
        assert more, "the plugin has hung up"
        found += more
    return found


def test_recordings_of_two_releases_are_there() -> None:
    assert {path.stem for path in RECORDINGS} == set(SEEN)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_the_plugin_answers_what_a_real_runtime_took(path: Path) -> None:
    handler = Scripted()
    assert isinstance(replay(read_recording(path), handler), ConnectionLostError)
    assert handler.seen == SEEN[path.stem]


@pytest.mark.parametrize("path", SHORT, ids=lambda path: path.stem)
def test_a_runtime_that_dies_at_any_byte_ends_the_session_and_nothing_hangs(path: Path) -> None:
    pieces = read_recording(path)
    total = sum(len(piece.data) for piece in pieces if piece.from_runtime)
    # Every byte of registration and configuration, and of the long rest every seventh.
    for cut in [*range(200), *range(200, total, 7)]:
        assert isinstance(replay(pieces, Scripted(), until=cut), ConnectionLostError), cut
