"""A node that is read again only when one of its files has changed, and now and then.

Where a page's node comes from: the status of an agent, or what the options describe.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mooring.answers.base.inputs.checks import STANDARD_INPUT
from mooring.answers.base.inputs.node import question_of
from mooring.engine.checkpoint.device_file import DEVICE_FILE
from mooring.engine.core.errors import InputError
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE
from mooring.lazy import lazily
from mooring.monitoring.serve.snapshot import NodeSnapshot

if TYPE_CHECKING:
    from mooring.cli.options import NodeOptions

with lazily():
    from mooring.answers.base.inputs import checks as running_inputs
    from mooring.monitoring.serve import node_plan, snapshot
    from mooring.service import agent_status as status_api
    from mooring.views import status as status_picture

AGAIN: Final = 30.0
"""Seconds after which a node is read again although no file has changed: its pods can have."""
STATE_FILES: Final = (CPU_FILE, MEMORY_FILE, DEVICE_FILE)
Read = Callable[[], tuple[NodeSnapshot, Sequence[Path]]]
Marks = tuple[tuple[int, int, int] | None, ...]


class WatchedNode:
    """Returns the newest snapshot of a node when it is called; used by one thread."""

    def __init__(self, read: Read, clock: Callable[[], float] = time.monotonic) -> None:
        """Read nothing yet.

        Args:
            read: reads the node, and names the files that show when it has changed.
            clock: seconds that only go forward.
        """
        self._read, self._clock = read, clock
        self._files: Sequence[Path] = ()
        self._marks: Marks = ()
        self._until = 0.0
        self._known: NodeSnapshot | None = None

    def __call__(self) -> NodeSnapshot:
        """Return the node.

        Raises:
            InputError: it cannot be read.
        """
        marks = _marks(self._files)
        if self._known is None or marks != self._marks or self._clock() >= self._until:
            # Marks are older than what is read, so that a change meanwhile is read the next time.
            self._known, files = self._read()
            self._marks = marks if files == self._files else ()
            self._files, self._until = files, self._clock() + AGAIN
        return self._known


def _marks(files: Sequence[Path]) -> Marks:
    return tuple(_mark(file) for file in files)


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def agent_source(socket: str) -> Callable[[], NodeSnapshot]:
    """Return what asks an agent.

    Raises:
        InputError: no agent answers.
    """
    path = socket or status_api.STATUS_SOCKET
    machine = status_api.ask_machine(path)

    def source() -> NodeSnapshot:
        document = status_api.ask_status(path)
        return snapshot.snapshot_of_status(
            status_picture.status_view(machine, status_api.read_status(document)), document
        )

    return source


def described_source(inputs: NodeOptions) -> Callable[[], NodeSnapshot]:
    """Return what reads the node that options describe; without any, that of the kubelet of this computer."""

    def read() -> tuple[NodeSnapshot, list[Path]]:
        asked = running_inputs.with_running_kubelet(inputs)
        kubelet = asked.running.kubelet if asked.running is not None else None
        folders = [inputs.state, *([running_inputs.state_folder(kubelet)] if kubelet is not None else [])]
        files = [Path(folder) / name for folder in folders if folder for name in STATE_FILES]
        files += [Path(name) for name in (*inputs.manifests, *inputs.active, *inputs.config, inputs.node) if name]
        return node_plan.snapshot_of(question_of(asked)), files

    return WatchedNode(read)


def check_rereadable(inputs: NodeOptions) -> None:
    """Refuse standard input: a live page reads the node again and again, and standard input is empty the second time.

    Raises:
        InputError: an option names it.
    """
    if STANDARD_INPUT in (*inputs.manifests, *inputs.active, *inputs.config, *inputs.machine.split("\n")):
        problem = "can be read only once, and the page reads the node periodically"
        raise InputError(problem, source="standard input", remedy="name a file, or write one page with --export")
