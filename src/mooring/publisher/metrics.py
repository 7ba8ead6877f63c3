"""What a publisher counts, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mooring.publisher.publisher import PublisherCounts

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "mooring_publish"


class PublisherMetrics(Collector):
    """The page on which a publisher's counts stand."""

    def __init__(self, counts: PublisherCounts, clock: Callable[[], float]) -> None:
        """Count nothing itself.

        Args:
            counts: of the publisher, which goes on changing them.
            clock: the publisher's, seconds.
        """
        self._counts, self._clock = counts, clock
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Metric]:
        """Return nothing: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters, and the age of the last write once there was one."""
        counts = self._counts
        for name, says, value in (
            ("changes", "Changes of the node that were seen, the first sight too.", counts.changes),
            ("writes", "Writes of everything, heartbeats too.", counts.writes),
            ("failures", "Writes that failed.", counts.failures),
            ("blind_looks", "Looks at the node that failed.", counts.blind),
            ("wakes", "Annotations written to have the scheduler try waiting pods again.", counts.wakes),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", says, value=value)
        if counts.written_at is not None:
            age = max(self._clock() - counts.written_at, 0.0)
            says = "Time since everything was written last."
            yield GaugeMetricFamily(f"{_PREFIX}_last_write_age_seconds", says, value=age)
        says = "CPU time of the publisher's thread from seeing a burst of changes until it is written."
        yield SummaryMetricFamily(
            f"{_PREFIX}_change_cpu_seconds", says, count_value=counts.bursts, sum_value=counts.burst_cpu
        )
