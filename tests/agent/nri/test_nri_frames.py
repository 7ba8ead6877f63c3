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
from mooring.agent.nri.types import OversizedError

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
