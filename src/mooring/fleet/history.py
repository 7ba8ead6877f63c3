"""The nodes of a simulation over time, for answers that draw them: what is used on each, and the state of each."""

from __future__ import annotations

from dataclasses import dataclass, field

from mooring.fleet.nodes import Nodes
from mooring.fleet.scheduler.arrays import Amounts
from mooring.fleet.states import SharedState


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """All nodes at one moment."""

    at: float
    """Seconds since the beginning."""
    used: Amounts
    """Requests, with a row for each resource of the table and a column for each node."""
    states: tuple[SharedState, ...]
    """Of each node."""


@dataclass(slots=True)
class NodeHistory:
    """What a simulation keeps of its nodes where it is asked to."""

    moments: list[NodesSeen] = field(default_factory=list)
    refused: dict[str, SharedState] = field(default_factory=dict)
    """Name of a pod that a kubelet refused -> the state of its node then."""

    def look(self, time: float, nodes: Nodes) -> None:
        """Keep the nodes as they are."""
        self.moments.append(NodesSeen(time, nodes.table.used.copy(), tuple(nodes.at)))
