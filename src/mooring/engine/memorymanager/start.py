"""Starting on a state: is it what its own assignments lead to?

Source: kubelet v1.37.1, memorymanager policy_static.go (Start, validateState); spec: memory-manager.md section 7.

Charging the assignments of a file to an empty machine, in an order that leads to the recorded state if any does.

The kubelet walks maps here: pods in random order, and the containers of each pod in random order. Where a NUMA node
serves blocks of different node sets (a group of nodes, and a single node of it beside) the order decides which group
the node ends in, and with full nodes also where the memory lies, so that the same files start or fail by chance
(v1.37.1, memorymanager policy_static.go, validateState; spec: README.md section 5). Mooring looks for an order that
starts.

Every write of the kubelet leaves the newest assignment of a node to name its group. So the orders that can succeed are
built from the end: a container may come last when the nodes that no later one touches are left in their recorded
groups. Placing one never bars another, so the first that fits is as good as any. Nearly all states that a kubelet wrote
are found at once in this way; where full nodes send memory elsewhere, the orders that are left are searched, up to
:data:`MOST_CHARGES` charges.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import TypeVar

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.decision import Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.gotext import uint64
from mooring.engine.memorymanager.facts import StartLeftToChance
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState, charge
from mooring.lazy import replace

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
    # What no assignment changes: nodes, types, totals, reservations.
    if empty.keys() != state.nodes.keys() or any(
        _fixed(empty[node]) != _fixed(real) or not set(real.cells) <= empty.keys() for node, real in state.nodes.items()
    ):
        return DIFFERENT
    pods = blocks_by_pod(policy, state)

    # Up to v1.31 every number of every node is compared (rule memory-file-compared-by-number; spec: releases.md
    # section 8).
    by_number = policy.older.memory_file_compared_by_number

    def is_recorded(expected: Nodes) -> bool:
        return all(_is_equal(expected, state.nodes, node, by_number=by_number) for node in expected)

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
        for container, blocks in counted_blocks(policy, state, pod).items():
            for block in blocks:
                where = f"[memorymanager] (pod: {pod}, container: {container}) the memory assignment uses"
                for node in block.numa:
                    if node not in policy.default_nodes:
                        return f"{where} the NUMA that does not exist"
                    if block.type not in policy.default_nodes[node].memory:
                        return f"{where} memory resource that does not exist"
    return ""


def counted_blocks(policy: MemoryPolicy, state: MemoryState, pod: str) -> Mapping[str, tuple[Block, ...]]:
    """Return the blocks that a pod counts with: its own, if it has any (KEP-5526), else its containers'."""
    if policy.counts_as_a_whole(state, pod):
        return {"": state.pods[pod]}
    return {container: state.assignments[pod][container] for container in sorted(state.assignments[pod])}


def blocks_by_pod(policy: MemoryPolicy, state: MemoryState) -> list[Containers]:
    """Return the blocks that the pods count with, in the order of their uids."""
    return [tuple(counted_blocks(policy, state, pod).values()) for pod in sorted(state.assignments)]


def _fixed(node: NUMANodeState) -> dict[str, tuple[int, int, int]]:
    return {name: (table.total, table.system_reserved, table.allocatable) for name, table in node.memory.items()}


def _is_equal(expected: Nodes, real: Nodes, node: int, *, by_number: bool) -> bool:
    """Compare what assignments change: each number, or free and reserved memory only as sums over the node's group."""
    left, right = expected[node], real[node]
    if left.assignments != right.assignments or sorted(left.cells) != sorted(right.cells):
        return False
    if by_number:
        return left.memory == right.memory
    return all(_sums(expected, left.cells, name) == _sums(real, right.cells, name) for name in left.memory)


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


MOST_CHARGES = 20_000
"""Containers charged before a search gives up. Only a file made by hand needs as many."""

Thing = TypeVar("Thing")
Containers = tuple[tuple[Block, ...], ...]
"""The blocks of each container of one pod; one entry where the pod has blocks of its own."""


def replayed(nodes: Nodes, pods: Sequence[Containers]) -> Nodes:
    """Return the machine state after all blocks were charged in the given order."""
    for containers in pods:
        for blocks in containers:
            nodes = _charged(nodes, blocks)
    return nodes


def _charged(nodes: Nodes, blocks: tuple[Block, ...]) -> Nodes:
    for block in blocks:
        nodes = charge(nodes, block.numa, block.type, block.size)
    return nodes


