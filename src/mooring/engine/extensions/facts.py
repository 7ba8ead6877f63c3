"""What extensions report to an observer. CPU sets are masks."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.topologymanager.wide import AnyHints
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class CPUsResized:
    """Which CPUs a container comes to when it requests another number (KEP-5554)."""

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
    state: CPUState = field(compare=False, repr=False)
    """The CPU manager's afterwards."""


@dataclass(frozen=True, slots=True)
class CPUsWentOffline:
    """The machine has fewer CPUs for now; the sets that this changes follow."""

    cpus: CPUMask
    offline: CPUMask
    """All that are offline now."""


@dataclass(frozen=True, slots=True)
class CPUsCameOnline:
    """The machine has CPUs again that were offline; the sets that this changes follow."""

    cpus: CPUMask
    offline: CPUMask
    """All that are still offline."""


@dataclass(frozen=True, slots=True)
class CPUsBroken:
    """A set has offline CPUs without a replacement."""

    pod: str
    """Uid; of a claim its owner (:mod:`mooring.engine.extensions.owners`)."""
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    cpus: CPUMask
    """The set as it is recorded; it stays the owner's."""
    lost: CPUMask
    why: str = ""
    """Why there is no replacement, where that was asked."""


@dataclass(frozen=True, slots=True)
class CPUsReplaced:
    """Other CPUs replace those that a set lost."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    before: CPUMask
    after: CPUMask
    nodes: NUMAMask
    """Mask of the NUMA nodes of the set, where the replacement CPUs come from or are looked for first."""
    held: CPUMask
    """CPUs in the sets of all containers afterwards."""
    state: CPUState = field(compare=False, repr=False)
    """The CPU manager's afterwards."""


@dataclass(frozen=True, slots=True)
class CPUsRestored:
    """A set is whole again: nothing of it is offline, and it has no replacement CPUs."""

    pod: str
    container: str
    """Empty for the partition of a whole pod (KEP-5526)."""
    before: CPUMask
    after: CPUMask
    held: CPUMask
    """CPUs in the sets of all containers afterwards."""
    state: CPUState = field(compare=False, repr=False)
    """The CPU manager's afterwards."""


@dataclass(frozen=True, slots=True)
class OfflineCPUsLeftOut:
    """CPUs of the shared pool that a pod could not be given when it was decided about."""

    pod: str
    offline: CPUMask
    """Those that are offline."""
    kept: CPUMask
    """Those that are online and kept for a pod that waits for others of its own."""


@dataclass(frozen=True, slots=True)
class MemoryGrowthAsked:
    """Where a container, or a pod as a whole, could find more memory beside what it has."""

    pod: str
    container: str
    """Empty for the whole pod."""
    requests: Mapping[str, int]
    nodes: NUMAMask
    """Mask of the NUMA nodes in use; every hint holds them."""
    hints: AnyHints
