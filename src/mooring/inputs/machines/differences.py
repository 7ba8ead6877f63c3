"""Where the kubelet's view of a machine departs from the hardware, in plain words.

The two views are compared as they are, whatever they were read from; nothing here knows why cAdvisor is wrong about a
machine, except where the reason can be named for certain. A *warning* is something that makes the kubelet decide on
wrong facts, *info* something that it leaves out or tells in an unexpected way.

Caches: which L3 the kubelet loses, merges or takes for something else.

The kubelet's unit is the uncore id: the id of a core's first uncore cache, or the socket id when it has none. Aligning
CPUs by uncore cache is right exactly where CPUs of one uncore id share one L3.

CPUs, cores and sockets: which the kubelet misses, counts twice, merges or divides.

NUMA nodes: their ids, order, CPUs, memory and distances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import chain
from typing import Final

from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import Finding, Hardware
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.inputs.machines import kubelet_view as views
from mooring.inputs.machines.kubelet_view import KubeletView, regrouped

_MESSAGES: Final = {
    "MOOR-402": "The kubelet does not see {}, which the kernel has online.",
    "MOOR-403": "The kubelet counts {} once for each place that lists them, and keeps the last place.",
    "MOOR-404": "The kubelet gives {} to containers, although the kernel has them offline.",
    "MOOR-405": "The kubelet lists {}, which the machine does not have.",
    "MOOR-407": "The kubelet assigns {}, although the cpuset in force does not allow them.",
    "MOOR-408": "The kubelet treats {} like any other, although the kernel keeps them out of scheduling (isolcpus).",
    "MOOR-421": "The kubelet uses {}, although the cpuset in force does not allow it.",
    "MOOR-426": "The topology, memory and device managers count {}, where no CPUs are; the CPU manager does not.",
    "MOOR-427": "The kubelet has {} in other NUMA nodes than the kernel's own lists of the nodes.",
    "MOOR-428": "The kubelet has no memory on {}; CPUs there work on the memory of other nodes.",
    "MOOR-429": "The kubelet sees another amount of memory than there is on {}.",
    "MOOR-442": "The kubelet does not see the L2 of {}: it keeps one only where exactly the threads of one core share "
    "it.",
    "MOOR-443": "The kubelet does not see the L3 of {}.",
    "MOOR-444": "The kubelet assigns {}, without any L3, to the uncore cache with the id of their socket.",
    "MOOR-447": "One L3 serves all CPUs of {}, yet the kubelet treats it as an uncore cache of the cores.",
}
"""Code -> what is said of CPUs or NUMA nodes, which replace ``{}``."""
_INFO: Final = ("MOOR-426", "MOOR-428", "MOOR-442", "MOOR-444", "MOOR-447")


def _about(code: str, found: Collection[int] | CPUSet) -> Iterator[Finding]:
    """Yield a finding about CPUs or NUMA nodes, if there are any."""
    if found:
        text = views.text_of_cpus(found) if isinstance(found, CPUSet) else views.text_of_nodes(found)
        yield Finding("info" if code in _INFO else "warning", text, _MESSAGES[code].format(text), code)


def _caches(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
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
        seen = (
            cpu
            for cpu, core in view.cores.items()
            if any(cache.level >= views.L3_LEVEL for cache in (*core.uncore_caches, *view.nodes[cpu].caches))
        )
        yield from _about("MOOR-443", CPUSet.from_ids(view.cores.keys() & l3.keys() - set(seen)))
        yield from _about("MOOR-444", CPUSet.from_ids(view.cores.keys() - l3.keys()))
        # CPUs of a package that have no L3 are a group of their own.
        real = {cpu.id: (l3.get(cpu.id), None if cpu.id in l3 else cpu.package_first_cpu) for cpu in hardware.cpus}
        yield from regrouped(
            view.uncores,
            real,
            ("MOOR-445", "The kubelet treats CPUs {parts}, which have no L3 in common, as one uncore cache, {group}"),
            ("MOOR-446", "The kubelet divides CPUs {parts}, which share one L3, among {count} uncore caches"),
        )
        yield from _spanning(view, l3)
        yield from _node_caches(view, l3)
    lost = CPUSet.from_ids(
        cpu for cpu, core in view.cores.items() if cpu in l2 and not any(cache.level == 2 for cache in core.caches)
    )
    yield from _about("MOOR-442", lost)


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
    yield from _about("MOOR-447", whole)
    shared = {number: nodes for number, nodes in nodes_of.items() if len(nodes) > 1}
    if shared:
        number, nodes = min(shared.items())
        where = f"{views.text_of_nodes(nodes)}{views.likewise(len(shared))}"
        consequence = "CPUs aligned by uncore cache can be in different nodes"
        yield Finding("info", "L3", f"The kubelet's uncore cache {number} is on {where}: {consequence}.", "MOOR-448")


def _node_caches(view: KubeletView, l3: Mapping[int, int]) -> Iterator[Finding]:
    repeated = [node.node_id for node in view.info.topology if _l3_listed(node) > _l3_real(node, l3)]
    if repeated:
        first = next(node for node in view.info.topology if node.node_id == repeated[0])
        message = (
            f"The kernel's cache ids are wrong on {views.text_of_nodes(repeated)}: node {first.node_id} lists "
            f"{_l3_listed(first)} L3 caches where {_l3_real(first, l3)} exists."
        )
        yield Finding("warning", views.text_of_nodes(repeated), message, "MOOR-449")
    in_node = any(_l3_listed(node) for node in view.info.topology)
    in_uncore = CPUSet.from_ids(cpu for cpu, core in view.cores.items() if core.uncore_caches)
    if in_node and in_uncore:
        cpus = views.text_of_cpus(in_uncore)
        message = f"The kubelet treats the L3 as an uncore cache of {cpus}, and as a cache of the node elsewhere."
        yield Finding("warning", cpus, message, "MOOR-450")


def _l3_listed(node: NUMANode) -> int:
    return sum(cache.level == views.L3_LEVEL for cache in node.caches)


def _l3_real(node: NUMANode, l3: Mapping[int, int]) -> int:
    return len({l3[cpu] for core in node.cores for cpu in core.thread_ids if cpu in l3})


def _cpus(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare which CPUs there are, and how they form cores and sockets."""
    listed = view.cpus
    yield from _about("MOOR-402", hardware.online - listed)
    yield from _about("MOOR-403", view.listed_again)
    yield from _about("MOOR-404", listed & hardware.offline)
    yield from _about("MOOR-405", listed - hardware.online - hardware.offline)
    if view.info.num_cores != len(hardware.online):
        message = (
            f"The kubelet counts {view.info.num_cores} CPUs where {len(hardware.online)} are online; "
            "its averages for cores and sockets and the node's capacity come from that count."
        )
        yield Finding("warning", "num_cores", message, "MOOR-406")
    usable = listed & hardware.online
    yield from _about("MOOR-407", usable - hardware.allowed)
    yield from _about("MOOR-408", usable & hardware.isolated)
    yield from _cores(view, hardware)
    yield from _sockets(view, hardware)
    if len(hardware.kinds) > 1:
        kinds = "; ".join(str(kind.cpus) for kind in hardware.kinds)
        message = f"The kubelet treats {len(hardware.kinds)} kinds of cores as equal (CPUs, slowest first: {kinds})."
        yield Finding("info", "core kinds", message, "MOOR-416")
    dies = {cpu.die for cpu in hardware.cpus if cpu.die is not None}
    packages = {cpu.package_first_cpu for cpu in hardware.cpus}
    if len(dies) > len(packages):
        message = f"The kubelet does not know the {len(dies)} dies of the packages."
        yield Finding("info", "dies", message, "MOOR-417")
    clusters = {cpu.cluster for cpu in hardware.cpus if cpu.cluster is not None}
    if clusters:
        message = f"The kubelet does not know that the cores form {len(clusters)} clusters."
        yield Finding("info", "clusters", message, "MOOR-418")


