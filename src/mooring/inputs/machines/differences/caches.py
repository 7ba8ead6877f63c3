"""Caches: which L3 the kubelet loses, merges or takes for something else.

The kubelet's unit is the uncore id: the id of a core's first uncore cache, or the socket id when it has none. Aligning
CPUs by uncore cache is right exactly where CPUs of one uncore id share one L3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.hardware import Hardware
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import NUMANode
from mooring.inputs.machines.differences.kubeletview import (
    L3_LEVEL,
    KubeletView,
    about_cpus,
    about_nodes,
    likewise,
    regrouped,
    text_of_cpus,
    text_of_nodes,
)


def cache_differences(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare L3 and L2 caches."""
    l3 = {cpu.id: cpu.l3 for cpu in hardware.cpus if cpu.l3 is not None}
    l2 = {cpu.id for cpu in hardware.cpus if cpu.l2 is not None}
    of_cores = any(core.caches or core.uncore_caches for core in view.cores.values())
    if not of_cores and not any(node.caches for node in view.info.topology):
        if l3 or l2:
            message = (
                "The kubelet sees no cache at all, usually because the kernel has no cache/index*/id file; it treats "
                "each socket as one uncore cache."
            )
            yield Finding("warning" if l3 else "info", "L3" if l3 else "L2", message, "MOOR-441")
        return
    if l3:
        yield from _lost(view, l3)
        yield from _uncores(view, hardware, l3)
        yield from _spanning(view, l3)
        yield from _node_caches(view, l3)
    lost = CPUSet.from_ids(
        cpu for cpu, core in view.cores.items() if cpu in l2 and not any(cache.level == 2 for cache in core.caches)
    )
    yield from about_cpus(
        lost,
        "MOOR-442",
        "The kubelet does not see the L2 of {}: it keeps one only where exactly the threads of one core share it.",
        "info",
    )


def _lost(view: KubeletView, l3: Mapping[int, int]) -> Iterator[Finding]:
    lost = CPUSet.from_ids(cpu for cpu in view.cores if cpu in l3 and not _sees_l3(view, cpu))
    yield from about_cpus(lost, "MOOR-443", "The kubelet does not see the L3 of {}.")
    without = CPUSet.from_ids(cpu for cpu in view.cores if cpu not in l3)
    yield from about_cpus(
        without,
        "MOOR-444",
        "The kubelet assigns {}, without any L3, to the uncore cache with the id of their socket.",
        "info",
    )


def _sees_l3(view: KubeletView, cpu: int) -> bool:
    listed = (view.cores[cpu].uncore_caches, view.nodes[cpu].caches)
    return any(cache.level >= L3_LEVEL for caches in listed for cache in caches)


def _uncores(view: KubeletView, hardware: Hardware, l3: Mapping[int, int]) -> Iterator[Finding]:
    """Compare the kubelet's uncore ids with the L3s; CPUs of a package that have no L3 are a group of their own."""
    real = {cpu.id: (l3.get(cpu.id), None if cpu.id in l3 else cpu.package_first_cpu) for cpu in hardware.cpus}
    yield from regrouped(
        view.uncores,
        real,
        (
            "MOOR-445",
            "The kubelet treats CPUs {parts}, which have no L3 in common, as one uncore cache, {group}",
        ),
        ("MOOR-446", "The kubelet divides CPUs {parts}, which share one L3, among {count} uncore caches"),
    )


def _spanning(view: KubeletView, l3: Mapping[int, int]) -> Iterator[Finding]:
    """Tell which uncore caches are as large as a node or larger."""
    whole: list[int] = []
    nodes_of: dict[int, set[int]] = {}
    for node in view.info.topology:
        for core in node.cores:
            for cache in core.uncore_caches[:1]:
                nodes_of.setdefault(cache.id, set()).add(node.node_id)
        cpus = [cpu for core in node.cores for cpu in core.thread_ids]
        if any(core.uncore_caches for core in node.cores) and len({l3.get(cpu) for cpu in cpus}) == 1:
            whole.append(node.node_id)
    yield from about_nodes(
        whole,
        "MOOR-447",
        "One L3 serves all CPUs of {}, yet the kubelet treats it as an uncore cache of the cores.",
        "info",
    )
    shared = {number: nodes for number, nodes in nodes_of.items() if len(nodes) > 1}
    if shared:
        number, nodes = min(shared.items())
        message = (
            f"The kubelet's uncore cache {number} is on {text_of_nodes(nodes)}{likewise(dict.fromkeys(shared, ()))}: "
            "CPUs aligned by uncore cache can be in different nodes."
        )
        yield Finding("info", "L3", message, "MOOR-448")


def _node_caches(view: KubeletView, l3: Mapping[int, int]) -> Iterator[Finding]:
    repeated = [node.node_id for node in view.info.topology if _l3_listed(node) > _l3_real(node, l3)]
    if repeated:
        first = next(node for node in view.info.topology if node.node_id == repeated[0])
        message = (
            f"The kernel's cache ids are wrong on {text_of_nodes(repeated)}: node {first.node_id} lists "
            f"{_l3_listed(first)} L3 caches where {_l3_real(first, l3)} exists."
        )
        yield Finding("warning", text_of_nodes(repeated), message, "MOOR-449")
    in_node = any(_l3_listed(node) for node in view.info.topology)
    in_uncore = CPUSet.from_ids(cpu for cpu, core in view.cores.items() if core.uncore_caches)
    if in_node and in_uncore:
        cpus = text_of_cpus(in_uncore)
        message = f"The kubelet treats the L3 as an uncore cache of {cpus}, and as a cache of the node elsewhere."
        yield Finding("warning", cpus, message, "MOOR-450")


def _l3_listed(node: NUMANode) -> int:
    return sum(cache.level == L3_LEVEL for cache in node.caches)


def _l3_real(node: NUMANode, l3: Mapping[int, int]) -> int:
    return len({l3[cpu] for core in node.cores for cpu in core.thread_ids if cpu in l3})
