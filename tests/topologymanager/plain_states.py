"""The plain product of hints, with equal partial results counted once: the same fold, at any number of nodes.

All that a permutation of hints leaves to the comparison is its common nodes and whether all its masks are equal and all
its hints preferred. So the product is built entry by entry as a set of these, with a few thousand members where the
product has billions. The comparison itself is that of the plain form, and has no need of an order: it is held against
the plain fold where that can be run.

Source: kubelet v1.37.1, topologymanager policy*.go; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.topologymanager.plain_merge import (
    Distances,
    Nodes,
    PlainHint,
    best_non_preferred_count,
    compared,
    number,
    single,
)


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
