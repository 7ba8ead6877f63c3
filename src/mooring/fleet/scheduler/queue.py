"""Pods that wait for a node: those to be tried, and those for which the last try found none.

Equal pods wait together: what one of them is refused the others are refused too, until something on a node changes.
A pod that found no node is tried again after its back-off, and only when a change may have made room for it.

Source: kube-scheduler v1.37.1, backend/queue: priority, then time; back-off of 1 s that doubles up to 10 s.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final

from mooring.fleet.scheduler.asked import PodDemand
from mooring.fleet.work import PodArrival

FIRST_BACKOFF: Final = 1.0
"""Seconds."""
LONGEST_BACKOFF: Final = 10.0
"""Seconds."""


@dataclass(slots=True)
class WaitingPod:
    """A pod that has no node yet."""

    arrival: PodArrival
    since: float
    """When it was created."""
    tries: int = 0
    last: float = 0.0
    """When it was tried last."""

    @property
    def ready(self) -> float:
        """When its back-off is over."""
        return self.last + min(FIRST_BACKOFF * 2 ** max(self.tries - 1, 0), LONGEST_BACKOFF) if self.tries else 0.0


class Queue:
    """Pods without a node."""

    def __init__(self) -> None:
        """Begin without any."""
        self._active: list[tuple[int, float, int, WaitingPod]] = []
        self._parked: dict[Hashable, deque[WaitingPod]] = {}
        self._count = 0
        self._gone: set[str] = set()

    def add(self, waiting: WaitingPod) -> None:
        """Put a pod among those to be tried: high priority first, then old ones."""
        self._count += 1
        heapq.heappush(self._active, (-waiting.arrival.asked.priority, waiting.since, self._count, waiting))

    def next(self) -> WaitingPod | None:
        """Take the pod that is tried next; None when none is to be tried."""
        while self._active:
            waiting = heapq.heappop(self._active)[-1]
            if waiting.arrival.name not in self._gone:
                return waiting
        return None

    def park(self, waiting: WaitingPod) -> None:
        """Keep a pod until something changes."""
        parked = self._parked.setdefault(waiting.arrival.asked.key, deque())
        # One that was woken in vain stays before those that came after it.
        (parked.append if waiting.tries == 1 else parked.appendleft)(waiting)

    def kinds(self) -> list[PodDemand]:
        """Return what the parked pods ask, once each."""
        return [found[0].arrival.asked for found in self._parked.values()]

    def wake(self, key: Hashable) -> WaitingPod | None:
        """Take the first of the parked pods of a kind (:attr:`PodDemand.key`); None when none is left."""
        found = self._parked.get(key)
        while found:
            waiting = found.popleft()
            if not found:
                del self._parked[key]
            if waiting.arrival.name not in self._gone:
                return waiting
        return None

    def forget(self, name: str) -> None:
        """Leave out a pod that was deleted."""
        self._gone.add(name)
