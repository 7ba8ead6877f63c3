"""What plugins see and give: values, made for them. Changing one changes nothing of the node."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.options import TakeRules
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod, as plugins know it."""

    uid: str
    namespace: str
    name: str
    qos: str
    """``Guaranteed``, ``Burstable`` or ``BestEffort``."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    priority: int = 0
    """``spec.priority``."""
    is_pod_level: bool = False
    """Whether it has resources as a whole, so that CPUs are chosen for all its containers at once (KEP-5526)."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An owner of exclusive CPUs: a container, a pod or a claim."""

    uid: str
    """Of the pod; of a claim of dynamic resource allocation what it stands under in the state file."""
    container: str
    cpus: CPUSet
    pod: PodView | None
    """None when the pod is not known any more."""


@dataclass(frozen=True, slots=True)
class MachineView:
    """The machine. All members are CPU ids of the operating system."""

    cpus: CPUSet
    numa: Mapping[int, CPUSet]
    """NUMA node -> its CPUs, ascending; likewise the others."""
    sockets: Mapping[int, CPUSet]
    caches: Mapping[int, CPUSet]
    """Uncore cache (the last level cache) -> its CPUs; of the socket where the machine tells none."""
    cores: Mapping[int, CPUSet]
    """Core, by its smallest CPU -> its threads."""
    kinds: Mapping[int, CPUSet]
    """Efficiency rank of a kind of core -> its CPUs; higher is faster, -1 unknown. Empty on uniform machines, and where
    nothing tells."""
    isolated: CPUSet
    """CPUs that the kernel keeps out of scheduling (isolcpus)."""
    reserved: CPUSet
    """CPUs that are kept for the system; empty while these are being chosen."""
    topology: Topology = field(repr=False)
    """For :func:`~mooring.engine.plugins.rules.kubelet_choice`."""
    rules: TakeRules = field(repr=False)

    def whole_cores(self, cpus: CPUSet) -> CPUSet:
        """Return those of the CPUs whose core is entirely among them."""
        return CPUSet.from_ids(cpu for core in self.cores.values() if core <= cpus for cpu in core)


@dataclass(frozen=True, slots=True)
class CPURequest:
    """Somebody wants CPUs: what plugins are asked about."""

    purpose: str
    """``container``, ``pod`` (pod-level resources, or pod scope) or ``reserved`` (the system's own)."""
    pod: PodView | None
    """None for the system's own."""
    container: str
    """Empty for a whole pod."""
    need: int
    """How many CPUs."""
    available: CPUSet
    """CPUs that may be given, as far as plugins before this point left them."""
    near: CPUSet
    """Those of them to which the topology manager's hint points; empty when it has no opinion."""
    shared: CPUSet
    """The shared pool."""
    machine: MachineView
    siblings: CPUSet = field(default_factory=CPUSet)
    """CPUs that plugins withheld as siblings (:attr:`Withheld.as_siblings`)."""
    holders: Callable[[], tuple[Holder, ...]] = field(repr=False, default=tuple)
    """The present owners of CPUs; made on request."""


@dataclass(frozen=True, slots=True)
class Withheld:
    """Answer of ``filter_cpus``: CPUs that this pod may not get, and why."""

    cpus: CPUSet
    because: str = ""
    """In a few words; ``mooring explain`` repeats them."""
    as_siblings: bool = False
    """Whether those that share a core with a container's CPUs are hidden: not assigned as long as it runs."""


@dataclass(frozen=True, slots=True)
class Room:
    """Answer of ``post_filter``: CPUs that were withheld and may be given after all."""

    cpus: CPUSet
    because: str = ""


@dataclass(frozen=True, slots=True)
class Selected:
    """Answer of ``select_cpus``."""

    cpus: CPUSet
    """As many as are wanted."""
    hidden: CPUSet = field(default_factory=CPUSet)
    """Other threads of the same cores that are not assigned as long as these are held."""


@dataclass(frozen=True, slots=True)
class Change:
    """What ``allocated`` and ``deallocated`` receive: a container got CPUs, or released them."""

    uid: str
    """Of the pod."""
    container: str
    """Empty for a whole pod."""
    cpus: CPUSet


@dataclass(frozen=True, slots=True)
class NUMAChoice:
    """NUMA nodes, and whether they are as good as the machine allows."""

    nodes: frozenset[int] | None
    """None means any."""
    preferred: bool


@dataclass(frozen=True, slots=True)
class AffinityRequest:
    """The topology manager has merged: what ``choose_affinity`` is asked about."""

    pod: PodView
    container: str
    policy: str
    """The topology manager's policy, such as ``best-effort``."""
    merged: NUMAChoice
    """Of all providers together."""
    of_cpus: NUMAChoice
    """What the CPU manager alone would have."""
