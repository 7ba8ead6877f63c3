"""The machine as it is: what hwloc 2.14 finds in the same tree.

Read in hwloc's order, because of two sets of CPUs that contradict each other the first one read wins: CPU by CPU the
core, package, cluster, die and caches (:mod:`.cores`), then the memory nodes (:mod:`.numanodes`).

What was odd in the files of a tree while the hardware was read from it.

Files of sysfs that contradict one another come from firmware, hypervisors, hot-plugged or offline parts, or from a
snapshot that was cut. The reader decides as hwloc does; these findings say where it had to.

The memory side of a machine: its nodes with their localities, distances and kinds of memory.

No file of sysfs names the kind. hwloc groups nodes into tiers of equal bandwidth and latency (HMAT) and names two
tiers, DRAM and HBM, when one is more than twice as fast as the other. The kernel lists CPUs only for nodes that have
some: for memory without CPUs (HBM, CXL, persistent memory) hwloc asks the firmware's table of initiators (HMAT), then
the distances.

Source: hwloc 2.14, memattrs.c (hwloc__group_memory_tiers, hwloc__guess_memory_tiers_kinds), topology-linux.c
(read_node_initiators, fixup_cpuless_node_locality_from_distances) and topology.c (hwloc__find_insert_memory_parent).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Final, TypeAlias

from mooring.engine.core.bits import CPUMask, list_text, mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Hardware, HardwareCPU, HardwareNode, PCIDevice
from mooring.inputs.machines import numanodes
from mooring.inputs.machines.cores import read_cpus, read_kinds
from mooring.inputs.machines.kernelfiles import (
    Quirks,
    allowed_files,
    parse_list,
    read_list,
    read_mask,
    read_quirks,
    read_uint,
)
from mooring.inputs.machines.numanodes import Nest, list_nodes, read_distances
from mooring.inputs.machines.tree import CPUS, NODES, PCI_DEVICES, Tree


def read_hardware(tree: Tree) -> Hardware:
    """Read the machine.

    Raises:
        InputError: hwloc refuses the tree: it reports no CPU topology, or no CPU is online.
    """
    quirks = read_quirks(tree)
    nest = Nest()
    present, online = read_cpus(tree, quirks, nest)
    nodes, table_nodes, table = read_memory(tree, quirks, online, nest)
    kinds = read_kinds(tree, quirks, online)
    # Of the process that took the snapshot; None means everything, also what is not there yet.
    allowed, allowed_nodes = [read_list(tree, path) for path in allowed_files(tree)] or (None, None)
    isolated = (tree.read(f"{CPUS}/isolated") or "").strip()  # by isolcpus; empty without that parameter
    counts = Counter(kind for kinds_of_set in nest.kinds.values() for kind in kinds_of_set)
    return Hardware(
        cpus=_cpus(nest, online, nodes, {cpu: kind.efficiency for kind in kinds for cpu in kind.cpus}),
        online=CPUSet(CPUMask(online)),
        offline=CPUSet(CPUMask(present & ~online)),
        allowed=CPUSet(CPUMask(online if allowed is None else online & allowed)),
        isolated=CPUSet(CPUMask((parse_list(isolated) or 0) if isolated else 0)),
        nodes=nodes,
        distances=table,
        distance_nodes=table_nodes,
        kinds=kinds,
        nodes_disallowed=tuple(
            node.id for node in nodes if allowed_nodes is not None and not allowed_nodes >> node.id & 1
        ),
        num_cores=counts["core"],
        num_packages=counts["package"],
        num_l3=counts["l3"],
        refused=tuple((kind, CPUSet(CPUMask(mask))) for kind, mask in nest.refused),
    )


def _cpus(
    nest: Nest, online: int, nodes: tuple[HardwareNode, ...], efficiencies: Mapping[int, int]
) -> tuple[HardwareCPU, ...]:
    # A group of all CPUs says nothing, unless a node that belongs to no CPU stands beside it.
    whole = 0 if any(not node.local_cpus for node in nodes) else online
    local: dict[int, list[int]] = {cpu: [] for cpu in members(online)}
    for node in nodes:
        for cpu in node.local_cpus:
            local[cpu].append(node.id)
    masks = {mask: mask & online for mask in nest.kinds}
    firsts = {mask: (left & -left).bit_length() - 1 for mask, left in masks.items()}
    shown = []
    for cpu, numa in local.items():
        places: dict[str, int] = {}
        package: int | None = None
        for mask in nest.around(cpu):
            first, kinds = firsts[mask], nest.kinds[mask]
            for kind in kinds:
                places.setdefault(kind, first)
            if package is None:
                package = kinds.get("package")
            if mask in nest.groups and not kinds and masks[mask] != whole:
                places.setdefault(nest.groups[mask][1], first)
        core, first_cpu, die, l2, l3 = map(places.get, ("core", "package", "die", "l2", "l3"))
        groups = map(places.get, ("Cluster", "Book", "Drawer"))
        shown.append(
            HardwareCPU(cpu, core, package, first_cpu, tuple(numa), die, l2, l3, efficiencies.get(cpu), *groups)
        )
    return tuple(shown)


def hardware_findings(tree: Tree, hardware: Hardware) -> Iterator[Finding]:
    """Yield the oddities of the tree that ``hardware`` was read from: CPUs, shared sets, nodes, distances."""
    listed = CPUSet(CPUMask(read_list(tree, f"{CPUS}/online") or 0))
    silent = listed - hardware.online
    if silent:
        message = f"CPUs {silent} are listed as online, but report no topology; they are left out."
        yield Finding("warning", f"CPUs {silent}", message, "MOOR-471")
    offline = hardware.offline - listed
    if offline:
        message = f"CPUs {offline} are present but offline; they are left out."
        yield Finding("info", f"CPUs {offline}", message, "MOOR-472")
    for kind, cpus in hardware.refused:
        message = f"CPUs {cpus} are said to form one {kind}, which crosses another set of CPUs; it is left out."
        yield Finding("warning", f"CPUs {cpus}", message, "MOOR-473")
    missing = mask_of(list_nodes(tree)) & ~mask_of(node.id for node in hardware.nodes)
    if missing:
        nodes = list_text(missing)
        message = (
            f"NUMA nodes {nodes} are listed by the kernel, but are left out: they report no CPUs, claim CPUs of other "
            "nodes, or are the memory of a GPU."
        )
        yield Finding("warning", f"nodes {nodes}", message, "MOOR-474")
    for node in hardware.nodes:
        yield from _node_findings(tree, node)
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
    # The CPUs of each node grow to those that hwloc considers local.
    cpus, kinds = numanodes.read_nodes(tree, listed, quirks)
    if not cpus:
        return (_node(tree, quirks, 0, online, None, ("proc", "sys/kernel/mm/hugepages")),), (), None
    table = read_distances(tree, listed)
    if quirks.is_knights_landing:
        layout = numanodes.find_layout(cpus, len(listed), table)
        bandwidths = numanodes.place_layout(layout, cpus, kinds, nest) if layout is not None else {}
        ordered, speeds = list(cpus), {node: (bandwidth, 0) for node, bandwidth in bandwidths.items()}
        table = None  # the pattern is spent: hwloc shows no distances of these processors
    else:
        # hwloc's order: nodes with CPUs of their own come first; one that has got its locality lends it to the next.
        ordered = sorted(cpus, key=lambda node: not cpus[node])
        for node in ordered:
            if not quirks.has_fake_numa:
                found = (_INITIATOR.match(name) for name in tree.names(_initiator_folder(tree, node)))
                near = {int(match[1]) for match in found if match}
                cpus[node] = reduce(or_, (cpus[other] for other in near if other in cpus), cpus[node])
            if not cpus[node] and table is not None:
                cpus[node] = _nearest(node, cpus, listed, table)
        speeds = {} if quirks.has_fake_numa else {node: _read_speed(tree, node) for node in ordered}
    local = {node: attach(nest, cpus[node]) & online for node in ordered}
    # A speed is measured from the CPUs that were local before the locality had to be widened.
    speeds = {node: speed for node, speed in speeds.items() if local[node] and local[node] & ~cpus[node] == 0}
    tiers = _name_tiers([node for node in ordered if kinds.get(node) not in _FOREIGN], speeds)
    finished = tuple(
        _node(tree, quirks, node, local[node], kinds.get(node) or tiers.get(node)) for node in sorted(ordered)
    )
    # The rows and columns of the nodes that there are; fewer than two make no table.
    if table is None or len(finished) < 2:
        return finished, (), None
    columns = [listed.index(node.id) for node in finished]
    return (
        finished,
        tuple(node.id for node in finished),
        tuple(tuple(table[row][column] for column in columns) for row in columns),
    )


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


def _name_tiers(nodes: Sequence[int], speeds: Mapping[int, Speed]) -> dict[int, str]:
    """Return DRAM or HBM by node id, for the nodes where it can be told.

    ``speeds`` holds the nodes whose speed is known; ``nodes`` are in hwloc's order.
    """
    # A tier ends, fastest node first, wherever two neighbours differ in a figure that both tell.
    tiers: list[list[int]] = []
    for node in sorted(nodes, key=lambda node: -_bandwidth(node, speeds)):
        last = speeds.get(tiers[-1][-1], _UNKNOWN) if tiers else _UNKNOWN
        pairs = zip(last, speeds.get(node, _UNKNOWN), strict=True)
        if not tiers or any(min(pair) and max(pair) / min(pair) > _THRESHOLD for pair in pairs):
            tiers.append([])
        tiers[-1].append(node)
    if len(tiers) != 2:
        return {}
    slow, fast = sorted(tiers, key=lambda tier: _bandwidth(tier[0], speeds))
    # A tier begins with its fastest node; its slowest may be one of unknown speed, which then counts as 0.
    slowest, fastest = _bandwidth(slow[0], speeds), _bandwidth(fast[0], speeds)
    if not slowest or fastest <= 2 * _bandwidth(slow[-1], speeds):
        return {}
    return dict.fromkeys(slow, "DRAM") | dict.fromkeys(fast, "HBM")


def _bandwidth(node: int, speeds: Mapping[int, Speed]) -> int:
    return speeds.get(node, _UNKNOWN)[0]


MEMORY_RANK: Final = 1001
"""Groups that only exist to hold memory yield to all others (HWLOC_GROUP_KIND_MEMORY)."""

_INITIATOR: Final = re.compile(r"node([0-9]{1,7})")
_Table = Sequence[Sequence[int]]


def attach(nest: Nest, cpus: int) -> int:
    """Enter a node's locality into ``nest`` and return the CPUs that it ends up with, perhaps more than there are.

    A locality that crosses a package or cache widens to the smallest set around it; one without CPUs stays so.
    """
    return nest.covering(cpus) if cpus and not nest.add_group(cpus, MEMORY_RANK) else cpus


def _initiator_folder(tree: Tree, number: int) -> str:
    """Return the folder of the initiators closest to a node.

    Since Linux 5.10 class 0 may be a device without CPUs (a generic initiator); class 1 counts CPUs only.
    """
    folder = f"{NODES}/node{number}/access1/initiators"
    return folder if tree.is_dir(folder) else f"{NODES}/node{number}/access0/initiators"


def _nearest(node: int, cpus: Mapping[int, int], ids: Sequence[int], distances: _Table) -> int:
    """Return the CPUs of the nearest other nodes; none when all are equally far, or one is as near as the node."""
    row = dict(zip(ids, distances[ids.index(node)], strict=True))
    others = [other for other in cpus if other != node]
    shortest = min((row[other] for other in others), default=0)
    nearest = [other for other in others if row[other] == shortest]
    if shortest <= row[node] or len(nearest) == len(ids) - 1:
        return 0
    return reduce(or_, (cpus[other] for other in nearest), 0)


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_HEX = re.compile(r"0x([0-9a-fA-F]+)", re.ASCII)
_NUMBER = re.compile(r"-0+|[0-9]{1,9}", re.ASCII)


def read_pci_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI devices of a tree by address; those whose class cannot be read are left out.

    Source: kernel Documentation/ABI/testing/sysfs-bus-pci (class, vendor, device, numa_node; -1 is "unknown").
    """
    found = []
    for address in tree.names(PCI_DEVICES):
        if not _ADDRESS.fullmatch(address):
            continue
        folder = f"{PCI_DEVICES}/{address}"
        class_code = _hex(tree.read(f"{folder}/class"), 6)
        if class_code:
            vendor, device = _hex(tree.read(f"{folder}/vendor"), 4), _hex(tree.read(f"{folder}/device"), 4)
            text = tree.read(f"{folder}/numa_node")
            text = (text or "").strip()
            node = int(text) if _NUMBER.fullmatch(text) else None
            root = pcie_root(tree.place(folder) or "")
            found.append(PCIDevice(address, class_code, vendor, device, node, root))
    return tuple(found)


def pcie_root(path: str) -> str:
    """Return the PCIe root in the path of a device below ``sys/devices``; empty when none is in it.

    >>> pcie_root("sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"), pcie_root("sys/bus/pci/devices/0000:3b:00.0")
    ('pci0000:3a', '')
    """
    # A host bridge that is no PCI device itself, such as that of a virtual machine, stands before the root.
    return next((part for part in path.split("/") if _ROOT.fullmatch(part)), "")


def _hex(text: str | None, digits: int) -> str:
    match = _HEX.fullmatch((text or "").strip())
    return match.group(1).lower().rjust(digits, "0") if match else ""
