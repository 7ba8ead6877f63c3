"""What kind of memory a node is: DRAM or HBM, told apart by speed.

No file of sysfs says it. hwloc groups nodes into tiers of equal bandwidth and latency (HMAT) and names two tiers when
one is more than twice as fast as the other. Source: hwloc 2.14, memattrs.c (hwloc__group_memory_tiers,
hwloc__guess_memory_tiers_kinds).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from mooring.discovery.kernelfiles import read_uint
from mooring.discovery.locality import initiator_folder
from mooring.discovery.numanodes import Node
from mooring.discovery.tree import Tree

_THRESHOLD: Final = 1.1
"""Neighbours in the order of speed that differ by more than a tenth belong to different tiers."""
_FOREIGN: Final = frozenset({"GPUMemory"})
"""Subtypes that make tiers of their own; MCDRAM does not, it is found to be HBM by its speed."""


@dataclass(frozen=True, slots=True)
class Speed:
    """Speed of a node as seen from its local CPUs; 0 is unknown."""

    bandwidth: int = 0
    """MiB/s, mean of reading and writing."""
    latency: int = 0
    """Nanoseconds, mean of reading and writing."""


def read_speed(tree: Tree, number: int) -> Speed:
    """Read a node's speed; a mean is known only where both directions are."""
    folder = initiator_folder(tree, number)
    means = []
    for what in ("bandwidth", "latency"):
        both = [read_uint(tree, f"{folder}/{direction}_{what}") or 0 for direction in ("read", "write")]
        means.append(sum(both) // 2 if all(both) else 0)
    return Speed(*means)


def name_tiers(nodes: Sequence[Node], speeds: Mapping[int, Speed]) -> dict[int, str]:
    """Return DRAM or HBM by node id, for the nodes where it can be told.

    ``speeds`` holds the nodes whose speed is known; ``nodes`` are in hwloc's order.
    """
    tiers = _tiers([node for node in nodes if node.subtype not in _FOREIGN], speeds)
    if len(tiers) != 2:
        return {}
    slow, fast = sorted(tiers, key=lambda tier: _bandwidth(tier[0], speeds))
    # A tier begins with its fastest node; its slowest may be one of unknown speed, which then counts as 0.
    slowest, fastest = _bandwidth(slow[0], speeds), _bandwidth(fast[0], speeds)
    if not slowest or fastest <= 2 * _bandwidth(slow[-1], speeds):
        return {}
    return {node.id: "DRAM" for node in slow} | {node.id: "HBM" for node in fast}


def _tiers(nodes: Sequence[Node], speeds: Mapping[int, Speed]) -> list[list[Node]]:
    """Split the nodes, fastest first, wherever two neighbours differ in a figure that both tell."""
    tiers: list[list[Node]] = []
    for node in sorted(nodes, key=lambda node: -_bandwidth(node, speeds)):
        if not tiers or _differ(speeds.get(tiers[-1][-1].id, Speed()), speeds.get(node.id, Speed())):
            tiers.append([])
        tiers[-1].append(node)
    return tiers


def _differ(one: Speed, other: Speed) -> bool:
    pairs = ((one.bandwidth, other.bandwidth), (one.latency, other.latency))
    return any(min(pair) and max(pair) / min(pair) > _THRESHOLD for pair in pairs)


def _bandwidth(node: Node, speeds: Mapping[int, Speed]) -> int:
    return speeds.get(node.id, Speed()).bandwidth
