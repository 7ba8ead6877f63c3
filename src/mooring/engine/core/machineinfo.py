"""The machine as the kubelet knows it: cAdvisor's MachineInfo, reduced to what the managers read.

Field names and units are cAdvisor's (library 0.60.5, the one in kubelet v1.37.1). This is *not* always what the
hardware is: see :mod:`mooring.engine.core.machine` for that, and ``docs/reference/machines.md`` for where the two
part.

spec: topology.md section 1.
"""

from __future__ import annotations

from mooring.engine.core.cpuset import CPUSet
from mooring.lazy import dataclass, field

HIGHEST_NODE = 65535
"""Largest NUMA node id that a description may name; Linux ends at 1023. Sets of nodes are bit masks as long as that."""


@dataclass(frozen=True, slots=True)
class HugePages:
    """One pool of huge pages."""

    page_size: int
    """Page size in KiB."""
    num_pages: int
    """Number of pages in the pool."""


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache as cAdvisor tells it."""

    id: int
    size: int
    """Size in bytes."""
    type: str
    level: int


@dataclass(frozen=True, slots=True)
class Core:
    """One physical core of a node."""

    core_id: int
    """The kernel's core_id; the kubelet's own id of a core is its smallest thread instead."""
    thread_ids: tuple[int, ...]
    """CPU ids in the order in which they were read."""
    socket_id: int
    uncore_caches: tuple[Cache, ...] = ()
    caches: tuple[Cache, ...] = ()
    book_id: str = ""
    """s390x only: the kernel's book_id as text."""
    drawer_id: str = ""
    """s390x only: the kernel's drawer_id as text."""


@dataclass(frozen=True, slots=True)
class MemoryModules:
    """The memory modules of one type, as the memory controllers report them."""

    type: str
    capacity: int
    """Bytes of all modules of this type."""
    dimm_count: int


@dataclass(frozen=True, slots=True)
class NUMANode:
    """One NUMA node of the description, with or without cores."""

    node_id: int
    memory: int
    """Memory in bytes."""
    hugepages: tuple[HugePages, ...] = ()
    cores: tuple[Core, ...] = ()
    distances: tuple[int, ...] | None = None
    """The node's own row of the distance table; None when the kernel gives none."""
    caches: tuple[Cache, ...] = ()


@dataclass(frozen=True, slots=True)
class CPUKind:
    """CPUs on cores of one kind (performance, efficiency, ...)."""

    efficiency: int
    """Rank: higher is faster, -1 unknown."""
    cpus: CPUSet
    infos: tuple[tuple[str, str], ...] = ()
    """What the kernel says of the kind, for people."""


@dataclass(frozen=True, slots=True)
class CPUFacts:
    """What is known of the CPUs beyond the kubelet's view. No manager reads it; plugins may."""

    kinds: tuple[CPUKind, ...] = ()
    """Empty on uniform machines and where nothing tells."""
    isolated: CPUSet = field(default_factory=CPUSet)
    """CPUs that the kernel keeps out of scheduling (isolcpus)."""


@dataclass(frozen=True, slots=True)
class MachineInfo:
    """The whole machine."""

    num_cores: int
    """Number of logical CPUs, in spite of the name."""
    num_sockets: int
    memory_capacity: int
    """MemTotal in bytes."""
    topology: tuple[NUMANode, ...]
    """NUMA nodes in the order in which they were read."""
    hugepages: tuple[HugePages, ...] = ()
    """Pools of the whole machine."""
    num_physical_cores: int = 0
    """cAdvisor's count of core ids; wrong on most machines and not read here."""
    vendor_id: str = ""
    """The first vendor_id of ``/proc/cpuinfo``; empty on most ARM and POWER machines. This and what follows describes
    the machine to people; no manager reads it."""
    cpu_frequency_khz: int = 0
    """Highest clock in kHz; 0 where the architecture tells none."""
    swap_capacity: int = 0
    """SwapTotal in bytes."""
    memory_by_type: tuple[MemoryModules, ...] = ()
    num_books: int = 0
    """s390x only."""
    num_drawers: int = 0
    """s390x only."""
    facts: CPUFacts = field(default_factory=CPUFacts, compare=False)
    """What a hand-written description can leave out: it is no part of the kubelet's view."""
