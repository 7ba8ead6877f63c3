"""What the node reports to an observer, beside the facts of its managers."""

from __future__ import annotations

from mooring.engine.core.pod import Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.node.settings import Settings
from mooring.engine.topologymanager.wide import ResourceHints
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class KubeletStarted:
    """The managers have started on their checkpoint files; running pods are not admitted again yet."""

    settings: Settings
    cpu: CPUState
    """The CPU manager's state after the start, filled where it was fresh."""


@dataclass(frozen=True, slots=True)
class AdmissionBegun:
    """The topology manager is asked about a pod, new or running since before a restart."""

    pod: str


@dataclass(frozen=True, slots=True)
class HintsGiven:
    """The hints that all providers gave."""

    pod: str
    container: str
    """Empty in pod scope."""
    hints: ResourceHints


@dataclass(frozen=True, slots=True)
class HintScored:
    """The score of the hint that the topology manager made; of kubelets from 1.38 on."""

    pod: str
    container: str
    """Empty in scope pod."""
    score: int | None
    """None where there are too many hints."""


@dataclass(frozen=True, slots=True)
class ContainerAdmitted:
    """Container scope: the hints of one container merged, and every provider served it."""

    pod: str
    container: str


@dataclass(frozen=True, slots=True)
class PodAdmitted:
    """The managers accept the pod. Other admission handlers of the kubelet may still reject it."""

    pod: str
    declared: Pod
    """The pod itself."""


@dataclass(frozen=True, slots=True)
class PodRejected:
    """The admission failed."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class AdmissionEndless:
    """The kubelet would not return from this admission; the node stays what it was before."""

    pod: str
    defect: str
    """Name of the defect (spec: README.md section 5)."""


@dataclass(frozen=True, slots=True)
class PodWithdrawn:
    """A pod that the managers had accepted was rejected by another admission handler, such as the node resources check.

    The node emits it on request.
    """

    pod: str
    declared: Pod
    """The pod itself."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodNotSupported:
    """The kubelet rejected a pod before it asked its managers."""

    pod: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class StaleStateRemoved:
    """Assignments of pods that are not active any more were dropped before the managers answered."""

    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResizeAccepted:
    """A pod got other resources in place."""

    uid: str
    before: Pod
    after: Pod


@dataclass(frozen=True, slots=True)
class ResizeRefused:
    """A pod did not get the other resources that it requests."""

    uid: str
    reason: str
    """``Deferred`` or ``Infeasible``."""
    detail: str
    """What refused it: the kubelet's ``reason_detail``, or the reason of the check."""
    message: str
