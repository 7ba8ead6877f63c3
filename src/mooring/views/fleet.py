"""What the report of a simulated cluster shows: figures, nodes over time, pictures of their states, pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from mooring.documents.cluster.fleet import FleetDocument
from mooring.views.decision import DecisionView
from mooring.views.svg.heatmap import HeatMap
from mooring.views.view import NodeView


@dataclass(frozen=True, slots=True)
class NodesOverTime:
    """Every node at every moment."""

    names: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    """Places of the nodes of each row of the heat maps."""
    moments: tuple[float, ...]
    """Seconds since the beginning."""
    shares: Mapping[str, bytes]
    """Resource -> requested percent, a byte each, the moments of a node together."""
    states: bytes
    """Number of the picture, from 1; 0 for a state that is not drawn. Two bytes each, low byte first."""
    distinct: int
    """States that the nodes had."""


@dataclass(frozen=True, slots=True)
class StatePicture:
    """The picture of a state that several nodes may have had."""

    view: NodeView
    marks: Mapping[str, str]
    """Name of a pod in the state -> its letters in the picture."""


@dataclass(frozen=True, slots=True)
class FleetPagePod:
    """One pod."""

    name: str
    first: str
    """Name of the pod for which it was made anew, or its own."""
    fate: str
    node: int | None
    """Place of its node, also of the one that refused it."""
    state_name: str
    """Its name in the state of its node."""
    created: float
    admitted: float | None
    ended: float | None
    code: str
    requests: str


@dataclass(frozen=True, slots=True)
class RefusalStory:
    """Why a node in some state refused pods of some shape."""

    code: str
    reason: str
    """The kubelet's reason."""
    message: str
    """The kubelet's message."""
    why: str
    remedy: str
    decision: DecisionView
    picture: int
    """Number of the picture of the node before; 0 for none."""
    pods: tuple[str, ...]
    """Names of the pods that were refused so; the picture of the decision names the first."""


@dataclass(frozen=True, slots=True)
class WaitStory:
    """Why pods of one kind found no node."""

    causes: tuple[tuple[str, int], ...]
    """Cause, and number of nodes."""
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FleetView:
    """The whole report."""

    document: FleetDocument
    heats: tuple[HeatMap, ...]
    """One for each resource of :attr:`NodesOverTime.shares`, in that order."""
    nodes: NodesOverTime
    pictures: tuple[StatePicture, ...]
    pods: tuple[FleetPagePod, ...]
    refusals: tuple[RefusalStory, ...]
    waits: tuple[WaitStory, ...]
