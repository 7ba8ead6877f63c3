"""What the managers answer: placements, rejections, refusals to start."""

from __future__ import annotations

from dataclasses import dataclass, field

from mooring.engine.core.cpuset import CPUSet


@dataclass(frozen=True, slots=True)
class Rejection:
    """The kubelet's reason and message for a pod that it does not admit, letter for letter."""

    reason: str
    message: str


OUT_OF = "OutOf"
"""How reasons of the node resources check begin."""
DECIDED_REASONS = frozenset(
    {
        "EmptyPodSharedPoolError",
        "PodLevelResourcesNotSupported",
        "SMTAlignmentError",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
"""Reasons that the engine gives, besides those that begin with :data:`OUT_OF`."""
OTHER_REASONS = frozenset(
    {
        "AppArmor",
        "HostName",
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "MatchNodeSelector",
        "NoNewPrivs",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "PodFeatureUnsupported",
        "PodFitsHostPorts",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "PodToleratesNodeTaints",
        "ProcMount",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TaintToleration",
        "UnexpectedPredicateFailureType",
        "UnknownReason",
        "VolumeAttachmentLimitExceeded",
    }
)
"""Reasons of the kubelet's other admission checks, those of older releases included. ``Evicted`` is not among them: a
pod that ran and was evicted has it, too.

Source: kubelet v1.37.1, pkg/kubelet/lifecycle/predicate.go (the names of the scheduler's plugins) and the admission
handlers of pkg/kubelet; spec: metrics.md sections 2 and 3.
"""


def is_admission_reason(reason: str) -> bool:
    """Tell whether a kubelet that does not admit a pod gives this reason.

    >>> [is_admission_reason(reason) for reason in ("OutOfvendor.example/nic", "NodeAffinity", "Evicted", "OutOf")]
    [True, True, False, False]
    """
    return is_decided_reason(reason) or reason in OTHER_REASONS


def is_decided_reason(reason: str) -> bool:
    """Tell whether the engine makes the check that has this reason."""
    return reason in DECIDED_REASONS or (reason.startswith(OUT_OF) and reason != OUT_OF)


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
