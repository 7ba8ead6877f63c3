"""NUMA nodes: their ids, order, CPUs, memory and distances."""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.core.hardware import Hardware
from mooring.core.machine import Finding
from mooring.discovery.kubeletview import KubeletView, ids_text


def node_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare the NUMA nodes."""
    yield from _identity(view, hardware)
    yield from _members(view, hardware)
    yield from _memory(view, hardware)
    yield from _distances(view)
    if hardware.nodes_disallowed:
        nodes = ids_text(hardware.nodes_disallowed)
        message = f"NUMA nodes {nodes} are outside the cpuset in force; the kubelet ignores cpusets and uses their memory."
        yield Finding("warning", f"nodes {nodes}", message)


def _identity(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    ids = [node.node_id for node in view.info.topology]
    real = {node.id for node in hardware.nodes}
    if _has_made_up_nodes(hardware):
        message = (
            f"The kernel has no NUMA nodes, so the kubelet takes each package for one (ids {ids_text(ids)}), "
            "without memory and in an order that changes from start to start."
        )
        yield Finding("warning", f"nodes {ids_text(ids)}", message)
    elif set(ids) != real:
        message = f"The kubelet has NUMA nodes {ids_text(ids)}, the machine has {ids_text(real)}."
        yield Finding("warning", f"nodes {ids_text(set(ids) ^ real)}", message)
    negative = [node for node in ids if node < 0]
    if negative:
        message = f"NUMA node id {ids_text(negative)} is negative; no affinity mask of the kubelet can name it."
        yield Finding("warning", f"nodes {ids_text(negative)}", message)
    if ids != sorted(ids):
        order = ", ".join(str(node) for node in ids[:8]) + (", ..." if len(ids) > 8 else "")
        yield Finding("info", "node order", f"The kubelet lists the NUMA nodes in text order: {order}.")
    without_cpus = [node.node_id for node in view.info.topology if not node.cores]
    if without_cpus:
        message = (
            f"NUMA nodes {ids_text(without_cpus)} have no CPUs; topology, memory and device manager count them as nodes all "
            "the same, the CPU manager does not."
        )
        yield Finding("info", f"nodes {ids_text(without_cpus)}", message)


def _members(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Tell which CPUs are in another node than the kernel's own list of the node says."""
    if _has_made_up_nodes(hardware):
        return
    lists = {node.id: _cpulist(node.sysfs_cpulist, node.local_cpus) for node in hardware.nodes}
    misplaced = CPUSet.from_ids(
        cpu for cpu, node in view.nodes.items() if cpu in hardware.online and cpu not in lists.get(node.node_id, CPUSet())
    )
    if misplaced:
        message = f"CPUs {misplaced} are in other NUMA nodes for the kubelet than for the kernel's own lists of the nodes."
        yield Finding("warning", f"CPUs {misplaced}", message)


def _memory(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    empty = [node.node_id for node in view.info.topology if node.memory == 0]
    if empty and not _has_made_up_nodes(hardware):
        message = f"NUMA nodes {ids_text(empty)} have no memory; no container with a memory limit is ever placed on them alone."
        yield Finding("info", f"nodes {ids_text(empty)}", message)
    memory = {node.id: node.memory_bytes for node in hardware.nodes}
    wrong = [node.node_id for node in view.info.topology if memory.get(node.node_id, node.memory) != node.memory]
    if wrong:
        message = f"The kubelet sees another amount of memory on NUMA nodes {ids_text(wrong)} than they have."
        yield Finding("warning", f"nodes {ids_text(wrong)}", message)


def _distances(view: KubeletView) -> Iterator[Finding]:
    """Judge the rows by what reads them: prefer-closest-numa-nodes takes the entry at the *id* of the other node."""
    nodes = view.info.topology
    ids = sorted(node.node_id for node in nodes)
    without = [node.node_id for node in nodes if node.distances is None]
    if without and len(nodes) > 1:
        message = f"NUMA nodes {ids_text(without)} tell no distances; the kubelet refuses to start with prefer-closest-numa-nodes."
        yield Finding("warning", "distances", message)
    odd = [node.node_id for node in nodes if node.distances is not None and len(node.distances) != len(nodes)]
    if odd:
        message = f"The distance rows of NUMA nodes {ids_text(odd)} have another length than there are nodes ({len(nodes)})."
        yield Finding("warning", "distances", message)
    if ids != list(range(len(ids))) and len(without) < len(nodes):
        message = (
            f"Node ids {ids_text(ids)} have gaps, but a distance row has one entry for each node in ascending id: the kubelet, "
            "which looks entries up by id, reads wrong ones or crashes with prefer-closest-numa-nodes."
        )
        yield Finding("warning", "distances", message)


def _has_made_up_nodes(hardware: Hardware) -> bool:
    """Tell whether the kernel has no node directory, so that hwloc made up a node as well."""
    return all(node.sysfs_cpulist is None for node in hardware.nodes)


def _cpulist(text: str | None, local: CPUSet) -> CPUSet:
    """Return the kernel's list of a node, or what is local to it where the list is missing or malformed."""
    if text is None:
        return local
    try:
        return CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return local
