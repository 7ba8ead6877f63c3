"""Frames and messages over bytes that come in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.agent.nri.connection import (
    BODY_LIMIT,
    FRAME_LIMIT,
    SEND_LIMIT,
    Frame,
    TTRPCMessage,
    encode_frames,
    encode_message,
    frame_reader,
    message_reader,
)
from mooring.agent.nri.types import OversizedError, ProtocolError

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


@settings(deadline=None, max_examples=40)
@given(st.binary(max_size=200), st.integers(0, 200))
def test_a_stream_cut_at_any_place_gives_a_prefix_and_says_that_it_is_unfinished(body: bytes, cut: int) -> None:
    wire = encode_message(TTRPCMessage(1, 1, body))
    reader = message_reader()
    cut = min(cut, len(wire))
    found = reader.feed(wire[:cut])
    assert bool(found) is (cut == len(wire))
    assert reader.in_the_middle is (0 < cut < len(wire))
    assert len(found) + len(reader.feed(wire[cut:])) == 1


def test_every_cut_into_two_gives_the_same() -> None:
    sent = [TTRPCMessage(1, 1, b"first"), TTRPCMessage(3, 1, b""), TTRPCMessage(5, 2, b"x" * 40)]
    wire = b"".join(encode_frames(2, encode_message(message)) for message in sent)
    for cut in range(len(wire) + 1):
        frames, reader = frame_reader(), message_reader()
        found = [
            m for piece in (wire[:cut], wire[cut:]) for frame in frames.feed(piece) for m in reader.feed(frame.payload)
        ]
        assert found == sent, cut


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 5 * FRAME_LIMIT))
def test_no_frame_is_larger_than_what_a_runtime_takes(size: int) -> None:
    found = frame_reader().feed(encode_frames(1, bytes(size)))
    assert [len(frame.payload) for frame in found[:-1]] == [FRAME_LIMIT] * (len(found) - 1)
    assert sum(len(frame.payload) for frame in found) == size
    assert all(frame.connection == 1 for frame in found)


@settings(deadline=None, max_examples=200)
@given(st.lists(st.binary(max_size=64), max_size=6))
def test_garbage_is_either_frames_or_a_protocol_error(garbage: list[bytes]) -> None:
    frames, reader = frame_reader(), message_reader()
    try:
        for piece in garbage:
            for frame in frames.feed(piece):
                reader.feed(frame.payload)
    except ProtocolError:
        return
    # What is left over is bounded by what came.
    assert sum(map(len, garbage)) < 2**20


def test_a_frame_that_announces_too_much_is_refused_before_it_comes() -> None:
    with pytest.raises(ProtocolError, match="a frame announces 4294967295 bytes"):
        frame_reader().feed(b"\0\0\0\1\xff\xff\xff\xff")


def test_a_message_that_announces_too_much_is_refused_before_it_comes() -> None:
    with pytest.raises(ProtocolError, match=f"a message announces {BODY_LIMIT + 1} bytes"):
        message_reader().feed((BODY_LIMIT + 1).to_bytes(4, "big") + b"\0\0\0\1\1\0")


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
