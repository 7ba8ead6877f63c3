"""What reading a state file can come to besides a state: it is created, or the kubelet does not start.

Source: kubelet v1.37.1, state_checkpoint.go of both managers and cm (start errors); spec: state-files.md section 4.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.node.refusals import Manager, restore_error


@dataclass(frozen=True, slots=True)
class Created:
    """There was no file. The kubelet writes an empty state at once, before its policy fills it."""

    text: str
    """What the new file holds."""


@dataclass(frozen=True, slots=True)
class LoadRefusal:
    """The kubelet does not take the file; it leaves it as it is and does not start."""

    manager: Manager

    message: str
    """The kubelet's reason: the text behind ``could not restore state from checkpoint: ``."""

    def kubelet_text(self) -> str:
        """Return the whole message of the kubelet, with the path of the file shortened to its name."""
        return restore_error(self.manager, self.message)
