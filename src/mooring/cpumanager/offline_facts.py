"""What is reported when CPUs go offline or come back (extension cpu-hotplug). CPU sets are masks."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CPUsWentOffline:
    """The machine has fewer CPUs for now; what it means for whom follows."""

    cpus: int
    offline: int
    """All that are offline now."""


@dataclass(frozen=True, slots=True)
class CPUsCameOnline:
    """The machine has CPUs again that were offline; what it means for whom follows."""

    cpus: int
    offline: int
    """All that are still offline."""


@dataclass(frozen=True, slots=True)
class CPUsBroken:
    """A set has CPUs that are offline, and nothing stands in for them."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    cpus: int
    """The set as it is recorded; it stays the owner's."""
    lost: int
    why: str
    """Why nothing stands in for them."""


@dataclass(frozen=True, slots=True)
class CPUsReplaced:
    """Other CPUs stand in for those that a set lost."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    before: int
    after: int
    nodes: int
    """Mask of the NUMA nodes that the owner was given, where the stand-ins come from or are looked for first."""
    held: int
    """CPUs in the sets of all containers afterwards."""


@dataclass(frozen=True, slots=True)
class CPUsRestored:
    """A set is whole again: nothing of it is offline, and nothing stands in for anything."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    before: int
    after: int
    held: int
    """CPUs in the sets of all containers afterwards."""


@dataclass(frozen=True, slots=True)
class OfflineCPUsLeftOut:
    """CPUs of the shared pool that a pod could not be given when it was decided about."""

    pod: str
    offline: int
    """Those that are offline."""
    kept: int
    """Those that are online and kept for a pod that waits for others of its own."""
