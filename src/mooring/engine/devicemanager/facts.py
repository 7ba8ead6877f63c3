"""What the device manager reports to an observer."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import NUMAMask
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class DeviceHintsAsked:
    """What the device manager's hints for one resource were made from."""

    pod: str
    container: str
    """Empty for the whole pod."""
    resource: str
    need: int
    free: Mapping[str, NUMAMask]
    """Devices that could be taken, those left by init containers included: id -> mask of its NUMA nodes, 0 when nothing
    is known."""
    held: int
    """Devices that it holds already; then these are all there is to it."""
    follows: bool = False
    """Whether they were given before, and CPUs and memory follow them (extension device-alignment)."""


@dataclass(frozen=True, slots=True)
class DevicesTaken:
    """A container got devices of one resource, or failed to."""

    pod: str
    container: str
    resource: str
    need: int
    affinity: NUMAMask | None
    """NUMA nodes of the hint; None when there was no mask."""
    taken: tuple[str, ...]
    """Ids, those left by init containers first, then the near ones."""
    near: NUMAMask
    """Mask of their NUMA nodes."""
    error: str
    """The kubelet's text when there were too few."""
