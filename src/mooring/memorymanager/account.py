"""Moving memory between free and reserved on the nodes of a group.

Source: kubelet v1.37.1, memorymanager policy_static.go (updateMachineState, releaseMemory); spec: memory-manager.md
sections 5.2 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.core.bits import members
from mooring.memorymanager.state import Block, MemoryTable, NodeState

Nodes = Mapping[int, NodeState]


def charge(nodes: Nodes, mask: int, resource: str, amount: int) -> dict[int, NodeState]:
    """Return the machine state after a block of ``amount`` bytes was put on the nodes of ``mask``.

    Every node counts the assignment and joins the group, even when nothing is left to charge; memory is taken from the
    nodes in ascending order until it suffices.
    """
    changed = dict(nodes)
    cells = tuple(members(mask))
    for node in cells:
        state = changed[node]
        table = state.memory.get(resource)
        memory = state.memory
        if table is not None and amount > 0:
            taken = min(table.free, amount)
            amount -= taken
            memory = {**memory, resource: replace(table, free=table.free - taken, reserved=table.reserved + taken)}
        changed[node] = NodeState(state.assignments + 1, memory, cells)
    return changed


def release(nodes: Nodes, blocks: tuple[Block, ...]) -> dict[int, NodeState]:
    """Return the machine state after blocks were given back.

    Each node gives back what it has reserved, as far as the block goes. A node without assignments left leaves its
    group.
    """
    changed = dict(nodes)
    for block in blocks:
        size = block.size
        for node in block.numa:
            state = changed.get(node)
            if state is None:
                continue
            assignments = state.assignments - 1
            cells = state.cells if assignments > 0 else (node,)
            memory = state.memory
            table = memory.get(block.type)
            if table is not None and size > 0:
                returned = min(table.reserved, size)
                size -= returned
                memory = {**memory, block.type: _returned(table, returned)}
            changed[node] = NodeState(assignments, memory, cells)
    return changed


def _returned(table: MemoryTable, amount: int) -> MemoryTable:
    return replace(table, free=table.free + amount, reserved=table.reserved - amount)
