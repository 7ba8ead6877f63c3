"""Moving memory between free and reserved on the nodes of a group.

Source: kubelet v1.37.1, memorymanager policy_static.go (updateMachineState, releaseMemory); spec: memory-manager.md
sections 5.2 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import quote
from mooring.engine.memorymanager.state import Block, MemoryTable, NUMANodeState

Nodes = Mapping[int, NUMANodeState]


def charge(nodes: Nodes, mask: NUMAMask, resource: str, amount: int) -> dict[int, NUMANodeState]:
    """Return the machine state after a block of ``amount`` bytes was put on the nodes of ``mask``.

    The nodes and the type are those of the machine: the caller has checked.
    """
    return charge_in_order(nodes, tuple(members(mask)), resource, amount)


def charge_in_order(nodes: Nodes, cells: tuple[int, ...], resource: str, amount: int) -> dict[int, NUMANodeState]:
    """Return the machine state after a block of ``amount`` bytes was put on nodes in the order of a list.

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
