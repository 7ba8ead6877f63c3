"""An engine of Mooring as a source: the agent's, or that of a plan."""

from __future__ import annotations

from mooring.core.config import KubeletConfig, MooringConfig
from mooring.core.machineinfo import MachineInfo
from mooring.kubelet.kubelet import Kubelet
from mooring.scheduling.facts_document import digest_of, essential
from mooring.scheduling.publisher.observation import Observation
from mooring.scheduling.values import NodeFacts, NodeState, PodKey


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


class Still:
    """A source in which nothing ever changes."""

    def __init__(self, seen: Observation) -> None:
        self._seen = seen

    def look(self) -> Observation:
        """Return what there is."""
        return self._seen
