"""The timeline of a node on disk, so that a restart of the page does not lose it: the last day, within some bytes.

A folder of files that are appended to. Each moment is a frame: time, length, and the snapshot as packed JSON. A program
that is killed leaves at most one frame that is cut short, which the next one removes.
"""

from __future__ import annotations

import json
import os
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Final

import msgspec

from mooring.engine.checkpoint.store import make_folder, system_words
from mooring.engine.core.errors import InputError
from mooring.monitoring.serve.recording import Recorded
from mooring.monitoring.serve.snapshot import NodeNotice, NodeSnapshot, PendingRelease, ShownPod
from mooring.views.view import NodeView

DAY: Final = 86_400.0
"""Seconds for which moments are kept."""
MOMENTS: Final = 256
"""Of one file."""
LARGEST: Final = 128 * 1024 * 1024
"""Bytes of all files together: 18,000 moments of a node with 512 CPUs."""
_NAME: Final = "timeline-{:06}.moments"
_PATTERN: Final = "timeline-*.moments"
_MAGIC: Final = b"mooring\x01"
_FRAME: Final = struct.Struct(">dI")
_LARGEST_MOMENT: Final = 16 * 1024 * 1024
"""Bytes of one moment, packed or not."""


class KeptMoment(msgspec.Struct, array_like=True):
    """A snapshot without what only the present can be asked."""

    view: NodeView
    pods: tuple[ShownPod, ...]
    pending: tuple[PendingRelease, ...]
    notices: tuple[NodeNotice, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    at: float
    file: int
    offset: int
    length: int


class SnapshotHistory:
    """Written by one program, see :class:`mooring.monitoring.serve.recording.KeptMoments`."""

    def __init__(self, folder: Path, report: Callable[[str], object], clock: Callable[[], float] = time.time) -> None:
        """Find what a page before has kept.

        Args:
            folder: is made where there is none.
            report: receives why a moment cannot be kept.
            clock: Unix time.

        Raises:
            InputError: the folder cannot be used.
        """
        self._folder, self._report, self._clock = make_folder(folder), report, clock
        self._troubled = False
        self._places: list[_Place] = []
        self.first = 1
        try:
            files = sorted(number for path in folder.glob(_PATTERN) if (number := _number(path)))
            for number in files:
                self._places += _frames(self._path(number), number)
            self._file = files[-1] if files else 0
            self._in_file = MOMENTS  # a page writes files of its own
            self._forget()
        except OSError as error:
            raise InputError(f"cannot be read: {system_words(error)}", source=str(folder)) from None

    @property
    def last(self) -> int:
        """See :class:`mooring.monitoring.serve.recording.KeptMoments`."""
        return self.first + len(self._places) - 1

    def add(self, moment: Recorded) -> None:
        """Keep a moment; one that cannot be written is reported once, and has no picture later."""
        data = packed(moment.snapshot)
        try:
            place = self._written(moment.at, data)
        except OSError as error:
            place, self._in_file = _Place(moment.at, 0, 0, 0), MOMENTS
            if not self._troubled:
                self._report(f"{self._folder}: the timeline cannot be written: {system_words(error)}")
            self._troubled = True
        else:
            self._troubled = False
        self._places.append(place)

    def at(self, number: int) -> Recorded:
        """Return a moment.

        Raises:
            InputError: it cannot be read.
        """
        place = self._places[number - self.first]
        path = self._path(place.file)
        try:
            with path.open("rb") as file:
                file.seek(place.offset)
                data = file.read(place.length)
        except OSError as error:
            raise InputError(f"cannot be read: {system_words(error)}", source=str(path)) from None
        return Recorded(number, place.at, unpacked(data, source=str(path)))

    def _path(self, number: int) -> Path:
        return self._folder / _NAME.format(number)

    def _written(self, at: float, data: bytes) -> _Place:
        if self._in_file >= MOMENTS:
            self._forget()
            self._file += 1
            self._in_file = 0
        path = self._path(self._file)
        with path.open("ab", buffering=0) as file:
            before = file.tell()
            head = _FRAME.pack(at, len(data))
            if before == 0:
                path.chmod(0o600)
                head = _MAGIC + head
            try:
                _write(file, head + data)
            except OSError:
                _cut(path, before)
                raise
        self._in_file += 1
        return _Place(at, self._file, before + len(head), len(data))

    def _forget(self) -> None:
        """Remove files whose newest moment is older than a day, and the oldest beyond so many bytes."""
        sizes: dict[int, int] = {}
        newest: dict[int, float] = {}
        for one in self._places:
            sizes[one.file] = sizes.get(one.file, 0) + one.length
            newest[one.file] = one.at
        total = sum(sizes.values())
        for number in sorted(sizes):
            if newest[number] >= self._clock() - DAY and total <= LARGEST:
                break
            total -= sizes[number]
            self._path(number).unlink(missing_ok=True)
            kept = [one for one in self._places if one.file != number]
            self.first += len(self._places) - len(kept)
            self._places = kept


def _write(file: FileIO, data: bytes) -> None:
    left = memoryview(data)
    while left:  # a disk that is nearly full takes a part, and reports the error at the next part
        left = left[file.write(left) :]


def _cut(path: Path, size: int) -> None:
    """Remove what was written of a frame; what remains of it is removed at the next start."""
    with suppress(OSError):
        if size:
            os.truncate(path, size)
        else:
            path.unlink()


def packed(snapshot: NodeSnapshot) -> bytes:
    """Return a snapshot as bytes."""
    kept = KeptMoment(snapshot.view, snapshot.pods, snapshot.pending, snapshot.notices)
    # CPU masks are longer than the integers that msgspec writes.
    return zlib.compress(json.dumps(msgspec.to_builtins(kept, str_keys=True)).encode(), 6)


def unpacked(data: bytes, *, source: str) -> NodeSnapshot:
    """Return the snapshot that bytes hold.

    Raises:
        InputError: they hold none.
    """
    try:
        text = zlib.decompressobj().decompress(data, _LARGEST_MOMENT)
        kept = msgspec.convert(json.loads(text), KeptMoment, str_keys=True)
    except (zlib.error, ValueError, RecursionError, msgspec.ValidationError):
        remedy = "remove the file if the timeline is not needed"
        raise InputError("a moment of the timeline is damaged", source=source, remedy=remedy) from None
    return NodeSnapshot(kept.view, kept.pods, kept.pending, kept.notices)


def _number(path: Path) -> int:
    text = path.name.removeprefix("timeline-").removesuffix(".moments")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else 0


def _frames(path: Path, number: int) -> list[_Place]:
    """Return the places of a file's moments, and cut off a last one that is not whole."""
    found: list[_Place] = []
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            return []
        offset = len(_MAGIC)
        while len(head := file.read(_FRAME.size)) == _FRAME.size:
            at, length = _FRAME.unpack(head)
            if length > _LARGEST_MOMENT or offset + _FRAME.size + length > size:
                break
            found.append(_Place(at, number, offset + _FRAME.size, length))
            offset += _FRAME.size + length
            file.seek(offset)
    if offset < size:
        with path.open("r+b") as file:
            file.truncate(offset)
    return found
