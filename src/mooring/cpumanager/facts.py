"""What the CPU manager reports to an observer. CPU sets are masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExclusiveCPUsCounted:
    """How many exclusive CPUs a container asks for, before anything is decided."""

    pod: str
    container: str
    count: int
    """0 means that it runs in the shared pool."""


@dataclass(frozen=True, slots=True)
class CPUHintsAsked:
    """What the CPU manager's hints were made from."""

    pod: str
    container: str
    """Empty for the whole pod."""
    need: int
    available: int
    """CPUs that could be taken; for a container that has CPUs already, just these."""
    reusable: int
    """CPUs left by init containers (or held by the pod's containers): every hint must hold their nodes."""
    mismatch: bool
    """Whether nothing is possible because the container holds another number of CPUs than it asks for."""


@dataclass(frozen=True, slots=True)
class ExistingCPUsKept:
    """The container has CPUs already; they are kept whatever their number."""

    pod: str
    container: str
    cpus: int


@dataclass(frozen=True, slots=True)
class WholeCoresChecked:
    """The check of full-pcpus-only."""

    pod: str
    container: str
    need: int
    group: int
    """CPUs per core, by average."""
    available: int
    """CPUs of the shared pool on cores without a reserved CPU."""
    passed: bool


@dataclass(frozen=True, slots=True)
class CPUsTaken:
    """One container got its CPUs, or a take failed."""

    pod: str
    container: str
    need: int
    pool: int
    """What could be taken: shared pool without reserved CPUs, plus CPUs left by init containers."""
    reusable: int
    affinity: int | None
    """NUMA nodes of the hint; None when there was no mask."""
    near: int
    """Candidates inside the hint's nodes (or their sockets)."""
    first: int
    """CPUs taken from the candidates inside the hint."""
    taken: int
    """All CPUs taken."""
    error: str
    """The kubelet's text when a take failed, or the name of the endless loop."""


@dataclass(frozen=True, slots=True)
class CPUsReleased:
    """A container's CPUs went back to the shared pool."""

    pod: str
    container: str
    cpus: int


@dataclass(frozen=True, slots=True)
class PodPartitioned:
    """A pod-level pod got a partition of its own, and its containers their sets (KEP-5526)."""

    pod: str
    cpus: int
    containers: Mapping[str, int]
