"""What is drawn, independent of where it came from and of how it is drawn.

A :class:`NodeView` is a machine as nested boxes of cores with one :class:`CPUView` per CPU, the owners, and the
pods that were not admitted. Renderers read nothing else. The rows of the tables stand here too. Ids are the
operating system's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from mooring.engine.core.cpuset import CPUSet
from mooring.views.devices import DeviceGroup, DeviceView

NO_CPUS = CPUSet()
"""The empty set, as a default of fields."""


class CPUUse(Enum):
    """What a CPU is used for. The order is the order of legends."""

    EXCLUSIVE = "exclusive"
    """Held by one container, or by one pod as a whole."""
    CONTESTED = "contested"
    """Held by two pods at once: the kubelet can do that (spec: README.md section 5, average-sizes)."""
    BROKEN = "broken"
    """Somebody's own, and offline for now (extension cpu-hotplug): its owner does without it."""
    RESERVED = "reserved"
    """Kept for the system: never exclusive; part of the shared pool unless strict-cpu-reservation is on."""
    SHARED = "shared"
    """In the shared pool and not available as an exclusive CPU, as under CPU manager policy ``none``."""
    FREE = "free"
    """In the shared pool, and a container may still get it exclusively."""
    LEFT_OUT = "left out"
    """Online, but in no pool and without an owner: unknown to the kubelet, or lost by it (pod-restart defect)."""
    OFFLINE = "offline"
    """Not online, or not present at all, though something speaks of it."""


class BoxKind(Enum):
    """What a box stands for. The order decides which of two boxes with the same CPUs is named first."""

    SOCKET = "socket"
    DIE = "die"
    """One of several dies of a socket."""
    NUMA = "NUMA node"
    L3 = "L3"
    """CPUs that share a last-level cache; the kubelet's uncore cache."""
    CORE_KIND = "core kind"
    """Cores of one kind on a hybrid processor; the id is the rank, a higher rank is faster."""
    OFFLINE = "offline"
    DEVICES = "devices"
    """Devices whose NUMA nodes are not known, not of the machine, or in no box together; the name says which."""


@dataclass(frozen=True, slots=True)
class CPUView:
    """One CPU: one cell of the picture."""

    cpu: int
    use: CPUUse
    owner: int | None = None
    """Index into :attr:`NodeView.owners` of the owner that is drawn; an offline CPU can have one too."""
    other_owners: tuple[int, ...] = ()
    """Further owners: earlier containers of the same pod that left it their CPUs, or another pod (contested)."""
    core: int | None = None
    """Smallest CPU of the physical core; None when unknown."""
    socket: int | None = None
    numa: int | None = None
    l3: int | None = None
    """Cache id as the kubelet gets it; None when it gets none."""
    leaving: bool = False
    """Whether its owner gives it back when a scale-down delay is over (KEP-6122)."""


@dataclass(frozen=True, slots=True)
class CoreView:
    """One physical core, or the part of it that lies in one box: its CPUs are stacked."""

    cpus: tuple[CPUView, ...]


@dataclass(frozen=True, slots=True)
class BoxLabel:
    """One name of a box."""

    kind: BoxKind
    id: int | None = None
    """None when the source gives no usable id."""
    part: bool = False
    """True when the box holds only some of the element's CPUs, because another element cuts through it."""
    name: str = ""
    """What to write where the id says nothing by itself, as for kinds of cores."""


@dataclass(frozen=True, slots=True)
class BoxView:
    """A group of CPUs. It holds either boxes or cores; a NUMA node without CPUs holds neither."""

    labels: tuple[BoxLabel, ...]
    """Several when elements coincide (a socket that is one NUMA node); none for cores outside their siblings' boxes."""
    children: tuple[BoxView, ...] = ()
    cores: tuple[CoreView, ...] = ()
    devices: tuple[DeviceGroup, ...] = ()
    """Devices near all of its NUMA nodes, resource by resource."""

    def is_offline(self) -> bool:
        """Tell whether the box collects CPUs that are not online."""
        return any(label.kind is BoxKind.OFFLINE for label in self.labels)

    def is_apart(self) -> bool:
        """Tell whether the box collects what has no known place in the machine: offline CPUs, or devices."""
        return any(label.kind in (BoxKind.OFFLINE, BoxKind.DEVICES) for label in self.labels)

    def holds_numa_nodes(self) -> bool:
        """Tell whether the box is a NUMA node or has one inside: whether it is one of the machine's large units."""
        own = any(label.kind is BoxKind.NUMA for label in self.labels)
        return own or any(child.holds_numa_nodes() for child in self.children)

    def all_cores(self) -> Iterator[CoreView]:
        """Yield every core inside, in drawing order."""
        for child in self.children:
            yield from child.all_cores()
        yield from self.cores

    def cpus(self) -> Iterator[CPUView]:
        """Yield every CPU inside, in drawing order."""
        for core in self.all_cores():
            yield from core.cpus


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """How the memory of one NUMA node is used, in bytes."""

    reserved: int
    """Kept for the system (``reservedMemory``) and for huge pages."""
    assigned: int
    """Promised to containers by the memory manager."""


