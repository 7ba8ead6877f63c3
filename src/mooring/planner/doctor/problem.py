"""What is wrong with a state file, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from mooring.core.cpuset import CPUSet

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: the kubelet does not start, or promises what is not so. ``warning``: it starts, and somebody should know.
``note``: nothing needs to be done."""


@dataclass(frozen=True, slots=True, order=True)
class EntryHolder:
    """An entry of a state file."""

    uid: str
    """Of the pod; empty for entries by container id."""
    container: str
    """Empty for what a pod holds as a whole."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong."""

    code: str
    """``MOOR-3xx``; its page tells what it means."""
    severity: Severity
    file: str
    """Name of the state file; empty when it is about more than one."""
    message: str
    """One or two sentences."""
    holders: tuple[EntryHolder, ...] = ()
    """Entries that it concerns."""
    cpus: CPUSet = CPUSet()  # noqa: RUF009 - frozen
    """CPUs that it is about."""
    nodes: tuple[int, ...] = ()
    """NUMA nodes that it is about."""
