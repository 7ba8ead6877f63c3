"""How often the engine decided as the kubelet did, since when, and what differed.

``mooring record -o json``: what was recorded of each node.

The counts of a shadow over its restarts: one file of its folder, the document of ``mooring shadow -o json``.

It is replaced whole after every judgement. A file that cannot be used is kept beside it under another name.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from operator import add as added
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import structs

from mooring.documents.plan import API_VERSION, APIVersion, Count, DocumentPart, told
from mooring.engine.checkpoint.salvage import BACKUP
from mooring.engine.checkpoint.store import read_state_file, system_words, write_atomically
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow.judgement import Agreement, Judgement, KubeletEvent
from mooring.monitoring.shadow.orders import WouldBeAnswer
from mooring.published import shadow_document as parts


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

_Day = TypeVar("_Day", bound=parts.ShadowDayPart | parts.WouldBeDayPart)


def _with_counts(days: list[_Day], more: _Day) -> list[_Day]:
    """Return the newest days, to one of which counts are added."""
    day, *counts = structs.astuple(more)
    for before in days:
        if before.day == day:
            counts = list(map(added, structs.astuple(before)[1:], counts))
    others: list[_Day] = [one for one in days if one.day != day]
    return sorted([*others, type(more)(day, *counts)], key=lambda one: one.day)[-DAYS:]


def count_other(other: parts.WouldBePart, answers: Iterable[WouldBeAnswer], at: str) -> None:
    """Count answers of another configuration.

    Args:
        other: what was counted since the two are compared.
        answers: about pods that the kubelet decided.
        at: when, as RFC 3339.
    """
    for one in answers:
        other.days = _with_counts(other.days, parts.WouldBeDayPart(at[:10], int(not one.did), int(not one.would)))
        other.refusals += not one.would
        if one.would and not one.did:
            other.admitted = [*other.admitted, one.name][-MOST_KEPT:]
        elif one.did and not one.would:
            other.refused = [*other.refused, one.name][-MOST_KEPT:]


def new_tally(node: str, release: str, since: str = "") -> parts.ShadowDocument:
    """Return counts that begin now, or at a time as RFC 3339."""
    return parts.ShadowDocument(
        node=node,
        release=release,
        since=since or now_text(),
        agreed=0,
        differs=0,
        unknown=0,
        counts=[],
        differences=[],
        blind=0,
        refused=0,
    )


def add(tally: parts.ShadowDocument, judgements: Iterable[Judgement], at: str) -> None:
    """Count judgements, in one thread; others may read the counts at any time.

    Args:
        tally: is changed; its lists are replaced.
        judgements: of decisions.
        at: when they were judged, as RFC 3339.
    """
    for one in judgements:
        differs, refused = one.verdict is Agreement.DIFFERS, one.event is KubeletEvent.REFUSED
        said = (one.verdict.value, one.event.value, one.cause.value)
        found = {(each.release, each.verdict, each.event, each.cause): each for each in tally.counts}
        found.setdefault((tally.release, *said), parts.ShadowCountPart(*said, 0, tally.release)).count += 1
        tally.counts = [each for _, each in sorted(found.items())]
        tally.agreed += one.verdict is Agreement.AGREED
        tally.differs += differs
        tally.unknown += one.verdict is Agreement.UNKNOWN
        tally.refused += refused
        tally.days = _with_counts(tally.days, parts.ShadowDayPart(at[:10], 1, int(differs), int(refused)))
        if differs:
            part = parts.ShadowDecisionPart(one.name, *said[1:], one.kubelet, one.engine, at, tally.release)
            tally.differences = [*tally.differences, part][-MOST_KEPT:]


def now_text() -> str:
    """Return the time as RFC 3339."""
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


COUNTS: Final = "counts.json"


def read_counts(folder: Path, node: str = "") -> parts.ShadowDocument | None:
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
        found = msgspec.json.decode(text.encode(errors="surrogateescape"), type=parts.ShadowDocument)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InputError(f"has no counts of a shadow: {error}", source=str(path)) from None
    if node and found.node != node:
        raise InputError(f"has the counts of {found.node}, not of {node}", source=str(path))
    return found


def continued(folder: Path, node: str, release: str, report: Report = ignore) -> parts.ShadowDocument:
    """Return the counts to continue: those of the folder, or new ones.

    Args:
        folder: of the shadow.
        node: that is watched.
        release: of its kubelet.
        report: receives why a file is not used, and where it is now.

    Raises:
        InputError: a file that cannot be used cannot be moved either.
    """
    try:
        found = read_counts(folder, node) or new_tally(node, release)
    except InputError as error:
        path, number = folder / COUNTS, 1
        while (kept := path.with_name(f"{COUNTS}{BACKUP}{number}")).exists():
            number += 1
        try:
            path.rename(kept)
        except OSError as problem:
            raise InputError(f"cannot be renamed: {system_words(problem)}", source=str(path)) from None
        report(Finding("warning", COUNTS, f"{error}; it is kept as {kept.name}, and counting begins anew"))
        return new_tally(node, release)
    found.release = release
    return found


def write_counts(folder: Path, tally: parts.ShadowDocument) -> None:
    """Replace the file.

    Raises:
        InputError: that fails; the file is as it was.
    """
    tally.observed_at = now_text()
    write_atomically(folder / COUNTS, msgspec.json.format(msgspec.json.encode(tally), indent=1).decode() + "\n")
