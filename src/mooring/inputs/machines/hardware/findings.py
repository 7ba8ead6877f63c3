"""What was odd in the files of a tree while the hardware was read from it.

Files of sysfs that contradict one another come from firmware, hypervisors, hot-plugged or offline parts, or from a
snapshot that was cut. The reader decides as hwloc does; these findings say where it had to.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.engine.core.bits import CPUMask, list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.hardware import Hardware, HardwareNode
from mooring.engine.core.machine import Finding
from mooring.inputs.machines.hardware.cores import CPUS
from mooring.inputs.machines.hardware.kernelfiles import parse_list, read_list, read_mask
from mooring.inputs.machines.hardware.numanodes import NODES, list_nodes, read_distances
from mooring.inputs.machines.tree import Tree


def hardware_findings(tree: Tree, hardware: Hardware) -> tuple[Finding, ...]:
    """Return the oddities of the tree that ``hardware`` was read from: CPUs, shared sets, nodes, distances."""
    return (
        *_cpu_findings(tree, hardware),
        *_refused_sets(hardware),
        *_missing_nodes(tree, hardware),
        *(finding for node in hardware.nodes for finding in _node_findings(tree, node)),
        *_distance_findings(tree, hardware),
    )


def _cpu_findings(tree: Tree, hardware: Hardware) -> Iterator[Finding]:
    listed = CPUSet(CPUMask(read_list(tree, f"{CPUS}/online") or 0))
    silent = listed - hardware.online
    if silent:
        message = f"CPUs {silent} are listed as online, but report no topology; they are left out."
        yield Finding("warning", f"CPUs {silent}", message, "MOOR-471")
    offline = hardware.offline - listed
    if offline:
        message = f"CPUs {offline} are present but offline; they are left out."
        yield Finding("info", f"CPUs {offline}", message, "MOOR-472")


def _refused_sets(hardware: Hardware) -> Iterator[Finding]:
    for kind, cpus in hardware.refused:
        message = f"CPUs {cpus} are said to form one {kind}, which crosses another set of CPUs; it is left out."
        yield Finding("warning", f"CPUs {cpus}", message, "MOOR-473")


def _missing_nodes(tree: Tree, hardware: Hardware) -> Iterator[Finding]:
    listed = mask_of(list_nodes(tree))
    missing = listed & ~mask_of(node.id for node in hardware.nodes)
    if missing:
        nodes = list_text(missing)
        message = (
            f"NUMA nodes {nodes} are listed by the kernel, but are left out: they report no CPUs, claim CPUs of other "
            "nodes, or are the memory of a GPU."
        )
        yield Finding("warning", f"nodes {nodes}", message, "MOOR-474")


def _node_findings(tree: Tree, node: HardwareNode) -> Iterator[Finding]:
    subject = f"node {node.id}"
    folder = f"{NODES}/node{node.id}"
    if not tree.is_dir(folder):
        return
    mask = CPUSet(CPUMask(read_mask(tree, f"{folder}/cpumap") or 0))
    text = (tree.read(f"{folder}/cpulist") or "").strip()
    listed = parse_list(text) if text else None
    if listed is not None and listed != mask.mask:
        message = (
            f"cpulist ({list_text(listed)}) and cpumap ({mask}) of NUMA node {node.id} disagree; cpumap is believed."
        )
        yield Finding("warning", subject, message, "MOOR-475")
    if not node.local_cpus:
        message = f"NUMA node {node.id} is local to no CPU, as far as the firmware reports."
        yield Finding("info", subject, message, "MOOR-476")
    elif not mask:
        message = (
            f"NUMA node {node.id} has no CPUs of its own; by initiators or distances it is local to {node.local_cpus}."
        )
        yield Finding("info", subject, message, "MOOR-477")
    if not tree.exists(f"{folder}/meminfo"):
        message = f"NUMA node {node.id} has no meminfo; its memory is shown as 0."
        yield Finding("warning", subject, message, "MOOR-478")
    elif sum(pool.size_bytes * pool.count for pool in node.hugepages) > node.memory_bytes:
        message = f"The huge pages of NUMA node {node.id} amount to more than its memory ({node.memory_bytes} bytes)."
        yield Finding("warning", subject, message, "MOOR-479")


def _distance_findings(tree: Tree, hardware: Hardware) -> Iterator[Finding]:
    if len(hardware.nodes) > 1 and read_distances(tree, list_nodes(tree)) is None:
        message = "The distances between NUMA nodes are missing or incomplete; none are known."
        yield Finding("warning", "distances", message, "MOOR-480")
    table = hardware.distances or ()
    size = range(len(table))
    if any(table[row][column] != table[column][row] for row in size for column in size):
        message = "The distances between NUMA nodes depend on the direction."
        yield Finding("info", "distances", message, "MOOR-481")
    if any(table[row][column] <= table[row][row] for row in size for column in size if row != column):
        message = "A NUMA node is as near to another as to itself, by the distances."
        yield Finding("warning", "distances", message, "MOOR-482")
