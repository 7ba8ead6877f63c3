"""The memory manager's state: memory tables of the NUMA nodes and the blocks given away.

Source: kubelet memorymanager/state, v1.37.1. The texts of ``memory_manager_state`` are made and read in
``mooring.engine.checkpoint``. All sizes are bytes, unsigned 64-bit in the kubelet.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.core.machineinfo import HIGHEST_NODE


@dataclass(frozen=True, slots=True)
class Block:
    """Memory of one type that one container (or pod) holds on a group of NUMA nodes.

    >>> Block((0, 1), "memory", 512)
    Block(numa=(0, 1), type='memory', size=512)
    """

    numa: tuple[int, ...]
    """NUMA node ids of the group, in the order of the file. The block does not say how much lies on each."""

    type: str
    """Resource name: ``memory`` or ``hugepages-<size>``."""

    size: int
    """Bytes over all nodes of the group."""

    @property
    def mask(self) -> NUMAMask:
        """Mask of the group. Ids that no machine has, as a file made by hand may hold them, are left out.

        >>> Block((0, 2, -1), "memory", 512).mask
        5
        """
        return NUMAMask(mask_of(node for node in self.numa if 0 <= node <= HIGHEST_NODE))


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Account of one memory type on one NUMA node, in bytes."""

    total: int
    """What the node has."""

    system_reserved: int
    """What ``reservedMemory`` of the kubelet configuration keeps back."""

    allocatable: int
    """What may be given away: total less system_reserved, for ``memory`` also less all hugepage pools."""

    reserved: int
    """What containers hold."""

    free: int
    """What is left of allocatable."""


@dataclass(frozen=True, slots=True)
class NUMANodeState:
    """State of one NUMA node."""

    assignments: int
    """How many blocks lie on the node (a block over two nodes counts on both)."""

    memory: Mapping[str, MemoryTable]
    """Account of each memory type, by resource name."""

    cells: tuple[int, ...]
    """Ids of the NUMA nodes that form one group with this one, itself included."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """One state of the memory manager."""

    policy: str
    """Name of the policy that wrote the state: ``None`` or ``Static``."""

    nodes: Mapping[int, NUMANodeState]
    """The kubelet's machine state by NUMA node id. Empty under the policy ``None``."""

    assignments: Mapping[str, Mapping[str, tuple[Block, ...]]]
    """Blocks by pod uid, then container name. The order of a container's blocks is part of the file."""

    pods: Mapping[str, tuple[Block, ...]] = field(default_factory=dict)
    """Blocks of whole pods by pod uid (KEP-5526, gate PodLevelResourceManagers)."""

    refused: frozenset[str] = field(default=frozenset(), repr=False)
    """Pods with blocks of their own alone that ran before the start and were refused then; no part of the file."""
