"""One socket that carries several connections: the shell around :mod:`mooring.agent.nri.frames`.

A thread of its own reads and hands every piece to the opener of the connection; writing is done by the thread that has
something to say. Both sides of NRI use it: a runtime differs from a plugin only in the direction of the calls.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from mooring.agent.nri.frames import FrameReader, encode_frames
from mooring.agent.nri.types import ConnectionLostError, NRIError, ProtocolError

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
        frames = FrameReader()
        try:
            while self._lost is None:
                data = self._trunk.recv(_READ_SIZE)
                if not data:
                    raise self._end(frames)
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

    def _end(self, frames: FrameReader) -> ConnectionLostError:
        where = " in the middle of a frame" if frames.in_the_middle else ""
        return ConnectionLostError(f"the other side has closed the connection{where}")
