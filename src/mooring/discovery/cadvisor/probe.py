"""Reading single files the way cAdvisor does, with the error text that Go gives when it cannot; online CPUs.

Source: cAdvisor library 0.60.5, utils/sysfs (the version in kubelet v1.37.1), IsCPUOnline among it; spec: topology.md
section 3.2.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from mooring.core.errors import MooringError
from mooring.core.gotext import GoSyntaxError, atoi
from mooring.discovery.cadvisor.gonumbers import parse_uint, trim
from mooring.discovery.tree import Tree

CPUS: Final = "sys/devices/system/cpu"
"""Folder of the CPU directories."""
NODES: Final = "sys/devices/system/node"
"""Folder of the NUMA node directories."""

_CPU_ENTRY: Final = re.compile("cpu.*[0-9]", re.DOTALL)


class ProbeError(MooringError):
    """cAdvisor gives up on a part of the machine; the message is cAdvisor's."""


def read_or_fail(tree: Tree, path: str) -> str:
    """Return the text of a file that cAdvisor cannot do without.

    Raises:
        ProbeError: with the text of Go's os.ReadFile.
    """
    text = tree.read(path)
    if text is None:
        raise ProbeError(read_problem(tree, path))
    return text


def read_problem(tree: Tree, path: str) -> str:
    """Return what Go's os.ReadFile says about a file that cannot be read.

    A tree does not tell *why* it has no text, so this is worked out from what stands in its place.
    """
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if tree.exists(parent) and not tree.is_dir(parent):
            return f"open /{path}: not a directory"
    if tree.is_dir(path):
        return f"read /{path}: is a directory"
    return f"open /{path}: {'permission denied' if tree.exists(path) else 'no such file or directory'}"


def attribute(tree: Tree, path: str) -> str | None:
    """Return the trimmed text of a CPU attribute; None when there is no such file, which cAdvisor tolerates.

    Raises:
        ProbeError: the file is there but cannot be read.
    """
    text = tree.read(path)
    if text is not None:
        return trim(text)
    problem = read_problem(tree, path)
    if problem.endswith("no such file or directory"):
        return None
    raise ProbeError(problem)


def number_attribute(tree: Tree, path: str) -> int | None:
    """Return the signed decimal number in a CPU attribute (-1 is common); None when there is no such file.

    Raises:
        ProbeError: the file cannot be read or holds no number.
    """
    text = attribute(tree, path)
    if text is None:
        return None
    try:
        return atoi(text)
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None


def cpu_entries(tree: Tree, folder: str) -> tuple[str, ...]:
    """Return the names in ``folder`` that match Go's glob ``cpu*[0-9]``, in text order (cpu0, cpu1, cpu10, cpu2)."""
    return tuple(name for name in tree.names(folder) if name.startswith("cpu") and _CPU_ENTRY.fullmatch(name))


@dataclass(frozen=True, slots=True)
class OnlineCPUs:
    """Which CPUs cAdvisor takes for online."""

    mask: int
    """CPUs named before the first malformed part of the list."""
    every: bool
    """There is no list at all: the kernel cannot take CPUs offline, every CPU counts as online."""

    def __contains__(self, cpu: int) -> bool:
        # cAdvisor keeps the id in 16 bits here.
        return self.every or (self.mask >> (cpu & 0xFFFF)) & 1 == 1


def online_cpus(tree: Tree) -> OnlineCPUs:
    """Read ``/sys/devices/system/cpu/online``.

    cAdvisor walks the list anew for every CPU and stops at the first part that names it, so a CPU in front of a
    malformed part is online and all others are not. An empty or unreadable list makes every CPU offline; only a missing
    file means "all".
    """
    path = f"{CPUS}/online"
    text = tree.read(path)
    if text is None:
        return OnlineCPUs(0, every=not tree.exists(path))
    mask = 0
    for part in trim(text).split(","):
        try:
            ends = [parse_uint(end, bits=16) for end in part.split("-", 2)]
        except GoSyntaxError:
            break
        if len(ends) == 3 or ends[0] > ends[-1]:
            break
        mask |= ((1 << (ends[-1] - ends[0] + 1)) - 1) << ends[0]
    return OnlineCPUs(mask, every=False)
