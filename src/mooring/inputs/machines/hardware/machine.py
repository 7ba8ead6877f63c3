"""The machine as it is: what hwloc 2.14 finds in the same tree.

Read in hwloc's order, because of two sets of CPUs that contradict each other the first one read wins: CPU by CPU the
core, package, cluster, die and caches (:mod:`.cores`, :mod:`.caches`), then the memory nodes (:mod:`.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.hardware import Hardware, HardwareCPU, HardwareNode
from mooring.inputs.machines.hardware.cores import CPUS, find_cpus, place_caches, place_cpu
from mooring.inputs.machines.hardware.cpukinds import read_kinds
from mooring.inputs.machines.hardware.cpusets import read_allowed
from mooring.inputs.machines.hardware.kernelfiles import parse_list
from mooring.inputs.machines.hardware.memory import read_memory
from mooring.inputs.machines.hardware.nesting import Branch, Nest
from mooring.inputs.machines.hardware.quirks import read_quirks
from mooring.inputs.machines.tree import Tree


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
    memory = read_memory(tree, quirks, online, nest)
    kinds = read_kinds(tree, quirks, online)
    allowed = read_allowed(tree)
    return Hardware(
        cpus=_cpus(nest, online, memory.nodes, {cpu: kind.efficiency for kind in kinds for cpu in kind.cpus}),
        online=CPUSet(CPUMask(online)),
        offline=CPUSet(CPUMask(cpus.present & ~online)),
        allowed=CPUSet(CPUMask(online if allowed.cpus is None else online & allowed.cpus)),
        isolated=CPUSet(CPUMask(_isolated(tree))),
        nodes=memory.nodes,
        distances=memory.table,
        distance_nodes=memory.table_nodes,
        kinds=kinds,
        nodes_disallowed=tuple(
            node.id for node in memory.nodes if allowed.nodes is not None and not allowed.nodes >> node.id & 1
        ),
        num_cores=_count(nest, "core"),
        num_packages=_count(nest, "package"),
        num_l3=_count(nest, "l3"),
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
    firsts = {id(branch): _first(branch, online) for branch in nest.branches}
    shown = []
    for cpu, numa in local.items():
        places: dict[str, int] = {}
        package: int | None = None
        for branch in nest.around(cpu):
            first = firsts[id(branch)]
            for kind in branch.kinds:
                places.setdefault(kind, first)
            if "package" in branch.kinds and package is None:
                package = branch.kinds["package"]
            if branch.group is not None and not branch.kinds and branch.mask & online != whole:
                places.setdefault(branch.group[1], first)
        shown.append(_cpu(cpu, places, package, tuple(numa), efficiencies.get(cpu)))
    return tuple(shown)


def _cpu(
    cpu: int, places: Mapping[str, int], package: int | None, numa: tuple[int, ...], efficiency: int | None
) -> HardwareCPU:
    return HardwareCPU(
        id=cpu,
        core=places.get("core"),
        package=package,
        package_first_cpu=places.get("package"),
        numa=numa,
        die=places.get("die"),
        l2=places.get("l2"),
        l3=places.get("l3"),
        efficiency=efficiency,
        cluster=places.get("Cluster"),
        book=places.get("Book"),
        drawer=places.get("Drawer"),
    )


def _first(branch: Branch, online: int) -> int:
    mask = branch.mask & online
    return (mask & -mask).bit_length() - 1


def _count(nest: Nest, kind: str) -> int:
    return sum(kind in branch.kinds for branch in nest.branches)


def _isolated(tree: Tree) -> int:
    """Return the CPUs that ``isolcpus`` keeps out of scheduling; the file is empty without that parameter."""
    text = (tree.read(f"{CPUS}/isolated") or "").strip()
    return (parse_list(text) or 0) if text else 0
