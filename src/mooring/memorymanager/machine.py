"""The memory of a machine before anything is given away.

Source: kubelet v1.37.1, memorymanager policy_static.go (getDefaultMachineState); spec: memory-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.gotext import uint64
from mooring.core.machineinfo import MachineInfo, Node
from mooring.core.quantity import Quantity
from mooring.memorymanager.reserved import MEMORY, ReservedTable
from mooring.memorymanager.state import MemoryTable, NodeState


def hugepages_type(page_size_kib: int) -> str:
    """Return the resource name of a pool of huge pages.

    >>> hugepages_type(2048), hugepages_type(1048576)
    ('hugepages-2Mi', 'hugepages-1Gi')
    """
    return f"hugepages-{Quantity.of_bytes(page_size_kib * 1024)}"


def default_machine_state(info: MachineInfo, reserved: ReservedTable) -> dict[int, NodeState]:
    """Return the account of every NUMA node of the description, CPU-less ones too."""
    return {
        node.node_id: _default_node(node, reserved) for node in sorted(info.topology, key=lambda node: node.node_id)
    }


def _default_node(node: Node, reserved: ReservedTable) -> NodeState:
    kept = reserved.get(node.node_id, {})
    tables: dict[str, MemoryTable] = {}
    huge = 0
    for pool in node.hugepages:
        total = uint64(pool.num_pages * pool.page_size * 1024)
        huge = uint64(huge + total)
        resource = hugepages_type(pool.page_size)
        tables[resource] = _table(total, kept.get(resource, 0), 0)
    tables[MEMORY] = _table(node.memory, kept.get(MEMORY, 0), huge)
    return NodeState(0, tables, (node.node_id,))


def _table(total: int, kept: int, huge: int) -> MemoryTable:
    # Unsigned in the kubelet: what is kept and bound in huge pages beyond the total makes a huge number.
    allocatable = uint64(total - kept - huge)
    return MemoryTable(total, kept, allocatable, 0, allocatable)


def wrapped_nodes(nodes: Mapping[int, NodeState]) -> tuple[int, ...]:
    """Return the NUMA nodes of which more is reserved, or bound in huge pages, than they have.

    The kubelet goes on with what its unsigned subtraction leaves, a number beyond all memory.
    """
    return tuple(
        node for node, state in nodes.items() if any(table.allocatable > table.total for table in state.memory.values())
    )
