"""What interrupts might use before the agent came, in a file of its own beside the agent's journal.

It is on the disk before the first interrupt is moved, so that an agent that was killed can be made up for by the next.
After a boot the kernel has forgotten everything, and so does the journal.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from mooring.checkpoint.replacement import write_together
from mooring.checkpoint.store import make_folder, read_state_file
from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError, MooringError
from mooring.extensions.steering import Kept, Memory

FILE = "interrupts.json"
KIND = "InterruptJournal"
VERSION = 1


class _Row(msgspec.Struct, frozen=True):
    name: str
    original: str
    ours: list[str]


class _Document(msgspec.Struct, frozen=True):
    kind: str
    version: int
    boot: str
    interrupts: dict[int, _Row]


class InterruptJournal:
    """The file of one agent; calls come one after another."""

    def __init__(self, folder: Path, boot: str) -> None:
        """Do nothing yet.

        Args:
            folder: of the agent's state.
            boot: what tells this boot from others.
        """
        self._folder, self._boot = folder, boot
        self._text: str | None = None
        self.problem = ""
        """Why what was remembered is lost, or why it cannot be written; empty when all is well."""

    def read(self) -> Memory:
        """Return what was remembered; nothing where the file is of another boot, is damaged, or is not there."""
        with suppress(OSError):
            for left in self._folder.glob(f".{FILE}.*"):
                left.unlink()
        try:
            self._text = read_state_file(self._folder / FILE)
            return _memory(self._text, self._boot) if self._text is not None else Memory()
        except (MooringError, msgspec.MsgspecError, ValueError) as error:
            self.problem = f"{self._folder / FILE}: cannot be used, and interrupts stay where they are: {error}"
            return Memory()

    def write(self, memory: Memory) -> bool:
        """Remember; tell whether that is on the disk."""
        text = _text(memory, self._boot)
        if text == self._text or (self._text is None and not memory.kept):
            return True
        try:
            make_folder(self._folder)
            write_together(self._folder, {FILE: text})
        except InputError as error:
            self.problem = str(error)
            return False
        self._text, self.problem = text, ""
        return True


def _text(memory: Memory, boot: str) -> str:
    rows = {
        number: _Row(one.name, str(one.original), [str(cpus) for cpus in one.ours])
        for number, one in sorted(memory.kept.items())
    }
    return msgspec.json.encode(_Document(KIND, VERSION, boot, rows)).decode()


def _memory(text: str, boot: str) -> Memory:
    found = msgspec.json.decode(text.encode(errors="surrogateescape"), type=_Document)
    if (found.kind, found.version) != (KIND, VERSION):
        raise ValueError(f"a {found.kind} of version {found.version}")
    if found.boot != boot:
        return Memory()
    return Memory(
        {
            number: Kept(row.name, CPUSet.parse(row.original), tuple(map(CPUSet.parse, row.ours)))
            for number, row in found.interrupts.items()
        }
    )