def contested_nodes(pods: Sequence[Containers]) -> int:
    """Return the mask of the nodes that blocks of different node sets link; on all others the order plays no part.

    >>> def block(*numa): return (Block(numa, "memory", 1),)
    >>> bin(contested_nodes([(block(0),), (block(1, 2), block(1)), (block(4, 5),)]))
    '0b110'
    """
    linked: list[tuple[NUMAMask, frozenset[NUMAMask]]] = []
    for mask in {block.mask for containers in pods for blocks in containers for block in blocks}:
        nodes, masks = mask, frozenset({mask})
        apart = []
        for other in linked:
            if other[0] & mask:
                nodes, masks = nodes | other[0], masks | other[1]
            else:
                apart.append(other)
        linked = [*apart, (nodes, masks)]
    return sum(nodes for nodes, masks in linked if len(masks) > 1)


def nodes_left_to_chance(pods: Sequence[Containers], recorded: Nodes) -> tuple[int, ...]:
    """Return the nodes that end in another group when some container happens to be charged last."""
    found: set[int] = set()
    for containers in pods:
        for blocks in containers:
            last = {node: block.mask for block in blocks for node in block.numa}
            found.update(node for node, mask in last.items() if mask != mask_of(recorded[node].cells))
    return tuple(sorted(found))


def replayed_to(
    empty: Nodes, pods: Sequence[Containers], recorded: Nodes, is_recorded: Callable[[Nodes], bool]
) -> Nodes | None:
    """Return the state after all blocks in the first order found whose state ``is_recorded``, or None.

    Args:
        empty: the machine before anything was given away.
        pods: blocks whose nodes and types exist, in the order to be preferred.
        recorded: the state of the file, with groups of existing nodes.
        is_recorded: whether a state counts as the recorded one.
    """
    # Every node has to end in its recorded group.
    ordered = order_from_the_end(pods, lambda node, block: mask_of(recorded[node].cells) == block.mask)
    if ordered is None:
        return None
    found = replayed(empty, ordered)
    return found if is_recorded(found) else _searched(empty, ordered, is_recorded)


def order_from_the_end(pods: Sequence[Containers], may_leave: Callable[[int, Block], bool]) -> list[Containers] | None:
    """Return the pods, and the containers of each, in an order built from the end; None when there is none.

    Args:
        pods: blocks whose nodes and types exist, in the order to be preferred.
        may_leave: whether a block may be the last one on a node.
    """

    def container(blocks: tuple[Block, ...], settled: int) -> tuple[tuple[Block, ...], int] | None:
        for block in reversed(blocks):
            if not all(may_leave(node, block) for node in members(block.mask & ~settled)):
                return None
            settled |= block.mask
        return blocks, settled

    def pod(containers: Containers, settled: int) -> tuple[Containers, int] | None:
        found = _from_the_end(containers, settled, container)
        return None if found is None else (tuple(found[0]), found[1])

    found = _from_the_end(pods, 0, pod)
    return None if found is None else found[0]


def _from_the_end(
    things: Sequence[Thing], settled: int, placed: Callable[[Thing, int], tuple[Thing, int] | None]
) -> tuple[list[Thing], int] | None:
    """Return the things in an order in which each may come before the later ones, and all nodes settled then."""
    waiting = list(things)
    order: list[Thing] = []
    while waiting:
        for position in reversed(range(len(waiting))):
            found = placed(waiting[position], settled)
            if found is not None:
                thing, settled = found
                order.append(thing)
                del waiting[position]
                break
        else:
            return None
    return order[::-1], settled


def _searched(empty: Nodes, pods: list[Containers], is_recorded: Callable[[Nodes], bool]) -> Nodes | None:
    """Try all orders that differ, pods as a whole and containers inside them; None also when that takes too long."""
    contested = contested_nodes(pods)
    calm = [pod for pod in pods if not any(block.mask & contested for blocks in pod for block in blocks)]
    seen = set()
    charges = 0
    paths: list[tuple[Nodes, Containers, list[Containers]]] = [
        (replayed(empty, calm), (), [pod for pod in pods if pod not in calm])
    ]
    while paths and charges < MOST_CHARGES:
        nodes, containers, waiting = paths.pop()
        if not containers and not waiting:
            if is_recorded(nodes):
                return nodes
            continue
        sums = tuple((node.cells, tuple(table.free for table in node.memory.values())) for node in nodes.values())
        key = (sums, _unordered(containers), _unordered(waiting))
        if key in seen:
            continue
        seen.add(key)
        for pod, others in [(containers, waiting)] if containers else _one_by_one(waiting):
            for blocks, rest in _one_by_one(pod):
                charges += 1
                paths.append((_charged(nodes, blocks), tuple(rest), others))
    return None


def _unordered(things: Sequence[Hashable]) -> Hashable:
    return frozenset(Counter(things).items())


def _one_by_one(things: Sequence[Thing]) -> Iterator[tuple[Thing, list[Thing]]]:
    for position, thing in enumerate(things):
        yield thing, [*things[:position], *things[position + 1 :]]
