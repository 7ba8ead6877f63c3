"""What real runtimes sent, sent again: the plugin answers byte for byte what those runtimes took."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.agent.nri.recordings import FOLDER, Piece, Scripted, read_recording
from tests.agent.nri.runtime_side import TIMEOUT, Listening

from mooring.agent.nri.connection import FRAME_LIMIT, frame_reader, message_reader
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError, NRIError

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
    ended: queue.SimpleQueue[NRIError] = queue.SimpleQueue()

    def work() -> None:
        try:
            session.register()
            while True:
                session.step()
        except NRIError as why:
            ended.put(why)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
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


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_recorded_bytes_mean_the_same_in_pieces_of_any_size(path: Path) -> None:
    data = b"".join(piece.data for piece in read_recording(path) if piece.from_runtime)
    whole = frame_reader().feed(data)
    assert whole
    for size in (1, 2, 3, 7, 8, 9, 10, 4095, 4096, 4097):
        reader = frame_reader()
        assert [f for start in range(0, len(data), size) for f in reader.feed(data[start : start + size])] == whole
        assert not reader.in_the_middle


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
def test_a_runtime_writes_whole_messages_and_takes_frames_of_the_limit(path: Path) -> None:
    pieces = read_recording(path)
    for from_runtime in (True, False):
        for frame in frame_reader().feed(
            b"".join(piece.data for piece in pieces if piece.from_runtime is from_runtime)
        ):
            assert len(frame.payload) <= FRAME_LIMIT
            reader = message_reader()
            assert reader.feed(frame.payload)
            assert not reader.in_the_middle
