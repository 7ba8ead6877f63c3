"""Deployments, StatefulSets and Jobs: which pods a controller creates, and when it creates another one.

A pod that its kubelet refuses stays failed. A ReplicaSet replaces it without any back-off, which is what makes refused
pods a loop; a StatefulSet deletes it and creates one of the same name; a Job waits 10 s, doubled with each failure up
to 10 min, and gives up after ``backoffLimit`` failures.

Source: kube-controller-manager v1.37.1, pkg/controller/replicaset/replica_set.go (manageReplicas),
statefulset/stateful_set_control.go (processReplica), job/job_controller.go (manageJob) and job/backoff_utils.go.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from mooring.fleet.work import REMADE, ControllerKind, PodArrival, Workload

REMADE_AFTER: Final = 1.0
"""Seconds after which a ReplicaSet or StatefulSet creates a pod for one that failed: they have no back-off, and a
failed pod is noticed within about a second."""
FIRST_JOB_BACKOFF: Final = 10.0
"""Seconds."""
LONGEST_JOB_BACKOFF: Final = 600.0
"""Seconds."""
MOST_REMADE: Final = 100
"""Pods that are created for one after failures in a row; a pod that would need more is a runaway."""


class PodChange(Enum):
    """What a controller notices about one of its pods."""

    ADMITTED = auto()
    SUCCEEDED = auto()
    FAILED = auto()
    """Its kubelet refused it."""
    DELETED = auto()
    """It was evicted or preempted, or its node is gone."""


class _SlotState(Enum):
    ABSENT = auto()
    CREATED = auto()
    RUNNING = auto()
    DONE = auto()
    RUNAWAY = auto()


@dataclass(slots=True)
class _Slot:
    """The place of one pod among those of a controller; pods follow one another in it."""

    state: _SlotState = _SlotState.ABSENT
    generation: int = 0
    failures: int = 0
    """In a row."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What a controller does after a change."""

    create: tuple[PodArrival, ...] = ()
    delete: tuple[str, ...] = ()
    """Names of pods."""
    again: float | None = None
    """When it has to be asked again, though no pod changes until then."""


class Controller:
    """One controller while time passes."""

    def __init__(self, workload: Workload) -> None:
        """Begin without pods.

        Args:
            workload: what it creates.
        """
        self.workload = workload
        self.given_up = False
        """Whether a Job has failed."""
        self._slots: dict[int, _Slot] = {}
        self._at: dict[str, int] = {}
        self._gaps: list[int] = []
        self._fresh = 0
        self._closed = False
        self._not_before = 0.0
        self._failures = self._failures_in_row = self._succeeded = 0

    @staticmethod
    def of_pod(arrival: PodArrival) -> Controller:
        """Return the controller of a pod that exists already, and that it alone creates anew."""
        made = Controller(
            Workload(
                arrival.name,
                ControllerKind.DEPLOYMENT,
                arrival.asked,
                arrival.at,
                runs=arrival.runs,
                leaves=arrival.leaves,
                alone=True,
            )
        )
        made._slots[0], made._at[arrival.name], made._fresh = _Slot(_SlotState.CREATED, 1), 0, 1
        return made

    @property
    def runaways(self) -> dict[str, int]:
        """First name of a pod that was created anew again and again -> how often."""
        return {
            self.workload.pod_name(index): slot.failures - 1
            for index, slot in self._slots.items()
            if slot.state is _SlotState.RUNAWAY
        }

    def sync(self, now: float) -> Orders:
        """Return the pods that it creates at a moment."""
        leaves = self.workload.leaves
        if self._closed or self.given_up or now < self._not_before or (leaves is not None and now >= leaves):
            return Orders()
        created = []
        while (index := self._missing()) is not None:
            slot = self._slots.setdefault(index, _Slot())
            name = self.workload.pod_name(index) + (f"{REMADE}{slot.generation}" if slot.generation else "")
            slot.state, slot.generation = _SlotState.CREATED, slot.generation + 1
            self._at[name] = index
            alone = leaves if self.workload.alone else None
            created.append(PodArrival(name, self.workload.asked, now, self.workload.runs, alone, self.workload.name))
        return Orders(tuple(created))

    def close(self) -> tuple[str, ...]:
        """Create no pod any more, and return the names of those that there are."""
        self._closed = True
        return tuple(self._at)

    def notice(self, name: str, change: PodChange, now: float) -> Orders:
        """Return what it does about a change of one of its pods.

        Args:
            name: of the pod.
            change: what became of it.
            now: seconds since the beginning.
        """
        index = self._at[name]
        slot = self._slots[index]
        if change is PodChange.ADMITTED:
            slot.state, slot.failures = _SlotState.RUNNING, 0
            return self.sync(now) if self.workload.ordered else Orders()
        del self._at[name]
        if change is PodChange.SUCCEEDED:
            slot.state = _SlotState.DONE
            self._succeeded, self._failures_in_row = self._succeeded + 1, 0
            self._not_before = min(self._not_before, now)
            return self.sync(now)
        slot.state = _SlotState.ABSENT
        if change is PodChange.FAILED and self.workload.kind is not ControllerKind.JOB:
            slot.failures += 1
            if slot.failures > MOST_REMADE:
                slot.state = _SlotState.RUNAWAY
                return Orders()
        heapq.heappush(self._gaps, index)
        if self.workload.kind is ControllerKind.JOB:
            return self._job_failed(now)
        return self.sync(now) if change is PodChange.DELETED else Orders(again=now + REMADE_AFTER)

    def _job_failed(self, now: float) -> Orders:
        """Count a failure of a Job's pod; deleted pods count, too."""
        self._failures, self._failures_in_row = self._failures + 1, self._failures_in_row + 1
        if self._failures > self.workload.backoff_limit:
            self.given_up = True
            return Orders(delete=tuple(self._at))
        pause = min(FIRST_JOB_BACKOFF * 2 ** (self._failures_in_row - 1), LONGEST_JOB_BACKOFF)
        self._not_before = now + pause
        return Orders(again=self._not_before)

    def _missing(self) -> int | None:
        """Return the first place in which a pod is missing and may be created now; None when there is none."""
        wanted = self.workload.pods
        if self.workload.kind is ControllerKind.JOB:
            wanted = min(self.workload.parallelism or wanted, wanted - self._succeeded)
        index = self._gaps[0] if self._gaps else self._fresh
        if len(self._at) >= wanted or index >= self.workload.pods:
            return None
        if self.workload.ordered and any(self._slots[one].state is not _SlotState.RUNNING for one in range(index)):
            return None
        if self._gaps:
            heapq.heappop(self._gaps)
        else:
            self._fresh += 1
        return index
