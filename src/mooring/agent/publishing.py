"""The agent tells the cluster what it has given away, from snapshots and in a thread of its own.

Nobody who answers the runtime waits for it, and it waits for nobody but the API server.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mooring.agent.pods.accounts import Account, connector, own_accounts
from mooring.agent.status.snapshot import SnapshotProvider
from mooring.core.errors import InputError
from mooring.kubelet.kubelet import Kubelet
from mooring.manifest.fields import Report
from mooring.scheduling.publisher.counts import Counts
from mooring.scheduling.publisher.engine_source import EngineObserver
from mooring.scheduling.publisher.metrics import PublisherMetrics
from mooring.scheduling.publisher.observation import Observation
from mooring.scheduling.publisher.pace import Rhythm
from mooring.scheduling.publisher.publisher import Publisher
from mooring.service.cluster.apiserver import Cluster


class AgentSource:
    """The newest snapshot as a source."""

    def __init__(self, provider: SnapshotProvider, node: str) -> None:
        """Look at nothing yet.

        Args:
            provider: knows the agent.
            node: name of the node.
        """
        self._provider, self._observer = provider, EngineObserver(node)
        self._kubelet: Kubelet | None = None
        self._seen: Observation | None = None

    def look(self) -> Observation | None:
        """Return what the agent has given away; None while it has no state."""
        state = self._provider.snapshot().state
        if state is None or state.kubelet is self._kubelet:
            return self._seen
        self._kubelet = state.kubelet
        seen = self._observer.observe(state.kubelet)
        # Many events change nothing that is published.
        if self._seen is None or (seen.facts, seen.state) != (self._seen.facts, self._seen.state):
            self._seen = seen
        return self._seen


class Publishing:
    """A publisher in a thread."""

    def __init__(
        self,
        provider: SnapshotProvider,
        connect: Callable[[], Cluster],
        node: str,
        report: Report,
        rhythm: Rhythm | None = None,
    ) -> None:
        """Begin.

        Args:
            provider: knows the agent.
            connect: opens the way to the API server.
            node: name of the node.
            report: receives outages and recoveries.
            rhythm: when to write.
        """
        self._stopping = threading.Event()
        self._publisher = Publisher(AgentSource(provider, node), connect, node, rhythm=rhythm, report=report)
        self._metrics = PublisherMetrics(self._publisher.counts, time.monotonic)
        self._thread = threading.Thread(
            target=self._publisher.run, args=(self._stopping,), name="mooring-publisher", daemon=True
        )
        self._thread.start()

    @property
    def counts(self) -> Counts:
        """What has been done."""
        return self._publisher.counts

    def metrics(self) -> str:
        """Return them in the text format of Prometheus."""
        return self._metrics.text().decode()

    def stop(self, patience: float) -> None:
        """End the thread, and wait for it for a while."""
        self._stopping.set()
        self._thread.join(patience)


def publishing(provider: SnapshotProvider, kubeconfig: str, node: str, report: Report) -> Publishing:
    """Begin to publish a node.

    Raises:
        InputError: there is no kubeconfig, or it cannot be used.
    """
    if not kubeconfig:
        raise InputError("needs the API server", field="publish", remedy="write kubeconfig, or publish: false")
    connect = own_accounts(kubeconfig).get(Account.PUBLISH) or connector(kubeconfig)
    return Publishing(provider, connect, node, report)
