"""The list of online CPUs as cAdvisor understands it.

Source: cAdvisor library 0.60.5, utils/sysfs, IsCPUOnline; spec: topology.md section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.gotext import GoSyntaxError
from mooring.discovery.gonumbers import parse_uint, trim
from mooring.discovery.probe import CPUS
from mooring.discovery.tree import Tree


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
