"""The machine as it is: what hwloc finds in the same sysfs tree.

Nothing decides on these values; they serve to show a machine, and to say where the kubelet's view
(:mod:`mooring.engine.core.machineinfo`) departs from it.
"""

from __future__ import annotations

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machineinfo import CoreKind, CPUFacts
from mooring.lazy import dataclass


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
class CPUKind:
    """CPUs of one kind (performance, efficiency, ...)."""

    efficiency: int
    cpus: CPUSet
    infos: tuple[tuple[str, str], ...] = ()


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
        return CPUFacts(tuple(CoreKind(kind.efficiency, kind.cpus) for kind in self.kinds), self.isolated)
