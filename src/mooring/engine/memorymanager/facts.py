"""What the memory manager reports to an observer."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import NUMAMask
from mooring.engine.memorymanager.state import Block
from mooring.engine.topologymanager.wide import AnyHints
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class MemoryPinningRequested:
    """A container, or a pod as a whole, is about to get memory, or to keep what it has."""

    pod: str
    container: str
    """Empty for the whole pod, whose containers follow one by one (KEP-5526)."""


@dataclass(frozen=True, slots=True)
class MemoryPinningFailed:
    """A container, or a pod as a whole, was not served."""

    pod: str
    container: str
    """Empty for the whole pod."""
    error: str
    """The kubelet's text."""


@dataclass(frozen=True, slots=True)
class MemoryHintsAsked:
    """What the memory manager's hints were made from, and what they are."""

    pod: str
    container: str
    """Empty for the whole pod."""
    requests: Mapping[str, int]
    free: Mapping[int, Mapping[str, int]]
    """NUMA node -> memory type -> free bytes."""
    groups: tuple[tuple[int, ...], ...]
    """Groups of several nodes in use."""
    hints: AnyHints | None
    """None means no opinion, which is also the answer when nothing fits."""


@dataclass(frozen=True, slots=True)
class MemoryAssigned:
    """A container (or a pod) got its blocks, or failed to."""

    pod: str
    container: str
    """Empty for the whole pod."""
    affinity: NUMAMask | None
    """The mask of the topology manager."""
    mask: NUMAMask
    """The nodes that were used in the end: the affinity, the default hint, or the extended one."""
    way: str
    """``affinity``, ``default`` or ``extended``."""
    blocks: tuple[Block, ...]
    error: str
    """The kubelet's text when it failed."""


@dataclass(frozen=True, slots=True)
class MemoryReleased:
    """A container's blocks were released."""

    pod: str
    container: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class MemoryPartitioned:
    """The memory of a pod-level pod is divided among its containers (KEP-5526)."""

    pod: str
    exclusive: tuple[str, ...]
    """Containers with requests of their own."""
    shared: tuple[str, ...]
    """Containers that share what is left."""


@dataclass(frozen=True, slots=True)
class StartLeftToChance:
    """The memory manager starts on its file, but the kubelet does so only when it happens to take the right order.

    It charges the assignments in random order and refuses its own file when a node ends in another group than before.
    """

    nodes: tuple[int, ...]
    """NUMA nodes that serve a group of nodes and, apart from it, other sets of nodes."""
