"""Recordings of what went over the socket between this package and a real runtime, byte for byte.

A line is a piece as it was read or written: ``<`` from the runtime or ``>`` from the plugin, a space, and the bytes in
hexadecimal.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    PodSandbox,
    RuntimeContainer,
)

FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes in one direction; neighbours of the same direction are one piece."""

    from_runtime: bool
    data: bytes


def read_recording(path: Path) -> list[Piece]:
    pieces: list[Piece] = []
    for line in path.read_text(encoding="ascii").splitlines():
        mark, data = line.split(" ", 1)
        pieces.append(Piece(mark == "<", bytes.fromhex(data)))
    return pieces


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


@dataclass(slots=True)
class Scripted:
    """The plugin of the recordings: CPU 1 for the first container, CPU 0 for the second, and the first one follows."""

    seen: list[str] = field(default_factory=list)
    first: str = ""

    def configure(self, config: str, runtime: str, version: str) -> frozenset[Event]:
        self.seen.append(f"Configure {config!r} {runtime} {version}")
        return frozenset(Event)

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        names = [f"{found.name}={found.resources.cpus}" for found in containers]
        self.seen.append(" ".join(["Synchronize", *[pod.name for pod in pods], *names]))
        return [ContainerUpdate(found.id, LinuxResources(cpus="0", mems="0")) for found in containers]

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        self.seen.append(f"Create {pod.name}/{container.name} shares={container.resources.shares}")
        if not self.first:
            self.first = container.id
            return ContainerAdjustment(LinuxResources(cpus="1", mems="0")), ()
        resources = LinuxResources(cpus="0", mems="0")
        return ContainerAdjustment(resources), [ContainerUpdate(self.first, LinuxResources(cpus="0", mems="0"))]

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        self.seen.append(f"Update {pod.name}/{container.name} shares={resources.shares}")
        return [ContainerUpdate(container.id, LinuxResources(cpus="1", mems="0"))]

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        self.seen.append(f"Stop {pod.name}/{container.name}")
        return [ContainerUpdate(self.first, LinuxResources(cpus="0-1"))] if container.id != self.first else []

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        about = "/".join(found.name for found in (pod, container) if found is not None)
        self.seen.append(f"{event.name} {about}")
