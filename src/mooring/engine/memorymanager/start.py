"""Starting on a state: is it what its own assignments lead to?

Source: kubelet v1.37.1, memorymanager policy_static.go (Start, validateState); spec: memory-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import uint64
from mooring.engine.core.observer import Observer
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.replay import Containers, contested_nodes, nodes_left_to_chance, replayed, replayed_to
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState

EMPTY_WITH_ASSIGNMENTS = "[memorymanager] machine state can not be empty when it has memory assignments"
DIFFERENT = "[memorymanager] the expected machine state is different from the real one"

Nodes = Mapping[int, NUMANodeState]


def start(policy: MemoryPolicy, state: MemoryState, observer: Observer | None = None) -> MemoryState | str:
    """Return the state, filled where it is fresh, or the kubelet's error text.

    Any change of the machine's memory, of its pools of huge pages or of the reservations makes the state differ, and
    the kubelet then does not start until the file is deleted (kubernetes/kubernetes#131253). With groups of several
    nodes the kubelet may start or fail by chance; then this starts, and says so to the observer.

    Raises:
        KubeletCrashError: the state is right, but nodes of one group do not list the same types.
    """
    # 1. A fresh state gets the default.
    if not state.nodes:
        if state.assignments:
            return EMPTY_WITH_ASSIGNMENTS
        return replace(state, nodes=policy.default_nodes)
    # 2. What the assignments lead to.
    empty = policy.default_nodes
    wrong = _unknown(policy, state)
    if wrong:
        return wrong
    if not _is_same_machine(empty, state.nodes):
        return DIFFERENT
    pods = _blocks_by_pod(policy, state)

    # Up to v1.31 every number of every node is compared (rule memory-file-compared-by-number; spec: releases.md
    # section 8).
    by_number = policy.older.memory_file_compared_by_number
    is_equal = _is_equal_by_number if by_number else _is_equal

    def is_recorded(expected: Nodes) -> bool:
        return all(is_equal(expected, state.nodes, node) for node in expected)

    # 3. Is it the state?
    if contested_nodes(pods):
        if replayed_to(empty, pods, state.nodes, is_recorded) is None:
            return DIFFERENT
    elif not is_recorded(replayed(empty, pods)):
        return DIFFERENT
    if not by_number:
        _check_groups(state.nodes)
    by_chance = nodes_left_to_chance(pods, state.nodes)
    if by_chance and observer is not None:
        observer(StartLeftToChance(by_chance))
    return state


def _unknown(policy: MemoryPolicy, state: MemoryState) -> str:
    """Return the kubelet's text for the first block of a node or type that the machine does not have."""
    for pod in sorted(state.assignments):
        for container, blocks in _counted(policy, state, pod).items():
            for block in blocks:
                where = f"[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses"
                for node in block.numa:
                    if node not in policy.default_nodes:
                        return f"{where} the NUMA that does not exist"
                    if block.type not in policy.default_nodes[node].memory:
                        return f"{where} memory resource that does not exist"
    return ""


def _counted(policy: MemoryPolicy, state: MemoryState, pod: str) -> Mapping[str, tuple[Block, ...]]:
    """Return the blocks that a pod counts with: its own, if it has any (KEP-5526), else its containers'."""
    if policy.counts_as_a_whole(state, pod):
        return {"": state.pods[pod]}
    return {container: state.assignments[pod][container] for container in sorted(state.assignments[pod])}


def _blocks_by_pod(policy: MemoryPolicy, state: MemoryState) -> list[Containers]:
    return [tuple(_counted(policy, state, pod).values()) for pod in sorted(state.assignments)]


def _is_same_machine(expected: Nodes, real: Nodes) -> bool:
    """Compare what no assignment changes: nodes, types, totals, reservations."""
    return expected.keys() == real.keys() and all(
        _fixed(expected[node]) == _fixed(real[node]) and set(real[node].cells) <= real.keys() for node in expected
    )


def _fixed(node: NUMANodeState) -> dict[str, tuple[int, int, int]]:
    return {name: (table.total, table.system_reserved, table.allocatable) for name, table in node.memory.items()}


def _is_equal(expected: Nodes, real: Nodes, node: int) -> bool:
    """Compare what assignments change: free and reserved memory only as sums over the node's group."""
    left, right = expected[node], real[node]
    if left.assignments != right.assignments or sorted(left.cells) != sorted(right.cells):
        return False
    return all(_sums(expected, left.cells, name) == _sums(real, right.cells, name) for name in left.memory)


def _is_equal_by_number(expected: Nodes, real: Nodes, node: int) -> bool:
    """Compare what assignments change, each number of the node alone."""
    left, right = expected[node], real[node]
    if left.assignments != right.assignments or sorted(left.cells) != sorted(right.cells):
        return False
    return left.memory == right.memory


def _sums(nodes: Nodes, cells: tuple[int, ...], resource: str) -> tuple[int, int]:
    tables = [nodes[cell].memory[resource] for cell in cells if resource in nodes[cell].memory]
    return uint64(sum(table.free for table in tables)), uint64(sum(table.reserved for table in tables))


def _check_groups(nodes: Nodes) -> None:
    """Raise where the kubelet follows a table that is not there while it sums up a group."""
    for node, state in nodes.items():
        for resource in state.memory:
            lacking = [cell for cell in state.cells if resource not in nodes[cell].memory]
            if lacking:
                raise KubeletCrashError(
                    f"NUMA node {lacking[0]} does not list {resource} and node {node} of its group does: the kubelet "
                    "crashes when it starts on such a group"
                )
