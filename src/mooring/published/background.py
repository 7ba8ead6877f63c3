"""Publishing the engine of another program, such as the agent, in a thread of its own.

Nothing that answers the container runtime waits for the thread, and the thread waits for the API server only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.decoding.fields import Report
from mooring.published.observation import EngineObserver, Observation
from mooring.published.pace import Rhythm
from mooring.published.publisher import Publisher, PublisherCounts, PublisherMetrics
from mooring.service.cluster.apiserver import Cluster


class LiveSource:
    """The present engine of a running program as a source."""

    def __init__(self, kubelet: Callable[[], Kubelet | None], node: str) -> None:
        """Read nothing yet.

        Args:
            kubelet: returns the present engine; None while there is none.
            node: name of the node.
        """
        self._read, self._observer = kubelet, EngineObserver(node)
        self._kubelet: Kubelet | None = None
        self._seen: Observation | None = None

    def observe(self) -> Observation | None:
        """Return what the engine has allocated; None while there is no engine."""
        kubelet = self._read()
        if kubelet is None or kubelet is self._kubelet:
            return self._seen
        self._kubelet = kubelet
        seen = self._observer.observe(kubelet)
        # Many events change nothing that is published.
        if self._seen is None or (seen.facts, seen.state) != (self._seen.facts, self._seen.state):
            self._seen = seen
        return self._seen


class PublisherThread:
    """A publisher in a thread."""

    def __init__(
        self,
        kubelet: Callable[[], Kubelet | None],
        connect: Callable[[], Cluster],
        node: str,
        report: Report,
        rhythm: Rhythm | None = None,
    ) -> None:
        """Start.

        Args:
            kubelet: returns the present engine; None while there is none.
            connect: opens the way to the API server.
            node: name of the node.
            report: receives outages and recoveries.
            rhythm: when to write.
        """
        self._stopping = threading.Event()
        self._publisher = Publisher(LiveSource(kubelet, node), connect, node, rhythm=rhythm, report=report)
        self._metrics = PublisherMetrics(self._publisher.counts, time.monotonic)
        self._thread = threading.Thread(
            target=self._publisher.run, args=(self._stopping,), name="mooring-publisher", daemon=True
        )
        self._thread.start()

    @property
    def counts(self) -> PublisherCounts:
        """What has been done."""
        return self._publisher.counts

    def metrics(self) -> str:
        """Return the counts in the text format of Prometheus."""
        return self._metrics.text().decode()

    def stop(self, patience: float) -> None:
        """End the thread, and wait for it for some seconds."""
        self._stopping.set()
        self._thread.join(patience)
