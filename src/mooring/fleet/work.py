"""The work of a cluster: pods with the time at which each comes and how long it runs, and controllers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.fleet.scheduler.asked import PodDemand

REMADE: Final = "~"
"""Between the name of a pod and the number of one that was created for it."""


@dataclass(frozen=True, slots=True)
class PodArrival:
    """A pod that is created."""

    name: str
    """``namespace/name``; unique in its work."""
    asked: PodDemand
    at: float
    """Seconds since the beginning."""
    runs: float | None = None
    """Seconds from its admission to its end; None for a pod that does not end by itself."""
    leaves: float | None = None
    """When it is deleted wherever it is; None for never."""
    owner: str = ""
    """Controller that makes a new pod when this one fails; empty for a pod of its own."""


class ControllerKind(Enum):
    """What creates pods; the value is the kind in the API."""

    DEPLOYMENT = "Deployment"
    """Its ReplicaSet; the same for a ReplicaSet or ReplicationController of its own."""
    STATEFUL_SET = "StatefulSet"
    JOB = "Job"


@dataclass(frozen=True, slots=True)
class Workload:
    """A controller and the pods that it creates."""

    name: str
    """``namespace/name``; unique in its work."""
    kind: ControllerKind
    asked: PodDemand
    at: float = 0.0
    """When it is created, in seconds since the beginning."""
    pods: int = 1
    """Replicas, or completions of a Job."""
    parallelism: int = 0
    """Pods of a Job at the same time; 0 for all."""
    backoff_limit: int = 6
    """Failures after which a Job has failed."""
    ordered: bool = False
    """Whether a pod is created only when those before it run (StatefulSets with OrderedReady)."""
    first: int = 0
    """Number of the first pod."""
    runs: float | None = None
    """Seconds from the admission of a pod to its end."""
    leaves: float | None = None
    """When it is deleted with all its pods; None for never."""
    alone: bool = False
    """Whether its one pod has its name."""

    def pod_name(self, index: int) -> str:
        """Return the first name of one of its pods."""
        return self.name if self.alone else f"{self.name}-{self.first + index}"


@dataclass(frozen=True, slots=True)
class Work:
    """Pods in the order in which they come, and controllers."""

    name: str
    arrivals: tuple[PodArrival, ...]
    findings: tuple[str, ...] = field(default=(), compare=False)
    """What was assumed or left out while it was read."""
    workloads: tuple[Workload, ...] = ()

    @property
    def pods(self) -> int:
        """Pods that are wanted, without those that are created for failed ones."""
        return len(self.arrivals) + sum(one.pods for one in self.workloads)

    @property
    def ends(self) -> float:
        """The last time that it names."""
        arrivals = max((max(one.at, one.leaves or 0.0) for one in self.arrivals), default=0.0)
        return max(arrivals, max((max(one.at, one.leaves or 0.0) for one in self.workloads), default=0.0))

    @property
    def asking(self) -> tuple[Workload | PodArrival, ...]:
        """What wants pods; where nothing does, the workloads that are scaled to 0."""
        return (*(one for one in self.workloads if one.pods), *self.arrivals) or self.workloads

    def demands(self) -> Iterator[tuple[PodDemand, int]]:
        """Yield what pods ask, with the number of these pods."""
        for arrival in self.arrivals:
            yield arrival.asked, 1
        for workload in self.workloads:
            yield workload.asked, workload.pods


def work_of(
    name: str, arrivals: Sequence[PodArrival], findings: Sequence[str] = (), workloads: Sequence[Workload] = ()
) -> Work:
    """Return arrivals and controllers as work, in the order of their times.

    Raises:
        InputError: two have one name, or one ends before it begins.
    """
    _check(name, arrivals)
    _check(name, workloads)
    return Work(
        name,
        tuple(sorted(arrivals, key=lambda one: one.at)),
        tuple(findings),
        tuple(sorted(workloads, key=lambda one: one.at)),
    )


def _check(name: str, found: Iterable[PodArrival] | Iterable[Workload]) -> None:
    seen: set[str] = set()
    for one in found:
        if one.name in seen:
            raise InputError("is there twice", source=name, field=one.name, remedy="give each its own name")
        if one.leaves is not None and one.leaves < one.at:
            raise InputError(
                f"ends at {one.leaves:g} s, before it begins at {one.at:g} s",
                source=name,
                field=one.name,
                remedy="correct its times",
            )
        seen.add(one.name)
