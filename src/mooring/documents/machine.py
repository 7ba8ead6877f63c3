"""What is read of a node: ``mooring topology -o json``, and ``mooring collect -o json`` with ``mooring-node.json``.

The recordings of hwloc call the list per CPU ``pus`` and keep the CPU lists in an object called ``cpus``; here ``cpus``
is the list, and the CPU lists stand beside it under their own names. What is not known is null. An archive's document
says what the archive holds, what it lacks, and why; that of a cluster's archive too.
"""

from __future__ import annotations

from typing import Annotated, Literal

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
    one_of,
    told,
)


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
