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

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, TypeAlias

from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Hardware
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.inputs.machines.kernelfiles import cpu_list

Places: TypeAlias = Mapping[int, tuple[NUMANode, Core]]
"""CPU -> where the kubelet takes it to be: of several places the last that lists it."""

_L3: Final = 3
"""Caches from this level on are node or uncore caches."""
_MESSAGES: Final = {
    "MOOR-401": "The kubelet sees no topology at all; {consequence}.",
    "MOOR-402": "The kubelet does not see {}, which the kernel has online.",
    "MOOR-403": "The kubelet counts {} once for each place that lists them, and keeps the last place.",
    "MOOR-404": "The kubelet gives {} to containers, although the kernel has them offline.",
    "MOOR-405": "The kubelet lists {}, which the machine does not have.",
    "MOOR-406": "The kubelet counts {count} CPUs where {real} are online; its averages for cores and sockets and the "
    "node's capacity come from that count.",
    "MOOR-407": "The kubelet assigns {}, although the cpuset in force does not allow them.",
    "MOOR-408": "The kubelet treats {} like any other, although the kernel keeps them out of scheduling (isolcpus).",
    "MOOR-409": "The kubelet treats {count} cores as one, its core {group}, because their core and package ids are "
    "equal: those with CPUs {parts}",
    "MOOR-410": "The kubelet treats one core as {count}, so its threads are not kept together: core {group} for those "
    "with CPUs {parts}",
    "MOOR-411": "num_physical_cores is {count}, the machine has {real}; no manager reads it.",
    "MOOR-412": "The kubelet treats {count} packages as one socket, {group}: those with CPUs {parts}",
    "MOOR-413": "The kubelet treats one package as {count} sockets: those with CPUs {parts}",
    "MOOR-414": "num_sockets is {count}, the machine has {real}; the kubelet's CPUs per socket, and whether it takes "
    "NUMA nodes or sockets first, follow from that count.",
    "MOOR-415": "The kernel does not know the packages: the kubelet has socket id {ids}.",
    "MOOR-416": "The kubelet treats {count} kinds of cores as equal (CPUs, slowest first: {kinds}).",
    "MOOR-417": "The kubelet does not know the {count} dies of the packages.",
    "MOOR-418": "The kubelet does not know that the cores form {count} clusters.",
    "MOOR-421": "The kubelet uses {}, although the cpuset in force does not allow it.",
    "MOOR-422": "The kernel has no NUMA nodes, so the kubelet treats each package as one ({nodes}), without "
    "memory{order}.",
    "MOOR-423": "The kubelet has {nodes}, the machine has {real}.",
    "MOOR-424": "No affinity mask of the kubelet can hold a negative NUMA node id ({ids}).",
    "MOOR-425": "The kubelet lists the NUMA nodes in text order: {order}",
    "MOOR-426": "The topology, memory and device managers count {}, where no CPUs are; the CPU manager does not.",
    "MOOR-427": "The kubelet has {} in other NUMA nodes than the kernel's own lists of the nodes.",
    "MOOR-428": "The kubelet has no memory on {}; CPUs there work on the memory of other nodes.",
    "MOOR-429": "The kubelet sees another amount of memory than there is on {}.",
    "MOOR-430": "The kernel reports no distances of {nodes}; with prefer-closest-numa-nodes the kubelet refuses to "
    "start.",
    "MOOR-431": "The distance rows of {nodes} have {lengths} entries; the kubelet has {count} nodes, the machine "
    "{real}.",
    "MOOR-432": "The node ids {ids} have gaps, but a distance row has one entry for each node in ascending id: the "
    "kubelet looks entries up by id and, with prefer-closest-numa-nodes, reads wrong ones or crashes.",
    "MOOR-441": "The kubelet sees no cache at all, usually because the kernel has no cache/index*/id file; it treats "
    "each socket as one uncore cache.",
    "MOOR-442": "The kubelet does not see the L2 of {}: it keeps one only where exactly the threads of one core share "
    "it.",
    "MOOR-443": "The kubelet does not see the L3 of {}.",
    "MOOR-444": "The kubelet assigns {}, without any L3, to the uncore cache with the id of their socket.",
    "MOOR-445": "The kubelet treats CPUs {parts}, which have no L3 in common, as one uncore cache, {group}",
    "MOOR-446": "The kubelet divides CPUs {parts}, which share one L3, among {count} uncore caches",
    "MOOR-447": "One L3 serves all CPUs of {}, yet the kubelet treats it as an uncore cache of the cores.",
    "MOOR-448": "The kubelet's uncore cache {number} is on {where}: CPUs aligned by uncore cache can be in different "
    "nodes.",
    "MOOR-449": "The kernel's cache ids are wrong on {nodes}: node {first} lists {listed} L3 caches where {real} "
    "exists.",
    "MOOR-450": "The kubelet treats the L3 as an uncore cache of {cpus}, and as a cache of the node elsewhere.",
}
"""Code -> what is said; ``{}`` are CPUs or NUMA nodes."""
_INFO: Final = frozenset({
    "MOOR-411", "MOOR-415", "MOOR-416", "MOOR-417", "MOOR-418", "MOOR-425", "MOOR-426", "MOOR-428", "MOOR-442",
    "MOOR-444", "MOOR-447", "MOOR-448",
})  # fmt: skip


