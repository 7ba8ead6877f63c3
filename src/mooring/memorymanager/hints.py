"""The memory manager's hints: every set of NUMA nodes with enough memory that respects the groups in use.

Source: kubelet v1.37.1, memorymanager policy_static.go (calculateHints); spec: memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from mooring.core.bits import mask_of, members
from mooring.memorymanager.requests import Requests
from mooring.memorymanager.state import MemoryTable, NodeState
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.hints import Hints
from mooring.topologymanager.wide import Demand, Family, sets_of_size

MOST_LISTED = 8
"""Largest number of NUMA nodes for which hints are listed; with more of them they are described."""

ReusableByMask = Mapping[int, Mapping[str, int]]
"""Mask of NUMA nodes -> memory type -> bytes that ended init containers of the pod leave there."""


def calculate_hints(nodes: Mapping[int, NodeState], requests: Requests, reusable: ReusableByMask) -> AnyHints | None:
    """Return the node sets that can serve the requests; None when there is none.

    The same masks hold for every requested type. None means "no opinion" to the topology manager: the failure shows
    only when memory is allocated.

    Args:
        nodes: the machine state.
        requests: memory type -> bytes; not empty.
        reusable: memory of ended init containers, which counts for the identical mask only (defect exact-mask-reuse).
    """
    ids = tuple(sorted(nodes))
    if len(ids) > MOST_LISTED:
        return _family(nodes, ids, requests, reusable)
    found = [index for index in _enough(nodes, ids, requests) if index]
    masks = set(_as_masks(found, ids))
    for mask, amounts in reusable.items():
        if _serves(nodes, mask, requests, amounts):
            masks.add(mask)
    masks = _respecting_groups(nodes, masks)
    if not masks:
        return None
    smallest = _smallest_size(_allocatable(nodes, ids, tuple(requests)), tuple(requests.values()), len(ids))
    preferred = [mask for mask in masks if mask.bit_count() == smallest]
    others = [mask for mask in masks if mask.bit_count() != smallest]
    return Hints(tuple(preferred), tuple(others))


def _family(
    nodes: Mapping[int, NodeState], ids: tuple[int, ...], requests: Requests, reusable: ReusableByMask
) -> AnyHints | None:
    """Describe the same hints: nodes without assignments combine freely, all other members are listed."""
    width = max(ids) + 1
    demands = tuple(
        Demand(amount, _weights(nodes, width, resource, lambda table: table.free))
        for resource, amount in requests.items()
    )
    whole = [
        Demand(amount, _weights(nodes, width, resource, lambda table: table.allocatable))
        for resource, amount in requests.items()
    ]
    everything = mask_of(ids)
    sizes = range(1, len(ids) + 1)
    smallest = next((size for size in sizes if any(True for _ in sets_of_size(everything, size, 0, whole))), len(ids))
    free_nodes = mask_of(node for node in ids if nodes[node].assignments == 0)
    groups = {mask_of(state.cells) for state in nodes.values() if state.assignments > 0}
    serving = {mask for mask in groups if _serves(nodes, mask, requests, {})}
    serving.update(mask for mask, amounts in reusable.items() if _serves(nodes, mask, requests, amounts))
    family = Family(
        free_nodes,
        demands,
        smallest,
        listed=tuple(sorted(_respecting_groups(nodes, serving))),
        barred=frozenset(1 << node for node in ids if len(nodes[node].cells) > 1),
    )
    return family if family.listed or family.first_of_size_up() is not None else None


def _weights(
    nodes: Mapping[int, NodeState], width: int, resource: str, amount: Callable[[MemoryTable], int]
) -> tuple[int, ...]:
    tables = [nodes[node].memory.get(resource) if node in nodes else None for node in range(width)]
    return tuple(amount(table) if table is not None else 0 for table in tables)


def free_in(nodes: Mapping[int, NodeState], mask: int, resource: str) -> int:
    """Return the free bytes of one type on the nodes of a mask; a node without the type has none."""
    total = 0
    for node in members(mask):
        table = nodes[node].memory.get(resource) if node in nodes else None
        total += table.free if table is not None else 0
    return total


def _serves(nodes: Mapping[int, NodeState], mask: int, requests: Requests, extra: Mapping[str, int]) -> bool:
    """Tell whether the nodes of a mask can give what is asked; ``extra`` counts on top of what is free."""
    for resource, amount in requests.items():
        allocatable = 0
        for node in members(mask):
            table = nodes[node].memory.get(resource) if node in nodes else None
            allocatable += table.allocatable if table is not None else 0
        if allocatable < amount or free_in(nodes, mask, resource) + extra.get(resource, 0) < amount:
            return False
    return True


def _enough(nodes: Mapping[int, NodeState], ids: tuple[int, ...], requests: Requests) -> Iterable[int]:
    """Return the sets of positions whose free memory suffices for every type.

    Free memory never exceeds what is allocatable, so the check of the latter is implied.
    """
    found: Iterable[int] = range(1 << len(ids))
    for resource, amount in requests.items():
        sums = [0]
        for node in ids:
            table = nodes[node].memory.get(resource)
            free = table.free if table is not None else 0
            sums += [total + free for total in sums]
        found = [index for index in found if sums[index] >= amount]
    return found


def _as_masks(found: list[int], ids: tuple[int, ...]) -> Iterable[int]:
    if ids == tuple(range(len(ids))):
        return found
    return [mask_of(ids[position] for position in members(index)) for index in found]


def _respecting_groups(nodes: Mapping[int, NodeState], masks: set[int]) -> set[int]:
    """Drop what would cut through a group of nodes in use.

    A single node must not belong to a group of several. Of several nodes, those with assignments must form exactly
    this group.
    """
    used = mask_of(node for node, state in nodes.items() if state.assignments > 0)
    kept = {mask for mask in masks if not mask & used}
    for node, state in nodes.items():
        single = 1 << node
        if len(state.cells) > 1:
            kept.discard(single)
        elif single in masks:
            kept.add(single)
        group = mask_of(state.cells)
        if len(state.cells) > 1 and group in masks and _is_group(nodes, group):
            kept.add(group)
    return kept


def _is_group(nodes: Mapping[int, NodeState], group: int) -> bool:
    return all(
        mask_of(nodes[node].cells) == group for node in members(group) if node in nodes and nodes[node].assignments > 0
    )


def _allocatable(
    nodes: Mapping[int, NodeState], ids: tuple[int, ...], resources: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    rows = []
    for resource in resources:
        tables = (nodes[node].memory.get(resource) for node in ids)
        rows.append(tuple(table.allocatable if table is not None else 0 for table in tables))
    return tuple(rows)


@lru_cache(maxsize=256)
def _smallest_size(allocatable: tuple[tuple[int, ...], ...], amounts: tuple[int, ...], count: int) -> int:
    """Return the fewest nodes that could serve the requests on an empty machine; all of them when none could."""
    enough = range(1, 1 << count)
    for row, amount in zip(allocatable, amounts, strict=True):
        sums = [0]
        for value in row:
            sums += [total + value for total in sums]
        enough = [index for index in enough if sums[index] >= amount]  # type: ignore[assignment]
    return min((index.bit_count() for index in enough), default=count)
