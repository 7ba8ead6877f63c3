"""The memory manager's hints: every set of NUMA nodes with enough memory that respects the groups in use.

Source: kubelet v1.37.1, memorymanager policy_static.go (calculateHints); spec: memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import cast

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.core.errors import KubeletCrashError, UnsupportedError
from mooring.engine.core.gotext import UINT64_MAX, uint64
from mooring.engine.memorymanager.requests import Requests
from mooring.engine.memorymanager.reuse import NOTHING_LEFT, Leftover
from mooring.engine.memorymanager.state import MemoryTable, NUMANodeState
from mooring.engine.topologymanager.entries import AnyHints
from mooring.engine.topologymanager.hints import Hint, Hints
from mooring.engine.topologymanager.wide import Demand, Family, sets_of_size

MOST_LISTED = 8
"""Largest number of NUMA nodes for which hints are listed; with more of them they are described."""


def calculate_hints(
    nodes: Mapping[int, NUMANodeState], requests: Requests, leftover: Leftover = NOTHING_LEFT
) -> AnyHints | None:
    """Return the node sets that can serve the requests; None when there is none.

    The same masks hold for every requested type. None means "no opinion" to the topology manager: the failure shows
    only when memory is allocated.

    Args:
        nodes: the machine state.
        requests: memory type -> bytes; not empty.
        leftover: memory of ended init containers of the same pod.

    Raises:
        KubeletCrashError: a node does not list a requested type.
    """
    ids = tuple(sorted(nodes))
    if len(ids) > MOST_LISTED:
        return _family(nodes, ids, requests, leftover)
    amounts = tuple(requests.values())
    tables = [[_table(nodes, node, resource) for node in ids] for resource in requests]
    allocatable = tuple([tuple([table.allocatable for table in row]) for row in tables])
    wraps = any(sum(row) > UINT64_MAX for row in allocatable)
    found = _enough([[table.free for table in row] for row in tables], amounts, wraps=wraps)
    if wraps:
        # Only where sums wrap around can nodes have free what they have not as a whole.
        found = sorted(set(found).intersection(_enough(allocatable, amounts, wraps=True)))
    masks = set(_as_masks([index for index in found if index], ids))
    if leftover.amounts:
        reusing = set(_reusing(ids, leftover))
        if wraps:
            # What is left is added to what is free: a sum that sufficed can wrap around.
            masks -= reusing
        masks.update(mask for mask in reusing if _serves(nodes, mask, requests, leftover))
    masks = _respecting_groups(leftover.ungrouped(nodes), masks)
    if not masks:
        return None
    smallest = _smallest_size(allocatable, amounts, wraps=wraps)
    preferred = [mask for mask in masks if mask.bit_count() == smallest]
    others = [mask for mask in masks if mask.bit_count() != smallest]
    return Hints(tuple(preferred), tuple(others))


def best_hint(hints: AnyHints | None, around: NUMAMask) -> Hint | None:
    """Return the best hint around some nodes: preferred first, then fewer nodes, then the smaller mask."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        mask = hints.best_around(around)
        return None if mask is None else Hint(NUMAMask(mask), hints.prefers(mask))
    for preferred, masks in ((True, hints.preferred), (False, hints.others)):
        wide_enough = [mask for mask in masks if mask & around == around]
        if wide_enough:
            return Hint(min(wide_enough, key=lambda mask: (mask.bit_count(), mask)), preferred)
    return None


def _family(
    nodes: Mapping[int, NUMANodeState], ids: tuple[int, ...], requests: Requests, leftover: Leftover
) -> AnyHints | None:
    """Describe the same hints: nodes without assignments combine freely, all other members are listed.

    Raises:
        UnsupportedError: amounts of so many nodes wrap around; sums of them grow and shrink with the set of nodes.
    """
    if any(table.allocatable > table.total for state in nodes.values() for table in state.memory.values()):
        raise UnsupportedError(
            f"a NUMA node has more reserved, or bound in huge pages, than it has memory: the kubelet's numbers wrap "
            f"around, which is followed on machines of up to {MOST_LISTED} NUMA nodes"
        )
    width = max(ids) + 1
    grown = leftover.amounts if leftover.assignments is not None else {}
    demands = tuple(
        Demand(
            amount,
            _weights(nodes, width, resource, lambda table: table.free),
            bonuses=tuple((mask, types[resource]) for mask, types in grown.items() if types.get(resource)),
        )
        for resource, amount in requests.items()
    )
    whole = tuple(
        Demand(amount, _weights(nodes, width, resource, lambda table: table.allocatable))
        for resource, amount in requests.items()
    )
    smallest = _fewest_nodes(NUMAMask(mask_of(ids)), whole)
    grouped = leftover.ungrouped(nodes)
    free_nodes = NUMAMask(mask_of(node for node in ids if grouped[node].assignments == 0))
    candidates = {NUMAMask(mask_of(state.cells)) for state in grouped.values() if state.assignments > 0}
    candidates.update(leftover.amounts)
    serving = {mask for mask in candidates if _serves(nodes, mask, requests, leftover)}
    family = Family(
        free_nodes,
        # What is taken over may make up for memory that the nodes cannot have: they must be able to.
        (*demands, *whole) if grown else demands,
        smallest,
        listed=tuple(sorted(_respecting_groups(grouped, serving))),
        barred=frozenset(NUMAMask(1 << node) for node in ids if len(grouped[node].cells) > 1),
    )
    return family if family.listed or family.first_of_size_up() is not None else None


