"""When a publisher writes, and when it has the scheduler try waiting pods again.

It writes soon after a change, once for a burst of changes, at a heartbeat without changes, and later after failures.

A pod that the extender refused everywhere waits until the scheduler sees an event that could help it. The end of
another pod is such an event, but comes before the node has published what that pod released; then the pod waits for the
next event or five minutes. An annotation of the Node is an event too, so a node with more room writes one.

Source: kube-scheduler v1.37.1, framework/runtime (a pod refused by an extender waits for any event) and
framework/events.go (UpdateNodeAnnotation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import httpx2

from mooring.published.node_topology import exclusive_cpus_of, zones_of
from mooring.published.objects import GROUP
from mooring.published.observation import Observation
from mooring.published.writing import MANAGER
from mooring.service.cluster.apiserver import check_response, cluster_errors
from mooring.service.cluster.watching import pause_before

LEAST_WAKING: Final = 5.0
"""Seconds between two times at which waiting pods are tried again: each time the scheduler tries all of them."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The operator's choice, in seconds."""

    gathering: float = 0.2
    """After the first change of a burst, in which the others come."""
    least: float = 1.0
    """Between two writes."""
    heartbeat: float = 300.0
    """Between two writes when nothing changes."""
    waking: float | None = None
    """Least between two times at which waiting pods are tried again; None for never."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was written when, on a clock that only goes forward.

    >>> pace = Pace(Rhythm()).changed(100.0)
    >>> pace.due, pace.changed(100.1).due, pace.written(100.2).changed(100.3).due
    (100.2, 100.2, 101.2)
    """

    rhythm: Rhythm
    first: float | None = None
    """When the oldest change came that is not written."""
    last: float | None = None
    """When the last write succeeded."""
    failures: int = 0
    barred: float = 0.0
    """Not asked again before that."""

    @property
    def due(self) -> float | None:
        """When the next write is due; None when there is nothing to write."""
        if self.first is not None:
            wanted = self.first + self.rhythm.gathering
            if self.last is not None:
                wanted = max(wanted, self.last + self.rhythm.least)
        elif self.last is not None:
            wanted = self.last + self.rhythm.heartbeat
        else:
            return None
        return max(wanted, self.barred)

    def changed(self, now: float) -> Pace:
        """Return the pace after a change."""
        return self if self.first is not None else replace(self, first=now)

    def written(self, now: float) -> Pace:
        """Return the pace after a write of everything."""
        return Pace(self.rhythm, last=now)

    def failed(self, now: float, node: str, pause: float = 0.0) -> Pace:
        """Return the pace after a write that failed.

        Args:
            now: the time.
            node: of whom; nodes differ a little in how long they wait.
            pause: seconds that the server wants.
        """
        failures = self.failures + 1
        return replace(
            self,
            first=now if self.first is None else self.first,
            failures=failures,
            barred=now + max(pause_before(failures, node), pause),
        )


ANNOTATION: Final = f"{GROUP}/room"
"""Its value is the sequence of the state that has more room."""

Room = Mapping[tuple[int | None, str], int]
"""NUMA node and resource -> what is available; None stands for the whole node."""


@dataclass(frozen=True, slots=True)
class Waking:
    """When to wake, on a clock that only goes forward.

    >>> less = Waking(5.0).written({(0, "cpu"): 4}).done(100.0).written({(0, "cpu"): 2})
    >>> more = less.written({(0, "cpu"): 3})
    >>> less.is_due(200.0), more.is_due(104.0), more.is_due(105.0)
    (False, False, True)
    """

    least: float
    """Seconds between two times."""
    room: Room | None = None
    """What was available in the state that was written last; None before the first."""
    is_wanted: bool = False
    barred: float = 0.0
    """No annotation is written before that."""

    def written(self, room: Room) -> Waking:
        """Return it after a state was written. What was there before the first one is not known: it counts as less."""
        grown = self.room is None or any(amount > self.room.get(what, 0) for what, amount in room.items())
        return replace(self, room=room, is_wanted=self.is_wanted or grown)

    def is_due(self, now: float) -> bool:
        """Tell whether to wake now."""
        return self.is_wanted and now >= self.barred

    def done(self, now: float) -> Waking:
        """Return it after the annotation was written."""
        return replace(self, is_wanted=False, barred=now + self.least)

    def failed(self, now: float) -> Waking:
        """Return it after that failed; it is tried again later."""
        return replace(self, barred=now + self.least)


def room_of(seen: Observation) -> Room:
    """Return what the next pod can get of a node; nothing when its kubelet would not start."""
    if seen.node is None:
        return {}
    found: dict[tuple[int | None, str], int] = {(None, "cpu"): exclusive_cpus_of(seen.node).available}
    for zone in zones_of(seen.facts.machine, seen.node):
        found.update({(zone.node, amount.resource): amount.available for amount in zone.amounts})
    return found


def wake(http: httpx2.Client, node: str, sequence: int) -> None:
    """Write the annotation.

    Args:
        http: with base URL and credentials.
        node: name of the Node.
        sequence: of the state that has more room.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    content = {"metadata": {"annotations": {ANNOTATION: str(sequence)}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    with cluster_errors():
        check_response(
            http.patch(f"api/v1/nodes/{node}", params={"fieldManager": MANAGER}, json=content, headers=headers)
        )
