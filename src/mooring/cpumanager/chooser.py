"""The seam at which extensions take part in the choice of CPUs.

The CPU manager knows no plugins: with a chooser it asks the chooser, without one its own rules decide.

Source: CPU Manager Plugin Model (proposal), "extend cpuManager to a plug-in model"; spec: resize.md section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from mooring.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.core.decision import Endless
from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod
from mooring.cpumanager.facts import CPUHintsAsked
from mooring.cpumanager.state import CPUState

if TYPE_CHECKING:
    from mooring.cpumanager.policy import AllocationError, StaticPolicy
    from mooring.cpumanager.static import Reusable


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

    purpose: Purpose
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


@dataclass(frozen=True, slots=True)
class CPUsChosen:
    """The answer to a request for CPUs."""

    cpus: CPUMask
    """Mask of the CPUs that the container, or the pod, runs on."""
    hidden: CPUMask = NO_CPUS
    """Mask of the other threads of their cores, which nothing else gets as long as it has them."""


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
        """Choose in place of :func:`mooring.cpumanager.choice.choose`, with the same arguments."""

    def stored(
        self, state: CPUState, reusable: Reusable, pod: str, container: Container, chosen: CPUsChosen
    ) -> tuple[CPUState, Reusable]:
        """Return state and record with what else the choice entails, once a container's CPUs are stored."""
