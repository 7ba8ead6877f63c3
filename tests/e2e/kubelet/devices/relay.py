"""A socket between the agent and the kubelet's PodResources API, that can fall silent with all its connections open."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

_PIECE = 64 * 1024
_ROUND = 0.05
"""Seconds after which a silent connection looks whether it may speak again."""


class Relay:
    """Passes bytes on while it speaks."""

    def __init__(self, path: Path, behind: Path) -> None:
        self._behind = behind
        self.speaks = threading.Event()
        self.speaks.set()
        self._ended = threading.Event()
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(path))
        self._listener.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._ended.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def _pass_on(self, client: socket.socket) -> None:
        with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server, contextlib.suppress(OSError):
            server.connect(str(self._behind))
            other = {client: server, server: client}
            while not self._ended.is_set():
                if not self.speaks.wait(_ROUND):
                    continue
                for one in select.select([client, server], [], [], _ROUND)[0]:
                    data = one.recv(_PIECE)
                    if not data:
                        return
                    other[one].sendall(data)


@contextlib.contextmanager
def relay_on(path: Path, behind: Path) -> Iterator[Relay]:
    """Listen on a socket until the end of the block, and pass on to another."""
    made = Relay(path, behind)
    try:
        yield made
    finally:
        made.close()
