"""``mooring topology -o json``: the hardware's document, with findings.

A MachineInfo tells only the kubelet's view; then the document says what that view says, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.documents import machine as parts
from mooring.documents.plan import finding_parts
from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import (
    SYSFS,
    Finding,
    Hardware,
    HardwareCPU,
    HardwareNode,
    HardwarePages,
    Machine,
    MachineOrigin,
    PCIDevice,
)
from mooring.engine.core.machineinfo import MachineInfo

_L3: Final = 3
"""Level of the caches that are listed as ``l3``."""


def machine_document(machine: Machine) -> parts.MachineDocument:
    """Return the document of a machine."""
    findings = machine.findings
    if machine.hardware is None:
        told = Finding(
            "info", "source", "a MachineInfo shows what the kubelet sees, not what the hardware is", "MOOR-490"
        )
        findings = (*findings, told)
    hardware = machine.hardware or described_hardware(machine.info)
    return hardware_document(machine.name, hardware, findings, machine.origin, machine.pci)


def hardware_document(
    name: str,
    hardware: Hardware,
    findings: Iterable[Finding] = (),
    origin: MachineOrigin = SYSFS,
    pci: Iterable[PCIDevice] = (),
) -> parts.MachineDocument:
    """Return the document of hardware, with the names of the recorded hwloc answers."""
    return parts.MachineDocument(
        name=name,
        origin=parts.OriginPart(origin.format, list(origin.unknown), list(origin.assumed)),
        cpus=[
            parts.HardwareCPUPart(
                cpu.id,
                cpu.core,
                cpu.package,
                cpu.package_first_cpu,
                list(cpu.numa),
                cpu.die,
                cpu.l2,
                cpu.l3,
                cpu.efficiency,
                _groups(cpu),
            )
            for cpu in hardware.cpus
        ],
        online=str(hardware.online),
        offline=str(hardware.offline),
        allowed=str(hardware.allowed),
        disallowed=str(hardware.online - hardware.allowed),
        isolated=str(hardware.isolated),
        counts=parts.HardwareCountsPart(
            pus=len(hardware.cpus),
            cores=hardware.num_cores,
            packages=hardware.num_packages,
            numa_nodes=len(hardware.nodes),
            l3=hardware.num_l3,
        ),
        nodes_offline_or_hidden=list_text(mask_of(hardware.nodes_offline)),
        nodes_disallowed=list_text(mask_of(hardware.nodes_disallowed)),
        numa_nodes=[
            parts.HardwareNodePart(
                id=node.id,
                memory_bytes=node.memory_bytes,
                subtype=node.subtype,
                hugepages=[parts.HugePagesPart(pool.size_bytes, pool.count) for pool in node.hugepages],
                base_page_bytes=node.base_page_bytes,
                local_cpus=str(node.local_cpus),
                sysfs_cpulist=node.sysfs_cpulist,
            )
            for node in hardware.nodes
        ],
        distances=[]
        if hardware.distances is None
        else [parts.DistancesPart("NUMALatency", list(hardware.distance_nodes), list(map(list, hardware.distances)))],
        cpu_kinds=[parts.CPUKindPart(kind.efficiency, str(kind.cpus), dict(kind.infos)) for kind in hardware.kinds],
        pci_devices=[
            parts.PCIDevicePart(
                one.address, one.kind, one.class_code, one.vendor, one.device, one.numa, one.root or None
            )
            for one in pci
        ],
        findings=finding_parts(findings),
    )


def _groups(cpu: HardwareCPU) -> parts.CPUGroupsPart | None:
    known = {name: first for name in ("cluster", "book", "drawer") if (first := getattr(cpu, name)) is not None}
    return parts.CPUGroupsPart(**known) if known else None


def described_hardware(info: MachineInfo) -> Hardware:
    """Return the hardware as a MachineInfo describes it: everything beyond that is unknown."""
    # A CPU that is listed twice is where it is listed last, as in the kubelet.
    places = {cpu: (node, core) for node in info.topology for core in node.cores for cpu in core.thread_ids}
    first_of_socket: dict[int, int] = {}
    first_of_l3: dict[object, int] = {}
    cpus = []
    for cpu in sorted(places):
        node, core = places[cpu]
        # What tells one L3 from another: its id in the socket, or the node that has it as a whole.
        of_core = (cache.id for cache in core.uncore_caches if cache.level == _L3)
        of_node = (node.node_id for cache in node.caches if cache.level == _L3)
        l3 = next(((core.socket_id, number) for number in of_core), next(of_node, None))
        cpus.append(
            HardwareCPU(
                id=cpu,
                core=min(core.thread_ids),
                package=core.socket_id,
                package_first_cpu=first_of_socket.setdefault(core.socket_id, cpu),
                numa=(node.node_id,),
                l3=None if l3 is None else first_of_l3.setdefault(l3, cpu),
            )
        )
    nodes = []
    for node in info.topology:
        own = CPUSet.from_ids(cpu for core in node.cores for cpu in core.thread_ids)
        pages = tuple(HardwarePages(pool.page_size * 1024, pool.num_pages) for pool in node.hugepages)
        nodes.append(HardwareNode(node.node_id, node.memory, pages, local_cpus=own, sysfs_cpulist=str(own)))
    online = CPUSet.from_ids(places)
    rows = tuple(node.distances for node in info.topology if node.distances is not None)
    square = len(rows) == len(nodes) and all(len(row) == len(nodes) for row in rows)
    return Hardware(
        cpus=tuple(cpus),
        online=online,
        offline=CPUSet(),
        allowed=online,
        isolated=CPUSet(),
        nodes=tuple(nodes),
        distances=rows if square else None,
        distance_nodes=tuple(node.id for node in nodes) if square else (),
        num_cores=len({cpu.core for cpu in cpus}),
        num_packages=len(first_of_socket),
        num_l3=len(first_of_l3),
    )
