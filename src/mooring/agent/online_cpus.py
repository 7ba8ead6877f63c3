"""Which CPUs are online now, by the kernel's own list.

Source: kernel Documentation/admin-guide/cputopology.rst.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mooring.core.cpuset import CPUSet, CPUSetSyntaxError

ONLINE = "sys/devices/system/cpu/online"
_TRIES = 3
_PAUSE = 0.01


@dataclass(frozen=True, slots=True)
class OnlineCPUs:
    """The list of one machine."""

    root: str = "/"
    """Folder that stands for ``/``."""

    def read(self) -> CPUSet | None:
        """Return the CPUs that are online; None where nobody can know.

        An empty list is none: some CPU runs this program. It is read again, because a file in the kernel's place may
        just be written.
        """
        for _ in range(_TRIES):
            try:
                text = (Path(self.root) / ONLINE).read_text("ascii").strip()
                if text:
                    return CPUSet.parse(text)
            except (OSError, ValueError, CPUSetSyntaxError):
                return None
            time.sleep(_PAUSE)
        return None
