"""The memory side of a machine: its nodes with their localities, distances and kinds of memory.

No file of sysfs names the kind. hwloc groups nodes into tiers of equal bandwidth and latency (HMAT) and names two
tiers, DRAM and HBM, when one is more than twice as fast as the other. The kernel lists CPUs only for nodes that have
some: for memory without CPUs (HBM, CXL, persistent memory) hwloc asks the firmware's table of initiators (HMAT), then
the distances.

Source: hwloc 2.14, memattrs.c (hwloc__group_memory_tiers, hwloc__guess_memory_tiers_kinds), topology-linux.c
(read_node_initiators, fixup_cpuless_node_locality_from_distances) and topology.c (hwloc__find_insert_memory_parent).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import HardwareNode
from mooring.inputs.machines.hardware import numanodes
from mooring.inputs.machines.hardware.kernelfiles import Quirks, read_uint
from mooring.inputs.machines.hardware.numanodes import NODES, MemoryNode, Nest, read_distances
from mooring.inputs.machines.tree import Tree

Table = tuple[tuple[int, ...], ...]
"""Distances, row by row."""


def read_memory(
    tree: Tree, quirks: Quirks, online: int, nest: Nest
) -> tuple[tuple[HardwareNode, ...], tuple[int, ...], Table | None]:
    """Read the nodes and enter their localities into ``nest``, which holds the CPU side already.

    Where the kernel tells of no usable node, hwloc makes up one, node 0, with all CPUs and all memory.

    Returns:
        Nodes by ascending id, at least one; of the table of distances its nodes in its order, and its rows.
    """
    listed = numanodes.list_nodes(tree)
    nodes = numanodes.read_nodes(tree, listed, quirks)
    if not nodes:
        return (_node(tree, quirks, 0, online, None, ("proc", "sys/kernel/mm/hugepages")),), (), None
    table = read_distances(tree, listed)
    if quirks.is_knights_landing:
        layout = numanodes.find_layout(nodes, len(listed), table)
        bandwidths = numanodes.place_layout(layout, nest) if layout is not None else {}
        ordered, speeds = tuple(nodes), {number: (bandwidth, 0) for number, bandwidth in bandwidths.items()}
        table = None  # the pattern is spent: hwloc shows no distances of these processors
    else:
        ordered = _find_localities(tree, nodes, listed, table, use_initiators=not quirks.has_fake_numa)
        speeds = {} if quirks.has_fake_numa else {node.id: _read_speed(tree, node.id) for node in ordered}
    local = {node.id: attach(nest, node.cpus) & online for node in ordered}
    # A speed is measured from the CPUs that were local before the locality had to be widened.
    near = {node.id for node in ordered if local[node.id] and local[node.id] & ~node.cpus == 0}
    tiers = _name_tiers(ordered, {number: speed for number, speed in speeds.items() if number in near})
    finished = tuple(
        _node(tree, quirks, node.id, local[node.id], node.subtype or tiers.get(node.id))
        for node in sorted(ordered, key=lambda node: node.id)
    )
    return finished, *_restricted(table, listed, [node.id for node in finished])


def _node(
    tree: Tree, quirks: Quirks, number: int, local: int, subtype: str | None, folders: tuple[str, str] | None = None
) -> HardwareNode:
    """Return a node; ``folders`` have meminfo and huge pages where its own do not."""
    total, pools = folders or (f"{NODES}/node{number}", f"{NODES}/node{number}/hugepages")
    return HardwareNode(
        id=number,
        memory_bytes=numanodes.read_total(tree, total),
        hugepages=numanodes.read_pools(tree, pools),
        local_cpus=CPUSet(CPUMask(local)),
        sysfs_cpulist=numanodes.kernel_cpulist(tree, number),
        base_page_bytes=quirks.page_bytes,
        subtype=subtype,
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


_THRESHOLD: Final = 1.1
"""Neighbours in the order of speed that differ by more than a tenth belong to different tiers."""
_FOREIGN: Final = frozenset({"GPUMemory"})
"""Subtypes that make tiers of their own; MCDRAM does not, it is found to be HBM by its speed."""


Speed: TypeAlias = tuple[int, int]
"""Of a node as seen from its local CPUs: MiB/s and nanoseconds, means of reading and writing; 0 is unknown."""
_UNKNOWN: Final[Speed] = (0, 0)


def _read_speed(tree: Tree, number: int) -> Speed:
    """Read a node's speed; a mean is known only where both directions are."""
    folder = _initiator_folder(tree, number)
    bandwidth, latency = (
        [read_uint(tree, f"{folder}/{direction}_{what}") or 0 for direction in ("read", "write")]
        for what in ("bandwidth", "latency")
    )
    return sum(bandwidth) // 2 if all(bandwidth) else 0, sum(latency) // 2 if all(latency) else 0


