"""Metrics of the driver: claims that the kubelet had prepared and unprepared, and how long that took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mooring.service.pages import PROMETHEUS, Page

STEPS: Final = ("prepare", "unprepare")
_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Seconds; the kubelet waits for 45."""


class DriverMetrics:
    """Counters of one driver, and the page that shows them; usable from any thread."""

    def __init__(self, is_ready: Callable[[], bool], clock: Callable[[], float] = time.perf_counter) -> None:
        """Begin at zero.

        Args:
            is_ready: whether the driver can do its work.
            clock: seconds that only go forward.
        """
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives this function no types
        self._registry, self._clock = CollectorRegistry(), clock
        self.claims = Counter(
            "mooring_dra_claims",
            "Claims that the kubelet had prepared or unprepared, by result.",
            ["step", "result"],
            registry=self._registry,
        )
        self.seconds = Histogram(
            "mooring_dra_claim_seconds",
            "Time for preparing or unpreparing one claim.",
            ["step"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        ready = Gauge("mooring_dra_ready", "1 when the driver is ready.", registry=self._registry)
        ready.set_function(lambda: float(is_ready()))
        for step in STEPS:
            for result in ("done", "failed"):
                self.claims.labels(step, result)

    @contextmanager
    def counted(self, step: str) -> Iterator[None]:
        """Count one of :data:`STEPS` for one claim, as failed if it raises."""
        began, result = self._clock(), "failed"
        try:
            yield
            result = "done"
        finally:
            self.claims.labels(step, result).inc()
            self.seconds.labels(step).observe(self._clock() - began)

    def page(self) -> Page:
        """Return the page ``/metrics``."""
        return Page(generate_latest(self._registry), PROMETHEUS)
