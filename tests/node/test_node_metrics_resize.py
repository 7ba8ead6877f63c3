"""What the metrics count when containers are resized: names of KEP-6122, and infeasible resizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.node.metered import MetricsObserver
from tests.node.resizable import EXTENDED, SIXTEEN, config, pod

import mooring.engine.node.metric_names as name
from mooring.engine.core.config import MooringConfig
from mooring.engine.core.moment import SECOND, Moment
from mooring.engine.node import Node
from mooring.engine.node.metrics import Metrics, pending_cpus
from mooring.engine.node.resizing import reconcile, resize

STARTED, COMPLETED, PENDING = name.SCALE_DOWN_METRICS
EXCLUSIVE, SHARED = name.CPU_EXCLUSIVE, name.CPU_SHARED_POOL


class Counted:
    """A node that counts."""

    def __init__(self, node: Node | None = None) -> None:
        extended = MooringConfig(extensions=EXTENDED)
        self.node = node or Node.fresh(SIXTEEN, config(scale_delay_time="5s"), extended)
        self.heard = MetricsObserver(Metrics.initial(self.node.settings, self.node.cpu))

    def admit(self, cpus: int, uid: str = "p") -> None:
        self.node, _ = self.node.admit(pod(cpus, uid=uid), self.heard)

    def resize(self, *cpus: int, uid: str = "p") -> None:
        self.node, _ = resize(self.node, pod(*cpus, uid=uid), self.heard)

    def at(self, seconds: int) -> None:
        self.node = reconcile(self.node.at(Moment(seconds * SECOND)), self.heard)

    def __getitem__(self, metric: name.Metric) -> int | None:
        return self.heard.metrics.value(metric)

    @property
    def numbers(self) -> tuple[int | None, int | None, int | None]:
        return self[STARTED], self[COMPLETED], self[PENDING]


@pytest.mark.parametrize(
    ("sizes", "seconds", "numbers", "exclusive"),
    [
        ([6], 0, (0, 0, 0), 6),
        ([6, 3], 0, (1, 0, 3), 6),
        ([6, 3], 5, (1, 1, 0), 3),
        ([6, 3, 4], 0, (2, 0, 2), 6),
        ([6, 3, 4, 7], 0, (2, 0, 0), 7),
    ],
    ids=["growth", "pending", "over", "another in its place", "growth in its place"],
)
def test_releases_are_started_completed_and_pending(
    sizes: list[int], seconds: int, numbers: tuple[int, int, int], exclusive: int
) -> None:
    counted = Counted()
    counted.admit(2)
    for size in sizes:
        counted.resize(size)
    counted.at(seconds)
    assert (counted.numbers, counted[EXCLUSIVE], counted[SHARED]) == (numbers, exclusive, 1000 * (15 - exclusive))
    counted.node, _ = counted.node.remove("p", counted.heard)
    assert (counted[PENDING], counted[EXCLUSIVE], counted[SHARED]) == (0, 0, 15000)


def test_a_resize_that_is_refused_in_the_end_counts_as_infeasible_and_nothing_else() -> None:
    counted = Counted()
    both = pod(2, 2)
    counted.node, _ = counted.node.admit(both, counted.heard)
    counted.resize(6, 4)
    before = counted.heard.metrics
    # The first container would shrink, and the second finds too few CPUs.
    counted.resize(4, 14)
    after = counted.heard.metrics
    refused = after.value(name.RESIZES_INFEASIBLE, reason_detail="resizeAllocateCPUsError")
    assert refused == 1
    assert {one: value for one, value in after.values.items() if before.values.get(one) != value} == {
        (name.RESIZES_INFEASIBLE.name, (("reason_detail", "resizeAllocateCPUsError"),)): 1
    }


def test_the_kubelets_own_refusals_are_counted_under_its_details() -> None:
    counted = Counted(Node.fresh(SIXTEEN, replace(config(), feature_gates={})))
    counted.admit(2)
    counted.resize(3)
    counted.resize(3)
    metrics = counted.heard.metrics
    assert metrics.value(name.RESIZES_INFEASIBLE, reason_detail="guaranteed_pod_cpu_manager_static_policy") == 2


def test_without_the_extension_the_metrics_are_not_there() -> None:
    plain = replace(config(), feature_gates={})
    node = Node.fresh(SIXTEEN, plain)
    assert Metrics.initial(node.settings, node.cpu).value(PENDING) is None


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(2, 9), st.integers(0, 6)), max_size=8))
def test_the_gauges_are_what_the_state_says(asked: list[tuple[str, int, int]]) -> None:
    counted = Counted()
    counted.admit(2)
    counted.admit(2, "q")
    now = 0
    for uid, cpus, seconds in asked:
        counted.resize(cpus, uid=uid)
        now += seconds
        counted.at(now)
        assert counted[PENDING] == pending_cpus(counted.node.cpu)
        assert counted[EXCLUSIVE] == counted.node.cpu.held.bit_count()
        started, completed, _ = counted.numbers
        assert started is not None
        assert completed is not None
        assert completed <= started
