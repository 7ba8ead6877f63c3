"""The machine as a JSON document, with the names of the recorded hwloc answers.

Members: ``cpus`` (a list with one object per online CPU: ``id``, ``core``, ``package``, ``packageFirstCpu``, ``numa``,
``die``, ``l2``, ``l3``, ``efficiency``, ``groups``; absent is null), ``online``, ``offline``, ``allowed``,
``disallowed`` and ``isolated`` (CPU lists), ``counts``, ``nodesOfflineOrHidden`` and ``nodesDisallowed`` (node lists),
``numaNodes``, ``distances`` and ``cpuKinds``.

The recordings call the list per CPU ``pus`` and keep the CPU lists in an object called ``cpus``; here ``cpus`` is the
list, and the CPU lists stand beside it under their own names.
"""

from __future__ import annotations

from mooring.core.bits import list_text, mask_of
from mooring.core.hardware import CPUKind, Hardware, HardwareCPU, HardwareNode


def hardware_document(hardware: Hardware) -> dict[str, object]:
    """Return the document; it holds nothing but dicts, lists, texts, numbers and None."""
    return {
        "cpus": [_cpu(cpu) for cpu in hardware.cpus],
        "online": str(hardware.online),
        "offline": str(hardware.offline),
        "allowed": str(hardware.allowed),
        "disallowed": str(hardware.online - hardware.allowed),
        "isolated": str(hardware.isolated),
        "counts": {
            "pus": len(hardware.cpus),
            "cores": hardware.num_cores,
            "packages": hardware.num_packages,
            "numaNodes": len(hardware.nodes),
            "l3": hardware.num_l3,
        },
        "nodesOfflineOrHidden": list_text(mask_of(hardware.nodes_offline)),
        "nodesDisallowed": list_text(mask_of(hardware.nodes_disallowed)),
        "numaNodes": [_node(node) for node in hardware.nodes],
        "distances": _distances(hardware),
        "cpuKinds": [_kind(kind) for kind in hardware.kinds],
    }


def _cpu(cpu: HardwareCPU) -> dict[str, object]:
    groups = {"Cluster": cpu.cluster, "Book": cpu.book, "Drawer": cpu.drawer}
    known = {name: first for name, first in groups.items() if first is not None}
    return {
        "id": cpu.id,
        "core": cpu.core,
        "package": cpu.package,
        "packageFirstCpu": cpu.package_first_cpu,
        "numa": list(cpu.numa),
        "die": cpu.die,
        "l2": cpu.l2,
        "l3": cpu.l3,
        "efficiency": cpu.efficiency,
        "groups": known or None,
    }


def _node(node: HardwareNode) -> dict[str, object]:
    return {
        "id": node.id,
        "memoryBytes": node.memory_bytes,
        "subtype": node.subtype,
        "hugepages": [{"sizeBytes": pool.size_bytes, "count": pool.count} for pool in node.hugepages],
        "basePageBytes": node.base_page_bytes,
        "localCpus": str(node.local_cpus),
        "sysfsCpulist": node.sysfs_cpulist,
    }


def _distances(hardware: Hardware) -> list[dict[str, object]]:
    if hardware.distances is None:
        return []
    matrix = [list(row) for row in hardware.distances]
    return [{"name": "NUMALatency", "nodes": list(hardware.distance_nodes), "matrix": matrix}]


def _kind(kind: CPUKind) -> dict[str, object]:
    return {"efficiency": kind.efficiency, "cpus": str(kind.cpus), "info": dict(kind.infos)}
