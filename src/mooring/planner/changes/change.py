"""The changes, as values: a closed union of small dataclasses.

A change names pods by uid and shows them by name. What a change does to a question is in
:mod:`mooring.planner.changes.applying`, how it reads in :mod:`mooring.planner.changes.words`, and how it is written on
the command line in :mod:`mooring.planner.changes.writing`.
"""

from __future__ import annotations

from dataclasses import dataclass

from mooring.core.quantity import Quantity


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod of a question."""

    uid: str
    shown: str
    """``NAMESPACE/NAME``, or the uid where two pods of the question share that."""

    def __str__(self) -> str:
        return self.shown


@dataclass(frozen=True, slots=True)
class Amount:
    """A container, or a pod with pod-level resources, asks for another amount of something.

    The request becomes the amount. A limit that was equal to the request stays equal to it, and another limit is raised
    where the request would exceed it. What was not asked for at all gets both.
    """

    pod: PodRef
    container: str
    """Empty for the pod-level resources of the pod."""
    resource: str
    """``cpu``, ``memory``, ``hugepages-SIZE``, or what a device plugin offers."""
    amount: Quantity


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of the KubeletConfiguration has another value."""

    field: str
    """Its name in the file, such as ``topologyManagerPolicy``."""
    value: str


@dataclass(frozen=True, slots=True)
class PolicyOption:
    """An option of the CPU manager or of the topology manager has another value."""

    field: str
    """``cpuManagerPolicyOptions`` or ``topologyManagerPolicyOptions``."""
    name: str
    value: str
    """Empty to leave the option out."""


@dataclass(frozen=True, slots=True)
class FeatureGate:
    """A feature gate is on or off."""

    name: str
    on: bool


@dataclass(frozen=True, slots=True)
class FreshState:
    """The state file of a manager is deleted before the kubelet starts."""

    manager: str
    """``cpu`` or ``memory``."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A pod ends.

    Without ``before`` a running pod ends before the first pod is asked, and a pod that is yet to be admitted is not
    asked at all.
    """

    pod: PodRef
    before: PodRef | None = None
    """The pod that is asked next."""


@dataclass(frozen=True, slots=True)
class Move:
    """A pod ends, as in a removal, and comes back as a new pod after all others were asked."""

    pod: PodRef
    before: PodRef | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A pod is asked earlier."""

    pod: PodRef
    before: PodRef | None = None
    """The pod that is asked next; without it the pod is the first of all that are yet to be admitted."""


@dataclass(frozen=True, slots=True)
class MoreDevices:
    """There is one more device of a resource on a NUMA node."""

    resource: str
    node: int


Change = Amount | ConfigField | PolicyOption | FeatureGate | FreshState | Removal | Move | Turn | MoreDevices

CPU_OPTIONS = "cpuManagerPolicyOptions"
TOPOLOGY_OPTIONS = "topologyManagerPolicyOptions"
