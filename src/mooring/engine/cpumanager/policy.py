"""What the static policy knows before the first pod, the seam of extensions in it, and how it says no.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md section 1.

What is asked and answered at the seam at which extensions take part in the choice of CPUs.

The CPU manager knows no plugins: with a chooser (:class:`mooring.engine.cpumanager.policy.Chooser`) it asks the
chooser, without one its own rules decide.

Source: CPU Manager Plugin Model (proposal), "extend cpuManager to a plug-in model"; spec: resize.md section 7.

How many exclusive CPUs a container or a pod requests.

Source: kubelet v1.37.1, cpumanager policy_static.go (guaranteedCPUs, podGuaranteedCPUs); spec: cpu-manager.md section
3.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import AllocationError, Endless, Observer
from mooring.engine.core.gotext import int64
from mooring.engine.core.pod import (
    Container,
    Pod,
    PodLevelGates,
    QoS,
    ResourceList,
    guaranteed_equivalent,
    needed_at_once,
)
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.state import CPUState, Reusable
from mooring.lazy import dataclass, field

STATIC = "static"


class Chooser(Protocol):
    """Takes part in the choice of CPUs; a pure value, like everything that decides."""

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUMask:
        """Return the mask of those CPUs of the pool that may be given."""

    def narrowed(
        self, policy: StaticPolicy, state: CPUState, pod: Pod, asked: CPUHintsAsked, observer: Observer | None
    ) -> tuple[CPUHintsAsked, CPUMask]:
        """Return from what hints are made instead, and the mask of the CPUs that the pod could never get."""

    def choose(
        self, policy: StaticPolicy, state: CPUState, wanted: CPUsWanted, observer: Observer | None
    ) -> CPUsChosen | AllocationError | Endless:
        """Choose in place of :func:`mooring.engine.cpumanager.static.choose`, with the same arguments."""

    def stored(
        self, state: CPUState, reusable: Reusable, pod: str, container: Container, chosen: CPUsChosen
    ) -> tuple[CPUState, Reusable]:
        """Return state and record with what else the choice entails, once a container's CPUs are stored."""


@dataclass(frozen=True, slots=True)
class StaticPolicy:
    """Everything that the policy knows before the first pod."""

    topology: Topology
    rules: TakeRules
    reserved: CPUMask
    """Mask of the CPUs kept for the system."""
    reserved_cores: CPUMask
    """Mask of every CPU on a core with a reserved CPU."""
    strict_reservation: bool = False
    gates: PodLevelGates = field(default_factory=PodLevelGates)
    resizes: bool = False
    """Whether exclusive CPUs change with a resize (extension exclusive-resize with its gate, KEP-5554)."""
    delays: bool = False
    """Whether CPUs of a scale-down go back with a delay (extension scale-down-delay, KEP-6122)."""
    node_delay: int = 0
    """The option scale-delay-time, in nanoseconds."""
    delays_of_pods: bool = False
    """Whether pods may bring a delay of their own (gate InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay)."""
    chooser: Chooser | None = None
    """What takes part in the choice of CPUs (extension plugins); None for the kubelet's rules alone."""

    @property
    def group_size(self) -> int:
        """CPUs per core, by average."""
        return self.topology.cpus_per_core

    @property
    def shareable(self) -> CPUMask:
        """Mask of the CPUs that the shared pool has on an empty node."""
        if self.strict_reservation:
            return self.topology.all_cpus & ~self.reserved
        return self.topology.all_cpus


def available_cpus(policy: StaticPolicy, state: CPUState) -> CPUMask:
    """Return the mask of what exclusive allocation may use."""
    return state.default & ~policy.reserved & ~withheld(policy, state)


def withheld(policy: StaticPolicy, state: CPUState) -> CPUMask:
    """Return the mask of what exclusive allocation may not use because an extension withholds CPUs.

    Where whole cores are handed out, a core with such a CPU is not whole.
    """
    if not state.offline and not state.displaced:
        return NO_CPUS
    cpus = state.withheld
    return policy.topology.core_siblings(cpus) if policy.rules.whole_cores else cpus


class Purpose(Enum):
    """What CPUs are wanted for."""

    CONTAINER = "container"
    POD = "pod"
    """The partition of a whole pod (KEP-5526), or one of pod scope's hints."""
    RESERVED = "reserved"
    """The system's CPUs, before the first pod."""


@dataclass(frozen=True, slots=True)
class CPUsWanted:
    """A request for CPUs."""

    need: int
    """How many."""
    pool: CPUMask
    """Mask of the CPUs that may be given: shared pool without reserved CPUs, and what init containers left."""
    near: CPUMask = NO_CPUS
    """Mask of those among them to which the hint points."""
    pod: Pod | None = None
    """None for the system's own."""
    container: str = ""
    """Empty for a whole pod."""
    affinity: NUMAMask | None = None
    """Mask of the hint's NUMA nodes; None for no opinion."""
    left: CPUMask = NO_CPUS
    """Mask of the CPUs that init containers leave, usable besides the shared pool."""

    @property
    def purpose(self) -> Purpose:
        """What they are for."""
        if self.pod is None:
            return Purpose.RESERVED
        return Purpose.CONTAINER if self.container else Purpose.POD

    @property
    def uid(self) -> str:
        """Of the pod; empty for the system's own."""
        return self.pod.uid if self.pod is not None else ""


@dataclass(frozen=True, slots=True)
class CPUsChosen:
    """The answer to a request for CPUs."""

    cpus: CPUMask
    """Mask of the CPUs that the container, or the pod, runs on."""
    hidden: CPUMask = NO_CPUS
    """Mask of the other threads of their cores, which nothing else gets as long as it has them."""


def whole_cpus(resources: ResourceList) -> int:
    """Return the cpu amount when it is a whole number of CPUs, else 0.

    The kubelet compares 64-bit numbers, so that far too large amounts count as whole, and some as negative.
    """
    cpu = resources.get("cpu")
    if cpu is None:
        return 0
    units, rest = divmod(cpu.nano, 10**9)
    if not rest and 0 <= units < 10**9:
        return units
    units, milli = cpu.units, cpu.milli
    return units if units * 1000 == milli or int64(units * 1000) == milli else 0


def exclusive_cpus(pod: Pod, container: Container, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the container gets; 0 means that it runs in the shared pool."""
    if pod.qos is not QoS.GUARANTEED:
        return 0
    if gates.manages(pod) and not guaranteed_equivalent(container):
        return 0
    return whole_cpus(gates.requests_of(container))


def exclusive_cpus_of_pod(pod: Pod, gates: PodLevelGates) -> int:
    """Return how many exclusive CPUs the whole pod needs at once, for pod scope."""
    if gates.manages(pod) and pod.resources is not None:
        return whole_cpus(pod.resources.requests) if pod.qos is QoS.GUARANTEED else 0

    def asked(container: Container) -> dict[str, int]:
        # The specification is asked, also where a status decides the number.
        return {"cpu": exclusive_cpus(pod, container, gates)} if "cpu" in container.requests else {}

    return needed_at_once(pod, asked, int64).get("cpu", 0)
