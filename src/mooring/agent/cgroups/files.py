"""The file system of control groups: where a machine has it, and one file of a group, with the kernel's "no" as a type.

Source: proc_pid_mountinfo(5), cgroups(7); of the error numbers kernel/cgroup/cpuset.c, seen on kernels 6.1 (version 2)
and 6.18 (version 1).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple

from mooring.engine.core.errors import InputError, MooringError

_CHUNK_BYTES: Final = 65536
"""Far more than the list of CPUs of any machine: the kernel hands it out at once."""
MOUNTS: Final = "proc/self/mountinfo"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel writes spaces and the like in paths."""


class CGroupTrouble(Enum):
    """Why the kernel did not do what was asked; the value is the name in logs and metrics."""

    GONE = "gone"
    """There is no such group: the container has ended, or was never there."""
    NOT_FOUND = "not-found"
    """There is no such group, and the container has not ended as far as can be seen: it must be elsewhere."""
    NO_CONTROLLER = "no-controller"
    """The group is there and has no such file: the controller is not enabled for it."""
    NOT_PERMITTED = "not-permitted"
    """The agent may not write there."""
    OUT_OF_RANGE = "out-of-range"
    """The machine has no such CPU or NUMA node."""
    OUTSIDE_PARENT = "outside-parent"
    """The group above does not have it (version 1)."""
    BUSY = "busy"
    """A group below or beside holds it (version 1; exclusive groups in both)."""
    NO_ROOM = "no-room"
    """Processes of the group would have nothing left."""
    REFUSED = "refused"
    """The kernel does not take the value, for example a NUMA node without memory."""
    NOT_TAKEN = "not-taken"
    """The kernel took the value without an error and shows another one."""


class GroupError(MooringError):
    """A file of a control group that could not be read or written.

    Attributes:
        trouble: what kind of no it is.
        path: of the file or folder.
    """

    def __init__(self, trouble: CGroupTrouble, path: str, detail: str = "") -> None:
        self.trouble = trouble
        self.path = path
        super().__init__(f"{path}: {trouble.value.replace('-', ' ')}" + (f" ({detail})" if detail else ""))


_OF_WRITE: Final = {
    errno.ERANGE: CGroupTrouble.OUT_OF_RANGE,
    errno.EACCES: CGroupTrouble.OUTSIDE_PARENT,
    errno.EBUSY: CGroupTrouble.BUSY,
    errno.ENOSPC: CGroupTrouble.NO_ROOM,
    errno.ENODEV: CGroupTrouble.GONE,
    errno.ENOENT: CGroupTrouble.GONE,
    errno.EPERM: CGroupTrouble.NOT_PERMITTED,
}


def read(path: str) -> str:
    """Return what a file shows, without the line break.

    Raises:
        GroupError: when it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _CHUNK_BYTES).decode("ascii", "replace").strip()
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _refusal(error, path) from None


def write(path: str, text: str) -> None:
    """Write a value in one call, as the kernel wants it.

    The line break is part of what is written: a write of no bytes is a silent nothing and would leave the old value.

    Raises:
        GroupError: when the kernel says no.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(error, path) from None
    data = f"{text}\n".encode("ascii")
    try:
        if os.write(descriptor, data) != len(data):
            raise GroupError(CGroupTrouble.NOT_TAKEN, path, "only a part was taken")
    except OSError as error:
        trouble = _OF_WRITE.get(error.errno or 0, CGroupTrouble.REFUSED)
        raise GroupError(trouble, path, f"{text or 'nothing'}: {error.strerror}") from None
    finally:
        os.close(descriptor)


