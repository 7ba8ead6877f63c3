"""Judging what a kubelet did between observations of it, by the engine on the state before, and counting that.

Every interval between two observations begins at the state that was observed, never at what the engine had made of an
older one: a difference is counted once, and nothing that follows it.

The counts go on over restarts of a shadow: one file of its folder, the document of ``mooring shadow -o json``, replaced
whole after every judgement. A file that cannot be used is kept beside it under another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from operator import add as added
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import structs

from mooring.documents.plan import API_VERSION, APIVersion, Count, DocumentPart, told
from mooring.engine.checkpoint.store import BACKUP, read_state_file, system_words, write_atomically
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.events import Admit
from mooring.inputs.decoding.fields import Report, ignore
from mooring.monitoring.shadow.interval import (
    LEFT_MEANWHILE,
    JudgedInterval,
    differing,
    judged_between,
    name_of,
    refused_meanwhile,
)
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent, unlike_outcome
from mooring.monitoring.shadow.orders import WouldBeAnswer
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, UnseenPods, Window, window_of
from mooring.published import shadow_document as parts

_FEWEST = 2
"""Steps of which there is more than one order."""
_MOST_FOLLOWING = 6
"""Stretches after a start in which a kubelet may still be asked about its first list."""


def judge(before: ObservedNode, *looks: ObservedNode) -> tuple[JudgedInterval, ...]:
    """Compare what happened since an observation with the engine.

    Pods that the kubelet has not decided about, as far as the last observation tells, are left for a later one.

    Args:
        before: the observation up to which everything is judged.
        looks: those since, in order; which pods were refused is taken from the last.
    """
    # The kubelet can list a pod before anything else tells of it.
    known = [look for look in looks if look is looks[-1] or all(key.uid for key in look.state.pods)]
    looks = tuple(_with_late_refusals(look, looks[-1]) for look in known)
    window = window_of(before, looks)
    intervals = _stretches((before, *looks), window)
    for uid, one in (window.refused | window.possible).items():
        if uid in window.used:
            event = KubeletEvent.REFUSED if one.reason else KubeletEvent.ADMITTED
            judgement = Judgement(Agreement.AGREED, event, uid, name_of(one))
            intervals[-1] = replace(intervals[-1], judgements=(*intervals[-1].judgements, judgement))
        elif one.reason or one.ran:
            _answer(one, intervals, window)
    return tuple(intervals)


def _with_late_refusals(look: ObservedNode, last: ObservedNode) -> ObservedNode:
    """Return an observation that knows which pods the kubelet had refused when it started, told or not by then."""
    late = {uid: one for uid, one in last.pods.items() if one.reason and look.runs(uid)}
    return replace(look, pods={**look.pods, **late}) if late and look.starts == last.starts else look


def _stretches(looks: Sequence[ObservedNode], window: Window) -> list[JudgedInterval]:
    """Return intervals as short as they can be: a look in the middle of a decision is left out."""
    found: list[JudgedInterval] = []
    begins = [0]
    while begins[-1] < len(looks) - 1:
        following = begins[-1] + 1
        interval, end = _shortest(looks, begins[-1], following, window)
        for start in () if _is_explained(interval) and end == following else _earlier(found):
            freed = replace(window, used=window.used.difference(*map(_asked_about, found[-start:])))
            longer, later = _shortest(looks, begins[-start - 1], following, freed)
            if _is_explained(longer) and (later < end or not _is_explained(interval)):
                window.used.intersection_update(freed.used)
                del found[-start:], begins[-start:]
                interval, end = longer, later
                break
        window.used.update(_asked_about(interval))
        found.append(interval)
        begins.append(end)
    return found


def _earlier(found: Sequence[JudgedInterval]) -> Iterator[int]:
    """Yield how many intervals may belong together with the next one, which does not fit on its own.

    A pod can leave between the hints of the next one and its CPUs. A kubelet that starts can be seen before it has
    asked about everything that it listed.
    """
    if found and found[-1].leaving and not found[-1].has_restart:
        yield 1
    starts = (back for back, one in enumerate(reversed(found[-_MOST_FOLLOWING:]), 1) if one.has_restart)
    yield from islice(starts, 1)


def _shortest(looks: Sequence[ObservedNode], begin: int, first: int, window: Window) -> tuple[JudgedInterval, int]:
    """Return the shortest interval that fits, and where it ends; of those that do not, the one that tells most."""
    ends = range(first, len(looks))
    tried: list[JudgedInterval] = []
    for end in ends:
        there = window.asked_between(begin, end)
        interval = judged_between(looks[begin], looks[end], there.known_at(looks[end]))
        # The kubelet may have heard of a pod a little earlier than the shadow.
        tried.append(interval if interval.fits else judged_between(looks[begin], looks[end], there))
        if _is_explained(tried[-1]):
            return tried[-1], end
    # None fits: the shortest with a difference tells most.
    return next(((one, end) for end, one in zip(ends, tried, strict=True) if one.judgements), (tried[-1], ends[-1]))


def _is_explained(interval: JudgedInterval) -> bool:
    return interval.fits and all(one.verdict is Agreement.AGREED for one in interval.judgements)


def _asked_about(interval: JudgedInterval) -> set[str]:
    """Return the uids of the pods that are asked about in the order of a interval, if it fits."""
    if not interval.fits:
        return set()
    return {step.pod.uid for step in interval.steps if isinstance(step, Admit)}


def _answer(one: ObservedPod, intervals: list[JudgedInterval], window: Window) -> None:
    """Judge a pod that no observation lists: one point of one interval has to explain it."""
    besides = _besides(one, window)
    refused, event = (one, KubeletEvent.REFUSED) if one.reason else (None, KubeletEvent.ADMITTED)
    judgement = Judgement(Agreement.AGREED, event, one.pod.uid, name_of(one))
    mismatch, position, number = None, None, 0
    for number, interval in enumerate(intervals):  # noqa: B007 - the last one is where a difference is told
        held = interval.before.left
        if interval.has_restart and interval.points:
            # What a starting kubelet refuses keeps its devices a while.
            held = {**held, **interval.points[0].node.providers.devices.held}
        there = replace(
            besides,
            leaving=interval.leaving,
            held=held,
            has_started=interval.has_restart,
            # What runs in the shared pool is decided about before anything shows it.
            possible=[
                *besides.possible,
                *(window.pods[uid].pod for uid in interval.after.waiting if uid != one.pod.uid),
            ],
        )
        mismatch, position = unlike_outcome(one.pod, refused, interval.points, there)
        if mismatch is None:
            break
    if mismatch is not None and one.reason and _explained_by_another_order(one, intervals, window, judgement):
        return
    interval, steps = intervals[number], intervals[number].steps
    has_gap = not all(each.points for each in intervals)
    if mismatch is None and position is not None and one.reason:
        steps = (*steps[:position], Admit(one.pod), *steps[position:])
        points = (*interval.points[: position + 1], *interval.points[position:])
        interval = replace(interval, points=points)
    elif mismatch is not None and mismatch.cause is DifferenceCause.UNSUPPORTED:
        judgement = replace(judgement, verdict=Agreement.UNKNOWN, cause=mismatch.cause, engine=mismatch.engine)
    elif mismatch is not None and (mismatch.cause is DifferenceCause.ORDER or has_gap):
        judgement = replace(judgement, verdict=Agreement.UNKNOWN, cause=DifferenceCause.AFTER_DIFFERENCE)
    elif (
        mismatch is not None
        and one.reason
        and any(refused_meanwhile(one, each.points, replace(besides, leaving=each.leaving)) for each in intervals)
    ):
        judgement = replace(judgement, verdict=Agreement.UNKNOWN, cause=DifferenceCause.ORDER, engine=LEFT_MEANWHILE)
    elif mismatch is not None:
        judgement = differing(judgement, mismatch)
        steps = (*steps, Admit(one.pod))
    intervals[number] = replace(interval, steps=steps, judgements=(*interval.judgements, judgement))


def _explained_by_another_order(
    one: ObservedPod, intervals: list[JudgedInterval], window: Window, judgement: Judgement
) -> bool:
    """Put a interval in another order that fits, too, and in which a pod is refused in the kubelet's words."""
    for number, interval in enumerate(intervals):
        # What a starting kubelet refuses keeps what it was given until all have been asked about.
        following = _MOST_FOLLOWING if interval.has_restart else 0
        for last in range(number, min(number + 1 + following, len(intervals))):
            several = intervals[number : last + 1]
            has_one_order = not interval.has_restart and len(interval.steps) < _FEWEST
            if has_one_order or not all(each.fits for each in several):
                continue
            own = set[str]().union(*map(_asked_about, several))
            asked = tuple(each.pod for uid, each in window.refused.items() if uid in own)
            freed = replace(window, used=window.used - own)
            found = judged_between(interval.before, several[-1].after, freed, (*asked, one.pod))
            if found.fits:
                told = [each for part in several for each in part.judgements if each.uid in window.refused]
                intervals[number : last + 1] = [replace(found, judgements=(*found.judgements, *told, judgement))]
                window.used.update(_asked_about(found))
                return True
    return False


def _besides(one: ObservedPod, window: Window) -> UnseenPods:
    possible = window.possible | window.waiting
    # A kubelet is asked about pods nearly in the order of their creation.
    later = [uid for uid, other in window.pods.items() if other.created >= one.created and uid not in window.refused]
    # Of older ones the kubelet has released everything; their requests can count while they are deleted.
    counted = (window.pods if one.is_of_amounts else window.refused).values()
    ending = sorted(counted, key=lambda other: not other.deleted)
    return UnseenPods(
        arrived=later,
        possible=[other.pod for other in possible.values() if other is not one],
        ending=[
            other.pod for other in ending if (other.reason or other.deleted) and other.leaving and other is not one
        ],
        accepted=frozenset(other.pod.uid for other in ending if other.is_of_amounts),
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
