"""The file of the journal: two slots for whole records, written in turn and in place.

A reply waits for the journal. A new file that takes the old one's place changes a folder and an inode, for which the
file system has to commit its own journal; bytes of a file that lie on the disk already only have to be written again.
While a slot is written the other one is whole, so a crash at any byte leaves the record before or the new one. Which
record is newer its own number tells.

An agent that ends replaces the file by its last record alone, which is the format of an agent without slots.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from mooring.engine.checkpoint.store import SIZE_LIMIT, write_atomically

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
        if not self._write_in_place(data):
            self._replace(data)

    def seal(self, text: str) -> None:
        """Replace the file by a record alone. Raises InputError as :meth:`write`."""
        self._slot_size = 0
        write_atomically(self._path, text)

    def _write_in_place(self, data: bytes) -> bool:
        """Write a slot; return whether it is on the disk. If not, the file may be gone or another one."""
        if len(data) > self._slot_size:
            return False
        try:
            # Opened each time: a file open for writing would keep an administrator from making its disk read-only.
            descriptor = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                if _identity(descriptor) != self._made:
                    return False
                _write_at(descriptor, data, self._next * self._slot_size)
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        except OSError:
            # What the slot holds now is unknown: the next record may not go to the other one.
            self._slot_size = 0
            return False
        self._next = 1 - self._next
        return True

    def _replace(self, data: bytes) -> None:
        """Make a file with this record in both slots, with room for growth."""
        self._slot_size = 0
        room = max(len(data), min(len(data) * 3 // 2, SIZE_LIMIT // 2))
        size = -(-room // _STEP) * _STEP
        # Written now, not only reserved: a write in place then changes nothing that the file system keeps of the file.
        whole = data.ljust(size, _END) * 2
        write_atomically(self._path, whole.decode(errors="surrogateescape"))
        with suppress(OSError):
            found = self._path.lstat()
            self._made = found.st_dev, found.st_ino, found.st_size
            self._slot_size, self._next = size, 0


def records_in(text: str, head: str) -> tuple[str, ...]:
    """Return the one or two texts in a file that may be records.

    Args:
        text: of the file, whole or damaged.
        head: with which each record begins, and which is nowhere within one.
    """
    starts = dict.fromkeys((0, max(text.rfind(head), 0)))
    return tuple(text[start:].partition("\n")[0] for start in starts)


def _identity(descriptor: int) -> tuple[int, int, int]:
    found = os.fstat(descriptor)
    return found.st_dev, found.st_ino, found.st_size


def _write_at(descriptor: int, data: bytes, place: int) -> None:
    left = memoryview(data)
    while left:
        written = os.pwrite(descriptor, left, place)
        left, place = left[written:], place + written
