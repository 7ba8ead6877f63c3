"""Starting on a state: is it what its own assignments lead to?

Source: kubelet v1.37.1, memorymanager policy_static.go (Start, validateState); spec: memory-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from mooring.core.bits import mask_of
from mooring.memorymanager.account import charge
from mooring.memorymanager.policy import MemoryPolicy
from mooring.memorymanager.state import Block, MemoryState, NodeState

EMPTY_WITH_ASSIGNMENTS = "[memorymanager] machine state can not be empty when it has memory assignments"
DIFFERENT = "[memorymanager] the expected machine state is different from the real one"


def start(policy: MemoryPolicy, state: MemoryState) -> MemoryState | str:
    """Return the state, filled where it is fresh, or the kubelet's error text.

    Any change of the machine's memory, of its pools of huge pages or of the reservations makes the state differ, and
    the kubelet then does not start until the file is deleted (kubernetes/kubernetes#131253).
    """
    # 1. A fresh state gets the default.
    if not state.nodes:
        if state.assignments:
            return EMPTY_WITH_ASSIGNMENTS
        return replace(state, nodes=policy.default_nodes)
    # 2. What the assignments lead to. The kubelet replays them in random order; here in the order that keeps groups
    # together.
    expected: Mapping[int, NodeState] = policy.default_nodes
    for pod, container, block in _replayed(policy, state):
        for node in block.numa:
            known = expected.get(node)
            where = f"[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses"
            if known is None:
                return f"{where} the NUMA that does not exist"
            if block.type not in known.memory:
                return f"{where} memory resource that does not exist"
        expected = charge(expected, mask_of(block.numa), block.type, block.size)
    # 3. Is it the state?
    return state if _equal(expected, state.nodes) else DIFFERENT


def _replayed(policy: MemoryPolicy, state: MemoryState) -> Iterator[tuple[str, str, Block]]:
    for pod in sorted(state.assignments):
        if policy.gates.managers and pod in state.pods:
            for block in state.pods[pod]:
                yield pod, "", block
            continue
        for container in sorted(state.assignments[pod]):
            for block in state.assignments[pod][container]:
                yield pod, container, block


def _equal(expected: Mapping[int, NodeState], real: Mapping[int, NodeState]) -> bool:
    """Compare two machine states: free and reserved memory only as sums over each group."""
    if expected.keys() != real.keys():
        return False
    return all(_equal_node(expected, real, node) for node in expected)


def _equal_node(expected: Mapping[int, NodeState], real: Mapping[int, NodeState], node: int) -> bool:
    left, right = expected[node], real[node]
    if left.assignments != right.assignments or set(left.cells) != set(right.cells):
        return False
    if left.memory.keys() != right.memory.keys():
        return False
    for resource, table in left.memory.items():
        other = right.memory[resource]
        if (table.total, table.system_reserved, table.allocatable) != (
            other.total,
            other.system_reserved,
            other.allocatable,
        ):
            return False
        if _sums(expected, left.cells, resource) != _sums(real, right.cells, resource):
            return False
    return True


def _sums(nodes: Mapping[int, NodeState], cells: tuple[int, ...], resource: str) -> tuple[int, int]:
    tables = [nodes[cell].memory[resource] for cell in cells if cell in nodes and resource in nodes[cell].memory]
    return sum(table.free for table in tables), sum(table.reserved for table in tables)
