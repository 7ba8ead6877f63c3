"""What is drawn, independent of where it came from and of how it is drawn.

A :class:`NodeView` is a machine as nested boxes of cores with one :class:`CPUView` per CPU, the owners, and the
pods that were not admitted. Renderers read nothing else. The rows of the tables stand here too. Ids are the
operating system's.

Colours and names of styles, readable for everyone.

Owners get the colours of Okabe and Ito (Color Universal Design, 2008), which people with any common colour vision
deficiency can tell apart, and after those the same hues lightened. Colour is never alone: every owner has a letter
and every other use a sign and, in the SVG, a pattern. Text on a colour is black or white, whichever has the higher
contrast (WCAG 2 relative _luminance).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from mooring.engine.core.cpuset import CPUSet
from mooring.lazy import dataclass, field
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

    @property
    def owners(self) -> tuple[int, ...]:
        """All its owners; the one that is drawn comes first."""
        return () if self.owner is None else (self.owner, *self.other_owners)


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
    folded: tuple[str, ...] = ()
    """Of a box whose CPUs are not drawn one by one: how many there are for what, and which."""

    @property
    def numa(self) -> int | None:
        """The NUMA node that it is, the first of several; None where it is none or its id is not known."""
        return next((one.id for one in self.labels if one.kind is BoxKind.NUMA and one.id is not None), None)

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
    pages: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """``hugepages-1Gi`` -> bytes that are free, and all of them."""


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
    legend: Mapping[CPUUse, tuple[CPUSet, str]]
    """The uses that occur: their CPUs, and what they mean, in plain words for readers new to the kubelet."""
    caption: tuple[str, ...]
    """Sentences that explain the picture."""
    devices: tuple[DeviceView, ...] = ()
    headline: str = ""
    """The answer in a sentence or two, above everything else; empty for a machine alone."""

    @property
    def heading(self) -> str:
        """The name of the machine without amounts behind it; empty for one that is a line of amounts."""
        return " ".join(word for word in self.name.split() if "=" not in word)

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
    hugepages: str = ""
    """Amounts, such as ``8 GiB``."""
    devices: str = ""
    """Ids, or how many of what."""
    alignment: str = ""
    """A few words: ``one NUMA node``, ``2 NUMA nodes``, ``whole cores``."""
    why: str = ""
    """One sentence; empty when there is nothing to say."""

    @property
    def holder(self) -> str:
        """The container, or the pod as a whole; empty for a pod that was not admitted."""
        return self.container or ("as a whole" if self.admitted else "")


_OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")


def _luminance(colour: str) -> float:
    """Return the relative _luminance of a ``#rrggbb`` colour, 0 to 1 (WCAG 2.2, definition of relative _luminance)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2, definition of contrast ratio).

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def text_on(colour: str) -> str:
    """Return black or white, whichever reads better on ``colour``.

    >>> text_on("#f0e442"), text_on("#0072b2")
    ('#000000', '#ffffff')
    """
    return max("#000000", "#ffffff", key=lambda text: contrast(text, colour))


def mixed(colour: str, other: str, share: float) -> str:
    """Return ``colour`` with ``share`` (0 to 1) of ``other`` mixed in.

    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = [(int(colour[start : start + 2], 16), int(other[start : start + 2], 16)) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(one + (two - one) * share):02x}" for one, two in pairs)


OWNER_COLOURS = _OKABE_ITO + tuple(mixed(colour, "#ffffff", 0.55) for colour in _OKABE_ITO)
"""Fill colours of owners; an owner's colour index counts round them."""

RESERVED_FILL = "#6e7781"
"""Fill of reserved CPUs in terminals: a grey that no owner has, on light and dark ground alike."""


SIXTEEN: Sequence[tuple[str, str]] = (
    ("bright_white", "blue"),
    ("black", "green"),
    ("bright_white", "magenta"),
    ("black", "cyan"),
    ("bright_white", "red"),
    ("black", "bright_yellow"),
    ("black", "bright_cyan"),
)
"""Text and fill of owners on a terminal of 16 colours, by its names of colours; an owner's colour index counts round
them. They are readable with the colours of xterm, VGA and Windows; fills that one of these makes too dark or too light
are left out."""

SIXTEEN_RESERVED = ("black", "white")
"""Text and fill of reserved CPUs there."""


def owner_style(owner: OwnerView) -> str:
    """Return the style name of an owner, ``exclusive-n``."""
    return f"exclusive-{owner.colour % len(OWNER_COLOURS)}"


def cpu_style(cpu: CPUView, owners: tuple[OwnerView, ...]) -> str:
    """Return the style name of a CPU: ``exclusive-n`` or the name of its use."""
    if cpu.owner is not None and cpu.use is CPUUse.EXCLUSIVE:
        return owner_style(owners[cpu.owner])
    return use_style(cpu.use)


def device_style(device: DeviceView, owners: Sequence[OwnerView]) -> str:
    """Return the style name of a device: that of its owner, or the use of CPUs that its state is most like."""
    if not device.offered:
        return use_style(CPUUse.LEFT_OUT)
    if not device.owner:
        return use_style(CPUUse.FREE if device.healthy else CPUUse.OFFLINE)
    own = next((owner_style(owner) for owner in owners if owner.label == device.owner), use_style(CPUUse.SHARED))
    return own if device.healthy else use_style(CPUUse.BROKEN)


def use_style(use: CPUUse) -> str:
    """Return the style name of a use: ``reserved``, ``shared``, ``free``, ``left-out``, ``offline``, ``contested``."""
    return use.value.replace(" ", "-")