@lru_cache(maxsize=64)
def _fewest_nodes(nodes: NUMAMask, whole: tuple[Demand, ...]) -> int:
    """Return the size of the smallest sets of nodes that meet the demands; all nodes when none does.

    What the nodes have as a whole does not change: it is remembered.
    """
    count = nodes.bit_count()
    sizes = range(1, count + 1)
    return next((size for size in sizes if any(True for _ in sets_of_size(nodes, size, 0, whole))), count)


def _weights(
    nodes: Mapping[int, NUMANodeState], width: int, resource: str, amount: Callable[[MemoryTable], int]
) -> tuple[int, ...]:
    return tuple(amount(_table(nodes, node, resource)) if node in nodes else 0 for node in range(width))


def _table(nodes: Mapping[int, NUMANodeState], node: int, resource: str) -> MemoryTable:
    table = nodes[node].memory.get(resource)
    if table is None:
        raise KubeletCrashError(
            f"NUMA node {node} does not list {resource}: the kubelet crashes when a container requests a type of "
            "memory that some node does not have"
        )
    return table


def free_in(nodes: Mapping[int, NUMANodeState], mask: NUMAMask, resource: str) -> int:
    """Return the free bytes of one type on the nodes of a mask.

    Raises:
        KubeletCrashError: one of the nodes does not list the type.
    """
    return sum(_table(nodes, node, resource).free for node in members(mask)) & UINT64_MAX


def _reusing(ids: tuple[int, ...], leftover: Leftover) -> Iterable[NUMAMask]:
    """Return the node sets for which memory of ended init containers counts."""
    if leftover.assignments is None:
        return leftover.amounts
    sets = _as_masks(list(range(1, 1 << len(ids))), ids)
    return [mask for mask in sets if any(not own & ~mask for own in leftover.amounts)]


def _serves(nodes: Mapping[int, NUMANodeState], mask: NUMAMask, requests: Requests, leftover: Leftover) -> bool:
    """Tell whether the nodes of a mask can give what is asked; what is left counts on top of what is free."""
    extra = leftover.within(mask)
    for resource, amount in requests.items():
        if uint64(sum(_table(nodes, node, resource).allocatable for node in members(mask))) < amount:
            return False
        if uint64(free_in(nodes, mask, resource) + extra.get(resource, 0)) < amount:
            return False
    return True


def _enough(rows: Sequence[Sequence[int]], amounts: tuple[int, ...], *, wraps: bool) -> Iterable[int]:
    """Return the sets of positions whose sum suffices for every type.

    Args:
        rows: one amount of each node, for one type after the other.
        amounts: of each type.
        wraps: whether sums may exceed the 64 bits of the kubelet's numbers, which then wrap around.
    """
    found: Iterable[int] = range(1 << len(rows[0]))
    for row, amount in zip(rows, amounts, strict=True):
        sums = [0]
        for value in row:
            sums += [total + value for total in sums]
        if wraps:
            sums = [uint64(total) for total in sums]
        found = [index for index in found if sums[index] >= amount]
    return found


def _as_masks(found: list[int], ids: tuple[int, ...]) -> Iterable[NUMAMask]:
    if ids == tuple(range(len(ids))):
        return cast("list[NUMAMask]", found)  # positions are ids here
    return [NUMAMask(mask_of(ids[position] for position in members(index))) for index in found]


def _respecting_groups(nodes: Mapping[int, NUMANodeState], masks: set[NUMAMask]) -> set[NUMAMask]:
    """Drop what would cut through a group of nodes in use.

    A single node must not belong to a group of several. Of several nodes, those with assignments must form exactly
    this group.
    """
    used = mask_of(node for node, state in nodes.items() if state.assignments > 0)
    kept = {mask for mask in masks if not mask & used}
    for node, state in nodes.items():
        single = NUMAMask(1 << node)
        if len(state.cells) > 1:
            kept.discard(single)
        elif single in masks:
            kept.add(single)
        group = NUMAMask(mask_of(state.cells))
        if len(state.cells) > 1 and group in masks and _is_group(nodes, group):
            kept.add(group)
    return kept


def _is_group(nodes: Mapping[int, NUMANodeState], group: int) -> bool:
    return all(
        mask_of(nodes[node].cells) == group for node in members(group) if node in nodes and nodes[node].assignments > 0
    )


@lru_cache(maxsize=256)
def _smallest_size(allocatable: tuple[tuple[int, ...], ...], amounts: tuple[int, ...], *, wraps: bool) -> int:
    """Return the fewest nodes that could serve the requests on an empty machine; all of them when none could."""
    enough = _enough(allocatable, amounts, wraps=wraps)
    return min((index.bit_count() for index in enough if index), default=len(allocatable[0]))
