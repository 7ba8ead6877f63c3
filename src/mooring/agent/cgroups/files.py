"""Reading and writing one file of a control group, with the kernel's "no" as a type.

Source of the error numbers: kernel/cgroup/cpuset.c; seen on kernels 6.1 (version 2) and 6.18 (version 1).
"""

from __future__ import annotations

import errno
import os
from enum import Enum
from typing import Final

from mooring.core.errors import MooringError

_CHUNK_BYTES: Final = 65536
"""Far more than the list of CPUs of any machine: the kernel hands it out at once."""


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
