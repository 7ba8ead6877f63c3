"""NUMA nodes: their ids, order, CPUs, memory and distances."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machine import Finding
from mooring.inputs.machines.differences.kubeletview import (
    KubeletView,
    about_cpus,
    about_nodes,
    ids_text,
    text_of_nodes,
)


def node_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare the NUMA nodes."""
    yield from _identity(view, hardware)
    yield from _members(view, hardware)
    yield from _memory(view, hardware)
    yield from _distances(view, hardware)
    yield from about_nodes(
        hardware.nodes_disallowed, "MOOR-421", "The kubelet uses {}, although the cpuset in force does not allow it."
    )


def _identity(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    ids = [node.node_id for node in view.info.topology]
    real = {node.id for node in hardware.nodes}
    if _has_made_up_nodes(hardware):
        order = " and in an order that changes from start to start" if len(ids) > 1 else ""
        message = (
            f"The kernel has no NUMA nodes, so the kubelet treats each package as one ({text_of_nodes(ids)}), "
            f"without memory{order}."
        )
        yield Finding("warning", text_of_nodes(ids), message, "MOOR-422")
    elif set(ids) != real:
        message = f"The kubelet has {text_of_nodes(ids)}, the machine has {text_of_nodes(real)}."
        yield Finding("warning", text_of_nodes(set(ids) ^ real), message, "MOOR-423")
    negative = [node for node in ids if node < 0]
    if negative:
        message = f"No affinity mask of the kubelet can hold a negative NUMA node id ({ids_text(negative)})."
        yield Finding("warning", text_of_nodes(negative), message, "MOOR-424")
    if ids != sorted(ids):
        order = ", ".join(str(node) for node in ids[:8]) + (", ..." if len(ids) > 8 else "")
        yield Finding("info", "node order", f"The kubelet lists the NUMA nodes in text order: {order}", "MOOR-425")
    without_cpus = [node.node_id for node in view.info.topology if not node.cores]
    yield from about_nodes(
        without_cpus,
        "MOOR-426",
        "The topology, memory and device managers count {}, where no CPUs are; the CPU manager does not.",
        "info",
    )


def _members(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Tell which CPUs are in another node than the kernel's own list of the node says."""
    if _has_made_up_nodes(hardware):
        return
    lists = {node.id: _cpulist(node.sysfs_cpulist, node.local_cpus) for node in hardware.nodes}
    members: dict[int, list[int]] = defaultdict(list)
    for cpu, node in view.nodes.items():
        members[node.node_id].append(cpu)
    misplaced = CPUSet()
    for node_id, cpus in members.items():
        misplaced |= (CPUSet.from_ids(cpus) & hardware.online) - lists.get(node_id, CPUSet())
    yield from about_cpus(
        misplaced, "MOOR-427", "The kubelet has {} in other NUMA nodes than the kernel's own lists of the nodes."
    )


def _memory(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    if _has_made_up_nodes(hardware):
        return
    empty = [node.node_id for node in view.info.topology if node.memory == 0]
    yield from about_nodes(
        empty,
        "MOOR-428",
        "The kubelet has no memory on {}; CPUs there work on the memory of other nodes.",
        "info",
    )
    memory = {node.id: node.memory_bytes for node in hardware.nodes}
    wrong = [node.node_id for node in view.info.topology if memory.get(node.node_id, node.memory) != node.memory]
    yield from about_nodes(wrong, "MOOR-429", "The kubelet sees another amount of memory than there is on {}.")


def _distances(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Judge the rows by what reads them: prefer-closest-numa-nodes takes the entry at the *id* of the other node."""
    nodes = view.info.topology
    without = [node.node_id for node in nodes if node.distances is None]
    if without and len(nodes) > 1:
        message = (
            f"The kernel reports no distances of {text_of_nodes(without)}; with prefer-closest-numa-nodes the kubelet "
            "refuses to start."
        )
        yield Finding("warning", "distances", message, "MOOR-430")
    real = len(nodes) if _has_made_up_nodes(hardware) else len(hardware.nodes)
    odd = [node.node_id for node in nodes if node.distances is not None and {len(node.distances)} != {len(nodes), real}]
    if odd:
        lengths = sorted({len(node.distances) for node in nodes if node.distances is not None})
        message = (
            f"The distance rows of {text_of_nodes(odd)} have {', '.join(map(str, lengths))} entries; the kubelet has "
            f"{len(nodes)} nodes, the machine {real}."
        )
        yield Finding("warning", "distances", message, "MOOR-431")
    ids = sorted(node.node_id for node in nodes)
    if ids != list(range(len(ids))) and len(without) < len(nodes):
        message = (
            f"The node ids {ids_text(ids)} have gaps, but a distance row has one entry for each node in ascending id: "
            "the kubelet looks entries up by id and, with prefer-closest-numa-nodes, reads wrong ones or crashes."
        )
        yield Finding("warning", "distances", message, "MOOR-432")


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
