"""Files of a world: a folder on a disk that loses what was not synced, control groups of a kernel, faults at each call.

The folder is a real one, so that names, links and locks are the system's. What of it is on the disk is a model: bytes
by sectors of 512, of which any may have been written before a sync, and names in the order in which they were changed.
"""

from __future__ import annotations

import errno
import os
import posixpath
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tests.world.threads import KilledTaskError, Program, StandIn, threads

_SECTOR = 512
_FIRST_NUMBER = 1_000_000
"""Descriptors of files that no real file is behind begin here."""

RATES = {
    "create": (0.05, 0.3),
    "full": (0.05, 0.3),
    "torn": (0.05, 0.3),
    "sync": (0.05, 0.3),
    "hang": (0.05, 0.3),
    "cgroup read": (0.01, 0.1),
    "cgroup open": (0.01, 0.1),
    "cgroup write": (0.02, 0.2),
    "reset": (0.01, 0.05),
    "delay": (0.02, 0.1),
    "pieces": (0.1, 0.5),
    "lost update": (0.1, 0.3),
}
"""By kind of fault: what share of the calls may have it."""
WIRE_RATES = dict.fromkeys(
    ("stray", "garbled", "twice", "swapped", "lost", "deaf", "half closed", "silent"), (0.02, 0.1)
)
"""The same of connections on which anything can come, for lives in which nothing else goes wrong with them."""


class Faults:
    """Draws faults, each kind from its own numbers: without one of them the others stay what they are."""

    def __init__(self, seed: str, rates: dict[str, float], left_out: frozenset[str] = frozenset()) -> None:
        self._seed, self._rates, self._left_out = seed, rates, left_out
        self._numbers: dict[str, random.Random] = {}
        self._counts: dict[str, int] = {}
        self.is_quiet = False
        self.happened: list[str] = []
        """``kind:number`` of each."""

    def numbers(self, kind: str) -> random.Random:
        if kind not in self._numbers:
            self._numbers[kind] = random.Random(f"{self._seed}/{kind}")  # noqa: S311 - repeatable, not secret
        return self._numbers[kind]

    def hit(self, kind: str) -> bool:
        """Tell whether this fault happens now."""
        rate = self._rates.get(kind, 0.0)
        if self.is_quiet or not rate or self.numbers(kind).random() >= rate:
            return False
        self._counts[kind] = self._counts.get(kind, 0) + 1
        name = f"{kind}:{self._counts[kind]}"
        if kind in self._left_out or name in self._left_out:
            return False
        self.happened.append(name)
        return True


class Groups(Protocol):
    """The files of control groups, by their path below the mount."""

    def read(self, path: str) -> str | None: ...

    def write(self, path: str, text: str) -> bool: ...

    def is_group(self, path: str) -> bool: ...


