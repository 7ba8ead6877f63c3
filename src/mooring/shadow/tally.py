"""How often the engine decided as the kubelet did, since when, and in what it did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from mooring.documents.shadow import ShadowCountPart, ShadowDecisionPart, ShadowDocument, WouldBePart
from mooring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.shadow.would_be import WouldBe

MOST_KEPT = 100
"""Differences that are kept in words; all are counted."""


@dataclass(slots=True)
class Tally:
    """Counted by one thread; others may read it at any time."""

    node: str
    release: str
    since: str
    """Time of the first observation, as RFC 3339."""
    counts: Counter[tuple[Agreement, KubeletEvent, DifferenceCause]] = field(default_factory=Counter)
    differences: list[Judgement] = field(default_factory=list)
    """The newest last."""
    blind: int = 0
    """Looks at which nothing could be seen."""
    refused: int = 0

    def add(self, judgements: Iterable[Judgement]) -> None:
        """Count judgements."""
        for one in judgements:
            self.counts[one.verdict, one.event, one.cause] += 1
            self.refused += one.event is KubeletEvent.REFUSED
            if one.verdict is Agreement.DIFFERS:
                self.differences = [*self.differences, one][-MOST_KEPT:]

    def total(self, verdict: Agreement) -> int:
        """Return how many decisions have a verdict."""
        return sum(count for (said, _, _), count in list(self.counts.items()) if said is verdict)

    def document(self, would_be: WouldBe | None = None) -> ShadowDocument:
        """Return it as the document of ``mooring shadow -o json``."""
        return ShadowDocument(
            node=self.node,
            release=self.release,
            since=self.since,
            agreed=self.total(Agreement.AGREED),
            differs=self.total(Agreement.DIFFERS),
            unknown=self.total(Agreement.UNKNOWN),
            counts=[
                ShadowCountPart(verdict.value, event.value, cause.value, count)
                for (verdict, event, cause), count in sorted(
                    self.counts.items(), key=lambda item: [one.value for one in item[0]]
                )
            ],
            differences=[
                ShadowDecisionPart(one.name, one.event.value, one.cause.value, one.kubelet, one.engine)
                for one in self.differences
            ],
            blind=self.blind,
            refused=self.refused,
            would_be=None
            if would_be is None
            else WouldBePart(would_be.refusals, list(would_be.refused), list(would_be.admitted)),
        )

    def metrics(self) -> bytes:
        """Return the counts in the text format of Prometheus."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the decisions by verdict, event and cause, and the looks at which nothing could be seen."""
        says = "Decisions of the kubelet that were compared with the engine."
        decisions = CounterMetricFamily("mooring_shadow_decisions", says, labels=["verdict", "event", "cause"])
        for (verdict, event, cause), count in list(self.counts.items()):
            decisions.add_metric([verdict.value.replace(" ", "_"), event.value, cause.value.replace(" ", "_")], count)
        yield decisions
        yield CounterMetricFamily(
            "mooring_shadow_blind_looks", "Looks at the kubelet at which nothing could be seen.", value=self.blind
        )