@dataclass(frozen=True, slots=True)
class NUMAView:
    """One NUMA node in figures."""

    id: int
    memory_bytes: int
    cpus: CPUSet
    """Its online CPUs; empty for a node of memory only."""
    counts: Mapping[CPUUse, int]
    """Number of CPUs per use."""
    memory: MemoryUse | None = None
    """None when memory is not accounted for."""
    memory_kind: str = ""
    """Kind of memory (``HBM``, ``MCDRAM``) where it is known and not the usual one."""


@dataclass(frozen=True, slots=True)
class OwnerView:
    """One holder of exclusive CPUs: a container, or a pod that holds a set as a whole."""

    label: str
    """``namespace/pod/container``, or ``namespace/pod``; with the uid where several pods have the name."""
    forms: tuple[str, ...]
    """The label and shorter forms of it, longest first; no two owners of the view share a form."""
    uid: str
    mark: str
    """One or two letters that stand for the owner in the picture; unique in the view."""
    colour: int
    """Index into the palette; containers of one pod have the same."""
    cpus: CPUSet
    cpu_nodes: tuple[int, ...]
    """NUMA nodes of its CPUs, ascending."""
    memory_nodes: tuple[int, ...] = ()
    """NUMA nodes of its memory, ascending; empty means unrestricted."""
    hypothetical: bool = False
    """Whether it is not on the node: the picture shows where it would be."""


@dataclass(frozen=True, slots=True)
class RejectedPod:
    """A pod that was not admitted."""

    name: str
    """``namespace/pod``."""
    reason: str
    """The kubelet's reason, such as ``TopologyAffinityError``."""
    why: str = ""
    """One sentence in plain words."""


@dataclass(frozen=True, slots=True)
class LegendEntry:
    """One use of CPUs that occurs in the picture."""

    use: CPUUse
    count: int
    cpus: CPUSet
    meaning: str
    """Plain words for readers new to the kubelet."""


@dataclass(frozen=True, slots=True)
class NodeView:
    """The whole picture."""

    name: str
    title: str
    """One line of figures: sockets, NUMA nodes, cores, CPUs, memory."""
    subtitle: str
    """One line of circumstances given by the caller, such as the policies; may be empty."""
    boxes: tuple[BoxView, ...]
    numa: tuple[NUMAView, ...]
    """Ascending ids."""
    owners: tuple[OwnerView, ...]
    rejected: tuple[RejectedPod, ...]
    legend: tuple[LegendEntry, ...]
    caption: tuple[str, ...]
    """Sentences that explain the picture."""
    devices: tuple[DeviceView, ...] = ()

    def cpus(self) -> Iterator[CPUView]:
        """Yield every CPU, in drawing order."""
        for box in self.boxes:
            yield from box.cpus()


@dataclass(frozen=True, slots=True)
class PlacementRow:
    """One container (or one pod as a whole) in the answer of a plan."""

    pod: str
    """``namespace/pod``."""
    container: str
    """Empty for the pod as a whole."""
    verdict: str
    """``exclusive``, ``shared``, ``rejected``, or whatever the planner says in a word or two."""
    admitted: bool
    cpus: CPUSet = NO_CPUS
    """Exclusive CPUs; empty means the shared pool, or nothing when rejected."""
    cpu_nodes: tuple[int, ...] = ()
    memory_nodes: tuple[int, ...] = ()
    alignment: str = ""
    """A few words: ``one NUMA node``, ``2 NUMA nodes``, ``whole cores``."""
    why: str = ""
    """One sentence; empty when there is nothing to say."""

    @property
    def holder(self) -> str:
        """The container, or the pod as a whole; empty for a pod that was not admitted."""
        return self.container or ("as a whole" if self.admitted else "")
