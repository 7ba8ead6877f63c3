"""What is wrong with a state file, and what it should hold instead, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState

Severity: TypeAlias = Literal["error", "warning", "note"]
"""``error``: the kubelet does not start, or promises what is not so. ``warning``: it starts with a problem.
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


@dataclass(frozen=True, slots=True)
class Dropped:
    """An entry that a repair gives up."""

    holder: EntryHolder
    held: str
    """What it held, in words."""
    why: str
    """A clause that says why it cannot stay."""


State_co = TypeVar("State_co", bound=CPUState | MemoryState | None, covariant=True)


@dataclass(frozen=True, slots=True)
class Repaired(Generic[State_co]):
    """What a file should hold instead; without a state it is to be deleted."""

    state: State_co
    dropped: tuple[Dropped, ...]
