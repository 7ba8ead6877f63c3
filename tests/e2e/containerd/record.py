"""Record the frames of a real containerd for ``tests/agent/nri/recorded``; run by hand, as root:

``python -m tests.e2e.containerd.record debian built``
"""

from __future__ import annotations

import shutil
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.agent.nri.runtime_side import FOLDER, Piece, Scripted
from tests.e2e.containerd.runtime import parts_named, running
from tests.patience import until

from mooring.agent.nri.plugin import connect_to
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import ConnectionLostError

WORK = Path("/tmp/nri")  # noqa: S108 - named in the recorded messages, so it says nothing about the machine


def write_recording(path: Path, pieces: Sequence[Piece]) -> None:
    lines = [f"{'<' if piece.from_runtime else '>'} {piece.data.hex()}\n" for piece in pieces]
    path.write_text("".join(lines), encoding="ascii")


class Tap(socket.socket):
    """A socket that keeps everything that goes through it."""

    pieces: list[Piece]

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        data = super().recv(size, flags)
        if data:
            self._keep(from_runtime=True, data=data)
        return data

    def sendall(self, data: bytes, flags: int = 0, /) -> None:  # type: ignore[override]  # only bytes are sent here
        # Kept first: the answer may be read by another thread before this one goes on.
        self._keep(from_runtime=False, data=bytes(data))
        super().sendall(data, flags)

    def _keep(self, *, from_runtime: bool, data: bytes) -> None:
        if self.pieces and self.pieces[-1].from_runtime is from_runtime:
            data = self.pieces.pop().data + data
        self.pieces.append(Piece(from_runtime, data))


def tapped(trunk: socket.socket) -> Tap:
    tap = Tap(fileno=trunk.detach())
    tap.pieces = []
    return tap


def record(name: str) -> Path:
    """Record one life of a pod with two containers, then a Synchronize of what is left."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir()
    parts = parts_named(name)
    path = FOLDER / f"containerd-{parts.version.split('+')[0]}.txt"
    with running(parts, WORK) as node:
        tap = tapped(connect_to(str(node.nri_socket)))
        session = Session(tap, Scripted(), PluginOptions(budget=5.0))
        thread = threading.Thread(target=_work, args=(session,))
        thread.start()
        until(lambda: session.synchronized, "synchronized")
        pod = node.cri.run_pod("web", "0b5a7a5e-0000-4000-8000-000000000001", f"{node.cgroup_parent}/pod1")
        first = node.cri.run(pod, "first", resources={"cpu_shares": 1024, "cpu_quota": 100000, "cpu_period": 100000})
        second = node.cri.run(pod, "second", resources={"cpu_shares": 256})
        node.cri.update(first, cpu_shares=512)
        node.cri.stop(second)
        node.cri.remove(second)
        session.close()
        thread.join()
        again = tapped(connect_to(str(node.nri_socket)))
        handler = Scripted()
        session = Session(again, handler, PluginOptions(budget=5.0))
        thread = threading.Thread(target=_work, args=(session,))
        thread.start()
        until(lambda: session.synchronized, "synchronized again")
        session.close()
        thread.join()
    _write(path, tap)
    _write(path.with_stem(f"{path.stem}-synchronize"), again)
    shutil.rmtree(WORK)
    return path


def _work(session: Session) -> None:
    try:
        session.register()
        while True:
            session.step()
    except ConnectionLostError:
        return


def _write(path: Path, tap: Tap) -> None:
    path.parent.mkdir(exist_ok=True)
    write_recording(path, tap.pieces)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        sys.stdout.write(f"{record(wanted)}\n")