def differences(info: MachineInfo, hardware: Hardware) -> tuple[Finding, ...]:
    """Return what the kubelet gets wrong, gravest kind of element first: CPUs, nodes, caches.

    Args:
        info: The kubelet's view.
        hardware: The machine as it is.
    """
    places = {cpu: (node, core) for node in info.topology for core in node.cores for cpu in core.thread_ids}
    if places:
        return tuple(chain(*(compared(info, places, hardware) for compared in (_cpus, _nodes, _caches))))
    consequence = "its managers fail with 'could not detect number of cpus'"
    if info.num_cores:
        consequence = f"it counts {info.num_cores} CPUs and can place none of them"
    return (_finding("MOOR-401", text_of_cpus(hardware.online), consequence=consequence),)


def _finding(code: str, subject: str, *shown: str, **facts: object) -> Finding:
    severity = "info" if code in _INFO else "warning"
    return Finding(severity, subject, _MESSAGES[code].format(*shown, **facts), code)


def _about(code: str, found: Collection[int] | CPUSet) -> Iterator[Finding]:
    """Yield a finding about CPUs or NUMA nodes, if there are any."""
    if found:
        text = text_of_cpus(found) if isinstance(found, CPUSet) else text_of_nodes(found)
        yield _finding(code, text, text)


def _cpus(info: MachineInfo, places: Places, hardware: Hardware) -> Iterator[Finding]:
    """Compare which CPUs there are, and how they form cores and sockets."""
    listed = CPUSet.from_ids(places)
    times = Counter(cpu for node in info.topology for core in node.cores for cpu in core.thread_ids)
    yield from _about("MOOR-402", hardware.online - listed)
    yield from _about("MOOR-403", CPUSet.from_ids(cpu for cpu, count in times.items() if count > 1))
    yield from _about("MOOR-404", listed & hardware.offline)
    yield from _about("MOOR-405", listed - hardware.online - hardware.offline)
    if info.num_cores != len(hardware.online):
        yield _finding("MOOR-406", "num_cores", count=info.num_cores, real=len(hardware.online))
    usable = listed & hardware.online
    yield from _about("MOOR-407", usable - hardware.allowed)
    yield from _about("MOOR-408", usable & hardware.isolated)
    cores = {cpu.id: cpu.core for cpu in hardware.cpus if cpu.core is not None}
    # The kubelet's id of a core is the core's smallest CPU.
    core_ids = {cpu: min(core.thread_ids) for cpu, (_, core) in places.items()}
    yield from _regrouped(core_ids, cores, "MOOR-409", "MOOR-410")
    count = len(set(cores.values()))
    if count and info.num_physical_cores != count:
        yield _finding("MOOR-411", "num_physical_cores", count=info.num_physical_cores, real=count)
    packages = {cpu.id: cpu.package_first_cpu for cpu in hardware.cpus if cpu.package_first_cpu is not None}
    sockets = {cpu: core.socket_id for cpu, (_, core) in places.items()}
    yield from _regrouped(sockets, packages, "MOOR-412", "MOOR-413")
    count = len(set(packages.values()))
    if count and info.num_sockets != count:
        yield _finding("MOOR-414", "num_sockets", count=info.num_sockets, real=count)
    if negative := sorted({socket for socket in sockets.values() if socket < 0}):
        yield _finding("MOOR-415", "sockets", ids=", ".join(map(str, negative)))
    # What no MachineInfo has a place for: kinds of cores, dies and clusters
    if len(hardware.kinds) > 1:
        kinds = "; ".join(str(kind.cpus) for kind in hardware.kinds)
        yield _finding("MOOR-416", "core kinds", count=len(hardware.kinds), kinds=kinds)
    dies = {cpu.die for cpu in hardware.cpus if cpu.die is not None}
    if len(dies) > len({cpu.package_first_cpu for cpu in hardware.cpus}):
        yield _finding("MOOR-417", "dies", count=len(dies))
    if clusters := {cpu.cluster for cpu in hardware.cpus if cpu.cluster is not None}:
        yield _finding("MOOR-418", "clusters", count=len(clusters))


