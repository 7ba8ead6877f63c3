"""Affinities of interrupts: the kernel's files, with its "no" as a type, and a journal of what was there before.

The journal is a file of its own beside the agent's. It is on the disk before the first interrupt is moved, then the
kernel's files are written, then the journal again, so that the next agent can make up for one that was killed. After a
boot the kernel has forgotten everything, and so does the journal.

Source: kernel/irq/proc.c (write_irq_affinity, default_affinity_write): EIO for an interrupt that the kernel manages,
EINVAL for a set without a CPU that is online, ENOSPC where a CPU has no vector left.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from pathlib import Path

import msgspec

from mooring.agent.store import INTERRUPT_FILE
from mooring.documents.plan import learn
from mooring.engine.checkpoint.store import make_folder, read_state_file, write_together
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError, MooringError
from mooring.engine.extensions.interrupts import (
    NEW,
    NEW_NAME,
    Interrupt,
    InterruptCPUs,
    Kept,
    Memory,
    Step,
    steer,
    written,
)
from mooring.inputs.machines.isolation import DEFAULT, IRQ, read_interrupts, read_words, spared_by_irqbalance
from mooring.inputs.machines.kernelfiles import cpu_list, cpus_of_mask, mask_text
from mooring.inputs.machines.tree import FolderTree, Tree, live_tree

BOOT = "proc/sys/kernel/random/boot_id"
_ONLINE = "sys/devices/system/cpu/online"


class InterruptTrouble(Enum):
    """Why a write came to nothing; the value is the name in logs and metrics."""

    GONE = "gone"
    """There is no such interrupt any more."""
    MANAGED = "managed"
    """The kernel places it itself. It will say so every time."""
    UNWRITABLE = "unwritable"
    """The agent may not write there at all: the files are read-only to it."""
    REFUSED = "refused"
    """The kernel does not take this set."""


_OF_OPEN = {errno.ENOENT: InterruptTrouble.GONE, errno.ENOTDIR: InterruptTrouble.GONE}
_OF_WRITE = {
    errno.EIO: InterruptTrouble.MANAGED,
    errno.EPERM: InterruptTrouble.MANAGED,
    errno.ENOENT: InterruptTrouble.GONE,
}


class IRQFiles:
    """Reads and writes the affinities of one machine."""

    def __init__(self, root: str = "/") -> None:
        """Look at nothing yet.

        Args:
            root: folder that stands for ``/``.
        """
        self.root = root

    def boot(self) -> str:
        """Return what tells one boot from another; empty when nothing does."""
        return (self._tree().read(BOOT) or "").strip()

    def read(self) -> tuple[Interrupt, ...]:
        """Return the interrupts as they are now; none where there is no /proc/irq.

        Under :data:`~mooring.engine.extensions.interrupts.NEW` is where new ones begin.
        """
        tree = self._tree()
        found = read_interrupts(tree, self.root) or ()
        beginning = cpus_of_mask(tree, DEFAULT)
        if beginning:
            found = (Interrupt(NEW, NEW_NAME, beginning, None), *found)
        return tuple(found)

    def online(self) -> CPUSet:
        """Return the CPUs that are online; none where that cannot be read."""
        return cpu_list(self._tree().read(_ONLINE)) or CPUSet()

    def spared(self, online: CPUSet) -> CPUSet | None:
        """Return the CPUs that irqbalance leaves alone; None where it does not run. Reads every process."""
        tree = self._tree()
        return spared_by_irqbalance(tree, read_words(tree, online))

    def shown(self, number: int) -> CPUSet | None:
        """Return what an interrupt may use now; None when it is gone."""
        tree = self._tree()
        return cpus_of_mask(tree, DEFAULT) if number == NEW else cpu_list(tree.read(_path(number)))

    def write(self, number: int, cpus: CPUSet) -> InterruptTrouble | None:
        """Let an interrupt use these CPUs; return why it does not, None when it does."""
        text = mask_text(cpus.mask) if number == NEW else str(cpus)
        try:
            descriptor = os.open(f"{self.root.rstrip('/')}/{_path(number)}", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        except OSError as error:
            return _OF_OPEN.get(error.errno or 0, InterruptTrouble.UNWRITABLE)
        try:
            os.write(descriptor, f"{text}\n".encode("ascii"))
        except OSError as error:
            return _OF_WRITE.get(error.errno or 0, InterruptTrouble.REFUSED)
        finally:
            os.close(descriptor)
        return None

    def _tree(self) -> Tree:
        return live_tree() if self.root == "/" else FolderTree(self.root, is_root_directory=True)


def _path(number: int) -> str:
    return DEFAULT if number == NEW else f"{IRQ}/{number}/smp_affinity_list"


KIND = "InterruptJournal"
VERSION = 1
Reporter = Callable[[Step, InterruptTrouble | None], object]
"""Receives the outcome of each write."""
RETRYING = 300.0
"""Seconds after which a refused affinity is tried again: a vector may be free or a CPU online by then, and neither is
reported to the agent."""


class _Row(msgspec.Struct, frozen=True):
    name: str
    original: str
    ours: list[str]


class _Document(msgspec.Struct, frozen=True):
    kind: str
    version: int
    boot: str
    interrupts: dict[int, _Row]


learn(_Document)


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
            for left in self._folder.glob(f".{INTERRUPT_FILE}.*"):
                left.unlink()
        try:
            self._text = read_state_file(self._folder / INTERRUPT_FILE)
            if self._text is None:
                return Memory()
            found = msgspec.json.decode(self._text.encode(errors="surrogateescape"), type=_Document)
            if (found.kind, found.version) != (KIND, VERSION):
                raise ValueError(f"a {found.kind} of version {found.version}")  # noqa: TRY301 - as what cannot be decoded
            rows = found.interrupts.items() if found.boot == self._boot else ()
            return Memory(
                {
                    number: Kept(row.name, CPUSet.parse(row.original), tuple(map(CPUSet.parse, row.ours)))
                    for number, row in rows
                }
            )
        except (MooringError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            self.problem = (
                f"{self._folder / INTERRUPT_FILE}: cannot be used, and interrupts stay where they are: {error}"
            )
            return Memory()

    def write(self, memory: Memory) -> bool:
        """Remember; tell whether that is on the disk."""
        rows = {
            number: _Row(one.name, str(one.original), [str(cpus) for cpus in one.ours])
            for number, one in sorted(memory.kept.items())
        }
        text = msgspec.json.encode(_Document(KIND, VERSION, self._boot, rows)).decode()
        if text == self._text or (self._text is None and not memory.kept):
            return True
        try:
            make_folder(self._folder)
            write_together(self._folder, {INTERRUPT_FILE: text})
        except InputError as error:
            self.problem = str(error)
            return False
        self._text, self.problem = text, ""
        return True


class InterruptWriter:
    """Writes affinities, and repeats what the kernel refuses only after some minutes."""

    def __init__(
        self, files: IRQFiles, journal: InterruptJournal, report: Reporter, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Begin without refusals.

        Args:
            files: of the kernel.
            journal: is written before them.
            report: receives every write.
            clock: seconds that never go back.
        """
        self._files, self._journal, self._report, self._clock = files, journal, report, clock
        self._managed: frozenset[tuple[int, str]] = frozenset()
        """Interrupts that the kernel places itself, for ever."""
        self._refused: dict[tuple[int, str], tuple[CPUSet, float]] = {}
        """Sets that the kernel did not take, and when they are tried again."""
        self.unwritable = False
        """Whether the newest write found the files read-only."""

    def known(self, found: tuple[Interrupt, ...]) -> tuple[Interrupt, ...]:
        """Return interrupts with what their refusals have told; refusals of those that are gone are forgotten."""
        keys = {(one.number, one.name) for one in found}
        self._managed &= keys
        self._refused = {key: refusal for key, refusal in self._refused.items() if key in keys}
        return tuple(replace(one, managed=True) if (one.number, one.name) in self._managed else one for one in found)

    def carry_out(self, looked: Sequence[Step], memory: Memory) -> tuple[tuple[Step, ...], Memory]:
        """Write what is to be written; nothing of it when the journal cannot be.

        Returns:
            The steps as they stand now, and what is remembered.
        """
        writes = [step for step in looked if step.write is not None]
        refused: dict[int, CPUSet] = {}
        for step in writes:
            cpus, until = self._refused.get((step.interrupt.number, step.interrupt.name), (None, 0.0))
            if cpus is not None and cpus == step.write and self._clock() < until:
                refused[step.interrupt.number] = step.interrupt.allowed
        # The journal stays as it is while nothing is tried: a refusal may last, and checks are frequent.
        if not self._journal.write(written(memory, refused)):
            # Nothing was written, and what the last check wrote is in the older journal.
            still = {step.interrupt.number: step.interrupt.allowed for step in writes}
            return tuple(looked), written(memory, still)
        self.unwritable = False
        shown: dict[int, CPUSet] = {}
        steps: list[Step] = []
        for step in looked:
            after = step.interrupt.allowed if step.interrupt.number in refused else self._written(step)
            if step.write is not None:
                shown[step.interrupt.number] = after
            steps.append(replace(step, interrupt=replace(step.interrupt, allowed=after)))
        memory = written(memory, shown)
        self._journal.write(memory)
        return tuple(steps), memory

    def _written(self, step: Step) -> CPUSet:
        """Write one affinity where it is to be written, and return what is in force then."""
        one, wanted = step.interrupt, step.write
        key = (one.number, one.name)
        if wanted is None or self.unwritable:
            return one.allowed
        trouble = self._files.write(one.number, wanted)
        shown = one.allowed if trouble is not None else self._files.shown(one.number) or wanted
        if trouble is None and shown == one.allowed:
            trouble = InterruptTrouble.REFUSED
        self.unwritable = trouble is InterruptTrouble.UNWRITABLE
        if trouble is InterruptTrouble.MANAGED:
            self._managed |= {key}
        elif trouble is InterruptTrouble.REFUSED or (trouble is None and shown != wanted):
            # Without an error the interrupt's chip, or another program since, has made something else of it.
            self._refused[key] = wanted, self._clock() + RETRYING
        self._report(step, trouble)
        return shown


