"""Memory that ended init containers of a pod leave to its later containers.

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

from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.memorymanager.state import Block, NUMANodeState
from mooring.lazy import dataclass, field, replace

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
                taken = min(old.size, size) if old.type == block.type and _counts(leftover, old, mask) else 0
                size -= taken
                kept.append(replace(old, size=old.size - taken) if taken else old)
            reduced[earlier] = tuple(kept)
        amounts[block.type] = block.size - size
    if leftover.assignments is None:
        # The kubelet shrinks blocks and charges the machine by two records, which a restart in between sets apart.
        spare = leftover.within(blocks[0].mask) if blocks else {}
        amounts = {block.type: min(spare.get(block.type, 0), block.size) for block in blocks}
    return reduced, amounts


def _counts(leftover: Leftover, old: Block, mask: int) -> bool:
    return old.mask == mask if leftover.assignments is None else not old.mask & ~mask


def _init_containers_before(pod: Pod, container: str) -> Iterator[str]:
    """Yield the regular init containers that have ended when a container runs; sidecars have not."""
    for earlier in pod.containers:
        if earlier.name == container:
            return
        if earlier.kind is ContainerKind.INIT:
            yield earlier.name
