"""Charging the assignments of a file to an empty machine, in an order that leads to the recorded state if any does.

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

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.memorymanager.account import charge_in_order
from mooring.engine.memorymanager.state import Block, NUMANodeState

MOST_CHARGES = 20_000
"""Containers charged before a search gives up. Only a file made by hand needs as many."""

Thing = TypeVar("Thing")
Nodes = Mapping[int, NUMANodeState]
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
        nodes = charge_in_order(nodes, block.numa, block.type, block.size)
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
            found.update(node for node, mask in last.items() if mask != _group(recorded, node))
    return tuple(sorted(found))


def _group(nodes: Nodes, node: int) -> int:
    mask = 0
    for cell in nodes[node].cells:
        mask |= 1 << cell
    return mask


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
    ordered = _in_order_of_groups(pods, recorded)
    if ordered is None:
        return None
    found = replayed(empty, ordered)
    return found if is_recorded(found) else _searched(empty, ordered, is_recorded)


def _in_order_of_groups(pods: Sequence[Containers], recorded: Nodes) -> list[Containers] | None:
    """Return an order after which every node is in its recorded group, or None when there is none."""
    settled = 0
    waiting = list(pods)
    order: list[Containers] = []
    while waiting:
        for position in reversed(range(len(waiting))):
            placed = _at_the_end(waiting[position], recorded, settled)
            if placed is not None:
                containers, settled = placed
                order.append(containers)
                del waiting[position]
                break
        else:
            return None
    return order[::-1]


def _at_the_end(containers: Containers, recorded: Nodes, settled: int) -> tuple[Containers, int] | None:
    """Order the containers of a pod so that it can come before the settled nodes' last blocks, if possible."""
    waiting = list(containers)
    order: list[tuple[Block, ...]] = []
    while waiting:
        for position in reversed(range(len(waiting))):
            after = _settled_by(waiting[position], recorded, settled)
            if after is not None:
                settled = after
                order.append(waiting.pop(position))
                break
        else:
            return None
    return tuple(order[::-1]), settled


def _settled_by(blocks: tuple[Block, ...], recorded: Nodes, settled: int) -> int | None:
    for block in reversed(blocks):
        if any(_group(recorded, node) != block.mask for node in members(block.mask & ~settled)):
            return None
        settled |= block.mask
    return settled


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
        key = (_signature(nodes), _unordered(containers), _unordered(waiting))
        if key in seen:
            continue
        seen.add(key)
        for pod, others in [(containers, waiting)] if containers else _one_by_one(waiting):
            for blocks, rest in _one_by_one(pod):
                charges += 1
                paths.append((_charged(nodes, blocks), tuple(rest), others))
    return None


def _signature(nodes: Nodes) -> Hashable:
    return tuple((node.cells, tuple(table.free for table in node.memory.values())) for node in nodes.values())


def _unordered(things: Sequence[Hashable]) -> Hashable:
    return frozenset(Counter(things).items())


def _one_by_one(things: Sequence[Thing]) -> Iterator[tuple[Thing, list[Thing]]]:
    for position, thing in enumerate(things):
        yield thing, [*things[:position], *things[position + 1 :]]
