"""What the extender counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Seconds; a scheduler waits for five by default."""

_GAUGES: Mapping[str, str] = {
    "nodes": "Nodes with a published state.",
    "unreadable": "Nodes whose published state cannot be read.",
    "pods": "Pods that are known.",
    "assumed": "Pods that are bound and that no state has named yet.",
    "unconfirmed": "Pods that this extender bound and that the API server has not shown since.",
    "engine_runs": "Runs of the engine.",
    "known_answers": "Answers that were known from an earlier run.",
    "ready": "1 when everything has been listed.",
}


class ExtenderMetrics:
    """Counters of one extender, and the page that shows them."""

    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Begin at zero.

        Args:
            counts: tells what is not counted but seen.
        """
        # Times of creation double the number of lines: all are that of the start.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives this function no types
        self._registry = CollectorRegistry()
        self.seconds = Histogram(
            "mooring_extender_request_seconds",
            "Time from a request of the scheduler to its answer.",
            ["verb"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self.requests = self._counter("requests", "Requests, by verb and status.", "verb", "status")
        self.binds = self._counter("binds", "Binds, by result.", "result")
        self.refusals = self._counter(
            "mispredictions", "Pods bound by this extender that their node refused, by its reason.", "reason"
        )
        self.outages = self._counter("watch_failures", "Lists and watches that failed, by what was watched.", "what")
        self._registry.register(_Seen(counts))

    def _counter(self, name: str, says: str, *labels: str) -> Counter:
        return Counter(f"mooring_extender_{name}", says, labels, registry=self._registry)

    def refused(self, reason: str) -> None:
        """Count a pod that its node refused although it was admitted here."""
        self.refusals.labels(reason).inc()

    def text(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self._registry)


class _Seen(Collector):
    def __init__(self, counts: Callable[[], Mapping[str, int]]) -> None:
        self._counts = counts

    def describe(self) -> Iterable[Metric]:
        """Return the names without collecting."""
        return [GaugeMetricFamily(f"mooring_extender_{name}", says) for name, says in _GAUGES.items()]

    def collect(self) -> Iterator[Metric]:
        """Yield the gauges."""
        counts = self._counts()
        for name, says in _GAUGES.items():
            yield GaugeMetricFamily(f"mooring_extender_{name}", says, value=float(counts.get(name, 0)))