def _name_tiers(nodes: Sequence[MemoryNode], speeds: Mapping[int, Speed]) -> dict[int, str]:
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


def _tiers(nodes: Sequence[MemoryNode], speeds: Mapping[int, Speed]) -> list[list[MemoryNode]]:
    """Split the nodes, fastest first, wherever two neighbours differ in a figure that both tell."""
    tiers: list[list[MemoryNode]] = []
    for node in sorted(nodes, key=lambda node: -_bandwidth(node, speeds)):
        if not tiers or _differ(speeds.get(tiers[-1][-1].id, _UNKNOWN), speeds.get(node.id, _UNKNOWN)):
            tiers.append([])
        tiers[-1].append(node)
    return tiers


def _differ(one: Speed, other: Speed) -> bool:
    return any(min(pair) and max(pair) / min(pair) > _THRESHOLD for pair in zip(one, other, strict=True))


def _bandwidth(node: MemoryNode, speeds: Mapping[int, Speed]) -> int:
    return speeds.get(node.id, _UNKNOWN)[0]


MEMORY_RANK: Final = 1001
"""Groups that only exist to hold memory yield to all others (HWLOC_GROUP_KIND_MEMORY)."""

_INITIATOR: Final = re.compile(r"node([0-9]{1,7})")
_Table = Sequence[Sequence[int]]


def _find_localities(
    tree: Tree, nodes: Sequence[MemoryNode], ids: Sequence[int], distances: _Table | None, *, use_initiators: bool
) -> tuple[MemoryNode, ...]:
    """Grow each node's CPUs to its locality and return the nodes in the order in which hwloc inserts them.

    ``ids`` are the columns of ``distances``. Nodes with CPUs of their own come first, and an initiator or neighbour
    that has already got its locality lends it to the next.
    """
    own = tuple(node for node in nodes if node.cpus)
    if use_initiators:
        for node in own:
            node.cpus |= _initiators(tree, node, nodes)
    without = tuple(node for node in nodes if not node.cpus)
    for node in without:
        if use_initiators:
            node.cpus = _initiators(tree, node, nodes)
        if not node.cpus and distances is not None:
            node.cpus = _nearest(node, nodes, ids, distances)
    return own + without


def attach(nest: Nest, cpus: int) -> int:
    """Enter a node's locality into ``nest`` and return the CPUs that it ends up with, perhaps more than there are.

    A locality that crosses a package or cache widens to the smallest set around it; one without CPUs stays so.
    """
    if cpus and nest.add_group(cpus, MEMORY_RANK) is None:
        return nest.covering(cpus)
    return cpus


def _initiator_folder(tree: Tree, number: int) -> str:
    """Return the folder of the initiators closest to a node.

    Since Linux 5.10 class 0 may be a device without CPUs (a generic initiator); class 1 counts CPUs only.
    """
    folder = f"{NODES}/node{number}/access1/initiators"
    return folder if tree.is_dir(folder) else f"{NODES}/node{number}/access0/initiators"


def _initiators(tree: Tree, node: MemoryNode, nodes: Sequence[MemoryNode]) -> int:
    """Return the CPUs of the node's initiators."""
    found = (_INITIATOR.match(name) for name in tree.names(_initiator_folder(tree, node.id)))
    numbers = {int(match[1]) for match in found if match}
    return reduce(or_, (other.cpus for other in nodes if other is not node and other.id in numbers), 0)


def _nearest(node: MemoryNode, nodes: Sequence[MemoryNode], ids: Sequence[int], distances: _Table) -> int:
    """Return the CPUs of the nearest other nodes; none when all are equally far, or one is as near as the node."""
    row = dict(zip(ids, distances[ids.index(node.id)], strict=True))
    others = [other for other in nodes if other is not node]
    shortest = min((row[other.id] for other in others), default=0)
    nearest = [other for other in others if row[other.id] == shortest]
    if shortest <= row[node.id] or len(nearest) == len(ids) - 1:
        return 0
    return reduce(or_, (other.cpus for other in nearest), 0)
