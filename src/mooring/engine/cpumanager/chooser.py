"""What is asked and answered at the seam at which extensions take part in the choice of CPUs.

The CPU manager knows no plugins: with a chooser (:class:`mooring.engine.cpumanager.policy.Chooser`) it asks the
chooser, without one its own rules decide.

Source: CPU Manager Plugin Model (proposal), "extend cpuManager to a plug-in model"; spec: resize.md section 7.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from mooring.engine.core.bits import NO_CPUS, CPUMask, NUMAMask
from mooring.engine.core.pod import Pod


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
