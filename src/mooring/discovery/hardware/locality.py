"""Which CPUs are local to a memory node, as hwloc sees it.

The kernel lists CPUs only for nodes that have some. For memory without CPUs (HBM, CXL, persistent memory) hwloc asks
the firmware's table of initiators (HMAT), then the distances. Source: hwloc 2.14, topology-linux.c
(read_node_initiators, fixup_cpuless_node_locality_from_distances) and topology.c (hwloc__find_insert_memory_parent).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from mooring.discovery.hardware.nesting import Nest
from mooring.discovery.hardware.numanodes import NODES, MemoryNode
from mooring.discovery.tree import Tree

MEMORY_RANK: Final = 1001
"""Groups that only exist to hold memory yield to all others (HWLOC_GROUP_KIND_MEMORY)."""

_INITIATOR: Final = re.compile(r"node([0-9]{1,7})")
_Table = Sequence[Sequence[int]]


def find_localities(
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


def initiator_folder(tree: Tree, number: int) -> str:
    """Return the folder of the initiators closest to a node.

    Since Linux 5.10 class 0 may be a device without CPUs (a generic initiator); class 1 counts CPUs only.
    """
    folder = f"{NODES}/node{number}/access1/initiators"
    return folder if tree.is_dir(folder) else f"{NODES}/node{number}/access0/initiators"


def _initiators(tree: Tree, node: MemoryNode, nodes: Sequence[MemoryNode]) -> int:
    """Return the CPUs of the node's initiators."""
    found = (_INITIATOR.match(name) for name in tree.names(initiator_folder(tree, node.id)))
    numbers = {int(match[1]) for match in found if match}
    cpus = 0
    for other in nodes:
        if other is not node and other.id in numbers:
            cpus |= other.cpus
    return cpus


def _nearest(node: MemoryNode, nodes: Sequence[MemoryNode], ids: Sequence[int], distances: _Table) -> int:
    """Return the CPUs of the nearest other nodes; none when all are equally far, or one is as near as the node."""
    row = dict(zip(ids, distances[ids.index(node.id)], strict=True))
    others = [other for other in nodes if other is not node]
    shortest = min((row[other.id] for other in others), default=0)
    nearest = [other for other in others if row[other.id] == shortest]
    if shortest <= row[node.id] or len(nearest) == len(ids) - 1:
        return 0
    cpus = 0
    for other in nearest:
        cpus |= other.cpus
    return cpus
