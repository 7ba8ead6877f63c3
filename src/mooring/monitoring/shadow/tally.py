"""How often the engine decided as the kubelet did, since when, and what differed.

``mooring record -o json``: what was recorded of each node.

The counts of a shadow over its restarts: one file of its folder, the document of ``mooring shadow -o json``.

It is replaced whole after every judgement. A file that cannot be used is kept beside it under another name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import add
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import structs
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from mooring.documents.plan import API_VERSION, APIVersion, Count, DocumentPart, told
from mooring.engine.checkpoint.salvage import BACKUP
from mooring.engine.checkpoint.store import read_state_file, system_words, write_atomically
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.monitoring.shadow.predicting import WouldBeAnswer
from mooring.published.shadow_document import (
    ShadowCountPart,
    ShadowDayPart,
    ShadowDecisionPart,
    ShadowDocument,
    WouldBeDayPart,
    WouldBePart,
)


class RecordedNodePart(DocumentPart):
    """A node, and how often the engine decided as its kubelet did."""

    node: str
    release: Annotated[str, told("Of its kubelet; empty while nothing was seen of it.")]
    since: Annotated[str, told("Time from which decisions are counted.")]
    folder: Annotated[str, told("Where its recordings lie.")]
    scenarios: Annotated[Count, told("Written since the start.")]
    left_out: Annotated[Count, told("Stretches of which no scenario can be made.")]
    agreed: Count
    differs: Count
    unknown: Count
    blind: Annotated[Count, told("Looks at which nothing could be seen.")]


class RecordingDocument(DocumentPart, kw_only=True):
    """What mooring record -o json prints: what was recorded of each node."""

    api_version: APIVersion = API_VERSION
    kind: Literal["Recording"] = "Recording"
    nodes: list[RecordedNodePart]


MOST_KEPT: Final = 100
"""Differences and pods that are kept in words; all are counted."""
DAYS: Final = 31
"""Days of which counts are kept."""

_Day = TypeVar("_Day", bound=ShadowDayPart | WouldBeDayPart)
Counted = tuple[str, Agreement, KubeletEvent, DifferenceCause]
"""Release of the kubelet, verdict, event and cause of a decision."""


def _with_counts(days: list[_Day], more: _Day) -> list[_Day]:
    """Return the newest days, to one of which counts are added."""
    day, *counts = structs.astuple(more)
    for before in days:
        if before.day == day:
            counts = list(map(add, structs.astuple(before)[1:], counts))
    others: list[_Day] = [one for one in days if one.day != day]
    return sorted([*others, type(more)(day, *counts)], key=lambda one: one.day)[-DAYS:]


def count_other(other: WouldBePart, answers: Iterable[WouldBeAnswer], at: str) -> None:
    """Count answers of another configuration.

    Args:
        other: what was counted since the two are compared.
        answers: about pods that the kubelet decided.
        at: when, as RFC 3339.
    """
    for one in answers:
        other.days = _with_counts(other.days, WouldBeDayPart(at[:10], int(not one.did), int(not one.would)))
        other.refusals += not one.would
        if one.would and not one.did:
            other.admitted = [*other.admitted, one.name][-MOST_KEPT:]
        elif one.did and not one.would:
            other.refused = [*other.refused, one.name][-MOST_KEPT:]


@dataclass(slots=True)
class Tally:
    """Counted by one thread; others may read it at any time."""

    node: str
    release: str
    """Of the kubelet that runs now."""
    since: str
    """Time of the first observation, as RFC 3339."""
    counts: Counter[Counted] = field(default_factory=Counter)
    differences: list[ShadowDecisionPart] = field(default_factory=list)
    """The newest last."""
    days: list[ShadowDayPart] = field(default_factory=list)
    blind: int = 0
    """Observations that failed."""
    would_be: WouldBePart | None = None
    predicted: int = 0
    """Pods whose outcome was predicted and is known."""
    came_true: int = 0
    """Of those, the pods whose outcome was predicted correctly."""
    changes: int = 0
    """Grows with every judgement."""

    def add(self, judgements: Iterable[Judgement], at: str) -> None:
        """Count judgements.

        Args:
            judgements: of decisions.
            at: when they were judged, as RFC 3339.
        """
        for one in judgements:
            differs, refused = one.verdict is Agreement.DIFFERS, one.event is KubeletEvent.REFUSED
            self.counts[self.release, one.verdict, one.event, one.cause] += 1
            self.days = _with_counts(self.days, ShadowDayPart(at[:10], 1, int(differs), int(refused)))
            if differs:
                part = ShadowDecisionPart(
                    one.name, one.event.value, one.cause.value, one.kubelet, one.engine, at, self.release
                )
                self.differences = [*self.differences, part][-MOST_KEPT:]
            self.changes += 1

    def came(self, *, true: bool) -> None:
        """Count the outcome of a predicted pod."""
        self.predicted += 1
        self.came_true += true

    def total(self, verdict: Agreement) -> int:
        """Return how many decisions have a verdict."""
        return sum(count for (_, said, _, _), count in list(self.counts.items()) if said is verdict)

    def document(self, at: str = "") -> ShadowDocument:
        """Return it as the document of ``mooring shadow -o json``.

        Args:
            at: now, as RFC 3339.
        """
        return ShadowDocument(
            node=self.node,
            release=self.release,
            since=self.since,
            agreed=self.total(Agreement.AGREED),
            differs=self.total(Agreement.DIFFERS),
            unknown=self.total(Agreement.UNKNOWN),
            counts=sorted(
                (
                    ShadowCountPart(verdict.value, event.value, cause.value, count, release)
                    for (release, verdict, event, cause), count in list(self.counts.items())
                ),
                key=lambda one: (one.release, one.verdict, one.event, one.cause),
            ),
            differences=list(self.differences),
            blind=self.blind,
            refused=sum(
                count for (_, _, event, _), count in list(self.counts.items()) if event is KubeletEvent.REFUSED
            ),
            would_be=None if self.would_be is None else structs.replace(self.would_be),
            days=self.days,
            observed_at=at,
            predicted=self.predicted,
            came_true=self.came_true,
        )

    def metrics(self) -> bytes:
        """Return the counts in the text format of Prometheus."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the decisions by release, verdict, event and cause, and the observations that failed."""
        says = "Decisions of the kubelet that were compared with the engine."
        labels = ["verdict", "event", "cause", "release"]
        decisions = CounterMetricFamily("mooring_shadow_decisions", says, labels=labels)
        for (release, *said), count in list(self.counts.items()):
            decisions.add_metric([*(one.value.replace(" ", "_") for one in said), release], count)
        yield decisions
        yield CounterMetricFamily(
            "mooring_shadow_blind_looks", "Observations of the kubelet that failed.", value=self.blind
        )