def _nodes(info: MachineInfo, places: Places, hardware: Hardware) -> Iterator[Finding]:
    """Compare the NUMA nodes."""
    ids = [node.node_id for node in info.topology]
    real = {node.id for node in hardware.nodes}
    # The kernel has no node directory: hwloc made up a node as well.
    is_made_up = all(node.sysfs_cpulist is None for node in hardware.nodes)
    if is_made_up:
        order = " and in an order that changes from start to start" if len(ids) > 1 else ""
        yield _finding("MOOR-422", text_of_nodes(ids), nodes=text_of_nodes(ids), order=order)
    elif set(ids) != real:
        yield _finding("MOOR-423", text_of_nodes(set(ids) ^ real), nodes=text_of_nodes(ids), real=text_of_nodes(real))
    if negative := [node for node in ids if node < 0]:
        yield _finding("MOOR-424", text_of_nodes(negative), ids=ids_text(negative))
    if ids != sorted(ids):
        order = ", ".join(map(str, ids[:8])) + (", ..." if len(ids) > 8 else "")
        yield _finding("MOOR-425", "node order", order=order)
    yield from _about("MOOR-426", [node.node_id for node in info.topology if not node.cores])
    if not is_made_up:
        # Which CPUs are in another node than the kernel's own list of the node says, and compare the memory
        # What is local to a node counts where the list is missing or malformed.
        told = {node.id: cpu_list(node.sysfs_cpulist) for node in hardware.nodes}
        lists = {node.id: node.local_cpus if (own := told[node.id]) is None else own for node in hardware.nodes}
        members: dict[int, list[int]] = defaultdict(list)
        for cpu, (node, _) in places.items():
            members[node.node_id].append(cpu)
        misplaced = CPUSet()
        for node_id, cpus in members.items():
            misplaced |= (CPUSet.from_ids(cpus) & hardware.online) - lists.get(node_id, CPUSet())
        yield from _about("MOOR-427", misplaced)
        yield from _about("MOOR-428", [node.node_id for node in info.topology if node.memory == 0])
        memory = {node.id: node.memory_bytes for node in hardware.nodes}
        wrong = [node.node_id for node in info.topology if memory.get(node.node_id, node.memory) != node.memory]
        yield from _about("MOOR-429", wrong)
    yield from _distances(info.topology, len(ids) if is_made_up else len(real))
    yield from _about("MOOR-421", hardware.nodes_disallowed)


def _distances(nodes: tuple[NUMANode, ...], real: int) -> Iterator[Finding]:
    """Judge the rows by what reads them: prefer-closest-numa-nodes takes the entry at the *id* of the other node."""
    lengths = [(node.node_id, len(node.distances)) for node in nodes if node.distances is not None]
    without = [node.node_id for node in nodes if node.distances is None]
    if without and len(nodes) > 1:
        yield _finding("MOOR-430", "distances", nodes=text_of_nodes(without))
    if odd := [node for node, length in lengths if {length} != {len(nodes), real}]:
        shown = ", ".join(map(str, sorted({length for _, length in lengths})))
        yield _finding("MOOR-431", "distances", nodes=text_of_nodes(odd), lengths=shown, count=len(nodes), real=real)
    ids = sorted(node.node_id for node in nodes)
    if ids != list(range(len(ids))) and len(without) < len(nodes):
        yield _finding("MOOR-432", "distances", ids=ids_text(ids))


def _caches(info: MachineInfo, places: Places, hardware: Hardware) -> Iterator[Finding]:
    """Compare L3 and L2 caches."""
    l3 = {cpu.id: cpu.l3 for cpu in hardware.cpus if cpu.l3 is not None}
    l2 = {cpu.id for cpu in hardware.cpus if cpu.l2 is not None}
    of_cores = any(core.caches or core.uncore_caches for _, core in places.values())
    if not of_cores and not any(node.caches for node in info.topology):
        if l3 or l2:
            yield Finding("warning" if l3 else "info", "L3" if l3 else "L2", _MESSAGES["MOOR-441"], "MOOR-441")
        return
    if l3:
        seen = {
            cpu
            for cpu, (node, core) in places.items()
            if any(cache.level >= _L3 for cache in (*core.uncore_caches, *node.caches))
        }
        yield from _about("MOOR-443", CPUSet.from_ids(places.keys() & l3.keys() - seen))
        yield from _about("MOOR-444", CPUSet.from_ids(places.keys() - l3.keys()))
        # The kubelet's uncore id: that of the core's first uncore cache, else the socket id (spec: topology.md section
        # 2). CPUs of a package that have no L3 are a group of their own.
        uncores = {
            cpu: core.uncore_caches[0].id if core.uncore_caches else core.socket_id for cpu, (_, core) in places.items()
        }
        groups = {cpu.id: (l3.get(cpu.id), None if cpu.id in l3 else cpu.package_first_cpu) for cpu in hardware.cpus}
        yield from _regrouped(uncores, groups, "MOOR-445", "MOOR-446")
        yield from _l3_of_nodes(info.topology, l3)
        in_uncore = CPUSet.from_ids(cpu for cpu, (_, core) in places.items() if core.uncore_caches)
        if in_uncore and any(cache.level == _L3 for node in info.topology for cache in node.caches):
            yield _finding("MOOR-450", text_of_cpus(in_uncore), cpus=text_of_cpus(in_uncore))
    lost = (cpu for cpu in places.keys() & l2 if not any(cache.level == 2 for cache in places[cpu][1].caches))
    yield from _about("MOOR-442", CPUSet.from_ids(lost))


