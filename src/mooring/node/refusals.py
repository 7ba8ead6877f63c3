"""The kubelet's words for a checkpoint that it does not start on.

Source: kubelet v1.37.1, state_checkpoint.go of both managers and cm/container_manager_linux.go; spec:
state-files.md section 4.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from mooring.core.gotext import quote

Manager: TypeAlias = Literal["cpu", "memory"]
"""Which manager's file is meant."""

CPU_FILE = "cpu_manager_state"
"""Name of the CPU manager's state file in the kubelet's root directory."""

MEMORY_FILE = "memory_manager_state"
"""Name of the memory manager's state file in the kubelet's root directory."""


def restore_error(manager: Manager, inner: str) -> str:
    """Return the whole message of a start that failed on a file, with the path of the file shortened to its name.

    >>> print(restore_error("memory", "checkpoint is corrupted"))  # doctest: +NORMALIZE_WHITESPACE
    start memory manager error: could not restore state from checkpoint: checkpoint is corrupted, please drain this
    node and delete the memory manager checkpoint file "memory_manager_state" before restarting Kubelet
    """
    noun, file = ("CPU", CPU_FILE) if manager == "cpu" else ("memory", MEMORY_FILE)
    return (
        f"start {manager} manager error: could not restore state from checkpoint: {inner}, "
        f"please drain this node and delete the {noun} manager checkpoint file {quote(file)} before restarting Kubelet"
    )


def policy_mismatch(manager: Manager, configured: str, found: str) -> str:
    """Return what is wrong with a state that another policy wrote."""
    prefix = "[memorymanager] " if manager == "memory" else ""
    return f"{prefix}configured policy {quote(configured)} differs from state checkpoint policy {quote(found)}"