def tally_of(found: ShadowDocument) -> Tally:
    """Return the counts of a document, to be continued.

    Raises:
        InputError: it has words that this version does not know.
    """
    try:
        counts = {
            (one.release, Agreement(one.verdict), KubeletEvent(one.event), DifferenceCause(one.cause)): one.count
            for one in found.counts
        }
    except ValueError as error:
        raise InputError(str(error), source="counts") from None
    return Tally(
        found.node,
        found.release,
        found.since,
        Counter(counts),
        found.differences,
        found.days,
        found.blind,
        found.would_be,
        found.predicted,
        found.came_true,
    )


def now_text() -> str:
    """Return the time as RFC 3339."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


COUNTS: Final = "counts.json"


def read_counts(folder: Path, node: str = "") -> ShadowDocument | None:
    """Return the last counts; None if there are none.

    Args:
        folder: of the shadow.
        node: that it must be about; empty for any.

    Raises:
        InputError: the file cannot be read, or has no counts of that node.
    """
    path = folder / COUNTS
    text = read_state_file(path)
    if text is None:
        return None
    try:
        found = msgspec.json.decode(text.encode(errors="surrogateescape"), type=ShadowDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"has no counts of a shadow: {error}", source=str(path)) from None
    if node and found.node != node:
        raise InputError(f"has the counts of {found.node}, not of {node}", source=str(path))
    return found


def continued(folder: Path, node: str, release: str, report: Report = ignore) -> Tally:
    """Return the counts to continue: those of the folder, or new ones.

    Args:
        folder: of the shadow.
        node: that is watched.
        release: of its kubelet.
        report: receives why a file is not used, and where it is now.

    Raises:
        InputError: a file that cannot be used cannot be moved either.
    """
    new = Tally(node, release, now_text())
    try:
        found = read_counts(folder, node)
        return new if found is None else replace(tally_of(found), release=release)
    except InputError as error:
        kept = _kept(folder / COUNTS)
        report(Finding("warning", COUNTS, f"{error}; it is kept as {kept.name}, and counting begins anew"))
        return new


def write_counts(folder: Path, tally: Tally) -> None:
    """Replace the file.

    Raises:
        InputError: that fails; the file is as it was.
    """
    content = msgspec.json.format(msgspec.json.encode(tally.document(now_text())), indent=1)
    write_atomically(folder / COUNTS, content.decode() + "\n")


def _kept(path: Path) -> Path:
    """Give a file the first name that is free."""
    number = 1
    while (other := path.with_name(f"{path.name}{BACKUP}{number}")).exists():
        number += 1
    try:
        return path.rename(other)
    except OSError as error:
        raise InputError(f"cannot be renamed: {system_words(error)}", source=str(path)) from None
