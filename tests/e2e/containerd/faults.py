"""What can go wrong with a frame: cut, doubled, mixed up, late, lost, or with nonsense before it."""

from __future__ import annotations

import contextlib
import socket

from tests.e2e.containerd.fault_proxy import Act, Pipe, frame_of

from mooring.agent.nri import connection


def cut_before(pipe: Pipe, _frame: bytes) -> None:
    """Hang up instead of passing the frame on."""
    pipe.wire.cut()


def cut_within(pipe: Pipe, frame: bytes) -> None:
    """Pass half of the frame on and hang up."""
    pipe.pass_on(frame[: len(frame) // 2])
    pipe.wire.cut()


def cut_after(pipe: Pipe, frame: bytes) -> None:
    """Pass the frame on and hang up."""
    pipe.pass_on(frame)
    pipe.wire.cut()


def duplicate(pipe: Pipe, frame: bytes) -> None:
    """Pass the frame on twice."""
    pipe.pass_on(frame + frame)


def swap(pipe: Pipe, frame: bytes) -> None:
    """Let the next frame go first."""
    pipe.held = frame


def lose(_pipe: Pipe, _frame: bytes) -> None:
    """Throw the frame away."""


def late(seconds: float) -> Act:
    """Pass the frame on after a while, and what comes behind it too."""

    def act(pipe: Pipe, frame: bytes) -> None:
        pipe.wire.stopped.wait(seconds)
        pipe.pass_on(frame)

    return act


def preceded_by(data: bytes) -> Act:
    """Pass something on that nobody sent, and then the frame."""

    def act(pipe: Pipe, frame: bytes) -> None:
        pipe.pass_on(data + frame)

    return act


def overwritten(pipe: Pipe, frame: bytes) -> None:
    """Pass on as many bytes as the frame has, with nothing of sense behind its header."""
    pipe.pass_on(frame[:8] + bytes((7 * place + 131) % 256 for place in range(len(frame) - 8)))


def deafen(pipe: Pipe, _frame: bytes) -> None:
    """Throw everything away from this frame on; hanging up is still noticed."""
    pipe.is_deaf = True


def half_close(pipe: Pipe, frame: bytes) -> None:
    """Pass the frame on and close this direction only."""
    pipe.pass_on(frame)
    with contextlib.suppress(OSError):
        pipe.sink.shutdown(socket.SHUT_WR)
    pipe.is_deaf = True


def go_silent(pipe: Pipe, _frame: bytes) -> None:
    """Neither pass anything on any more, either way, nor tell one end that the other has hung up."""
    pipe.wire.is_silent = True


garbage = preceded_by(frame_of(connection.PLUGIN_CONNECTION, b"\xde\xad\xbe\xef" * 20))
"""A frame without sense."""
unknown_connection = preceded_by(frame_of(7, b"who is there"))
"""A frame of a connection that nobody opened."""
endless_frame = preceded_by(frame_of(connection.PLUGIN_CONNECTION, b"", announced=connection.RECEIVED_FRAME_LIMIT + 1))
"""A frame that announces more than there may be."""
endless_message = preceded_by(
    frame_of(
        connection.PLUGIN_CONNECTION,
        (connection.BODY_LIMIT + 1).to_bytes(4, "big") + (3).to_bytes(4, "big") + b"\x01\x00",
    )
)
"""A message that announces more than there may be."""
eats_what_follows = preceded_by(
    frame_of(
        connection.PLUGIN_CONNECTION, connection.BODY_LIMIT.to_bytes(4, "big") + (9999).to_bytes(4, "big") + b"\x01\x00"
    )
)
"""A message that announces as much as there may be: what follows counts as its body."""
large_request = preceded_by(
    frame_of(
        connection.PLUGIN_CONNECTION, connection.encode_message(connection.TTRPCMessage(99_999, 1, b"\x08" * 1_000_000))
    )
)
"""A request of a megabyte, of no method."""
answer_to_nobody = preceded_by(
    frame_of(connection.RUNTIME_CONNECTION, connection.encode_message(connection.TTRPCMessage(77, 2, b"")))
)
"""An answer to a call that was never made."""
