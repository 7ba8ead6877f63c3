"""What extensions report to an observer. CPU sets are masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.core.bits import CPUMask, NUMAMask
from mooring.topologymanager.entries import AnyHints


@dataclass(frozen=True, slots=True)
class CPUsResized:
    """Which CPUs a container comes to when it asks for another number (KEP-5554)."""

    pod: str
    container: str
    current: CPUMask
    """What it has."""
    kept: CPUMask
    """What stays whatever is decided: all it has when it grows, its baseline when it shrinks."""
    pool: CPUMask
    """Where the others come from."""
    affinity: NUMAMask | None
    """Mask of the hint's NUMA nodes; None for no opinion."""
    result: CPUMask


@dataclass(frozen=True, slots=True)
class ScaleDownStarted:
    """A container is going to have fewer CPUs when its delay is over (KEP-6122)."""

    pod: str
    container: str
    current: CPUMask
    result: CPUMask
    delay: int
    """Nanoseconds."""


@dataclass(frozen=True, slots=True)
class ScaleDownCompleted:
    """The delay is over and the CPUs are free."""

    pod: str
    container: str
    cpus: CPUMask
    """What the container has now."""
    released: CPUMask


@dataclass(frozen=True, slots=True)
class ScaleDownDropped:
    """A pending release is no more: another request took its place, or the container is gone."""

    pod: str
    container: str
    pending: CPUMask
    """CPUs that were to go back."""


@dataclass(frozen=True, slots=True)
class CPUsMoved:
    """A container that runs has other CPUs than before (KEP-5554)."""

    pod: str
    container: str
    before: CPUMask
    after: CPUMask
    held: CPUMask
    """CPUs in the sets of all containers afterwards."""


@dataclass(frozen=True, slots=True)
class MemoryGrowthAsked:
    """Where a container, or a pod as a whole, could find more memory beside what it has."""

    pod: str
    container: str
    """Empty for the whole pod."""
    requests: Mapping[str, int]
    nodes: int
    """Mask of the NUMA nodes in use; every hint holds them."""
    hints: AnyHints
