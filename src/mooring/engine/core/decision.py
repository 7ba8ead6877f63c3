"""What the managers answer: placements, rejections, refusals to start; and the receiver of facts.

A fact is a frozen value that says what one step of a decision found or chose; each room defines its own beside the
rule that emits it. Without an observer no fact is ever built, so explanations cost nothing when none is wanted.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol

from mooring.engine.core.cpuset import CPUSet
from mooring.lazy import dataclass, field, replace


class Shortage(NamedTuple):
    """A resource of which the node has too little: millicores of cpu, everything else in whole units."""

    resource: str
    requested: int
    used: int
    """By the pods that are admitted."""
    capacity: int


@dataclass(frozen=True, slots=True)
class Rejection:
    """The kubelet's reason and message for a pod that it does not admit, letter for letter."""

    reason: str
    message: str
    shortage: Shortage | None = field(default=None, compare=False)
    """What the message says in figures; None where it has none."""


OUT_OF = "OutOf"
"""How reasons of the node resources check begin."""
DECIDED_REASONS = frozenset(
    {
        "EmptyPodSharedPoolError", "PodLevelResourcesNotSupported", "SMTAlignmentError", "TopologyAffinityError",
        "UnexpectedAdmissionError",
    },
)  # fmt: skip
"""Reasons that the engine gives, besides those that begin with :data:`OUT_OF`."""
OTHER_REASONS = frozenset(
    {
        "AppArmor", "HostName", "InitContainerRestartPolicyForbidden", "InvalidNodeInfo", "MatchNodeSelector",
        "NoNewPrivs", "NodeAffinity", "NodeName", "NodePorts", "NodeShutdown", "PodFeatureUnsupported",
        "PodFitsHostPorts", "PodOSNotSupported", "PodOSSelectorNodeLabelDoesNotMatch", "PodToleratesNodeTaints",
        "ProcMount", "SupplementalGroupsPolicyNotSupported", "SysctlForbidden", "TaintToleration",
        "UnexpectedPredicateFailureType", "UnknownReason", "VolumeAttachmentLimitExceeded",
    },
)  # fmt: skip
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


class Cause(StrEnum):
    """What a start fails on; the value is its stable code."""

    OTHER = "MOOR-201"
    GATE = "MOOR-202"
    FIELD = "MOOR-203"
    RESERVATION = "MOOR-204"
    MACHINE = "MOOR-205"
    TOPOLOGY_MANAGER = "MOOR-206"
    DEVICE_MANAGER = "MOOR-207"
    CPU_MANAGER = "MOOR-208"
    MEMORY_MANAGER = "MOOR-209"
    FLAG = "MOOR-210"
    ALPHA_CPU_OPTION = "MOOR-211"
    BETA_CPU_OPTION = "MOOR-212"
    OPTIONS_WITHOUT_POLICY = "MOOR-213"
    UNKNOWN_CPU_OPTION = "MOOR-214"
    UNKNOWN_TOPOLOGY_OPTION = "MOOR-215"
    OPTIONS_EXCLUDE = "MOOR-216"
    SOCKET_AND_POLICY = "MOOR-217"
    SOCKET_AND_MACHINE = "MOOR-218"
    OPTION_VALUE = "MOOR-219"
    OPTIONS_GATE = "MOOR-220"
    NO_RESERVED_CPUS = "MOOR-231"
    TOO_FEW_CPUS = "MOOR-232"
    CPUS_NOT_ONLINE = "MOOR-233"
    NOT_RESERVABLE = "MOOR-234"
    OVERCOMMITTED = "MOOR-235"
    TOO_MANY_NODES = "MOOR-241"
    NO_DISTANCES = "MOOR-242"
    TOPOLOGY_OPTION_GROUP = "MOOR-243"
    RESERVED_SUM = "MOOR-251"
    RESERVED_NODE = "MOOR-252"
    RESERVED_AMOUNT = "MOOR-253"
    POLICY_CHANGED = "MOOR-261"
    FILE_DAMAGED = "MOOR-262"
    CPUS_CHANGED = "MOOR-263"
    FILE_CONTRADICTS = "MOOR-264"


_OF_STAGE = {
    "flags": Cause.FLAG, "decode": Cause.GATE, "featureGates": Cause.GATE, "validation": Cause.FIELD,
    "reservation": Cause.RESERVATION, "machine": Cause.MACHINE, "kubelet": Cause.RESERVATION,
    "topologyManager": Cause.TOPOLOGY_MANAGER, "deviceManager": Cause.DEVICE_MANAGER, "cpuManager": Cause.CPU_MANAGER,
    "memoryManager": Cause.MEMORY_MANAGER,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Fault:
    """One thing that is wrong at the start of a kubelet."""

    text: str
    """The kubelet's."""
    cause: Cause = Cause.OTHER
    """Other: nothing is known of it but the stage of the start."""
    field: str = ""
    """Field of the KubeletConfiguration."""
    names: tuple[str, ...] = ()
    """Entries of the field, gates, resources, or the manager of a state file."""
    values: tuple[str, ...] = ()
    """What is given, and what it would have to be; of state that contradicts itself, the texts among which the kubelet
    chooses at random."""
    node: int = -1
    """The NUMA node that the field is about."""


@dataclass(frozen=True, slots=True)
class StartRefusal:
    """The kubelet does not start."""

    stage: str
    """flags, decode, featureGates, validation, reservation, options, topologyManager, deviceManager, cpuManager,
    memoryManager, kubelet, machine or start."""
    message: str
    """The kubelet's text, with checkpoint paths shortened to the file name."""
    faults: tuple[Fault, ...] = field(default=(), compare=False)
    """What the text names, in its order."""

    @staticmethod
    def of(stage: str, *faults: Fault, prefix: str = "") -> StartRefusal:
        """Return the refusal of a stage; several faults print as one list (apimachinery, util/errors)."""
        of_stage = _OF_STAGE.get(stage, Cause.OTHER)
        known = tuple(replace(fault, cause=of_stage) if fault.cause is Cause.OTHER else fault for fault in faults)
        texts = ", ".join(fault.text for fault in faults)
        return StartRefusal(stage, prefix + (texts if len(faults) == 1 else f"[{texts}]"), known)

    @property
    def code(self) -> str:
        """The stable code of the refusal."""
        return self.faults[0].cause.value if self.faults else _OF_STAGE.get(self.stage, Cause.OTHER).value


@dataclass(frozen=True, slots=True)
class AllocationError:
    """Why a manager does not serve a container, or a pod; the text is the kubelet's."""

    message: str
    reason: str = ""
    """The kubelet's reason where the error has a type of its own; else the topology manager wraps the text."""


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


class Observer(Protocol):
    """Anything that takes facts, such as ``list.append``."""

    def __call__(self, fact: object, /) -> None:
        """Receive one fact."""
