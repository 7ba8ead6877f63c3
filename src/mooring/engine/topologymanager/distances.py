"""Comparing masks: the narrower one, then the closer one where that is requested, then the smaller number.

Source: kubelet v1.37.1, topologymanager numa_info.go and policy.go; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.errors import KubeletCrashError


@dataclass(frozen=True, slots=True)
class NUMAInfo:
    """The NUMA nodes of the machine and, where they were requested, their distances."""

    nodes: NUMAMask
    """Mask of all nodes of the description, CPU-less ones too: the default mask."""
    distances: Mapping[int, tuple[int, ...]] | None = None
    """Node id -> its row, indexed by node *id* (not position); None without prefer-closest-numa-nodes."""


def average_distance(info: NUMAInfo, mask: int) -> float:
    """Return the mean distance over all ordered pairs of nodes of ``mask``, each node with itself included.

    Raises:
        KubeletCrashError: a row is missing or too short. Rows are indexed by node id, so that node ids with holes run
            over the end;
            the kubelet crashes there (v1.37.1, numa_info.go).

    >>> average_distance(NUMAInfo(0b11, {0: (10, 11), 1: (11, 10)}), 0b11)
    10.5
    """
    if not mask:
        return 0.0
    nodes = tuple(members(mask))
    total = 0.0
    try:
        rows = info.distances or {}
        for row_node in nodes:
            row = rows[row_node]
            for node in nodes:
                total += row[node]
    except (KeyError, IndexError):
        raise KubeletCrashError(
            f"the machine gives no distance between NUMA nodes {', '.join(map(str, nodes))}: the kubelet crashes here"
        ) from None
    return total / (len(nodes) * len(nodes))


def best_of_size(info: NUMAInfo, masks: tuple[int, ...]) -> int:
    """Return the best of several masks of one size: the closest where distances count, then the smallest number."""
    if info.distances is None or len(masks) == 1:
        return min(masks)
    return min(masks, key=lambda mask: (average_distance(info, mask), mask))


def narrowest(info: NUMAInfo, masks: tuple[int, ...]) -> int:
    """Return the best of several masks: the fewest nodes first, then as :func:`best_of_size`."""
    size = min(mask.bit_count() for mask in masks)
    return best_of_size(info, tuple(mask for mask in masks if mask.bit_count() == size))
