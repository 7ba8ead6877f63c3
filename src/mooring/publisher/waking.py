"""Waking pods that wait: the scheduler tries them again when the cluster changes, and a state is no change to it.

A pod that the extender refused everywhere waits until something happens that could help it. The end of another pod is
such an event, but it comes before the node has published what that pod gave back, so that the extender may refuse once
more, and then the scheduler waits for the next event or for five minutes. An annotation of the Node is an event, too.
So, when a node has published that it has more room than before, it writes one.

Source: kube-scheduler v1.37.1, framework/runtime (a pod refused by an extender waits for any event) and
framework/events.go (UpdateNodeAnnotation).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import httpx2

from mooring.publisher.objects import GROUP
from mooring.publisher.observation import Observation
from mooring.publisher.writing import MANAGER
from mooring.publisher.zones import exclusive_cpus_of, zones_of
from mooring.service.cluster.apiserver import check_response, cluster_errors

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
    """Before that nobody is woken again."""

    def written(self, room: Room) -> Waking:
        """Return it after a state was written. What was there before the first one is not known: it counts as less."""
        grown = self.room is None or any(amount > self.room.get(what, 0) for what, amount in room.items())
        return replace(self, room=room, is_wanted=self.is_wanted or grown)

    def is_due(self, now: float) -> bool:
        """Tell whether to wake now."""
        return self.is_wanted and now >= self.barred

    def done(self, now: float) -> Waking:
        """Return it after somebody was woken."""
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
