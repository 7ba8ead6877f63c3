"""What a shadow publishes and when: soon after the beginning, once a minute at most, and at its end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.agent.pods.fault_injector import Fault, FaultInjector

from mooring.engine.core.machine import Finding
from mooring.monitoring.shadow.folder import RHYTHM, ShadowPublisher
from mooring.monitoring.shadow.judgement import Agreement, Judgement, KubeletEvent
from mooring.monitoring.shadow.tally import add, new_tally
from mooring.published.shadow_document import ShadowDocument, shadow_of
from mooring.service.apiserver import Cluster, cluster_of

SHADOW = "PATCH /apis/mooring.dev/v1alpha1/nodeshadows/n1"
AGREED = Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, "1", "default/web")


@dataclass
class Published:
    """A shadow's publisher with a clock of its own."""

    cluster: FaultInjector
    now: float = 0.0
    told: list[Finding] = field(default_factory=list)
    tally: ShadowDocument = field(default_factory=lambda: new_tally("n1", "v1.37.1", "2026-01-01T00:00:00Z"))

    def __post_init__(self) -> None:
        self.publisher = ShadowPublisher(
            self.tally,
            self.connect,
            self.told.append,
            clock=lambda: self.now,
            today=lambda: "2026-01-02T00:00:00Z",
        )

    def connect(self) -> Cluster:
        return cluster_of(self.cluster.config())

    def let_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.publisher.step()
            self.now += 1.0

    def agree(self) -> None:
        add(self.tally, [AGREED], "2026-01-01T12:00:00Z")

    @property
    def agreed(self) -> list[int]:
        return [shadow_of(body)[1].agreed for body in self.written]

    @property
    def written(self) -> list[dict[str, Any]]:
        return [request.body for request in self.cluster.asked(SHADOW)]


@pytest.fixture
def shadow() -> Iterator[Published]:
    with FaultInjector(node="n1") as cluster:
        one = Published(cluster)
        yield one
        one.publisher.close()


def test_counts_are_written_soon_and_then_once_a_minute_at_most(shadow: Published) -> None:
    shadow.let_pass(3)
    assert shadow.agreed == [0]
    for _ in range(int(RHYTHM.least)):
        shadow.agree()
        shadow.let_pass(1)
    assert shadow.agreed == [0, int(RHYTHM.least) - 1]
    shadow.let_pass(int(RHYTHM.heartbeat) - 1)
    assert len(shadow.agreed) == 3, "the rest, and no heartbeat yet"


def test_what_is_not_written_yet_is_written_at_the_end(shadow: Published) -> None:
    shadow.let_pass(3)
    shadow.agree()
    shadow.publisher.step(last=True)
    shadow.publisher.step(last=True)
    assert shadow.agreed == [0, 1]


def test_a_cluster_without_the_definition_is_reported_with_the_remedy(shadow: Published) -> None:
    shadow.cluster.fail(SHADOW, Fault(404))
    shadow.let_pass(10)
    assert shadow.told[0].message.endswith("apply the definitions of deploy/crds")
    assert shadow.told[1].message == "the counts of n1 are published again"
    assert shadow.agreed[-1] == 0