def _cores(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.core for cpu in hardware.cpus if cpu.core is not None}
    merged = (
        "The kubelet treats {count} cores as one, its core {group}, because their core and package ids are equal: "
        "those with CPUs {parts}"
    )
    divided = (
        "The kubelet treats one core as {count}, so its threads are not kept together: core {group} for those "
        "with CPUs {parts}"
    )
    yield from regrouped(view.core_ids, real, ("MOOR-409", merged), ("MOOR-410", divided))
    count = len(set(real.values()))
    if real and view.info.num_physical_cores != count:
        message = f"num_physical_cores is {view.info.num_physical_cores}, the machine has {count}; no manager reads it."
        yield Finding("info", "num_physical_cores", message, "MOOR-411")


def _sockets(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    real = {cpu.id: cpu.package_first_cpu for cpu in hardware.cpus if cpu.package_first_cpu is not None}
    yield from regrouped(
        {cpu: core.socket_id for cpu, core in view.cores.items()},
        real,
        ("MOOR-412", "The kubelet treats {count} packages as one socket, {group}: those with CPUs {parts}"),
        ("MOOR-413", "The kubelet treats one package as {count} sockets: those with CPUs {parts}"),
    )
    count = len(set(real.values()))
    if real and view.info.num_sockets != count:
        message = (
            f"num_sockets is {view.info.num_sockets}, the machine has {count}; the kubelet's CPUs per socket, and "
            "whether it takes NUMA nodes or sockets first, follow from that count."
        )
        yield Finding("warning", "num_sockets", message, "MOOR-414")
    negative = sorted({core.socket_id for core in view.cores.values() if core.socket_id < 0})
    if negative:
        ids = ", ".join(str(number) for number in negative)
        message = f"The kernel does not know the packages: the kubelet has socket id {ids}."
        yield Finding("info", "sockets", message, "MOOR-415")


def _nodes(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Compare the NUMA nodes."""
    ids = [node.node_id for node in view.info.topology]
    real = {node.id for node in hardware.nodes}
    if _has_made_up_nodes(hardware):
        order = " and in an order that changes from start to start" if len(ids) > 1 else ""
        message = (
            f"The kernel has no NUMA nodes, so the kubelet treats each package as one ({views.text_of_nodes(ids)}), "
            f"without memory{order}."
        )
        yield Finding("warning", views.text_of_nodes(ids), message, "MOOR-422")
    elif set(ids) != real:
        message = f"The kubelet has {views.text_of_nodes(ids)}, the machine has {views.text_of_nodes(real)}."
        yield Finding("warning", views.text_of_nodes(set(ids) ^ real), message, "MOOR-423")
    negative = [node for node in ids if node < 0]
    if negative:
        message = f"No affinity mask of the kubelet can hold a negative NUMA node id ({views.ids_text(negative)})."
        yield Finding("warning", views.text_of_nodes(negative), message, "MOOR-424")
    if ids != sorted(ids):
        order = ", ".join(str(node) for node in ids[:8]) + (", ..." if len(ids) > 8 else "")
        yield Finding("info", "node order", f"The kubelet lists the NUMA nodes in text order: {order}", "MOOR-425")
    without_cpus = [node.node_id for node in view.info.topology if not node.cores]
    yield from _about("MOOR-426", without_cpus)
    if not _has_made_up_nodes(hardware):
        # Which CPUs are in another node than the kernel's own list of the node says, and compare the memory
        lists = {node.id: _cpulist(node.sysfs_cpulist, node.local_cpus) for node in hardware.nodes}
        members: dict[int, list[int]] = defaultdict(list)
        for cpu, node in view.nodes.items():
            members[node.node_id].append(cpu)
        misplaced = CPUSet()
        for node_id, cpus in members.items():
            misplaced |= (CPUSet.from_ids(cpus) & hardware.online) - lists.get(node_id, CPUSet())
        yield from _about("MOOR-427", misplaced)
        empty = [node.node_id for node in view.info.topology if node.memory == 0]
        yield from _about("MOOR-428", empty)
        memory = {node.id: node.memory_bytes for node in hardware.nodes}
        wrong = [node.node_id for node in view.info.topology if memory.get(node.node_id, node.memory) != node.memory]
        yield from _about("MOOR-429", wrong)
    yield from _distances(view, hardware)
    yield from _about("MOOR-421", hardware.nodes_disallowed)


def _distances(view: KubeletView, hardware: Hardware) -> Iterator[Finding]:
    """Judge the rows by what reads them: prefer-closest-numa-nodes takes the entry at the *id* of the other node."""
    nodes = view.info.topology
    without = [node.node_id for node in nodes if node.distances is None]
    if without and len(nodes) > 1:
        message = (
            f"The kernel reports no distances of {views.text_of_nodes(without)}; with prefer-closest-numa-nodes the "
            "kubelet refuses to start."
        )
        yield Finding("warning", "distances", message, "MOOR-430")
    real = len(nodes) if _has_made_up_nodes(hardware) else len(hardware.nodes)
    odd = [node.node_id for node in nodes if node.distances is not None and {len(node.distances)} != {len(nodes), real}]
    if odd:
        lengths = sorted({len(node.distances) for node in nodes if node.distances is not None})
        message = (
            f"The distance rows of {views.text_of_nodes(odd)} have {', '.join(map(str, lengths))} entries; the kubelet "
            f"has {len(nodes)} nodes, the machine {real}."
        )
        yield Finding("warning", "distances", message, "MOOR-431")
    ids = sorted(node.node_id for node in nodes)
    if ids != list(range(len(ids))) and len(without) < len(nodes):
        message = (
            f"The node ids {views.ids_text(ids)} have gaps, but a distance row has one entry for each node in "
            "ascending id: the kubelet looks entries up by id and, with prefer-closest-numa-nodes, reads wrong ones or "
            "crashes."
        )
        yield Finding("warning", "distances", message, "MOOR-432")


def _has_made_up_nodes(hardware: Hardware) -> bool:
    """Tell whether the kernel has no node directory, so that hwloc made up a node as well."""
    return all(node.sysfs_cpulist is None for node in hardware.nodes)


def _cpulist(text: str | None, local: CPUSet) -> CPUSet:
    """Return the kernel's list of a node, or what is local to it where the list is missing or malformed."""
    try:
        return local if text is None else CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return local


def differences(info: MachineInfo, hardware: Hardware) -> tuple[Finding, ...]:
    """Return what the kubelet gets wrong, gravest kind of element first: CPUs, nodes, caches.

    Args:
        info: The kubelet's view.
        hardware: The machine as it is.
    """
    view = views.kubelet_view(info)
    if view.cores:
        return tuple(chain(*(compared(view, hardware) for compared in (_cpus, _nodes, _caches))))
    consequence = "its managers fail with 'could not detect number of cpus'"
    if info.num_cores:
        consequence = f"it counts {info.num_cores} CPUs and can place none of them"
    message = f"The kubelet sees no topology at all; {consequence}."
    return (Finding("warning", views.text_of_cpus(hardware.online), message, "MOOR-401"),)