def _refusal(error: OSError, path: str) -> GroupError:
    if error.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENODEV}:
        there = os.path.isdir(os.path.dirname(path))  # noqa: PTH112, PTH120 - paths are texts here: one per container
        return GroupError(CGroupTrouble.NO_CONTROLLER if there else CGroupTrouble.GONE, path)
    return GroupError(CGroupTrouble.NOT_PERMITTED, path, error.strerror or "")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One tree of groups."""

    version: int
    """1 or 2."""
    mount: str
    """Where it is mounted, below the root path that tests may choose."""
    controller: str
    """``cpuset`` or ``cpu``."""
    top: str = "/"
    """Which group is seen at the mount point; another one than ``/`` inside of containers."""

    def folder(self, path: str) -> str | None:
        """Return the folder of a group, given its path from the true top; None when it is not below what is mounted.

        >>> Hierarchy(1, "/sys/fs/cgroup/cpuset", "cpuset").folder("kubepods/podb2")
        '/sys/fs/cgroup/cpuset/kubepods/podb2'
        >>> Hierarchy(2, "/host", "cpuset", "/a").folder("a/b"), Hierarchy(2, "/host", "cpuset", "/a").folder("b")
        ('/host/b', None)
        """
        top = self.top.strip("/")
        path = path.strip("/")
        if top and path != top and not path.startswith(f"{top}/"):
            return None
        return f"{self.mount}/{path[len(top) :].strip('/')}".rstrip("/")

    def path(self, folder: str) -> str:
        """Return the path of a folder below the mount point.

        >>> Hierarchy(1, "/sys/fs/cgroup/cpuset", "cpuset").path("/sys/fs/cgroup/cpuset/kubepods")
        'kubepods'
        """
        return folder[len(self.mount) :].strip("/")


@dataclass(frozen=True, slots=True)
class CGroupLayout:
    """The control groups of a machine."""

    root: str
    """Where the machine's ``/`` is; empty for the machine itself."""
    cpuset: Hierarchy
    cpu: Hierarchy | None
    """None when no CFS quota can be set on this machine."""


class _Mount(NamedTuple):
    kind: str
    point: str
    top: str
    options: frozenset[str]


def find_layout(root: Path = Path("/")) -> CGroupLayout:
    """Look where the control groups are.

    Args:
        root: the machine's ``/``; another folder in tests, and where the agent sees the host's files elsewhere.

    Raises:
        InputError: when there is no cpuset controller.
    """
    base = str(root).rstrip("/")
    source = f"{base}/{MOUNTS}"
    try:
        text = Path(source).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise InputError(f"the mounts cannot be read: {error.strerror}", source=source) from None
    mounts = tuple(_mounts(text))
    cpuset = _hierarchy(base, mounts, "cpuset")
    if cpuset is None:
        raise InputError(
            "no cpuset controller is mounted",
            source=source,
            remedy="mount control groups with cpuset, version 2 with the controller in cgroup.controllers",
        )
    return CGroupLayout(base, cpuset, _hierarchy(base, mounts, "cpu"))


def _hierarchy(base: str, mounts: tuple[_Mount, ...], controller: str) -> Hierarchy | None:
    """Return where a controller is; it is in one hierarchy only, and of several mounts the first one serves."""
    for mount in mounts:
        point = f"{base}{mount.point}"
        if mount.kind == "cgroup" and controller in mount.options:
            return Hierarchy(1, point, controller, _top(mount))
        if mount.kind == "cgroup2":
            with suppress(OSError, UnicodeDecodeError):
                if controller in Path(point, "cgroup.controllers").read_text(encoding="ascii").split():
                    return Hierarchy(2, point, controller, _top(mount))
    return None


def _top(mount: _Mount) -> str:
    """Return which group is seen at a mount point.

    In a container with a cgroup namespace the kernel shows the host's top, when it is mounted there, as ``/../..``.
    """
    return "/" if set(mount.top.strip("/").split("/")) == {".."} else mount.top


def _mounts(text: str) -> Iterator[_Mount]:
    # Of all that Python takes for the end of a line the kernel escapes only one, and the byte 0 is in no path.
    for line in text.split("\n"):
        before, dash, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if dash and len(fields) >= 6 and len(rest) >= 3 and rest[0] in {"cgroup", "cgroup2"}:
            if "\0" in _plain(fields[4]):
                continue
            yield _Mount(rest[0], _plain(fields[4]), _plain(fields[3]), frozenset(rest[2].split(",")))


def _plain(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
