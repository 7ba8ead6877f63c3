"""The machine as it is: what hwloc 2.14 finds in the same tree.

Read in hwloc's order, because of two sets of CPUs that contradict each other the first one read wins: CPU by CPU the
core, package, cluster, die and caches (:mod:`.cores`, :mod:`.caches`), then the memory nodes (:mod:`.memory`).

Which CPUs and memory nodes the snapshot's own control group may use.

A snapshot is taken by some process, and the files of its cpuset are part of it: on a machine where a batch job took the
snapshot, hwloc shows what the job could use. Source: kernel Documentation/admin-guide/cgroup-v1/cpusets.rst and
cgroup-v2.rst; hwloc 2.14 for the order of search.

What was odd in the files of a tree while the hardware was read from it.

Files of sysfs that contradict one another come from firmware, hypervisors, hot-plugged or offline parts, or from a
snapshot that was cut. The reader decides as hwloc does; these findings say where it had to.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from mooring.engine.core.bits import CPUMask, list_text, mask_of, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Finding, Hardware, HardwareCPU, HardwareNode
from mooring.inputs.machines.hardware.cores import CPUS, find_cpus, place_caches, place_cpu
from mooring.inputs.machines.hardware.cpukinds import read_kinds
from mooring.inputs.machines.hardware.kernelfiles import parse_list, read_list, read_mask, read_quirks
from mooring.inputs.machines.hardware.memory import read_memory
from mooring.inputs.machines.hardware.numanodes import NODES, Nest, list_nodes, read_distances
from mooring.inputs.machines.tree import Tree

_LINE_CHARS: Final = 4096
_PATH_CHARS: Final = 255
"""hwloc reads no longer lines of the mount table and opens no longer paths."""
_ESCAPE: Final = re.compile(r"\\(040|011|012|134)")


def cpuset_files(tree: Tree) -> tuple[str, ...]:
    """Return the files that decide of what is allowed, besides mount table and group."""
    mounts = (fields for line in (tree.read("proc/mounts") or "").split("\n") if len(fields := line.split()) > 2)
    folders = [_unescape(fields[1]) for fields in mounts if fields[2] == "cgroup2"]
    return (*(f"{folder}/cgroup.controllers".lstrip("/") for folder in folders), *_set_files(tree))


def _set_files(tree: Tree) -> tuple[str, ...]:
    """Return the files with the CPUs and with the memory nodes of the process's cpuset; none without one."""
    files = _file_pattern(tree)
    group = _group(tree)
    if files is None or group is None:
        return ()
    folder, pattern = files
    return tuple(f"{folder}{group}/{pattern.format(what)}"[:_PATH_CHARS].lstrip("/") for what in ("cpus", "mems"))


def _file_pattern(tree: Tree) -> tuple[str, str] | None:
    """Return where cpusets are mounted and how their files are called; None when they are not.

    The first suitable line of the mount table decides: cgroup 2 with the cpuset controller (the effective sets include
    the limits of all parents), a cpuset file system, or cgroup 1 with the cpuset controller.
    """
    for line in (tree.read("proc/mounts") or "").split("\n"):
        fields = line[:_LINE_CHARS].split()
        if len(fields) < 3 or fields[0].startswith("#"):
            continue
        folder, kind = _unescape(fields[1]), _unescape(fields[2])
        options = _unescape(fields[3]).split(",") if len(fields) > 3 else []
        if kind == "cgroup2":
            controllers = tree.read(f"{folder}/cgroup.controllers".lstrip("/")) or ""
            if "cpuset" in controllers.partition("\n")[0].split(" "):
                return folder, "cpuset.{}.effective"
        elif kind == "cpuset" or (kind == "cgroup" and {"cpuset", "noprefix"} <= set(options)):
            return folder, "{}"
        elif kind == "cgroup" and "cpuset" in options:
            return folder, "cpuset.{}"
    return None


def _group(tree: Tree) -> str | None:
    """Return the path of the process's group below the mount, as the kernel tells it in one of two files."""
    cpuset = tree.read("proc/self/cpuset")
    if cpuset:
        return cpuset[:127].partition("\n")[0]
    for line in (tree.read("proc/self/cgroup") or "").split("\n"):
        _, colon, rest = line.partition(":")
        controllers, second, path = rest.partition(":")
        if colon and second and controllers in {"cpuset", ""}:
            return path
    return None


def _unescape(text: str) -> str:
    """Undo the octal escapes of the mount table (space, tab, newline, backslash)."""
    return _ESCAPE.sub(lambda match: chr(int(match[1], 8)), text)


def read_hardware(tree: Tree) -> Hardware:
    """Read the machine.

    Raises:
        InputError: hwloc refuses the tree: it reports no CPU topology, or no CPU is online.
    """
    quirks = read_quirks(tree)
    cpus = find_cpus(tree, quirks)
    online = cpus.online
    nest = Nest()
    for cpu in members(online):
        place_cpu(tree, quirks, cpus, cpu, nest)
        place_caches(tree, quirks, cpus, cpu, nest)
    nodes, table_nodes, table = read_memory(tree, quirks, online, nest)
    kinds = read_kinds(tree, quirks, online)
    # Of the process that took the snapshot; None means everything, also what is not there yet.
    allowed, allowed_nodes = [read_list(tree, path) for path in _set_files(tree)] or (None, None)
    isolated = (tree.read(f"{CPUS}/isolated") or "").strip()  # by isolcpus; empty without that parameter
    counts = Counter(kind for branch in nest.branches for kind in branch.kinds)
    return Hardware(
        cpus=_cpus(nest, online, nodes, {cpu: kind.efficiency for kind in kinds for cpu in kind.cpus}),
        online=CPUSet(CPUMask(online)),
        offline=CPUSet(CPUMask(cpus.present & ~online)),
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
    masks = {id(branch): branch.mask & online for branch in nest.branches}
    firsts = {branch: (mask & -mask).bit_length() - 1 for branch, mask in masks.items()}
    shown = []
    for cpu, numa in local.items():
        places: dict[str, int] = {}
        package: int | None = None
        for branch in nest.around(cpu):
            first = firsts[id(branch)]
            for kind in branch.kinds:
                places.setdefault(kind, first)
            if package is None:
                package = branch.kinds.get("package")
            if branch.group is not None and not branch.kinds and masks[id(branch)] != whole:
                places.setdefault(branch.group[1], first)
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
