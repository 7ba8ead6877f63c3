"""What is read of a node: ``mooring topology -o json``, and ``mooring collect -o json`` with ``mooring-node.json``.

The recordings of hwloc call the list per CPU ``pus`` and keep the CPU lists in an object called ``cpus``; here ``cpus``
is the list, and the CPU lists stand beside it under their own names. What is not known is null. An archive's document
says what the archive holds, what it lacks, and why; that of a cluster's archive too.

A MachineInfo tells only the kubelet's view; then the document says what that view says, and a finding says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final, Literal

from msgspec import UNSET, field

from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    Maybe,
    NodeList,
    Numbers,
    finding_parts,
    one_of,
    told,
)
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


class CPUGroupsPart(DocumentPart, kw_only=True):
    """Groups that the CPU is in, each named by its first CPU."""

    cluster: Maybe[Count] = field(name="Cluster", default=UNSET)
    book: Maybe[Count] = field(name="Book", default=UNSET)
    drawer: Maybe[Count] = field(name="Drawer", default=UNSET)


class HardwareCPUPart(DocumentPart):
    """An online CPU; cores, dies and caches are named by their first CPU."""

    id: Count
    core: Count | None
    package: Annotated[int | None, told("The kernel's number of the package.")]
    package_first_cpu: Count | None
    numa: Annotated[Numbers, told("All NUMA nodes that are local to it.")]
    die: Count | None
    l2: Count | None
    l3: Count | None
    efficiency: Annotated[int | None, told("Rank of its kind of core: higher is faster, -1 cannot be ranked.")]
    groups: CPUGroupsPart | None


class HardwareCountsPart(DocumentPart):
    """How many there are of each."""

    pus: Annotated[Count, told("CPUs.")]
    cores: Count
    packages: Count
    numa_nodes: Count
    l3: Count


class HugePagesPart(DocumentPart):
    """A pool of huge pages."""

    size_bytes: Count
    count: Count


class HardwareNodePart(DocumentPart):
    """A NUMA node."""

    id: Count
    memory_bytes: Count
    subtype: Annotated[str | None, told("The kind of memory, such as DRAM or HBM.")]
    hugepages: list[HugePagesPart]
    base_page_bytes: Count | None
    local_cpus: Annotated[CPUList, told("CPUs that hwloc considers local.")]
    sysfs_cpulist: Annotated[str | None, told("The kernel's own list of its CPUs.")]


class DistancesPart(DocumentPart):
    """A matrix of distances."""

    name: str
    nodes: Annotated[Numbers, told("The nodes of its rows and columns.")]
    matrix: Annotated[list[Numbers], told("One row a node.")]


class CPUKindPart(DocumentPart):
    """CPUs of one kind of core."""

    efficiency: int
    cpus: CPUList
    info: dict[str, str]


class OriginPart(DocumentPart):
    """What the machine was read from."""

    format: Annotated[str, told("Such as sysfs, MachineInfo, hwloc XML or lscpu -J -e.")]
    unknown: Annotated[list[str], told("What the format does not contain.")]
    assumed: Annotated[list[str], told("What was taken instead.")]


class PCIDevicePart(DocumentPart):
    """A device on a PCI bus."""

    address: Annotated[str, told("Domain, bus, device and function, such as 0000:3b:00.0.")]
    kind: Annotated[str, told("What it is by its class, such as GPU, NIC or NVMe; empty for others.")]
    class_code: Annotated[str, told("Base class, subclass and interface, six hexadecimal digits.")]
    vendor: Annotated[str, told("Four hexadecimal digits.")]
    device: Annotated[str, told("Four hexadecimal digits.")]
    numa_node: Count | None
    pcie_root: Annotated[str | None, told("Such as pci0000:3a.")]


class MachineDocument(DocumentPart, kw_only=True):
    """What mooring topology -o json prints: the hardware."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Machine"] = "Machine"
    name: str
    cpus: Annotated[list[HardwareCPUPart], told("One object for each online CPU; null is unknown.")]
    online: CPUList
    offline: CPUList
    allowed: CPUList
    disallowed: CPUList
    isolated: CPUList
    counts: HardwareCountsPart
    nodes_offline_or_hidden: NodeList
    nodes_disallowed: NodeList
    numa_nodes: list[HardwareNodePart]
    distances: Annotated[list[DistancesPart], told("Empty if unknown.")]
    cpu_kinds: Annotated[list[CPUKindPart], told("Kinds of cores by efficiency; empty if all are equal.")]
    findings: list[FindingPart]
    origin: OriginPart
    pci_devices: Annotated[list[PCIDevicePart], told("By address, bridges too; empty if unknown.")] = field(
        name="pciDevices", default_factory=list
    )


