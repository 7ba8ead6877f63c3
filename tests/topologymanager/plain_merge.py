"""The kubelet's merge as its specification tells it: a fold over the Cartesian product of all hints.

An oracle: slow, plain, on sets of node ids, sharing nothing with the engine. At any number of nodes all that a
permutation leaves to the comparison is its common nodes, and whether all its masks are equal and all its hints
preferred; so the product is also built entry by entry as a set of these, with equal partial results counted once.

Source: kubelet v1.37.1, topologymanager policy*.go; spec: topology-manager.md sections 2 and 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

Nodes: TypeAlias = frozenset[int]


@dataclass(frozen=True)
class PlainHint:
    """One hint, also the result of a merge; no nodes means no opinion about them."""

    nodes: Nodes | None
    preferred: bool


Provider: TypeAlias = Mapping[str, Sequence[PlainHint] | None] | None
Distances: TypeAlias = Mapping[int, Sequence[int]]
"""Node id -> its row, indexed by node id."""


def plain_merge(
    policy: str, providers: Sequence[Provider], nodes: Nodes, distances: Distances | None = None
) -> tuple[PlainHint, bool]:
    """Return the merged hint and whether the pod is admitted.

    Args:
        policy: name of the policy.
        providers: their hints.
        nodes: all nodes of the machine, the default mask.
        distances: with prefer-closest-numa-nodes.
    """
    if policy == "none":
        return PlainHint(None, False), True
    entries = filtered(providers)
    if policy == "single-numa-node":
        entries = [[hint for hint in entry if single(hint)] for entry in entries]
        distances = None
    bound = best_non_preferred_count(entries)
    current: PlainHint | None = None
    for permutation in product(*entries):
        current = compared(current, combined(permutation, nodes), bound, distances)
    best = current or PlainHint(nodes, False)
    if policy == "single-numa-node" and best.nodes == nodes:
        best = PlainHint(None, best.preferred)
    return best, policy == "best-effort" or best.preferred


def filtered(providers: Sequence[Provider]) -> list[list[PlainHint]]:
    entries: list[list[PlainHint]] = []
    for provider in providers:
        if not provider:
            entries.append([PlainHint(None, True)])
            continue
        for hints in provider.values():
            if hints is None:
                entries.append([PlainHint(None, True)])
            elif not hints:
                entries.append([PlainHint(None, False)])
            else:
                entries.append(list(hints))
    return entries


def single(hint: PlainHint) -> bool:
    return hint.preferred and (hint.nodes is None or len(hint.nodes) == 1)


def best_non_preferred_count(entries: Sequence[Sequence[PlainHint]]) -> int:
    largest = 0
    for entry in entries:
        sizes = [len(hint.nodes) for hint in entry if hint.nodes is not None]
        if sizes:
            largest = max(largest, min(sizes))
    return largest


def combined(permutation: Sequence[PlainHint], nodes: Nodes) -> PlainHint:
    masks = [hint.nodes for hint in permutation if hint.nodes is not None]
    common = nodes
    for mask in masks:
        common &= mask
    same = all(mask == masks[0] for mask in masks)
    return PlainHint(common, same and all(hint.preferred for hint in permutation))


def compared(
    current: PlainHint | None, candidate: PlainHint, bound: int, distances: Distances | None
) -> PlainHint | None:
    if not candidate.nodes:
        return current
    if current is None:
        return candidate
    if current.preferred != candidate.preferred:
        return current if current.preferred else candidate
    if current.preferred:
        return better_mask(current, candidate, distances)
    return not_preferred(current, candidate, bound, distances)


def not_preferred(current: PlainHint, candidate: PlainHint, bound: int, distances: Distances | None) -> PlainHint:
    """The table of topology-manager.md section 3."""
    a, b = len(current.nodes or ()), len(candidate.nodes or ())
    if a > bound:
        return better_mask(current, candidate, distances)
    if a == bound:
        return better_mask(current, candidate, distances) if b == bound else current
    if b > bound:
        return current
    if b == bound or b > a:
        return candidate
    if b < a:
        return current
    return better_mask(current, candidate, distances)


def better_mask(current: PlainHint, candidate: PlainHint, distances: Distances | None) -> PlainHint:
    a, b = current.nodes or frozenset(), candidate.nodes or frozenset()
    if a == b:
        return current
    if len(a) != len(b):
        return current if len(a) < len(b) else candidate
    if distances is not None:
        near, far = plain_average(distances, a), plain_average(distances, b)
        if near != far:
            return current if near < far else candidate
    return current if number(a) < number(b) else candidate


def plain_average(distances: Distances, nodes: Nodes) -> float:
    ordered = sorted(nodes)
    total = 0.0
    for x in ordered:
        for y in ordered:
            total += float(distances[x][y])
    return total / (len(ordered) * len(ordered))


def number(nodes: Nodes) -> int:
    return sum(2**node for node in nodes)


def merged_by_states(
    policy: str, entries: Sequence[Sequence[PlainHint]], nodes: Nodes, distances: Distances | None = None
) -> tuple[PlainHint, bool]:
    """Return the merged hint and whether the pod is admitted, for entries that are filtered already."""
    if policy == "single-numa-node":
        entries = [[hint for hint in entry if single(hint)] for entry in entries]
        distances = None
    bound = best_non_preferred_count(entries)
    current: PlainHint | None = None
    for candidate in candidates(entries, nodes):
        current = compared(current, candidate, bound, distances)
    best = current or PlainHint(nodes, False)
    if policy == "single-numa-node" and best.nodes == nodes:
        best = PlainHint(None, best.preferred)
    return best, policy == "best-effort" or best.preferred


def candidates(entries: Sequence[Sequence[PlainHint]], nodes: Nodes) -> list[PlainHint]:
    """Return every distinct outcome of a permutation."""
    everything = number(nodes)
    # Permutations with different masks so far are their common nodes; the others are their one mask (None: no hint has
    # one) and whether all hints are preferred.
    mixed: set[int] = set()
    equal: set[tuple[int | None, bool]] = {(None, True)}
    for entry in entries:
        hints = {(None if hint.nodes is None else number(hint.nodes), hint.preferred) for hint in entry}
        masks = {everything if mask is None else mask for mask, _ in hints}
        mixed = {common & mask for common in mixed for mask in masks}
        still: set[tuple[int | None, bool]] = set()
        for one, preferred in equal:
            for mask, liked in hints:
                if one is None or mask is None or mask == one:
                    still.add((mask if one is None else one, preferred and liked))
                else:
                    mixed.add(one & mask & everything)
        equal = still
    found = {(common, False) for common in mixed}
    found |= {(everything if one is None else one & everything, preferred) for one, preferred in equal}
    return [PlainHint(as_nodes(mask), preferred) for mask, preferred in sorted(found)]


def as_nodes(mask: int) -> Nodes:
    return frozenset(node for node in range(mask.bit_length()) if mask >> node & 1)
