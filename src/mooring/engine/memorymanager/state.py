"""The memory manager's state: memory tables of the NUMA nodes and the blocks given away.

Source: kubelet memorymanager/state, v1.37.1. The texts of ``memory_manager_state`` are made and read in
``mooring.engine.checkpoint``. All sizes are bytes, unsigned 64-bit in the kubelet.

Moving memory between free and reserved on the nodes of a group.

Source: kubelet v1.37.1, memorymanager policy_static.go (updateMachineState, releaseMemory); spec: memory-manager.md
sections 5.2 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import UINT64_MAX, quote
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.lazy import dataclass, field, replace


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


Nodes = Mapping[int, NUMANodeState]


def account(nodes: Nodes, node: int, resource: str) -> MemoryTable:
    """Return a node's account of a type that a container requests.

    Raises:
        KubeletCrashError: the node does not list the type.
    """
    table = nodes[node].memory.get(resource)
    if table is None:
        raise KubeletCrashError(
            f"NUMA node {node} does not list {resource}: the kubelet crashes when a container requests a type of "
            "memory that some node does not have"
        )
    return table


def free_in(nodes: Nodes, mask: NUMAMask, resource: str) -> int:
    """Return the free bytes of one type on the nodes of a mask.

    Raises:
        KubeletCrashError: one of the nodes does not list the type.
    """
    return sum(account(nodes, node, resource).free for node in members(mask)) & UINT64_MAX


def charge(nodes: Nodes, cells: tuple[int, ...], resource: str, amount: int) -> dict[int, NUMANodeState]:
    """Return the machine state after a block of ``amount`` bytes was put on nodes in the order of a list.

    The nodes and the type are those of the machine: the caller has checked.
    Every node counts the assignment and joins the group, even when nothing is left to charge; memory is taken from one
    node after the other until it suffices. What is more than they have is not charged. A list in a file may be in any
    order and name a node twice; then the node counts twice.
    """
    changed = dict(nodes)
    for node in cells:
        state = changed[node]
        taken = min(state.memory[resource].free, amount)
        amount -= taken
        changed[node] = NUMANodeState(state.assignments + 1, _moved(state, resource, taken), cells)
    return changed


def release(nodes: Nodes, blocks: tuple[Block, ...]) -> dict[int, NUMANodeState]:
    """Return the machine state after blocks were released.

    Each node releases what it has reserved, as far as the block goes. A node without assignments left leaves its
    group.

    Raises:
        KubeletCrashError: a block names a node or a type that the machine does not have. The kubelet checks blocks when
            it starts, but not those of a pod without container entries.
    """
    changed = dict(nodes)
    for block in blocks:
        size = block.size
        for node in block.numa:
            state = _known(changed, node)
            assignments = state.assignments - 1
            returned = min(_reserved(state, node, block.type), size) if size else 0
            size -= returned
            cells = state.cells if assignments else (node,)
            changed[node] = NUMANodeState(assignments, _moved(state, block.type, -returned), cells)
    return changed


def _moved(state: NUMANodeState, resource: str, amount: int) -> Mapping[str, MemoryTable]:
    """Return a node's accounts after ``amount`` bytes of a type went from free to reserved."""
    if not amount:
        return state.memory
    table = state.memory[resource]
    return {**state.memory, resource: replace(table, free=table.free - amount, reserved=table.reserved + amount)}


def _known(nodes: Nodes, node: int) -> NUMANodeState:
    state = nodes.get(node)
    if state is None:
        raise KubeletCrashError(
            f"a block lies on NUMA node {node}, which the machine does not have: the kubelet crashes when it releases "
            "the block"
        )
    return state


def _reserved(state: NUMANodeState, node: int, resource: str) -> int:
    table = state.memory.get(resource)
    if table is None:
        raise KubeletCrashError(
            f"a block is {quote(resource)}, which NUMA node {node} does not list: the kubelet crashes when it "
            "releases the block"
        )
    return table.reserved
