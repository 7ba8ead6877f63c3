"""Which CPUs are online now, by the kernel's own list.

Source: kernel Documentation/admin-guide/cputopology.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mooring.core.cpuset import CPUSet, CPUSetSyntaxError

ONLINE = "sys/devices/system/cpu/online"


@dataclass(frozen=True, slots=True)
class OnlineCPUs:
    """The list of one machine."""

    root: str = "/"
    """Folder that stands for ``/``."""

    def read(self) -> CPUSet | None:
        """Return the CPUs that are online; None where nobody can know. An empty list is none: some CPU runs this."""
        try:
            online = CPUSet.parse((Path(self.root) / ONLINE).read_text("ascii").strip())
        except (OSError, ValueError, CPUSetSyntaxError):
            return None
        return online or None
