"""Where others than the kubelet's rules take part in the choice of CPUs.

The CPU manager knows no plugins: it asks whoever is here, and goes its own way where nobody is or has an opinion.

Source: CPU Manager Plugin Model (proposal), "extend cpuManager to a plug-in model"; spec: resize.md section 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from mooring.core.observer import Observer
from mooring.core.pod import Pod
from mooring.cpumanager.options import TakeError
from mooring.cpumanager.state import CPUState


class Purpose(Enum):
    """What CPUs are wanted for."""

    CONTAINER = "container"
    POD = "pod"
    """The partition of a whole pod (KEP-5526), or one of pod scope's hints."""
    RESERVED = "reserved"
    """The system's CPUs, before the first pod."""


@dataclass(frozen=True, slots=True)
class CPUsWanted:
    """Somebody wants CPUs."""

    purpose: Purpose
    need: int
    """How many."""
    pool: int
    """Mask of the CPUs that may be given: shared pool without reserved CPUs, and what init containers left."""
    near: int = 0
    """Mask of those among them to which the hint points."""
    pod: Pod | None = None
    """None for the system's own."""
    container: str = ""
    """Empty for a whole pod."""
    affinity: int | None = None
    """Mask of the hint's NUMA nodes; None for no opinion."""


@dataclass(frozen=True, slots=True)
class CPUsChosen:
    """What somebody gets."""

    cpus: int
    """Mask of the CPUs that it runs on."""
    hidden: int = 0
    """Mask of the other threads of their cores, which nobody gets as long as it has them."""


class Chooser(Protocol):
    """Takes part in the choice of CPUs; a pure value, like everything that decides."""

    @property
    def counts_cores(self) -> bool:
        """Whether whole cores are counted as they are, and not by the kubelet's average of the machine."""

    @property
    def withholds(self) -> bool:
        """Whether it may leave CPUs out of the pool."""

    def among(self, active: Mapping[str, Pod]) -> Chooser:
        """Return the chooser that knows the active pods."""

    def usable(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> int:
        """Return the mask of those CPUs of the pool that may be given; hints are made from it."""

    def chosen(self, state: CPUState, wanted: CPUsWanted, observer: Observer | None) -> CPUsChosen | TakeError | None:
        """Return the choice, a refusal, or None where the kubelet's rules are to choose from the whole pool."""
