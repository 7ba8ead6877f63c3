"""A machine: what the kubelet sees, and what the hardware is where that is known.

The hardware is what hwloc finds in the same sysfs tree. Nothing decides on it; it serves to show a machine, and to say
where the kubelet's view (:mod:`mooring.engine.core.machineinfo`) departs from it.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import CPUFacts, CPUKind, MachineInfo
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class HardwareCPU:
    """One online CPU. Ids of shared things are the smallest CPU that shares them; None means there is none."""

    id: int
    core: int | None
    package: int | None
    """The kernel's physical_package_id; None when unknown."""
    package_first_cpu: int | None
    numa: tuple[int, ...]
    """All NUMA nodes local to the CPU, CPU-less ones included."""
    die: int | None = None
    l2: int | None = None
    l3: int | None = None
    efficiency: int | None = None
    """Rank of the core kind (higher is faster, -1 cannot be ranked); None on uniform machines."""
    cluster: int | None = None
    """Cores that share a resource below the last level cache (ARM), or a sub-NUMA cluster of Knights Landing."""
    book: int | None = None
    """s390: packages that share a book."""
    drawer: int | None = None
    """s390: books that share a drawer."""


@dataclass(frozen=True, slots=True)
class HardwarePages:
    """One pool of huge pages of a node."""

    size_bytes: int
    count: int


@dataclass(frozen=True, slots=True)
class HardwareNode:
    """One NUMA node."""

    id: int
    memory_bytes: int
    hugepages: tuple[HardwarePages, ...]
    local_cpus: CPUSet
    """CPUs that hwloc considers local."""
    sysfs_cpulist: str | None
    """The kernel's own list; None without a node directory."""
    base_page_bytes: int = 4096
    subtype: str | None = None
    """Kind of memory (``DRAM``, ``HBM``, ``MCDRAM``, ``GPUMemory``) where it can be told; None otherwise."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """The whole machine."""

    cpus: tuple[HardwareCPU, ...]
    online: CPUSet
    offline: CPUSet
    allowed: CPUSet
    """CPUs that the snapshot's cpuset allows."""
    isolated: CPUSet
    """CPUs that the kernel keeps out of scheduling (isolcpus)."""
    nodes: tuple[HardwareNode, ...]
    distances: tuple[tuple[int, ...], ...] | None
    """Square table in the order of ``distance_nodes``."""
    distance_nodes: tuple[int, ...] = ()
    kinds: tuple[CPUKind, ...] = ()
    nodes_disallowed: tuple[int, ...] = ()
    nodes_offline: tuple[int, ...] = ()
    num_cores: int = 0
    num_packages: int = 0
    num_l3: int = 0
    refused: tuple[tuple[str, CPUSet], ...] = ()
    """Sets of CPUs that cross others and were left out: what they claim to be (``package``, ``l3``), and the CPUs."""

    @property
    def facts(self) -> CPUFacts:
        """What plugins may know beyond the kubelet's view."""
        return CPUFacts(self.kinds, self.isolated)


@dataclass(frozen=True, slots=True)
class SourcePlace:
    """A place in a file, or a file, or in words what is none."""

    file: str
    line: int = 0
    """Counted from 1; 0 where it is not known."""
    column: int = 0
    """As the line."""
    field: str = ""
    """From the top of the document, where one is meant."""

    def __str__(self) -> str:
        """Return file, line and column as compilers write them.

        >>> str(SourcePlace("pods.yaml", 3, 5)), str(SourcePlace("pods.yaml", 3)), str(SourcePlace("standard input"))
        ('pods.yaml:3:5', 'pods.yaml:3', 'standard input')
        """
        return ":".join(str(part) for part in (self.file, self.line, self.column) if part)


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a person should know, besides the answer itself."""

    severity: str
    """``warning`` or ``info``."""
    subject: str
    """What it is about: a CPU list, a node, a file, a field."""
    message: str
    """One sentence."""
    code: str = ""
    """Its stable code, such as ``MOOR-401``; ``mooring explain CODE`` prints the page about it."""
    place: SourcePlace | None = field(default=None, compare=False)
    """What is at the head of the message, if that is a place in a file."""

    def fields(self) -> dict[str, str]:
        """Return the finding as the documents of every verb have it."""
        return {"severity": self.severity, "subject": self.subject, "message": self.message, "code": self.code}


@dataclass(frozen=True, slots=True)
class PCIDevice:
    """One device on a PCI bus, as sysfs tells it."""

    address: str
    """Domain, bus, device and function, such as ``0000:3b:00.0``."""
    class_code: str
    """Six hexadecimal digits: base class, subclass, interface; ``030200`` is a 3D controller."""
    vendor: str
    """Four hexadecimal digits."""
    device: str
    """Four hexadecimal digits."""
    numa: int | None
    """Its NUMA node; None when the kernel does not know it (it writes -1)."""
    root: str = ""
    """Its PCIe root, ``pci0000:3a``; empty when the source does not tell it."""

    @property
    def kind(self) -> str:
        """What it is, in a word, by its class (PCI Code and ID Assignment Specification); empty for others."""
        return next((word for start, word in PCI_KINDS.items() if self.class_code.startswith(start)), "")


PCI_KINDS: Mapping[str, str] = {
    "0108": "NVMe",
    "02": "NIC",
    "0300": "VGA",
    "0302": "GPU",
    "0380": "GPU",
    "0b40": "co-processor",
    "12": "accelerator",
}
"""Beginning of the class code -> what such a device is; bridges, controllers and others have no word."""


@dataclass(frozen=True, slots=True)
class MachineOrigin:
    """What a machine was read from, and what that left open."""

    format: str = "sysfs"
    """Such as ``MachineInfo`` or ``hwloc XML``."""
    unknown: tuple[str, ...] = ()
    """What the format does not tell."""
    assumed: tuple[str, ...] = ()
    """What was taken instead."""


SYSFS = MachineOrigin()
"""The files of a computer's kernel, which tell everything."""


@dataclass(frozen=True, slots=True)
class PublishedNode:
    """What an object about the node says beyond its machine; of a shipped machine, and beside any, the devices."""

    fields: Mapping[str, str] = field(default_factory=dict)
    """Fields of its kubelet's configuration, such as ``topologyManagerPolicy``."""
    devices: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Resource of a device plugin -> NUMA node -> how many devices."""
    taken: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """NUMA node -> resource -> CPUs, bytes or devices of what can be allocated that containers hold."""


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as read from somewhere."""

    name: str
    info: MachineInfo
    """The kubelet's view; every decision uses this one."""
    hardware: Hardware | None = None
    """The truth, when the source tells it (sysfs does, MachineInfo does not)."""
    info_error: str = ""
    """cAdvisor's error when it cannot describe the machine; a kubelet would not start."""
    pci: tuple[PCIDevice, ...] = ()
    """PCI devices by address, where sysfs tells them; a declaration of devices can choose from them."""
    origin: MachineOrigin = SYSFS
    published: PublishedNode | None = None
    """Of a machine that is read from an object about its node, or that comes with devices."""
    findings: tuple[Finding, ...] = ()
    """Where the kubelet's view is wrong, and what was odd while reading."""
