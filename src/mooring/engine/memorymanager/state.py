"""The memory manager's state: memory tables of the NUMA nodes and the blocks given away.

Source: kubelet memorymanager/state, v1.37.1. The texts of ``memory_manager_state`` are made and read in
``mooring.engine.checkpoint``. All sizes are bytes, unsigned 64-bit in the kubelet.

Moving memory between free and reserved on the nodes of a group.

Source: kubelet v1.37.1, memorymanager policy_static.go (updateMachineState, releaseMemory); spec: memory-manager.md
sections 5.2 and 6.

Memory that ended init containers of a pod leave to its later containers.

Source: kubelet v1.37.1, memorymanager policy_static.go (getPodReusableMemory, updatePodReusableMemory,
updateInitContainersMemoryBlocks); spec: memory-manager.md sections 5.1 and 5.3.

Defect exact-mask-reuse (kubernetes/kubernetes#112229 asks for better; spec: README.md section 5): in v1.37.1 this
memory counts only for the very set of NUMA nodes on which it lies, so that a container that needs a wider set finds
neither the memory nor the nodes: they are taken by the init container that has ended. Fixed, it counts for every set
of nodes that contains its own, and nodes on which only ended init containers of the same pod have assignments may form
a new group. What there is to reuse is then read from the blocks themselves, not from a record that a restart loses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import UINT64_MAX, quote
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.core.pod import Container, ContainerKind, Pod
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
            state = changed.get(node)
            if state is None:
                raise KubeletCrashError(
                    f"a block lies on NUMA node {node}, which the machine does not have: the kubelet crashes when it "
                    "releases the block"
                )
            table = state.memory.get(block.type)
            if table is None and size:
                raise KubeletCrashError(
                    f"a block is {quote(block.type)}, which NUMA node {node} does not list: the kubelet crashes when "
                    "it releases the block"
                )
            assignments = state.assignments - 1
            returned = min(table.reserved, size) if table is not None else 0
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


EXACT_MASK_REUSE = "exact-mask-reuse"

ReusableByMask = Mapping[NUMAMask, Mapping[str, int]]
"""Mask of NUMA nodes -> memory type -> bytes that ended init containers of the pod leave there."""

ContainerBlocks = Mapping[str, tuple[Block, ...]]
"""Container -> its blocks."""


@dataclass(frozen=True, slots=True)
class ReusableMemory:
    """The kubelet's record of what ended init containers of the pod now being admitted leave.

    Kept in memory only; admitting another pod forgets it (spec: memory-manager.md section 5.1).
    """

    pod: str = ""
    amounts: ReusableByMask = field(default_factory=dict)

    def of(self, pod: str) -> ReusableByMask:
        """Return the record of a pod; empty for every other."""
        return self.amounts if pod == self.pod else {}

    def after(self, pod: str, container: Container, blocks: tuple[Block, ...]) -> ReusableMemory:
        """Return the record after a container got its blocks.

        Init containers leave the largest of what was there and what they have; all others use it up.
        """
        amounts = {mask: dict(types) for mask, types in self.of(pod).items()}
        for block in blocks:
            types = amounts.setdefault(block.mask, {})
            known = types.get(block.type, 0)
            if container.kind is ContainerKind.INIT:
                types[block.type] = max(known, block.size)
            else:
                types[block.type] = max(known - block.size, 0)
        return ReusableMemory(pod, amounts)


@dataclass(frozen=True, slots=True)
class Leftover:
    """What a container may take over, as its hints and its allocation see it."""

    amounts: ReusableByMask = field(default_factory=dict)
    assignments: Mapping[int, int] | None = None
    """NUMA node -> number of the blocks there. None under defect exact-mask-reuse: the amounts count for their own set
    of nodes only."""

    def within(self, mask: NUMAMask) -> Mapping[str, int]:
        """Return the bytes of each type that count for a set of nodes.

        >>> leftover = {0b01: {"memory": 5}}
        >>> Leftover(leftover).within(0b11), Leftover(leftover, assignments={0: 1}).within(0b11)
        ({}, {'memory': 5})
        """
        if self.assignments is None:
            return self.amounts.get(mask, {})
        total: dict[str, int] = {}
        for own, types in self.amounts.items():
            if not own & ~mask:
                for resource, amount in types.items():
                    total[resource] = total.get(resource, 0) + amount
        return total

    def ungrouped(self, nodes: Mapping[int, NUMANodeState]) -> Mapping[int, NUMANodeState]:
        """Return the machine state as far as groups go: without the assignments that ended init containers leave."""
        if not self.assignments:
            return nodes
        changed = dict(nodes)
        for node, count in self.assignments.items():
            left = nodes[node].assignments - count
            changed[node] = replace(nodes[node], assignments=left, cells=nodes[node].cells if left > 0 else (node,))
        return changed


NOTHING_LEFT = Leftover()


def leftover_for(
    fixed_defects: frozenset[str], record: ReusableMemory, pod: Pod, container: str, held: ContainerBlocks
) -> Leftover:
    """Return what a container of the pod may take over.

    Args:
        fixed_defects: of the policy.
        record: what v1.37.1 remembers.
        pod: the pod.
        container: the container to be served.
        held: the blocks of the pod's containers with which the machine is charged.
    """
    if EXACT_MASK_REUSE not in fixed_defects:
        amounts = record.of(pod.uid)
        return Leftover(amounts) if amounts else NOTHING_LEFT
    found: dict[NUMAMask, dict[str, int]] = {}
    assignments: dict[int, int] = {}
    for earlier in _init_containers_before(pod, container):
        for block in held.get(earlier, ()):
            types = found.setdefault(block.mask, {})
            types[block.type] = types.get(block.type, 0) + block.size
            for node in block.numa:
                assignments[node] = assignments.get(node, 0) + 1
    return Leftover(found, assignments) if found else NOTHING_LEFT


def take_over(
    leftover: Leftover, pod: Pod, container: str, held: ContainerBlocks, blocks: tuple[Block, ...]
) -> tuple[ContainerBlocks, Mapping[str, int]]:
    """Shrink the blocks of earlier init containers by what the new blocks take over from them.

    So the sum of a pod's blocks stays what the machine is charged. Blocks may shrink to nothing and stay (spec:
    memory-manager.md section 5.3).

    Returns:
        The pod's blocks, without the new ones, and for each memory type the bytes that need not be charged again.
    """
    before = [*_init_containers_before(pod, container)]
    if not before and not leftover.amounts:
        return held, {}
    reduced = dict(held)
    amounts: dict[str, int] = {}
    for block in blocks:
        mask, size = block.mask, block.size
        for earlier in before:
            if earlier not in reduced:
                continue
            kept = []
            for old in reduced[earlier]:
                counts = old.mask == mask if leftover.assignments is None else not old.mask & ~mask
                taken = min(old.size, size) if old.type == block.type and counts else 0
                size -= taken
                kept.append(replace(old, size=old.size - taken) if taken else old)
            reduced[earlier] = tuple(kept)
        amounts[block.type] = block.size - size
    if leftover.assignments is None:
        # The kubelet shrinks blocks and charges the machine by two records, which a restart in between sets apart.
        spare = leftover.within(blocks[0].mask) if blocks else {}
        amounts = {block.type: min(spare.get(block.type, 0), block.size) for block in blocks}
    return reduced, amounts


def _init_containers_before(pod: Pod, container: str) -> Iterator[str]:
    """Yield the regular init containers that have ended when a container runs; sidecars have not."""
    for earlier in pod.containers:
        if earlier.name == container:
            return
        if earlier.kind is ContainerKind.INIT:
            yield earlier.name
