"""The memory side of a machine: its nodes with their localities, and their distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mooring.core.cpuset import CPUSet
from mooring.core.hardware import HardwareNode
from mooring.discovery.knightslanding import find_layout, place_layout
from mooring.discovery.locality import attach, find_localities
from mooring.discovery.memorytiers import Speed, name_tiers, read_speed
from mooring.discovery.nesting import Nest
from mooring.discovery.numanodes import (
    NODES,
    Node,
    kernel_cpulist,
    list_nodes,
    read_distances,
    read_nodes,
    read_pools,
    read_total,
)
from mooring.discovery.quirks import Quirks
from mooring.discovery.tree import Tree

Table = tuple[tuple[int, ...], ...]
"""Distances, row by row."""


@dataclass(frozen=True, slots=True)
class Memory:
    """What is known about memory."""

    nodes: tuple[HardwareNode, ...]
    """Nodes by ascending id; at least one."""
    table_nodes: tuple[int, ...] = ()
    """Nodes that ``table`` is about, in its order."""
    table: Table | None = None


def read_memory(tree: Tree, quirks: Quirks, online: int, nest: Nest) -> Memory:
    """Read the nodes and enter their localities into ``nest``, which holds the CPU side already.

    Where the kernel tells of no usable node, hwloc makes up one, node 0, with all CPUs and all memory.
    """
    listed = list_nodes(tree)
    nodes = read_nodes(tree, listed, quirks)
    if not nodes:
        return Memory((_made_up_node(tree, quirks, online),))
    table = read_distances(tree, listed)
    if quirks.is_knights_landing:
        ordered, speeds = _knights_landing(nodes, listed, table, nest)
        table = None  # the pattern is spent: hwloc shows no distances of these processors
    else:
        ordered = find_localities(tree, nodes, listed, table, use_initiators=not quirks.has_fake_numa)
        speeds = {} if quirks.has_fake_numa else {node.id: read_speed(tree, node.id) for node in ordered}
    local = {node.id: attach(nest, node.cpus) & online for node in ordered}
    # A speed is measured from the CPUs that were local before the locality had to be widened.
    near = {node.id for node in ordered if local[node.id] and local[node.id] & ~node.cpus == 0}
    tiers = name_tiers(ordered, {number: speed for number, speed in speeds.items() if number in near})
    finished = tuple(
        _node(tree, quirks, node, local[node.id], tiers.get(node.id))
        for node in sorted(ordered, key=lambda node: node.id)
    )
    return Memory(finished, *_restricted(table, listed, [node.id for node in finished]))


def _knights_landing(
    nodes: Sequence[Node], listed: Sequence[int], table: Table | None, nest: Nest
) -> tuple[tuple[Node, ...], Mapping[int, Speed]]:
    layout = find_layout(nodes, len(listed), table)
    bandwidths = place_layout(layout, nest) if layout is not None else {}
    return tuple(nodes), {number: Speed(bandwidth) for number, bandwidth in bandwidths.items()}


def _node(tree: Tree, quirks: Quirks, node: Node, local: int, tier: str | None) -> HardwareNode:
    folder = f"{NODES}/node{node.id}"
    return HardwareNode(
        id=node.id,
        memory_bytes=read_total(tree, folder),
        hugepages=read_pools(tree, f"{folder}/hugepages"),
        local_cpus=CPUSet(local),
        sysfs_cpulist=kernel_cpulist(tree, node.id),
        base_page_bytes=quirks.page_bytes,
        subtype=node.subtype or tier,
    )


def _made_up_node(tree: Tree, quirks: Quirks, online: int) -> HardwareNode:
    return HardwareNode(
        id=0,
        memory_bytes=read_total(tree, "proc"),
        hugepages=read_pools(tree, "sys/kernel/mm/hugepages"),
        local_cpus=CPUSet(online),
        sysfs_cpulist=kernel_cpulist(tree, 0),
        base_page_bytes=quirks.page_bytes,
    )


def _restricted(
    table: Table | None, listed: Sequence[int], kept: Sequence[int]
) -> tuple[tuple[int, ...], Table | None]:
    """Keep the rows and columns of the nodes that there are; fewer than two make no table."""
    if table is None or len(kept) < 2:
        return (), None
    columns = [index for index, number in enumerate(listed) if number in set(kept)]
    return tuple(listed[index] for index in columns), tuple(
        tuple(table[row][column] for column in columns) for row in columns
    )
