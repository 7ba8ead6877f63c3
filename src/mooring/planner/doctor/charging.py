"""In which order entries are charged so that the kubelet does not crash on the groups that they leave.

The group of a NUMA node is that of the last block charged to it. For each type of memory of a node the kubelet follows
the tables of all nodes of its group, and crashes where one is not there. So the order is built from the end: an entry
may come last when its groups are bearable on every node that no later one touches. Placing one never bars another.

Source: kubelet v1.37.1, memorymanager policy_static.go; spec: memory-manager.md sections 5.2 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from mooring.core.bits import members
from mooring.memorymanager.replay import Containers
from mooring.memorymanager.state import Block, NodeState

Thing = TypeVar("Thing")
Nodes = Mapping[int, NodeState]


def charging_order(machine: Nodes, pods: Sequence[Containers]) -> list[Containers] | None:
    """Return the pods, and the containers of each, in an order that leaves bearable groups, or None.

    Args:
        machine: the nodes with their types of memory.
        pods: blocks whose nodes and types exist, in the order to be preferred.
    """

    def placed(pod: Containers, settled: int) -> tuple[Containers, int] | None:
        found = _from_the_end(pod, settled, lambda blocks, after: _settled_by(machine, blocks, after))
        return None if found is None else (tuple(found[0]), found[1])

    found = _from_the_end(pods, 0, placed)
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


def _settled_by(machine: Nodes, blocks: tuple[Block, ...], settled: int) -> tuple[tuple[Block, ...], int] | None:
    for block in reversed(blocks):
        cells = tuple(members(block.mask))
        if not all(_is_bearable(machine, node, cells) for node in members(block.mask & ~settled)):
            return None
        settled |= block.mask
    return blocks, settled


def _is_bearable(machine: Nodes, node: int, cells: tuple[int, ...]) -> bool:
    return all(name in machine[cell].memory for name in machine[node].memory for cell in cells)
