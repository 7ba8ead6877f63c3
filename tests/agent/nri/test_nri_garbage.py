"""A connection that says what no runtime says: it is closed with a reason, and nothing hangs."""

from __future__ import annotations

import queue
import socket
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.nri.runtime_side import CONTAINER, POD, TIMEOUT, Listening, Pinning, about

from mooring.agent.nri.connection import (
    SEND_LIMIT,
    Connection,
    MessageType,
    TTRPCMessage,
    encode_frames,
    encode_message,
    frame_reader,
    message_reader,
)
from mooring.agent.nri.messages import PLUGIN_SERVICE, TTRPCRequestMessage
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError, NRIError, ProtocolError


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


def test_a_connection_cut_at_any_byte_of_a_request_ends_without_hanging() -> None:
    wire = encode_frames(1, request(1))
    for cut in range(len(wire)):
        why, answers, handler = end_after(wire[:cut])
        assert type(why) is ConnectionLostError, cut
        assert (answers, handler.calls) == ([], []), cut


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


def test_a_defect_in_whoever_takes_the_bytes_ends_the_connection_instead_of_leaving_others_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
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
