"""Memory nodes as the kernel tells them: which there are, their CPUs, memory, huge pages and distances.

Source: kernel Documentation/ABI/stable/sysfs-devices-node, admin-guide/mm/numaperf.rst (HMAT); hwloc 2.14
(topology-linux.c, look_sysfsnode) for what happens to contradictory and missing files.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.hardware import HardwarePages
from mooring.inputs.machines.hardware.kernelfiles import HIGHEST_ID, c_number, read_list, read_mask
from mooring.inputs.machines.hardware.quirks import Quirks
from mooring.inputs.machines.tree import Tree

NODES: Final = "sys/devices/system/node"
"""Folder of all nodes; missing on machines whose kernel knows no NUMA."""

_NODE_NAME: Final = re.compile(r"node([0-9]{1,7})")
_POOL_NAME: Final = re.compile(r"hugepages-([0-9]{1,15})")
_MEM_TOTAL: Final = re.compile(r"MemTotal: [ \t]*([0-9]*)")
_GPU_NODE: Final = re.compile(r"Node:[ \t]*([0-9]{1,7})")
_GPUS: Final = "proc/driver/nvidia/gpus"


@dataclass(slots=True)
class MemoryNode:
    """One node while its locality is being found out."""

    id: int
    cpus: int
    """CPUs that the kernel calls local; grown to the CPUs that hwloc considers local."""
    subtype: str | None = None
    """Kind of memory where it is known."""


def list_nodes(tree: Tree) -> tuple[int, ...]:
    """Return the ids of the nodes that the kernel lists, ascending, whether or not they can be read."""
    listed = read_list(tree, f"{NODES}/online")
    if listed is not None:
        return tuple(members(listed))
    found = (_NODE_NAME.match(name) for name in tree.names(NODES))
    return tuple(sorted({int(match[1]) for match in found if match and int(match[1]) <= HIGHEST_ID}))


def read_nodes(tree: Tree, ids: Sequence[int], quirks: Quirks) -> list[MemoryNode]:
    """Read the nodes with their own CPUs; what has no ``cpumap`` or overlaps an earlier node is left out.

    hwloc treats an overlap as a mistake of the firmware (8em64t-2s2ca2c-buggynuma: eight nodes claim all CPUs) and
    drops the later node. One that encloses all earlier nodes it overlaps, where the kernel's links from nodes to CPUs
    say the same, is no mistake but a level above them: hwloc keeps it when told so with
    HWLOC_DEBUG_ALLOW_OVERLAPPING_NODE_CPUSETS, and the recorded answer does (fakeheterocpunuma). With ``numa=fake``
    overlaps are normal.
    """
    nodes: list[MemoryNode] = []
    taken = 0
    folders = set(tree.names(NODES))
    for number in ids:
        cpus = read_mask(tree, f"{NODES}/node{number}/cpumap") if f"node{number}" in folders else None
        if cpus is None:
            continue
        if cpus & taken and not quirks.has_fake_numa and not _is_level_above(tree, MemoryNode(number, cpus), nodes):
            continue
        taken |= cpus
        nodes.append(MemoryNode(number, cpus))
    return _mark_gpu_memory(tree, nodes, quirks)


def _is_level_above(tree: Tree, node: MemoryNode, earlier: Sequence[MemoryNode]) -> bool:
    """Tell whether ``node`` is larger than each earlier node that it overlaps and holds it whole, and links agree."""
    inside = [other for other in earlier if other.cpus & node.cpus]
    return all(other.cpus & ~node.cpus == 0 and other.cpus != node.cpus for other in inside) and all(
        {f"cpu{cpu}" for cpu in members(other.cpus)} <= set(tree.names(f"{NODES}/node{other.id}"))
        for other in (node, *inside)
    )


def _mark_gpu_memory(tree: Tree, nodes: list[MemoryNode], quirks: Quirks) -> list[MemoryNode]:
    """Recognise nodes that are the memory of an NVIDIA GPU; on POWER hwloc hides them.

    Their locality is the GPU's, which only the PCI part of sysfs tells.
    """
    for bus_id in tree.names(_GPUS):
        match = _GPU_NODE.search((tree.read(f"{_GPUS}/{bus_id}/numa_status") or "")[:255])
        node = next((node for node in nodes if match and node.id == int(match[1])), None)
        if node is None:
            continue
        if quirks.is_power:
            nodes = [other for other in nodes if other is not node]
        else:
            node.subtype = "GPUMemory"
            node.cpus = read_mask(tree, f"sys/bus/pci/devices/{bus_id}/local_cpus") or 0
    return nodes


def read_distances(tree: Tree, ids: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the distance table in the order of ``ids``; None with fewer than two nodes or any row missing or short.

    The kernel writes one column per listed node, in ascending order of ids, without gaps for absent ones.
    """
    if len(ids) < 2:
        return None
    rows = []
    for number in ids:
        text = tree.read(f"{NODES}/node{number}/distance") or ""
        row: list[int] = []
        position = 0
        while len(row) < len(ids):
            value, end = c_number(text, position)
            if end == position:
                return None
            row.append(value % 2**32)
            position = end + 1  # one character of separation, whatever it is
        rows.append(tuple(row))
    return tuple(rows)


def read_total(tree: Tree, folder: str) -> int:
    """Return MemTotal of ``folder``'s meminfo in bytes; 0 when it is not told.

    hwloc reads one page of the file and computes in 64 bits.
    """
    match = _MEM_TOTAL.search((tree.read(f"{folder}/meminfo") or "")[:4095])
    return min(int(match[1][:30] or "0"), 2**64 - 1) * 1024 % 2**64 if match else 0


def read_pools(tree: Tree, folder: str) -> tuple[HardwarePages, ...]:
    """Return the pools of huge pages in ``folder``, smallest pages first; a pool that tells no count is left out."""
    pools = []
    for name in tree.names(folder):
        match = _POOL_NAME.match(name)
        text = tree.read(f"{folder}/{name}/nr_hugepages") if match else None
        if match is not None and text and int(match[1]):
            pools.append(HardwarePages(int(match[1]) * 1024, c_number(text)[0]))
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def kernel_cpulist(tree: Tree, number: int) -> str | None:
    """Return the kernel's list of the node's own CPUs; of older kernels, which have none, the map as a list."""
    text = tree.read(f"{NODES}/node{number}/cpulist")
    if text is not None:
        return text.partition("\n")[0].strip()  # snapshots of some kernels hold a NUL behind the line
    mask = read_mask(tree, f"{NODES}/node{number}/cpumap")
    return None if mask is None else list_text(mask)
