"""Writing affinities of interrupts, with a journal of what they were before the agent came.

The journal is a file of its own beside the agent's. It is on the disk before the first interrupt is moved, then the
kernel's files are written, then the journal again, so that the next agent can make up for one that was killed. After a
boot the kernel has forgotten everything, and so does the journal.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec

from mooring.agent.interrupts import JOURNAL
from mooring.agent.interrupts.files import InterruptTrouble, IRQFiles
from mooring.checkpoint.store import make_folder, read_state_file, write_together
from mooring.core.cpuset import CPUSet
from mooring.core.errors import InputError, MooringError
from mooring.extensions.interrupts import Interrupt
from mooring.extensions.steering import Kept, Memory, Steering, Step, written

KIND = "InterruptJournal"
VERSION = 1
Reporter = Callable[[Step, InterruptTrouble | None], object]
"""Receives the outcome of each write."""


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
            for left in self._folder.glob(f".{JOURNAL}.*"):
                left.unlink()
        try:
            self._text = read_state_file(self._folder / JOURNAL)
            return _memory(self._text, self._boot) if self._text is not None else Memory()
        except (MooringError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.problem = f"{self._folder / JOURNAL}: cannot be used, and interrupts stay where they are: {error}"
            return Memory()

    def write(self, memory: Memory) -> bool:
        """Remember; tell whether that is on the disk."""
        text = _text(memory, self._boot)
        if text == self._text or (self._text is None and not memory.kept):
            return True
        try:
            make_folder(self._folder)
            write_together(self._folder, {JOURNAL: text})
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


class InterruptWriter:
    """Writes affinities, and does not repeat what the kernel refuses."""

    def __init__(self, files: IRQFiles, journal: InterruptJournal, report: Reporter) -> None:
        """Begin without refusals.

        Args:
            files: of the kernel.
            journal: is written before them.
            report: receives every write.
        """
        self._files, self._journal, self._report = files, journal, report
        self._refused: dict[tuple[int, str], CPUSet | None] = {}
        """Sets that the kernel does not take; None where it takes none at all."""
        self.unwritable = False
        """Whether the newest write found the files read-only."""

    def known(self, found: tuple[Interrupt, ...]) -> tuple[Interrupt, ...]:
        """Return interrupts with what their refusals have told; refusals of those that are gone are forgotten."""
        keys = {(one.number, one.name) for one in found}
        self._refused = {key: cpus for key, cpus in self._refused.items() if key in keys}
        return tuple(
            replace(one, managed=True) if self._refused.get((one.number, one.name), CPUSet()) is None else one
            for one in found
        )

    def carry_out(self, steering: Steering) -> tuple[Steering, Memory]:
        """Write what is to be written; nothing of it when the journal cannot be.

        Returns:
            The steps as they stand now, and what is remembered.
        """
        if not self._journal.write(steering.memory):
            # Nothing was written, and what the last check wrote is in the older journal.
            return steering, _unwritten(steering)
        self.unwritable = False
        shown: dict[int, CPUSet] = {}
        steps: list[Step] = []
        for step in steering.steps:
            after = self._written(step)
            if step.write is not None:
                shown[step.interrupt.number] = after
            steps.append(replace(step, interrupt=replace(step.interrupt, allowed=after)))
        memory = written(steering.memory, shown)
        self._journal.write(memory)
        return Steering(tuple(steps), memory), memory

    def _written(self, step: Step) -> CPUSet:
        """Write one affinity where it is to be written, and return what is in force then."""
        one, wanted = step.interrupt, step.write
        key = (one.number, one.name)
        if wanted is None or self.unwritable or self._refused.get(key) == wanted:
            return one.allowed
        trouble = self._files.write(one.number, wanted)
        self.unwritable = trouble is InterruptTrouble.UNWRITABLE
        if trouble in (InterruptTrouble.MANAGED, InterruptTrouble.REFUSED):
            self._refused[key] = None if trouble is InterruptTrouble.MANAGED else wanted
        self._report(step, trouble)
        if trouble is not None:
            return one.allowed
        shown = self._files.shown(one.number) or wanted
        if shown != wanted:
            # The interrupt's chip has made something else of it, and would again.
            self._refused[key] = wanted
        return shown


def _unwritten(steering: Steering) -> Memory:
    """Return what is remembered when no write follows."""
    still = {step.interrupt.number: step.interrupt.allowed for step in steering.writes}
    return written(steering.memory, still)