@dataclass
class Disk:
    """What a power loss leaves of the folder of the state."""

    folder: Path
    data: dict[int, bytes] = field(default_factory=dict)
    """By inode: what is on the disk."""
    waiting: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)
    """By inode: what is in memory only."""
    names: dict[str, int] = field(default_factory=dict)
    changes: list[tuple[str, str, int]] = field(default_factory=list)
    """Changes of names that are in memory only: the old name, the new name, the inode; an empty name is none."""

    def written(self, inode: int, offset: int, data: bytes) -> None:
        self.waiting.setdefault(inode, []).append((offset, data))

    def synced(self, inode: int) -> None:
        held = self.data.get(inode, b"")
        for offset, data in self.waiting.pop(inode, []):
            held = _put(held, offset, data)
        self.data[inode] = held

    def survived(self, inode: int, numbers: random.Random) -> bytes:
        held = self.data.get(inode, b"")
        for offset, data in self.waiting.get(inode, []):
            for start in range(offset // _SECTOR * _SECTOR, offset + len(data), _SECTOR):
                first, last = max(start, offset), min(start + _SECTOR, offset + len(data))
                if numbers.random() < 0.5:
                    held = _put(held, first, data[first - offset : last - offset])
        return held

    def lose_power(self, numbers: random.Random) -> None:
        """Replace the folder by what was on the disk."""
        names = dict(self.names)
        for change in self.changes[: numbers.randint(0, len(self.changes))]:
            _rename(names, *change)
        left = {name: self.survived(inode, numbers) for name, inode in names.items()}
        for file in self.folder.iterdir():
            file.unlink()
        for name, data in left.items():
            (self.folder / name).write_bytes(data)
        self.settle()

    def settle(self) -> None:
        """Take everything as being on the disk."""
        self.data, self.waiting, self.names, self.changes = {}, {}, {}, []
        if self.folder.is_dir():
            for file in self.folder.iterdir():
                inode = file.stat().st_ino
                self.names[file.name], self.data[inode] = inode, file.read_bytes()

    def folder_synced(self) -> None:
        for change in self.changes:
            _rename(self.names, *change)
        self.changes = []


def _put(held: bytes, offset: int, data: bytes) -> bytes:
    return held.ljust(offset, b"\0")[:offset] + data + held[offset + len(data) :]


def _rename(names: dict[str, int], old: str, new: str, inode: int) -> None:
    if old:
        names.pop(old, None)
    if new:
        names[new] = inode


class Files:
    """The calls of ``os`` of the programs of a world."""

    def __init__(self, root: Path, disk: Disk, groups: Groups, faults: Faults) -> None:
        self.disk, self.groups, self.faults = disk, groups, faults
        self._state, self._groups = f"{disk.folder}/", f"{root}/sys/fs/cgroup/pods/"
        self._top = len(f"{root}/sys/fs/cgroup")
        self._open: dict[int, tuple[str, Program]] = {}
        self._places: dict[int, int] = {}
        self._made_up: dict[int, str] = {}
        self._next = _FIRST_NUMBER
        self.hanging: set[int] = set()
        """Threads that wait for a disk that does not answer."""

    def open_of(self, program: Program) -> list[str]:
        """Return the paths of the files that a program has open."""
        return [path for path, owner in self._open.values() if owner is program]

    def end(self, program: Program) -> None:
        """Close what a program has open, as the kernel does when it ends."""
        for descriptor in [one for one, (_, owner) in self._open.items() if owner is program]:
            self._forget(descriptor)

    def open(self, path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        threads().step()
        name = os.fspath(path)
        if name.startswith(self._groups):
            return self._open_group(name, flags)
        makes = bool(flags & os.O_EXCL)
        if name.startswith(self._state) and (flags & (os.O_CREAT | os.O_WRONLY)):
            self._may_fail("create", errno.ENOSPC, errno.EIO, errno.EROFS)
        descriptor = os.open(name, flags, mode, **more)
        if flags & os.O_NONBLOCK and not flags & (os.O_CREAT | os.O_WRONLY):
            # Python's own file closes it.
            return descriptor
        self._open[descriptor] = name, threads().task.program
        self._places[descriptor] = 0
        if makes and name.startswith(self._state):
            inode = os.fstat(descriptor).st_ino
            # The number of a file that is gone may be another's.
            self.disk.data.pop(inode, None)
            self.disk.waiting.pop(inode, None)
            self.disk.changes.append(("", posixpath.basename(name), inode))
        return descriptor

    def close(self, descriptor: int) -> None:
        if threads().task.program.is_dead:
            raise KilledTaskError
        self._forget(descriptor)

    def write(self, descriptor: int, data: Any) -> int:
        threads().step()
        if descriptor in self._made_up:
            return self._write_group(self._made_up[descriptor], bytes(data))
        path = self._open.get(descriptor, ("",))[0]
        if not path.startswith(self._state):
            return os.write(descriptor, data)
        place = self._places[descriptor]
        count = self._to_disk(descriptor, bytes(data), place, lambda part: os.write(descriptor, part))
        self._places[descriptor] = place + count
        return count

    def pwrite(self, descriptor: int, data: Any, place: int) -> int:
        threads().step()
        return self._to_disk(descriptor, bytes(data), place, lambda part: os.pwrite(descriptor, part, place))

    def read(self, descriptor: int, count: int) -> bytes:
        threads().step()
        if descriptor not in self._made_up:
            return os.read(descriptor, count)
        if self.faults.hit("cgroup read"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        found = self.groups.read(self._made_up[descriptor])
        if found is None:
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return f"{found}\n".encode()

    def sync(self, descriptor: int) -> None:
        threads().step()
        path = self._open.get(descriptor, ("",))[0]
        if self.faults.hit("hang"):
            task = threads().task
            self.hanging.add(task.number)
            try:
                threads().sleep(self.faults.numbers("hanging").choice([0.3, 0.7, 3.0, 20.0, 90.0]))
            finally:
                self.hanging.discard(task.number)
        if path == str(self.disk.folder):
            self._may_fail("sync", errno.EIO)
            self.disk.folder_synced()
        elif path.startswith(self._state):
            inode = os.fstat(descriptor).st_ino
            if self.faults.hit("sync"):
                # The kernel forgets that the pages were to be written.
                self.disk.data[inode] = self.disk.survived(inode, self.faults.numbers("sectors"))
                self.disk.waiting.pop(inode, None)
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            self.disk.synced(inode)

    def replace(self, old: Any, new: Any) -> None:
        threads().step()
        old, new = os.fspath(old), os.fspath(new)
        if new.startswith(self._state):
            self._may_fail("create", errno.EIO, errno.ENOSPC)
            inode = os.stat(old).st_ino  # noqa: PTH116 - paths end up here
            self.disk.changes.append((posixpath.basename(old), posixpath.basename(new), inode))
        os.replace(old, new)  # noqa: PTH105 - as above

    def unlink(self, path: Any, **more: Any) -> None:
        threads().step()
        os.unlink(path, **more)
        name = os.fspath(path)
        if name.startswith(self._state):
            self.disk.changes.append((posixpath.basename(name), "", 0))

    def changed(self, name: str) -> Callable[..., Any]:
        """Return a call that changes folders, for programs that live."""

        def call(*given: Any, **more: Any) -> Any:
            if threads().task.program is not threads().outside:
                threads().step()
            return getattr(os, name)(*given, **more)

        return call

    def is_folder(self, path: Any) -> bool:
        name = os.fspath(path)
        return self.groups.is_group(name[self._top :]) if name.startswith(self._groups) else posixpath.isdir(name)

    def exists(self, path: Any) -> bool:
        name = os.fspath(path)
        if not name.startswith(self._groups):
            return posixpath.exists(name)
        return self.groups.is_group(name[self._top :]) or self.groups.read(name[self._top :]) is not None

    def _open_group(self, name: str, flags: int) -> int:
        path = name[self._top :]
        if self.groups.read(path) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not flags & os.O_WRONLY and self.faults.hit("cgroup open"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._next += 1
        self._made_up[self._next] = path
        self._open[self._next] = name, threads().task.program
        return self._next

    def _write_group(self, path: str, data: bytes) -> int:
        if self.faults.hit("cgroup write"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if not self.groups.write(path, data.decode().strip()):
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return len(data)

    def _to_disk(self, descriptor: int, data: bytes, place: int, write: Callable[[bytes], int]) -> int:
        inode = os.fstat(descriptor).st_ino
        if len(data) > 10 and self.faults.hit("torn"):
            part = data[: self.faults.numbers("tearing").randrange(1, len(data))]
            self.disk.written(inode, place, part[: write(part)])
            if self.faults.numbers("tearing").random() < 0.5:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return len(part)
        self._may_fail("full", errno.ENOSPC)
        count = write(data)
        self.disk.written(inode, place, data[:count])
        return count

    def _may_fail(self, kind: str, *errors: int) -> None:
        if self.faults.hit(kind):
            number = self.faults.numbers("errors").choice(errors)
            raise OSError(number, os.strerror(number))

    def _forget(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        self._places.pop(descriptor, None)
        if self._made_up.pop(descriptor, None) is None:
            os.close(descriptor)


class CurrentFiles:
    """The files of this process's world."""

    files: Files


def _call(name: str) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        return getattr(CurrentFiles.files, name)(*given, **more)

    return call


def _changed(name: str) -> Callable[..., Any]:
    def call(*given: Any, **more: Any) -> Any:
        return CurrentFiles.files.changed(name)(*given, **more)

    return call


PATHS = StandIn(posixpath, isdir=_call("is_folder"), exists=_call("exists"))
OS = StandIn(
    os,
    path=PATHS,
    open=_call("open"),
    close=_call("close"),
    write=_call("write"),
    pwrite=_call("pwrite"),
    read=_call("read"),
    fsync=_call("sync"),
    fdatasync=_call("sync"),
    replace=_call("replace"),
    unlink=_call("unlink"),
    posix_fadvise=lambda *_: None,
    getpid=lambda: 4711,
    mkdir=_changed("mkdir"),
    rmdir=_changed("rmdir"),
    chmod=_changed("chmod"),
)
