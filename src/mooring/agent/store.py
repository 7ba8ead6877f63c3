"""The agent's own folder: the journal, and the state files in the kubelet's formats.

Nothing is ever written under the kubelet's root. The journal is what counts: it holds the state files' texts too, and
is on the disk before a reply. The state files follow when no reply waits: they are for the tools that read a kubelet's
files, and for the day on which the journal is damaged. Reading never fails: what is missing or damaged is reported,
and what is left is used.

The journal's file has two slots for whole records, written in turn and in place. A reply waits for the journal. A new
file that takes the old one's place changes a folder and an inode, for which the file system has to commit its own
journal; bytes of a file that lie on the disk already only have to be written again. While a slot is written the other
one is whole, so a crash at any byte leaves the record before or the new one. Which record is newer its own number
tells. An agent that ends replaces the file by its last record alone, which is the format of an agent without slots.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from mooring.agent.effects import AgentReport, ReportKind
from mooring.agent.journal import JournalError, JournalWriter, read_newest
from mooring.agent.reactor.recovery import Stored
from mooring.agent.state import AgentState
from mooring.engine.checkpoint import store as checkpoint
from mooring.engine.core.errors import InputError
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE
from mooring.service.agent_options import is_of_system

_STEP = 64 * 1024
"""Slots are multiples of this many bytes, so that no block of the disk belongs to both."""
_END = b"\n"
"""Ends a record, which is JSON on one line, and fills what no record has reached."""


class JournalFile:
    """The file of an agent that runs; calls come one after another."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._slot_size = 0
        """Bytes; 0 as long as this process has made no file."""
        self._next = 0
        self._made: tuple[int, int, int] | None = None

    def write(self, text: str) -> None:
        """Bring a record to the disk.

        Raises:
            InputError: that fails. The file holds the record before, or this one.
        """
        data = text.encode(errors="surrogateescape") + _END
        if self._write_in_place(data):
            return
        # A file with this record in both slots, with room for growth
        self._slot_size = 0
        room = max(len(data), min(len(data) * 3 // 2, checkpoint.SIZE_LIMIT // 2))
        size = -(-room // _STEP) * _STEP
        # Written now, not only reserved: a write in place then changes nothing that the file system keeps of the file.
        whole = data.ljust(size, _END) * 2
        checkpoint.write_atomically(self._path, whole.decode(errors="surrogateescape"))
        with suppress(OSError):
            found = self._path.lstat()
            self._made = found.st_dev, found.st_ino, found.st_size
            self._slot_size, self._next = size, 0

    def seal(self, text: str) -> None:
        """Replace the file by a record alone. Raises InputError as :meth:`write`."""
        self._slot_size = 0
        checkpoint.write_atomically(self._path, text)

    def _write_in_place(self, data: bytes) -> bool:
        """Write a slot; return whether it is on the disk. If not, the file may be gone or another one."""
        if len(data) > self._slot_size:
            return False
        try:
            # Opened each time: a file open for writing would keep an administrator from making its disk read-only.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                found = os.fstat(descriptor)
                if (found.st_dev, found.st_ino, found.st_size) != self._made:
                    return False
                place = self._next * self._slot_size
                left = memoryview(data)
                while left:
                    written = os.pwrite(descriptor, left, place)
                    left, place = left[written:], place + written
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            # What the slot holds now is unknown: the next record may not go to the other one.
            self._slot_size = 0
            return False
        self._next = 1 - self._next
        return True


JOURNAL_FILE = "journal.json"
DAMAGED_FILE = f"{JOURNAL_FILE}.bak"
"""The newest journal that was found damaged, as it was."""
MACHINE_FILE = "machine.json"
"""The machine with its offline CPUs too, where these may come back."""
INTERRUPT_FILE = "interrupts.json"
"""Original affinities of interrupts that were moved (:mod:`mooring.agent.interrupts.files`)."""
LOCK_FILE = "lock"
LOCK_PATIENCE = 3.0
"""Seconds that a starting agent waits for one that is ending."""
_LOCK_PAUSE = 0.05
KUBELET_MARKS = ("pods", "plugins_registry", "kubelet_internal_checkpoint")
"""Names of files in a kubelet's root directory."""
KUBELET_ROOT = Path("/var/lib/kubelet")
"""A kubelet's root directory by default; at a boot of a new node the agent may be there first."""


class Store:
    """A folder that one agent writes; calls come one after another, except :meth:`write_files` from another thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._writer = JournalWriter()
        self._file = JournalFile(folder / JOURNAL_FILE)
        self._sequence = 0
        self._state: AgentState | None = None
        """The newest that this process has written."""
        self._followed: AgentState | None = None
        """The newest that the state files say."""
        self._written: Mapping[str, str] = {}
        """Texts of the state files in the folder, as far as this process has written them."""
        self._damaged = ""
        self._lock = -1

    def read(self) -> Stored:
        """Return what the folder holds; of a folder that is not there: nothing."""
        reports: list[AgentReport] = []
        journal, text = None, self._text(JOURNAL_FILE, reports)
        if text is not None:
            used = "the other record is used"
            try:
                journal, problem = read_newest(text)
            except JournalError as error:
                problem, used = str(error), "the state files are used"
            if problem:
                self._damaged = text
                reports.append(AgentReport(ReportKind.STATE_DAMAGED, f"{JOURNAL_FILE}: {problem}; {used}"))
        texts = StateTexts(self._text(CPU_FILE, reports), self._text(MEMORY_FILE, reports))
        if journal is None:
            if texts != StateTexts() and not reports:
                reports.append(
                    AgentReport(ReportKind.STATE_DAMAGED, f"{JOURNAL_FILE}: missing; the state files are used")
                )
            return Stored(texts, reports=tuple(reports))
        reports += [
            AgentReport(ReportKind.STATE_DIFFERED, f"{name}: is not what the journal says; the journal counts")
            for name, own, beside in (
                (CPU_FILE, journal.texts.cpu, texts.cpu),
                (MEMORY_FILE, journal.texts.memory, texts.memory),
            )
            # An agent that was killed has left state files that were to follow yet.
            if not journal.sequence and own is not None and beside is not None and own != beside
        ]
        return replace(journal, reports=tuple(reports))

    def write(self, state: AgentState) -> str:
        """Write a state into the journal; return the problem in words, empty when there is none.

        After a problem the folder holds an older state or this one, whole.
        """
        self._sequence += 1
        try:
            checkpoint.make_folder(self.folder)
            damaged, self._damaged = self._damaged, ""
            if damaged:
                # Kept beside the one that is about to take its place.
                with suppress(InputError):
                    checkpoint.write_atomically(self.folder / DAMAGED_FILE, damaged)
            self._file.write(self._writer.text(state, self._sequence))
        except InputError as error:
            return str(error)
        self._state = state
        return ""

    def write_files(self) -> str:
        """Let the state files follow the journal; return the problem in words, empty when there is none."""
        state = self._state
        if state is None or state is self._followed:
            return ""
        try:
            self._write_changed(state)
        except InputError as error:
            return str(error)
        self._followed = state
        return ""

    def finish(self) -> str:
        """Leave a folder whose files all say the same, in the formats of an agent without slots in its journal.

        Returns:
            The problem in words, empty when there is none. The journal is whole even then.
        """
        if self._state is None:
            return ""
        try:
            self._write_changed(self._state)
            # What counts comes last.
            self._file.seal(self._writer.text(self._state))
        except InputError as error:
            return str(error)
        return ""

    def check(self) -> None:
        """Refuse a folder in which a kubelet lives, and every folder below: nothing is written under its root.

        Raises:
            InputError: it is, or looks like, a kubelet's root directory or a folder in it; or its path cannot be one.
        """
        try:
            folder = self.folder.resolve()
            marked = _marked(folder)
        except (OSError, RuntimeError) as error:
            # A disk that fails does not keep the agent from running; the first write reports it.
            if not isinstance(error, OSError) or error.errno != errno.ENAMETOOLONG:
                return
            problem = f"cannot be the folder of the state: {checkpoint.system_words(error)}"
            raise InputError(problem, source=f"{self.folder!s:.120}", remedy="name another") from None
        if is_of_system(str(folder)):
            # A symbolic link that the configuration does not show.
            problem = f"is {folder}, a folder of the system"
            raise InputError(problem, source=str(self.folder), remedy="give the agent a folder of its own")
        if marked is not None:
            root, name = marked
            problem = f"looks like the root directory of a kubelet: it has {name}"
        elif folder.is_relative_to(KUBELET_ROOT):
            root, problem = KUBELET_ROOT, "is the root directory of the kubelet"
        else:
            return
        problem = problem if root == folder else f"lies in {root}, which {problem}"
        raise InputError(problem, source=str(self.folder), remedy="give the agent a folder of its own")

    def lock(self, patience: float | None = None, pause: Callable[[float], object] | None = None) -> str:
        """Keep other agents out of the folder until this process ends, however it does.

        Args:
            patience: seconds to wait for an agent that is ending; :data:`LOCK_PATIENCE` by default.
            pause: waits for some seconds.

        Returns:
            Why there can be no lock, in words, where the folder cannot be written; empty when it is held.

        Raises:
            InputError: another agent holds it.
        """
        try:
            checkpoint.make_folder(self.folder)
            # Opened for reading, it can be had in a folder that has become read-only, and does not keep it from that.
            # Without O_NONBLOCK a named pipe in its place would hold the agent for ever.
            flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._lock = os.open(self.folder / LOCK_FILE, flags, 0o600)
            self._flock(LOCK_PATIENCE if patience is None else patience, pause or threading.Event().wait)
        except BlockingIOError:
            self.unlock()
            raise InputError(
                "another agent uses this folder", source=str(self.folder), remedy="stop it, or give each its own"
            ) from None
        except InputError as error:
            return str(error)
        except OSError as error:
            self.unlock()
            return f"{self.folder / LOCK_FILE}: cannot be locked: {checkpoint.system_words(error)}"
        self._tidy()
        return ""

    def unlock(self) -> None:
        """Let another agent in."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _flock(self, patience: float, pause: Callable[[float], object]) -> None:
        """Take the lock, again and again while another process holds it; raises BlockingIOError in the end."""
        end = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise
                pause(_LOCK_PAUSE)
            else:
                return

    def _tidy(self) -> None:
        """Remove what an agent that was killed in the middle of a write left behind: it fills the disk in the end."""
        with suppress(OSError):
            for name in (CPU_FILE, MEMORY_FILE, JOURNAL_FILE, MACHINE_FILE):
                for left in self.folder.glob(f".{name}.*"):
                    left.unlink()

    def _write_changed(self, state: AgentState) -> None:
        files = state.kubelet.files
        texts = {name: text for name, text in ((CPU_FILE, files.cpu), (MEMORY_FILE, files.memory)) if text is not None}
        before, self._written = self._written, {}
        changed = {
            name: text
            for name, text in texts.items()
            if before.get(name) != text or not os.path.exists(f"{self.folder}/{name}")  # noqa: PTH110 - a Path is slow
        }
        checkpoint.write_together(self.folder, changed)
        self._written = texts

    def _text(self, name: str, reports: list[AgentReport]) -> str | None:
        try:
            return checkpoint.read_state_file(self.folder / name)
        except InputError as error:
            reports.append(AgentReport(ReportKind.STATE_DAMAGED, str(error)))
            return None


def _marked(folder: Path) -> tuple[Path, str] | None:
    """Return a kubelet's root directory, a folder or one above it, and what it is known by; raises OSError."""
    for one in (folder, *folder.parents):
        found = [name for name in KUBELET_MARKS if (one / name).exists()]
        # Folders above are many and not the agent's: one that has something called pods is not a kubelet's for that.
        if len(found) > (one != folder):
            return one, found[0]
    return None
