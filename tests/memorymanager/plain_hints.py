"""The memory hints as their specification tells them: one loop over all sets of nodes, on plain dictionaries.

An oracle: slow, and sharing nothing with the engine but the value of a node's state.

Source: kubelet v1.37.1, memorymanager policy_static.go (calculateHints); spec: memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import TypeAlias

from mooring.engine.memorymanager.state import NUMANodeState

Nodes: TypeAlias = frozenset[int]
Reusable: TypeAlias = Mapping[Nodes, Mapping[str, int]]
"""Set of nodes -> memory type -> bytes that ended init containers leave there."""


WRAP = 2**64
"""Where the kubelet's unsigned numbers begin anew."""


def all_subsets(ids: list[int]) -> list[Nodes]:
    """Return the non-empty subsets by size, then lexicographic."""
    return [frozenset(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size)]


def plain_hints(
    nodes: Mapping[int, NUMANodeState], requests: Mapping[str, int], reusable: Reusable
) -> list[tuple[Nodes, bool]]:
    """Return (nodes, preferred) for every hint, in the kubelet's order."""
    ids = sorted(nodes)
    smallest = len(ids)
    found: list[Nodes] = []
    for mask in all_subsets(ids):
        if any(sum(nodes[n].memory[name].allocatable for n in mask) % WRAP < asked for name, asked in requests.items()):
            continue
        smallest = min(smallest, len(mask))
        if violates(nodes, mask):
            continue
        extra = reusable.get(mask, {})
        if any(
            (sum(nodes[n].memory[name].free for n in mask) + extra.get(name, 0)) % WRAP < asked
            for name, asked in requests.items()
        ):
            continue
        found.append(mask)
    return [(mask, len(mask) == smallest) for mask in found]


def violates(nodes: Mapping[int, NUMANodeState], mask: Nodes) -> bool:
    if len(mask) == 1:
        (node,) = mask
        return len(nodes[node].cells) > 1
    for node in mask:
        state = nodes[node]
        if state.assignments > 0 and (len(state.cells) == 1 or set(state.cells) != set(mask)):
            return True
    return False


def generous_hints(
    nodes: Mapping[int, NUMANodeState], requests: Mapping[str, int], reusable: Reusable, own: Mapping[int, int]
) -> list[tuple[Nodes, bool]]:
    """Return the hints with defect exact-mask-reuse fixed.

    What is left on a set of nodes counts for every set that contains it; ``own`` assignments of ended init containers,
    by node, do not bind a node to its group.
    """
    seen = {
        node: NUMANodeState(
            state.assignments - own.get(node, 0),
            state.memory,
            state.cells if state.assignments > own.get(node, 0) or node not in own else (node,),
        )
        for node, state in nodes.items()
    }
    larger = {
        mask: {name: sum(types.get(name, 0) for lying, types in reusable.items() if lying <= mask) for name in requests}
        for mask in all_subsets(sorted(nodes))
    }
    return plain_hints(seen, requests, larger)