def restored_interrupts(files: IRQFiles, writer: InterruptWriter, memory: Memory) -> tuple[Memory, tuple[str, ...]]:
    """Put interrupts back where they were; return what is still remembered, and what is not as before."""
    room = InterruptCPUs(files.online(), CPUSet())
    steps, found = steer(writer.known(files.read()), memory, (), room)
    problems = [
        f"interrupt {number} ({name}): another program has moved it; it is left alone"
        for number, name in found.alone.items()
        if number not in memory.alone
    ]
    after, left = writer.carry_out(steps, found)
    problems += [
        f"interrupt {one.interrupt.number} ({one.interrupt.name}): it may use CPUs {one.interrupt.allowed}, and before "
        f"{one.original}"
        for one in after
        if one.write is not None
    ]
    return left, tuple(problems)


def restore_interrupts(root: str, folder: Path) -> tuple[str, ...]:
    """Put interrupts back where they were, for an agent that leaves; return what is not as before."""
    files = IRQFiles(root)
    journal = InterruptJournal(folder, files.boot())
    memory = journal.read()
    unreadable = (journal.problem,) if journal.problem else ()
    if not memory.kept:
        return unreadable
    writer = InterruptWriter(files, journal, lambda _step, _trouble: None)
    _, problems = restored_interrupts(files, writer, memory)
    return (*unreadable, *problems, *((journal.problem,) if journal.problem else ()))