class ArchivePart(DocumentPart):
    """One part of a node, such as its state files."""

    name: Annotated[str, one_of("machine", "isolation", "configuration", "state files", "devices", "pods")]
    origin: Annotated[str, told("Where it came from; empty when it is missing.")] = ""
    files: Count = 0
    bytes: Count = 0
    missing: Annotated[str, told("Why it, or something of it, is not there.")] = ""


class UnreadFile(DocumentPart):
    """A file that is there on the node and could not be packed."""

    path: str
    problem: str


class NodeArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect -o json prints, and what mooring-node.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["NodeArchive"] = "NodeArchive"
    mooring: Annotated[str, told("Version of Mooring that collected.")] = ""
    node: Annotated[str, told("The node's name; empty when it is not known.")] = ""
    kubelet: Annotated[str, told("The version of the node's kubelet; empty when it is not known.")] = ""
    anonymous: Annotated[bool, told("Whether names of pods, namespaces and of the node are made up.")] = False
    captured: Annotated[
        str, told("When it was collected, as in 2026-11-01T12:00:00Z; empty where that is not known.")
    ] = ""
    parts: list[ArchivePart] = field(default_factory=list)
    unread: Annotated[list[UnreadFile], told("Files that are there on the node and could not be packed.")] = field(
        default_factory=list
    )


class ClusterArchivePart(DocumentPart):
    """One kind of objects in an archive of a cluster."""

    name: Annotated[str, told("Kind of the objects; configz for configurations of kubelets.")]
    objects: Count = 0
    bytes: Count = 0


class ClusterArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect --cluster -o json prints, and what mooring-cluster.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["ClusterArchive"] = "ClusterArchive"
    mooring: Annotated[str, told("Version of Mooring that collected.")] = ""
    captured: Annotated[str, told("When it was collected, as in 2026-11-01T12:00:00Z.")] = ""
    parts: list[ClusterArchivePart] = field(default_factory=list)
    unread: Annotated[list[str], told("What could not be read, in words.")] = field(default_factory=list)


_L3: Final = 3
"""Level of the caches that are listed as ``l3``."""


def machine_document(machine: Machine) -> MachineDocument:
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
) -> MachineDocument:
    """Return the document of hardware, with the names of the recorded hwloc answers."""
    return MachineDocument(
        name=name,
        origin=OriginPart(origin.format, list(origin.unknown), list(origin.assumed)),
        cpus=[
            HardwareCPUPart(
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
        counts=HardwareCountsPart(
            pus=len(hardware.cpus),
            cores=hardware.num_cores,
            packages=hardware.num_packages,
            numa_nodes=len(hardware.nodes),
            l3=hardware.num_l3,
        ),
        nodes_offline_or_hidden=list_text(mask_of(hardware.nodes_offline)),
        nodes_disallowed=list_text(mask_of(hardware.nodes_disallowed)),
        numa_nodes=[
            HardwareNodePart(
                id=node.id,
                memory_bytes=node.memory_bytes,
                subtype=node.subtype,
                hugepages=[HugePagesPart(pool.size_bytes, pool.count) for pool in node.hugepages],
                base_page_bytes=node.base_page_bytes,
                local_cpus=str(node.local_cpus),
                sysfs_cpulist=node.sysfs_cpulist,
            )
            for node in hardware.nodes
        ],
        distances=[]
        if hardware.distances is None
        else [DistancesPart("NUMALatency", list(hardware.distance_nodes), list(map(list, hardware.distances)))],
        cpu_kinds=[CPUKindPart(kind.efficiency, str(kind.cpus), dict(kind.infos)) for kind in hardware.kinds],
        pci_devices=[
            PCIDevicePart(one.address, one.kind, one.class_code, one.vendor, one.device, one.numa, one.root or None)
            for one in pci
        ],
        findings=finding_parts(findings),
    )


def _groups(cpu: HardwareCPU) -> CPUGroupsPart | None:
    known = {name: first for name in ("cluster", "book", "drawer") if (first := getattr(cpu, name)) is not None}
    return CPUGroupsPart(**known) if known else None


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
