"""Which CPUs and memory nodes the snapshot's own control group may use.

A snapshot is taken by some process, and the files of its cpuset are part of it: on a machine where a batch job took the
snapshot, hwloc shows what the job could use. Source: kernel Documentation/admin-guide/cgroup-v1/cpusets.rst and
cgroup-v2.rst; hwloc 2.14 for the order of search.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mooring.inputs.machines.hardware.kernelfiles import read_list
from mooring.inputs.machines.tree import Tree

_LINE_CHARS: Final = 4096
_PATH_CHARS: Final = 255
"""hwloc reads no longer lines of the mount table and opens no longer paths."""
_ESCAPE: Final = re.compile(r"\\(040|011|012|134)")


@dataclass(frozen=True, slots=True)
class Allowed:
    """Masks of what is allowed; None means everything, also what is not there yet."""

    cpus: int | None = None
    nodes: int | None = None


def read_allowed(tree: Tree) -> Allowed:
    """Read the cpuset of the process that took the snapshot; everything is allowed without one."""
    return Allowed(*(read_list(tree, path) for path in _set_files(tree)))


def cpuset_files(tree: Tree) -> tuple[str, ...]:
    """Return the files by which :func:`read_allowed` decides, besides mount table and group."""
    mounts = (fields for line in (tree.read("proc/mounts") or "").split("\n") if len(fields := line.split()) > 2)
    folders = [_unescape(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    return (*(f"{folder}/cgroup.controllers".lstrip("/") for folder in folders), *_set_files(tree))


def _set_files(tree: Tree) -> tuple[str, ...]:
    """Return the files with the CPUs and with the memory nodes of the process's cpuset; none without one."""
    files = _file_pattern(tree)
    group = _group(tree)
    if files is None or group is None:
        return ()
    folder, pattern = files
    return tuple(f"{folder}{group}/{pattern.format(what)}"[:_PATH_CHARS].lstrip("/") for what in ("cpus", "mems"))


def _file_pattern(tree: Tree) -> tuple[str, str] | None:
    """Return where cpusets are mounted and how their files are called; None when they are not.

    The first suitable line of the mount table decides: cgroup 2 with the cpuset controller (the effective sets include
    the limits of all parents), a cpuset file system, or cgroup 1 with the cpuset controller.
    """
    for line in (tree.read("proc/mounts") or "").split("\n"):
        fields = line[:_LINE_CHARS].split()
        if len(fields) < 3 or fields[0].startswith("#"):
            continue
        folder, kind = _unescape(fields[1]), _unescape(fields[2])
        options = _unescape(fields[3]).split(",") if len(fields) > 3 else []
        if kind == "cgroup2":
            controllers = tree.read(f"{folder}/cgroup.controllers".lstrip("/")) or ""
            if "cpuset" in controllers.partition("\n")[0].split(" "):
                return folder, "cpuset.{}.effective"
        elif kind == "cpuset" or (kind == "cgroup" and {"cpuset", "noprefix"} <= set(options)):
            return folder, "{}"
        elif kind == "cgroup" and "cpuset" in options:
            return folder, "cpuset.{}"
    return None


def _group(tree: Tree) -> str | None:
    """Return the path of the process's group below the mount, as the kernel tells it in one of two files."""
    cpuset = tree.read("proc/self/cpuset")
    if cpuset:
        return cpuset[:127].partition("\n")[0]
    for line in (tree.read("proc/self/cgroup") or "").split("\n"):
        _, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if colon and second and controllers in {"cpuset", ""}:
            return path
    return None


def _unescape(text: str) -> str:
    """Undo the octal escapes of the mount table (space, tab, newline, backslash)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)
