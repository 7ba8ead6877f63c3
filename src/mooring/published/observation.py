"""A node at one moment, from an engine or from its kubelet, and the objects that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.published.facts_document import digest_of, essential, facts_document
from mooring.published.node_topology import exclusive_cpus_of, topology_document
from mooring.published.objects import NodeFacts, NodeState, PodKey
from mooring.published.state_document import state_document


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
    left: Holdings = field(default_factory=dict)
    """Devices that the kubelet's record says pods have that are gone: it forgets them when it gives out devices."""


class Source(Protocol):
    """Where observations of a node come from."""

    def observe(self) -> Observation | None:
        """Return the newest observation, the same object while nothing changes; None when there is none yet.

        Raises:
            MooringError: nothing can be seen at the moment.
        """


def documents_of(
    seen: Observation, *, sequence: int, moment: float | None, owner: str = ""
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the objects that change with an observation: NodeState and NodeResourceTopology.

    The topology is None when the kubelet would not start on the state.

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
    return published, topology


class EngineObserver:
    """Turns engines into observations; the digest of facts is made once."""

    def __init__(self, node: str) -> None:
        """Know nothing yet.

        Args:
            node: name of the node in the cluster.
        """
        self._node = node
        self._of: tuple[MachineInfo, KubeletConfig, MooringConfig] | None = None
        self._facts: NodeFacts | None = None
        self._digest = ""

    def observe(self, kubelet: Kubelet) -> Observation:
        """Return an engine as it is published."""
        now = kubelet.info, kubelet.settings.config, kubelet.mooring
        if self._facts is None or self._of is None or any(a is not b for a, b in zip(now, self._of, strict=True)):
            self._of = now
            self._facts = NodeFacts(essential(kubelet.info), kubelet.settings.config, kubelet.mooring)
            self._digest = digest_of(self._facts)
        node = kubelet.node
        keys = tuple(PodKey(pod.namespace, pod.name, pod.uid) for pod in node.active.values())
        state = NodeState(
            self._node,
            self._digest,
            kubelet.files,
            node.providers.devices,
            keys,
            offline=node.cpu.offline,
            displaced=node.cpu.displaced,
        )
        return Observation(self._facts, state, node)


class FixedObservation:
    """A source in which nothing ever changes."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen

    def observe(self) -> Observation:
        """Return what there is."""
        return self._seen


def listing_of(seen: Observation) -> dict[str, Any]:
    """Return a v1 List of what a publisher would write, without times, so that it is the same each time."""
    items = [facts_document(seen.facts, seen.state.node), *documents_of(seen, sequence=0, moment=None)]
    return {"apiVersion": "v1", "kind": "List", "items": [item for item in items if item is not None]}
