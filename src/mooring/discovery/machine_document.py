"""``mooring topology -o json``: the hardware's document, with findings.

A MachineInfo tells only the kubelet's view; then the document says what that view says, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterator

from mooring.core.cpuset import CPUSet
from mooring.core.hardware import Hardware, HardwareCPU, HardwareNode, HardwarePages
from mooring.core.machine import Finding, Machine
from mooring.core.machineinfo import Core, MachineInfo, Node
from mooring.discovery.differences.kubeletview import kubelet_view
from mooring.discovery.hardware_document import hardware_document

API_VERSION = "mooring/v1alpha1"
"""Version of the document."""

L3 = 3
"""Level of the caches that are listed as ``l3``."""


def machine_document(machine: Machine) -> dict[str, object]:
    """Return the document of a machine; it holds nothing but dicts, lists, texts, numbers and None."""
    findings = machine.findings
    if machine.hardware is None:
        told = Finding(
            "info", "source", "a MachineInfo tells what the kubelet sees, not what the hardware is", "MOOR-490"
        )
        findings = (*findings, told)
    return {
        "apiVersion": API_VERSION,
        "kind": "Machine",
        "name": machine.name,
        **hardware_document(machine.hardware or hardware_as_told(machine.info)),
        "findings": [finding.fields() for finding in findings],
    }


def hardware_as_told(info: MachineInfo) -> Hardware:
    """Return the hardware as a MachineInfo describes it: everything beyond that is unknown."""
    view = kubelet_view(info)
    cpus = tuple(_cpus(info))
    online = view.cpus
    rows = tuple(node.distances for node in info.topology if node.distances is not None)
    ids = tuple(node.node_id for node in info.topology)
    square = len(rows) == len(ids) and all(len(row) == len(ids) for row in rows)
    return Hardware(
        cpus=cpus,
        online=online,
        offline=CPUSet(),
        allowed=online,
        isolated=CPUSet(),
        nodes=tuple(_node(node) for node in info.topology),
        distances=rows if square else None,
        distance_nodes=ids if square else (),
        num_cores=len({cpu.core for cpu in cpus}),
        num_packages=len({cpu.package for cpu in cpus}),
        num_l3=len({cpu.l3 for cpu in cpus if cpu.l3 is not None}),
    )


def _cpus(info: MachineInfo) -> Iterator[HardwareCPU]:
    view = kubelet_view(info)
    first_of_socket: dict[int, int] = {}
    first_of_l3: dict[object, int] = {}
    for cpu in sorted(view.cores):
        core, node = view.cores[cpu], view.nodes[cpu]
        l3 = _l3_key(core, node)
        yield HardwareCPU(
            id=cpu,
            core=view.core_ids[cpu],
            package=core.socket_id,
            package_first_cpu=first_of_socket.setdefault(core.socket_id, cpu),
            numa=(node.node_id,),
            l3=None if l3 is None else first_of_l3.setdefault(l3, cpu),
        )


def _l3_key(core: Core, node: Node) -> object:
    """Return what tells one L3 from another: its id in the socket, or the node that has it as a whole."""
    for cache in core.uncore_caches:
        if cache.level == L3:
            return core.socket_id, cache.id
    if any(cache.level == L3 for cache in node.caches):
        return node.node_id
    return None


def _node(node: Node) -> HardwareNode:
    cpus = CPUSet.from_ids(cpu for core in node.cores for cpu in core.thread_ids)
    pages = tuple(HardwarePages(pool.page_size * 1024, pool.num_pages) for pool in node.hugepages)
    return HardwareNode(node.node_id, node.memory, pages, local_cpus=cpus, sysfs_cpulist=str(cpus))
