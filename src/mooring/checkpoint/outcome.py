"""What reading a state file can come to besides a state: it is created, or the kubelet does not start.

Source: kubelet v1.37.1, state_checkpoint.go of both managers and cm (start errors); spec: state-files.md
section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from mooring.core.gotext import quote

CPU_FILE = "cpu_manager_state"
"""Name of the CPU manager's state file in the kubelet's root directory."""

MEMORY_FILE = "memory_manager_state"
"""Name of the memory manager's state file in the kubelet's root directory."""


@dataclass(frozen=True, slots=True)
class Created:
    """There was no file. The kubelet writes an empty state at once, before its policy fills it."""

    text: str
    """What the new file holds."""


@dataclass(frozen=True, slots=True)
class LoadRefusal:
    """The kubelet does not take the file; it leaves it as it is and does not start."""

    manager: Literal["cpu", "memory"]

    message: str
    """The kubelet's reason: the text behind ``could not restore state from checkpoint: ``."""

    def kubelet_text(self) -> str:
        """Return the whole message of the kubelet, with the path of the file shortened to its name.

        >>> refusal = LoadRefusal("cpu", "checkpoint is corrupted")
        >>> print(refusal.kubelet_text())  # doctest: +NORMALIZE_WHITESPACE
        start cpu manager error: could not restore state from checkpoint: checkpoint is corrupted,
        please drain this node and delete the CPU manager checkpoint file "cpu_manager_state" before
        restarting Kubelet
        """
        noun, file = ("CPU", CPU_FILE) if self.manager == "cpu" else ("memory", MEMORY_FILE)
        return (
            f"start {self.manager} manager error: could not restore state from checkpoint: {self.message}, "
            f"please drain this node and delete the {noun} manager checkpoint file {quote(file)} "
            "before restarting Kubelet"
        )
