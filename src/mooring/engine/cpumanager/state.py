"""The CPU manager's state: the owners of CPUs, as the state file records them.

Source: kubelet cpumanager/state, v1.37.1. The texts of ``cpu_manager_state`` are made and read in
``mooring.engine.checkpoint``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.moment import Moment
from mooring.engine.core.pod import Container, ContainerKind
from mooring.lazy import dataclass, field


@dataclass(frozen=True, slots=True)
class PreAssignment:
    """The smaller set that a container is going to have when its scale-down delay is over (KEP-6122)."""

    cpus: CPUMask
    """The set as a mask; the container still has all its CPUs."""
    apply_at: Moment
    """When the delay is over."""
    is_written: bool = False
    """Whether it is kept in the state file, so that a restart does not start the delay again."""

    def fits(self, current: CPUMask, baseline: CPUMask) -> bool:
        """Tell whether it is one of a container with these CPUs: it leaves some of them, all of the baseline.

        >>> PreAssignment(0b011, Moment(5)).fits(0b111, 0b001), PreAssignment(0b011, Moment(5)).fits(0b011, 0)
        (True, False)
        """
        return bool(self.cpus) and not self.cpus & ~current and self.cpus != current and not baseline & ~self.cpus


@dataclass(frozen=True, slots=True)
class CPUState:
    """One state of the CPU manager. CPU sets are masks: bit *i* is CPU *i* of the operating system.

    >>> CPUState("static", 0b1001, {"pod-uid": {"main": 0b0110}}).assignments["pod-uid"]["main"]
    6
    """

    policy: str
    """Name of the policy that wrote the state: ``none`` or ``static``."""

    default: CPUMask
    """The shared pool (the kubelet's default set) as a mask. Empty under the policy ``none``."""

    assignments: Mapping[str, Mapping[str, CPUMask]]
    """Exclusive CPUs as masks: pod uid, then container name. A pod without containers counts too."""

    pods: Mapping[str, CPUMask] = field(default_factory=dict)
    """CPUs of whole pods as masks, by pod uid (KEP-5526, gate PodLevelResourceManagers)."""

    baselines: Mapping[str, Mapping[str, CPUMask]] = field(default_factory=dict)
    """What each container got at first, as masks (gate InPlacePodVerticalScalingExclusiveCPUs)."""

    pre_assignments: Mapping[str, Mapping[str, PreAssignment]] = field(default_factory=dict)
    """What containers are going to have after a delayed scale-down: pod uid, then container name."""

    offline: CPUMask = NO_CPUS
    """CPUs that are offline now, as a mask (extension cpu-hotplug). They stay where they are recorded, in the shared
    pool or with their owner, and are in no state file."""

    displaced: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Pod uid, then a CPU that the pod lost, and its replacement CPU. The lost one is recorded in the shared
    pool and kept for the pod (:mod:`mooring.engine.extensions.offline`)."""

    @property
    def withheld(self) -> CPUMask:
        """CPUs that nothing may be given: those that are offline, and those kept for pods that lost them.

        >>> CPUState("static", 0b1111, {}, offline=0b10, displaced={"uid": {3: 4}}).withheld
        10
        """
        cpus = self.offline
        for pairs in self.displaced.values():
            for lost in pairs:
                cpus |= 1 << lost
        return cpus

    @property
    def held(self) -> CPUMask:
        """CPUs in the sets of all containers, as one mask; CPUs that only a pod's partition holds are not among them.

        >>> CPUState("static", 0b1, {"one": {"main": 0b10}, "two": {"main": 0b1100}}).held
        14
        """
        cpus = NO_CPUS
        for containers in self.assignments.values():
            for mask in containers.values():
                cpus |= mask
        return cpus


@dataclass(frozen=True, slots=True)
class Reusable:
    """CPUs that ended init containers of the pod now being admitted leave to its later containers.

    Kept in memory only; admitting another pod forgets it (spec: cpu-manager.md section 4.1).
    """

    pod: str = ""
    cpus: CPUMask = NO_CPUS

    def of(self, pod: str) -> CPUMask:
        """Return the mask for a pod; empty for every other."""
        return self.cpus if pod == self.pod else NO_CPUS

    def after(self, pod: str, container: Container, cpus: CPUMask) -> Reusable:
        """Return the record after a container got ``cpus``: init containers add to it, all others take from it."""
        before = self.of(pod)
        return Reusable(pod, before | cpus if container.kind is ContainerKind.INIT else before & ~cpus)
