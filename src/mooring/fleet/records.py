"""What became of each pod of a simulation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from mooring.fleet.work import PodArrival


class Fate(Enum):
    """What became of a pod."""

    RAN = "ran"
    """It was admitted and has ended."""
    RUNS = "runs"
    """It is on its node at the end."""
    WAITS = "waits"
    """No node takes it, at the end."""
    LEFT = "left"
    """It was deleted before a node took it."""
    REFUSED = "refused"
    """Its kubelet refused it."""
    EVICTED = "evicted"
    """It was admitted, and had to leave: its node was drained or removed, or it was preempted."""
    HELD = "held"
    """The agent of its node has no room for it, at the end; it waits there."""


ORDER: Final = (Fate.RAN, Fate.RUNS, Fate.WAITS, Fate.LEFT, Fate.REFUSED, Fate.EVICTED, Fate.HELD)
"""In which documents count them."""


@dataclass(slots=True)
class Record:
    """What became of one pod."""

    arrival: PodArrival
    fate: Fate = Fate.WAITS
    node: int | None = None
    """Place of its node, also of the one that refused it."""
    place: str = ""
    """Its name in the node's state."""
    admitted: float | None = None
    """When its node took it."""
    ended: float | None = None
    code: str = ""
    """Of the cause of a refusal."""
    came: int = 0
    """Number of the event with which it came to its node; later ones are larger."""
    went: int = 0
    """Number of the event with which it left its node; 0 while it is there."""
    numa_nodes: int = 0
    """NUMA nodes on which its own CPUs, devices and memory lay when it was admitted; 0 when it had none."""

    @property
    def waited(self) -> float | None:
        """Seconds from its creation to its admission; None when it never came to that."""
        return None if self.admitted is None else self.admitted - self.arrival.at
