"""What was seen of a node at one moment, and the objects that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from mooring.node import Node
from mooring.scheduling.node_topology import topology_document
from mooring.scheduling.state_document import state_document
from mooring.scheduling.values import NodeFacts, NodeState
from mooring.scheduling.zones import exclusive_cpus_of


@dataclass(frozen=True, slots=True)
class Observation:
    """A node at one moment."""

    facts: NodeFacts
    state: NodeState
    """Its sequence is not counted yet."""
    node: Node | None
    """As it decides; None when the kubelet would not start on the state."""
    problem: str = ""
    """Why not, in its words."""


class Source(Protocol):
    """Whoever knows a node."""

    def look(self) -> Observation | None:
        """Return the newest observation, the same object while nothing changes; None when there is none yet.

        Raises:
            MooringError: nothing can be seen at the moment.
        """


@dataclass(frozen=True, slots=True)
class Publication:
    """The objects of an observation that change with it; its facts rarely do and have a document of their own."""

    state: dict[str, Any]
    topology: dict[str, Any] | None
    """None where nobody can say what is available."""


def publication_of(seen: Observation, *, sequence: int, moment: float | None, owner: str = "") -> Publication:
    """Return the objects of an observation.

    Args:
        seen: the observation.
        sequence: of the state.
        moment: when it was seen, in seconds since 1970; None leaves it out.
        owner: uid of the Node object, with which state and topology are to vanish; empty where it is not known.
    """
    state = replace(seen.state, sequence=sequence)
    exclusive = None if seen.node is None else exclusive_cpus_of(seen.node)
    published = state_document(state, exclusive)
    if moment is not None:
        time = datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        published["status"] = {"observedAt": time, **published.get("status", {})}
    topology = None if seen.node is None else topology_document(seen.facts.machine, seen.node, state)
    for document in (published, topology):
        if document is not None and owner:
            document["metadata"]["ownerReferences"] = [
                {"apiVersion": "v1", "kind": "Node", "name": state.node, "uid": owner}
            ]
    return Publication(published, topology)
