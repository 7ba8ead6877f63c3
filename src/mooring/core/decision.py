"""What the managers answer: placements, rejections, refusals to start."""

from __future__ import annotations

from dataclasses import dataclass, field

from mooring.core.cpuset import CPUSet


@dataclass(frozen=True, slots=True)
class Rejection:
    """The kubelet's reason and message for a pod that it does not admit, letter for letter."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """The kubelet does not start."""

    stage: str
    """flags, decode, featureGates, validation, reservation, options, topologyManager, deviceManager, cpuManager,
    memoryManager, kubelet, machine or start."""
    message: str
    """The kubelet's text, with checkpoint paths shortened to the file name."""


@dataclass(frozen=True, slots=True)
class Endless:
    """The kubelet would not return: a known endless loop, detected and never entered."""

    defect: str
    """Name of the defect (spec: README.md section 5)."""


@dataclass(frozen=True, slots=True)
class Placement:
    """What one container, or a whole pod, holds."""

    cpus: CPUSet = field(default_factory=CPUSet)
    """Exclusive CPUs; empty means the shared pool."""
    mems: tuple[int, ...] = ()
    """NUMA nodes of its memory, ascending; empty means unrestricted."""