def _l3_of_nodes(topology: tuple[NUMANode, ...], l3: Mapping[int, int]) -> Iterator[Finding]:
    """Tell which uncore caches are as large as a node or larger, and of which nodes caches are listed too often."""
    whole: list[int] = []
    repeated: list[tuple[int, int, int]] = []
    nodes_of: dict[int, set[int]] = defaultdict(set)
    for node in topology:
        uncores = [core.uncore_caches[0].id for core in node.cores if core.uncore_caches]
        for number in uncores:
            nodes_of[number].add(node.node_id)
        real = {l3.get(cpu) for core in node.cores for cpu in core.thread_ids}
        if uncores and len(real) == 1:
            whole.append(node.node_id)
        listed = sum(cache.level == _L3 for cache in node.caches)
        if listed > len(real - {None}):
            repeated.append((node.node_id, listed, len(real - {None})))
    yield from _about("MOOR-447", whole)
    shared = {number: nodes for number, nodes in nodes_of.items() if len(nodes) > 1}
    if shared:
        number, nodes = min(shared.items())
        yield _finding("MOOR-448", "L3", number=number, where=f"{text_of_nodes(nodes)}{_likewise(len(shared))}")
    if repeated:
        subject, (first, listed, count) = text_of_nodes(node for node, _, _ in repeated), repeated[0]
        yield _finding("MOOR-449", subject, nodes=subject, first=first, listed=listed, real=count)


def _regrouped(
    kubelet: Mapping[int, Hashable], real: Mapping[int, Hashable], merged: str, divided: str
) -> Iterator[Finding]:
    """Yield warnings where two groupings of CPUs differ.

    Args:
        kubelet: CPU -> its group for the kubelet.
        real: CPU -> its group on the machine.
        merged: code where the kubelet treats several groups as one. Its message has no full stop; what is filled in is
            the first of several cases.
        divided: the same, where the kubelet treats one group as several.
    """
    cells: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    for cpu in sorted(kubelet.keys() & real.keys()):
        cells[kubelet[cpu], real[cpu]].append(cpu)
    for side, code in enumerate((merged, divided)):
        parts_of: dict[Hashable, list[CPUSet]] = defaultdict(list)
        for groups, cpus in cells.items():
            parts_of[groups[side]].append(CPUSet.from_ids(cpus))
        several = {group: parts for group, parts in parts_of.items() if len(parts) > 1}
        for group, parts in list(several.items())[:1]:
            shown = " and ".join(map(str, parts[:4])) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")
            whole = text_of_cpus(CPUSet.from_ids(cpu for some in several.values() for part in some for cpu in part))
            text = _MESSAGES[code].format(group=group, count=len(parts), parts=shown)
            yield Finding("warning", whole, f"{text}{_likewise(len(several))}.", code)


def _likewise(count: int) -> str:
    """Return what follows the description of the first of several groups."""
    return f" (and {count - 1} more case{'s' if count > 2 else ''})" if count > 1 else ""


def text_of_cpus(cpus: CPUSet) -> str:
    """Return the CPUs as a person writes them.

    >>> text_of_cpus(CPUSet.of(3)), text_of_cpus(CPUSet.of(3, 4))
    ('CPU 3', 'CPUs 3-4')
    """
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"


def text_of_nodes(ids: Iterable[int]) -> str:
    """Return the nodes as a person writes them.

    >>> text_of_nodes([2]), text_of_nodes([2, 1, 0])
    ('NUMA node 2', 'NUMA nodes 0-2')
    """
    distinct = set(ids)
    return f"NUMA node{'s' if len(distinct) > 1 else ''} {ids_text(distinct)}"


def ids_text(ids: Iterable[int]) -> str:
    """Return node ids as a list with runs, negative ones first.

    >>> ids_text([2, 0, 1, -1])
    '-1,0-2'
    """
    distinct = set(ids)
    negative = [str(number) for number in sorted(distinct) if number < 0]
    runs = list_text(mask_of(number for number in distinct if number >= 0))
    return ",".join(part for part in (*negative, runs) if part)
