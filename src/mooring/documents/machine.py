"""What is read of a node: ``mooring topology -o json``, and ``mooring collect -o json`` with ``mooring-node.json``.

The recordings of hwloc call the list per CPU ``pus`` and keep the CPU lists in an object called ``cpus``; here ``cpus``
is the list, and the CPU lists stand beside it under their own names. What is not known is null. An archive's document
says what the archive holds, what it lacks, and why; that of a cluster's archive too.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType, field

from mooring.documents.plan import (
    API_VERSION,
    APIVersion,
    Count,
    CPUList,
    DocumentPart,
    FindingPart,
    NodeList,
    Numbers,
    one_of,
)


class CPUGroupsPart(DocumentPart, kw_only=True):
    """Groups that the CPU is in, each named by its first CPU."""

    cluster: Count | UnsetType = field(name="Cluster", default=UNSET)
    book: Count | UnsetType = field(name="Book", default=UNSET)
    drawer: Count | UnsetType = field(name="Drawer", default=UNSET)


class HardwareCPUPart(DocumentPart):
    """An online CPU; cores, dies and caches are named by their first CPU."""

    id: Count
    core: Count | None
    package: Annotated[int | None, Meta(description="The kernel's number of the package.")]
    package_first_cpu: Count | None
    numa: Annotated[Numbers, Meta(description="All NUMA nodes that are local to it.")]
    die: Count | None
    l2: Count | None
    l3: Count | None
    efficiency: Annotated[
        int | None,
        Meta(description="Rank of its kind of core: higher is faster, -1 cannot be ranked."),
    ]
    groups: CPUGroupsPart | None


class HardwareCountsPart(DocumentPart):
    """How many there are of each."""

    pus: Annotated[Count, Meta(description="CPUs.")]
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
    subtype: Annotated[str | None, Meta(description="The kind of memory, such as DRAM or HBM.")]
    hugepages: list[HugePagesPart]
    base_page_bytes: Count | None
    local_cpus: Annotated[CPUList, Meta(description="CPUs that hwloc considers local.")]
    sysfs_cpulist: Annotated[str | None, Meta(description="The kernel's own list of its CPUs.")]


class DistancesPart(DocumentPart):
    """A matrix of distances."""

    name: str
    nodes: Annotated[Numbers, Meta(description="The nodes of its rows and columns.")]
    matrix: Annotated[list[Numbers], Meta(description="One row a node.")]


class CPUKindPart(DocumentPart):
    """CPUs of one kind of core."""

    efficiency: int
    cpus: CPUList
    info: dict[str, str]


class OriginPart(DocumentPart):
    """What the machine was read from."""

    format: Annotated[str, Meta(description="Such as sysfs, MachineInfo, hwloc XML or lscpu -J -e.")]
    unknown: Annotated[list[str], Meta(description="What the format does not contain.")]
    assumed: Annotated[list[str], Meta(description="What was taken instead.")]


class PCIDevicePart(DocumentPart):
    """A device on a PCI bus."""

    address: Annotated[str, Meta(description="Domain, bus, device and function, such as 0000:3b:00.0.")]
    kind: Annotated[str, Meta(description="What it is by its class, such as GPU, NIC or NVMe; empty for others.")]
    class_code: Annotated[str, Meta(description="Base class, subclass and interface, six hexadecimal digits.")]
    vendor: Annotated[str, Meta(description="Four hexadecimal digits.")]
    device: Annotated[str, Meta(description="Four hexadecimal digits.")]
    numa_node: Count | None
    pcie_root: Annotated[str | None, Meta(description="Such as pci0000:3a.")]


class MachineDocument(DocumentPart, kw_only=True):
    """What mooring topology -o json prints: the hardware."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Machine"] = "Machine"
    name: str
    cpus: Annotated[list[HardwareCPUPart], Meta(description="One object for each online CPU; null is unknown.")]
    online: CPUList
    offline: CPUList
    allowed: CPUList
    disallowed: CPUList
    isolated: CPUList
    counts: HardwareCountsPart
    nodes_offline_or_hidden: NodeList
    nodes_disallowed: NodeList
    numa_nodes: list[HardwareNodePart]
    distances: Annotated[list[DistancesPart], Meta(description="Empty if unknown.")]
    cpu_kinds: Annotated[list[CPUKindPart], Meta(description="Kinds of cores by efficiency; empty if all are equal.")]
    findings: list[FindingPart]
    origin: OriginPart
    pci_devices: Annotated[list[PCIDevicePart], Meta(description="By address, bridges too; empty if unknown.")] = field(
        name="pciDevices", default_factory=list
    )


class ArchivePart(DocumentPart):
    """One part of a node, such as its state files."""

    name: Annotated[str, one_of("machine", "isolation", "configuration", "state files", "devices", "pods")]
    origin: Annotated[str, Meta(description="Where it came from; empty when it is missing.")] = ""
    files: Count = 0
    bytes: Count = 0
    missing: Annotated[str, Meta(description="Why it, or something of it, is not there.")] = ""


class UnreadFile(DocumentPart):
    """A file that is there on the node and could not be packed."""

    path: str
    problem: str


class NodeArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect -o json prints, and what mooring-node.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["NodeArchive"] = "NodeArchive"
    mooring: Annotated[str, Meta(description="Version of Mooring that collected.")] = ""
    node: Annotated[str, Meta(description="The node's name; empty when it is not known.")] = ""
    kubelet: Annotated[str, Meta(description="The version of the node's kubelet; empty when it is not known.")] = ""
    anonymous: Annotated[bool, Meta(description="Whether names of pods, namespaces and of the node are made up.")] = (
        False
    )
    captured: Annotated[
        str, Meta(description="When it was collected, as in 2026-11-01T12:00:00Z; empty where that is not known.")
    ] = ""
    parts: list[ArchivePart] = field(default_factory=list)
    unread: Annotated[
        list[UnreadFile], Meta(description="Files that are there on the node and could not be packed.")
    ] = field(default_factory=list)


class ClusterArchivePart(DocumentPart):
    """One kind of objects in an archive of a cluster."""

    name: Annotated[str, Meta(description="Kind of the objects; configz for configurations of kubelets.")]
    objects: Count = 0
    bytes: Count = 0


class ClusterArchiveDocument(DocumentPart, kw_only=True):
    """What mooring collect --cluster -o json prints, and what mooring-cluster.json in an archive holds."""

    api_version: APIVersion = API_VERSION
    kind: Literal["ClusterArchive"] = "ClusterArchive"
    mooring: Annotated[str, Meta(description="Version of Mooring that collected.")] = ""
    captured: Annotated[str, Meta(description="When it was collected, as in 2026-11-01T12:00:00Z.")] = ""
    parts: list[ClusterArchivePart] = field(default_factory=list)
    unread: Annotated[list[str], Meta(description="What could not be read, in words.")] = field(default_factory=list)
