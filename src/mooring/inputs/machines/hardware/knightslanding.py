"""Xeon Phi x200 (Knights Landing, Knights Mill): memory on the package appears as nodes without CPUs.

The firmware of these processors tells no localities; they follow from the distances, which have a fixed pattern per
mode. Source: Intel Xeon Phi x200 software developer's guide (cluster and memory modes); hwloc 2.14,
topology-linux.c (hwloc_linux_knl_numa_quirk).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.inputs.machines.hardware.nesting import Nest
from mooring.inputs.machines.hardware.numanodes import MemoryNode

_CLUSTER_RANK: Final = 100
_DDR_BANDWIDTH: Final = 90_000
_MCDRAM_BANDWIDTH: Final = 360_000
"""MiB/s of a whole processor: published figures, which hwloc divides by the number of clusters."""

_Table = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How the nodes of one processor belong together."""

    pairs: tuple[tuple[MemoryNode, MemoryNode | None], ...]
    """Each node of ordinary memory with its on-package memory (MCDRAM), where that is a node."""
    has_memory_cache: bool
    """The MCDRAM serves as a cache of the ordinary memory: hwloc shows an L3, which the cores do not have."""


def find_layout(nodes: Sequence[MemoryNode], count: int, distances: _Table | None) -> Layout | None:
    """Work out the mode from the nodes; None when they fit none, and every node is then taken as it is.

    ``count`` is how many nodes the kernel lists: a node that could not be read spoils the pattern.
    """
    if len(nodes) != count:
        return None
    if count == 1:
        return Layout(((nodes[0], None),), has_memory_cache=True)
    if distances is None or count not in {2, 4, 8} or not _is_plausible(distances):
        return None
    kinds = len(_occurrences(distances))
    if count == 2:
        if kinds != 2:
            return None
        cache = bool(nodes[1].cpus)
        return Layout(((nodes[0], None), (nodes[1], None)) if cache else ((nodes[0], nodes[1]),), cache)
    if count == 4 and kinds == 2:
        return Layout(tuple((node, None) for node in nodes), has_memory_cache=True)
    # Occurrences of each distance above the diagonal, the diagonal itself included, rarest first.
    pattern, near, far = ([1, 2, 3, 4], 1, 0) if count == 4 else ([4, 6, 8, 18], 0, 1)
    occurrences = _occurrences(distances)
    if [times for _, times in occurrences] != pattern:
        return None
    pairs = _pairs(nodes, distances, to_ddr=occurrences[far][0], to_mcdram=occurrences[near][0])
    return None if pairs is None else Layout(pairs, has_memory_cache=False)


def place_layout(layout: Layout, nest: Nest) -> dict[int, int]:
    """Give MCDRAM the locality of its node, enter clusters and memory caches, and return bandwidths by node id."""
    bandwidths: dict[int, int] = {}
    for ddr, mcdram in layout.pairs:
        if mcdram is not None:
            mcdram.subtype = "MCDRAM"
            mcdram.cpus = ddr.cpus
            if ddr.cpus:
                nest.add_group(ddr.cpus, _CLUSTER_RANK, "Cluster")
            bandwidths[ddr.id] = _DDR_BANDWIDTH // len(layout.pairs)
            bandwidths[mcdram.id] = _MCDRAM_BANDWIDTH // len(layout.pairs)
        if layout.has_memory_cache and ddr.cpus:
            nest.add(ddr.cpus, "l3")
    return bandwidths


def _is_plausible(distances: _Table) -> bool:
    """Tell whether the table is symmetric, 10 on the diagonal and larger elsewhere."""
    return all(
        value == distances[column][row] and (value == 10 if row == column else value > 10)
        for row, values in enumerate(distances)
        for column, value in enumerate(values)
    )


def _occurrences(distances: _Table) -> list[tuple[int, int]]:
    """Count the distances on and above the diagonal, rarest first."""
    counts = Counter(value for row, values in enumerate(distances) for value in values[row:])
    return sorted(counts.items(), key=lambda item: item[1])


def _pairs(
    nodes: Sequence[MemoryNode], distances: _Table, *, to_ddr: int, to_mcdram: int
) -> tuple[tuple[MemoryNode, MemoryNode], ...] | None:
    """Pair each ordinary node with the MCDRAM at its own distance; node 0 is always ordinary memory."""
    half = len(nodes) // 2
    ddr = [0, *(column for column, value in enumerate(distances[0]) if value == to_ddr)][:half]
    mcdram = [next(_columns(distances[row], to_mcdram), 0) for row in ddr]
    if len(ddr) != half or not all(mcdram):
        return None
    return tuple((nodes[row], nodes[column]) for row, column in zip(ddr, mcdram, strict=True))


def _columns(row: Sequence[int], value: int) -> Iterator[int]:
    return (column for column, other in enumerate(row) if other == value and column)
