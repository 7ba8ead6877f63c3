"""A tap on the socket of plugins: how long a runtime waits for each reply, measured outside of runtime and agent.

``python -m tests.e2e.size.tap LISTEN TARGET OUT`` passes everything on. At its end it writes the milliseconds of each
reply, a line each.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from tests.patience import until

from mooring.agent.nri.connection import PLUGIN_CONNECTION, MessageType, frame_reader, message_reader


class Tap:
    """One connection of a plugin."""

    def __init__(self, plugin: socket.socket, runtime: socket.socket, waits: list[float]) -> None:
        self._plugin, self._runtime, self._waits = plugin, runtime, waits
        self._asked: dict[int, float] = {}

    def requests(self) -> None:
        """Pass on what the runtime says."""
        self._pass(self._runtime, self._plugin, MessageType.REQUEST)

    def replies(self) -> None:
        """Pass on what the plugin says."""
        self._pass(self._plugin, self._runtime, MessageType.RESPONSE)

    def _pass(self, source: socket.socket, sink: socket.socket, kind: MessageType) -> None:
        frames, messages = frame_reader(), message_reader()
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if kind is MessageType.RESPONSE:
                    sink.sendall(data)
                now = time.monotonic()
                for frame in frames.feed(data):
                    if frame.connection == PLUGIN_CONNECTION:
                        for message in messages.feed(frame.payload):
                            self._note(message.stream, now, kind)
                if kind is MessageType.REQUEST:
                    sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _note(self, stream: int, now: float, kind: MessageType) -> None:
        if kind is MessageType.REQUEST:
            self._asked[stream] = now
        elif (began := self._asked.pop(stream, None)) is not None:
            self._waits.append(now - began)


def main(listen: str, target: str, out: Path) -> None:
    """Tap until SIGTERM."""
    waits: list[float] = []
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(listen)
    listener.listen()

    def end(_number: int, _frame: object) -> None:
        out.write_text("".join(f"{one * 1000:.3f}\n" for one in [*waits]), encoding="ascii")
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        plugin, _ = listener.accept()
        runtime = socket.socket(socket.AF_UNIX)
        try:
            runtime.connect(target)
        except OSError:
            plugin.close()
            continue
        tap = Tap(plugin, runtime, waits)
        for work in (tap.requests, tap.replies):
            threading.Thread(target=work, daemon=True).start()


@contextlib.contextmanager
def tapped(folder: Path, target: Path) -> Iterator[tuple[Path, list[float]]]:
    """Run a tap until the end of the block; give its socket, and a list that has the milliseconds of replies then."""
    listen, out, found = folder / "tap.sock", folder / "tap.txt", list[float]()
    words = [sys.executable, "-m", "tests.e2e.size.tap", str(listen), str(target), str(out)]
    process = subprocess.Popen(words)
    try:
        until(listen.exists, "the tap listens")
        yield listen, found
    finally:
        process.terminate()
        process.wait(timeout=20)
        found += sorted(map(float, out.read_text(encoding="ascii").split()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
