"""Every metric that Mooring's programs export, with its labels: read from the pages of the programs themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NoReturn

from prometheus_client import Counter, Histogram
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.outside.nodes import busy, snapshot_of
from tests.scheduling.extender_cluster import ready_extender

from mooring.agent.metrics import AgentMetrics
from mooring.agent.status import Published
from mooring.cluster.dra.plugin import DriverMetrics
from mooring.engine.node.metric_names import METRICS, SCALE_DOWN_METRICS, MetricType
from mooring.published.publisher import Publisher


def publisher_after_a_write() -> Publisher:
    """Return a publisher whose page has every number."""

    def connect() -> NoReturn:
        raise AssertionError("nothing is published")

    publisher = Publisher(lambda: None, connect, "node", clock=lambda: 5.0)
    publisher.written_at, publisher.bursts, publisher.burst_cpu = 0.0, 1, 0.01
    return publisher


TARGET = frozenset({"job", "instance"})
"""What Prometheus adds to every series."""


def exported() -> Mapping[str, frozenset[str]]:
    """Return the names of all series, each with its labels."""
    agent = AgentMetrics(Published(snapshot_of(busy())))
    agent.per_container = True
    extender = ready_extender().metrics
    driver = DriverMetrics(lambda: True)
    publisher = publisher_after_a_write()
    found: dict[str, set[str]] = defaultdict(set)
    for metrics in (agent, extender, driver):
        label_all(metrics)
    pages = (
        agent.text(),
        extender.page().body.decode(),
        driver.page().body.decode(),
        publisher.text().decode(),
    )
    for page in pages:
        for family in text_string_to_metric_families(page):
            for sample in family.samples:
                found[_plain(sample.name)] |= set(sample.labels)
    # Gauges of containers with devices are only there while containers have some.
    for name in ("aligned_containers", "unaligned_containers"):
        found[f"mooring_agent_{name}"] |= {"policy", "resource"}
    for name in ("device_containers", "unknown_device_pods"):
        found[f"mooring_agent_{name}"] |= set()
    for metric in (*METRICS, *SCALE_DOWN_METRICS):
        suffixes = ("_bucket", "_sum", "_count") if metric.type is MetricType.HISTOGRAM else ("",)
        for suffix in suffixes:
            found[metric.name + suffix] |= {*metric.labels, *(("le",) if suffix == "_bucket" else ())}
    return {name: frozenset(labels) for name, labels in found.items()}


def _plain(name: str) -> str:
    """Return a name as the page has it: the parser adds what OpenMetrics wants."""
    return name.removesuffix("_total") if name.endswith("_count_total") else name


def label_all(metrics: object) -> None:
    """Give each labelled metric a series, so that its page shows the labels."""
    for value in vars(metrics).values():
        if isinstance(value, Counter | Histogram):
            for count in (1, 2, 3):
                try:
                    value.labels(*["x"] * count)
                except ValueError:
                    continue
