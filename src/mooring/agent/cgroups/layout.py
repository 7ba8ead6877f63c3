"""Where a machine has its control groups: version, mount points, controllers.

Source: proc_pid_mountinfo(5), cgroups(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from mooring.core.errors import InputError

MOUNTS: Final = "proc/self/mountinfo"
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
"""How the kernel writes spaces and the like in paths."""


class Version(Enum):
    """Versions as people call them."""

    V1 = "v1"
    HYBRID = "hybrid"
    """Version 2 is mounted beside, without the controllers that matter here."""
    V2 = "v2"


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
    version: Version
    cpuset: Hierarchy
    cpu: Hierarchy | None
    """None when no CFS quota can be set on this machine."""


@dataclass(frozen=True, slots=True)
class _Mount:
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
    second = any(mount.kind == "cgroup2" for mount in mounts)
    version = Version.V2 if cpuset.version == 2 else Version.HYBRID if second else Version.V1
    return CGroupLayout(base, version, cpuset, _hierarchy(base, mounts, "cpu"))


def _hierarchy(base: str, mounts: tuple[_Mount, ...], controller: str) -> Hierarchy | None:
    """Return where a controller is; it is in one hierarchy only, and of several mounts the first one serves."""
    for mount in mounts:
        point = f"{base}{mount.point}"
        if mount.kind == "cgroup" and controller in mount.options:
            return Hierarchy(1, point, controller, mount.top)
        if mount.kind == "cgroup2" and controller in _controllers(point):
            return Hierarchy(2, point, controller, mount.top)
    return None


def _controllers(point: str) -> list[str]:
    try:
        return Path(point, "cgroup.controllers").read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError):
        return []


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
