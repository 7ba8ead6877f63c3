"""What the static policy knows before the first pod, the seam of extensions in it, and how it says no.

Source: kubelet v1.37.1, cpumanager policy_static.go; spec: cpu-manager.md section 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.decision import Endless
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, Pod, PodLevelGates
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.chooser import CPUsChosen, CPUsWanted
from mooring.engine.cpumanager.facts import CPUHintsAsked
from mooring.engine.cpumanager.options import TakeRules
from mooring.engine.cpumanager.state import CPUState, Reusable

STATIC = "static"


@dataclass(frozen=True, slots=True)
class ScaleDown:
    """Which delays there are before CPUs of a scale-down go back (extension scale-down-delay, KEP-6122)."""

    is_on: bool = False
    node_delay: int = 0
    """The option scale-delay-time, in nanoseconds."""
    of_pods: bool = False
    """Whether pods may bring a delay of their own (gate InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay)."""


@dataclass(frozen=True, slots=True)
class AllocationError:
    """Why a container is not admitted."""

    message: str
    reason: str = ""
    """The kubelet's reason where the error has a type of its own; else the topology manager wraps the text."""


class Chooser(Protocol):
    """Takes part in the choice of CPUs; a pure value, like everything that decides."""

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUMask:
        """Return the mask of those CPUs of the pool that may be given."""

    def narrowed(
        self, policy: StaticPolicy, state: CPUState, pod: Pod, asked: CPUHintsAsked, observer: Observer | None
    ) -> tuple[CPUHintsAsked, CPUMask]:
        """Return from what hints are made instead, and the mask of the CPUs that the pod could never get."""

    def choose(
        self,
        policy: StaticPolicy,
        state: CPUState,
        left: CPUMask,
        pod: Pod,
        container: str,
        need: int,
        affinity: NUMAMask | None,
        observer: Observer | None,
    ) -> CPUsChosen | AllocationError | Endless:
        """Choose in place of :func:`mooring.engine.cpumanager.choice.choose`, with the same arguments."""

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
    scale_down: ScaleDown = field(default_factory=ScaleDown)
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
