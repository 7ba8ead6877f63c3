"""What the CPU manager reports to an observer. CPU sets are masks."""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import CPUMask, NUMAMask
from mooring.engine.cpumanager.state import CPUState
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class ExclusiveCPUsCounted:
    """How many exclusive CPUs a container requests, before anything is decided."""

    pod: str
    container: str
    count: int
    """0 means that it runs in the shared pool."""


@dataclass(frozen=True, slots=True)
class CPUPinningRequested:
    """A container with a claim to exclusive CPUs is about to be served, from the node or from its pod's partition."""

    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class CPUPinningFailed:
    """A container, or a pod as a whole, was not served."""

    pod: str
    container: str
    """Empty for the whole pod."""
    error: str
    """The kubelet's text."""


@dataclass(frozen=True, slots=True)
class CPUHintsAsked:
    """What the CPU manager's hints were made from."""

    pod: str
    container: str
    """Empty for the whole pod."""
    need: int
    available: CPUMask
    """CPUs that could be taken; for a container that has CPUs already, just these."""
    reusable: CPUMask
    """CPUs left by init containers (or held by the pod's containers): every hint must hold their nodes."""
    mismatch: bool
    """Whether nothing is possible because the container holds another number of CPUs than it requests."""


@dataclass(frozen=True, slots=True)
class ExistingCPUsKept:
    """The container has CPUs already; they are kept whatever their number."""

    pod: str
    container: str
    cpus: CPUMask


@dataclass(frozen=True, slots=True)
class WholeCoresChecked:
    """The check of full-pcpus-only."""

    pod: str
    container: str
    need: int
    group: int
    """CPUs per core, by average."""
    available: int
    """CPUs of the shared pool on cores without a reserved CPU."""
    passed: bool


@dataclass(frozen=True, slots=True)
class TakeBegun:
    """One run of the taking algorithm begins; what its rules give follows."""

    pod: str
    container: str
    """Empty for the partition of a whole pod."""
    need: int
    candidates: CPUMask
    place: str
    """``hint``: inside the hint's nodes (or their sockets). ``anywhere``: whatever is left. ``partition``: inside the
    CPUs of the pod (KEP-5526)."""


@dataclass(frozen=True, slots=True)
class CPUsPicked:
    """One rule of taking gave CPUs; belongs to the run that began last."""

    rule: str
    """``sockets``, ``numa-nodes``, ``uncore-caches`` (entirely free ones), ``part-of-uncore-cache``, ``cores``
    (entirely free ones), ``cpus`` (one by one, core by core) or ``cpus-spread`` (one by one, socket by socket)."""
    cpus: CPUMask


@dataclass(frozen=True, slots=True)
class DistributionChosen:
    """distribute-cpus-across-numa has found its NUMA nodes; belongs to the run that began last."""

    nodes: tuple[int, ...]
    """Those that give a share."""
    found: tuple[int, ...]
    """Those that were judged best; others than ``nodes`` where the kubelet loses them again (defect saved-combo)."""
    share: int
    """CPUs of each node."""
    rest: int
    """CPUs that do not divide evenly."""
    takers: tuple[int, ...]
    """Nodes that give the rest, a group at a time, round robin."""
    group: int
    """CPUs that stay together: those of a core with full-pcpus-only, else 1."""


@dataclass(frozen=True, slots=True)
class SharePicked:
    """One NUMA node gave its share of a distribution, or a group of the rest."""

    node: int
    cpus: CPUMask
    is_rest: bool


@dataclass(frozen=True, slots=True)
class CPUsTaken:
    """One container got its CPUs, or a take failed."""

    pod: str
    container: str
    need: int
    pool: CPUMask
    """What could be taken: shared pool without reserved CPUs, plus CPUs left by init containers."""
    reusable: CPUMask
    affinity: NUMAMask | None
    """NUMA nodes of the hint; None when there was no mask."""
    near: CPUMask
    """Candidates inside the hint's nodes (or their sockets)."""
    first: CPUMask
    """CPUs taken from the candidates inside the hint."""
    taken: CPUMask
    """All CPUs taken."""
    error: str
    """The kubelet's text when a take failed, or the name of the endless loop."""


@dataclass(frozen=True, slots=True)
class CPUsAssigned:
    """CPUs left the shared pool, or were reused from an init container, and are stored."""

    pod: str
    container: str
    """Empty for the partition of a whole pod."""
    cpus: CPUMask
    held: CPUMask
    """CPUs in the sets of all containers of the node, this one included. The sets of a pod with a partition come later,
    so that its CPUs are not among them yet."""
    state: CPUState = field(compare=False, repr=False)
    """The CPU manager's afterwards."""


@dataclass(frozen=True, slots=True)
class CPUsReleased:
    """A container is gone and its CPUs, or those of its pod's partition, went back to the shared pool."""

    pod: str
    container: str
    """Empty when the pod is begun again or has no containers left (defect pod-restart fixed)."""
    cpus: CPUMask
    """Empty when the pod's other containers hold them all."""
    held: CPUMask
    """CPUs in the sets of the containers that are left on the node."""
    state: CPUState = field(compare=False, repr=False)
    """The CPU manager's afterwards."""


@dataclass(frozen=True, slots=True)
class PartitionKept:
    """A container is gone; its CPUs stay with the pod's partition until the pod's last container goes (KEP-5526)."""

    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class PodShareCut:
    """It is decided which CPUs of the pod's partition one of its containers gets (KEP-5526)."""

    pod: str
    container: str
    cpus: CPUMask
    exclusive: bool
    """Whether the container has a claim of its own; else it shares what is left."""


@dataclass(frozen=True, slots=True)
class PodPartitioned:
    """A pod-level pod got a partition of its own, and its containers their sets (KEP-5526)."""

    pod: str
    cpus: CPUMask
    containers: Mapping[str, CPUMask]
