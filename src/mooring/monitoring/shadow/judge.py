"""Judging what a kubelet did between observations of it, by the engine on the state before.

Every interval between two observations begins at the state that was observed, never at what the engine had made of an
older one: a difference is counted once, and nothing that follows it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.events import Admit
from mooring.monitoring.shadow.interval import (
    LEFT_MEANWHILE,
    JudgedInterval,
    differing,
    judged_between,
    name_of,
    refused_meanwhile,
)
from mooring.monitoring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent, unlike_outcome
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, UnseenPods, Window, window_of

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
    looks = tuple(_with_late_refusals(look, looks[-1]) for look in looks if look is looks[-1] or _knows_its_pods(look))
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


def _knows_its_pods(look: ObservedNode) -> bool:
    """Tell whether the pods that the kubelet lists are known: it can list one before anything else tells of it."""
    return all(key.uid for key in look.state.pods)


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
        there = replace(
            besides,
            leaving=interval.leaving,
            held=_held_at_the_start(interval),
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
    elif mismatch is not None and one.reason and _left_meanwhile(one, intervals, besides):
        judgement = replace(judgement, verdict=Agreement.UNKNOWN, cause=DifferenceCause.ORDER, engine=LEFT_MEANWHILE)
    elif mismatch is not None:
        judgement = differing(judgement, mismatch)
        steps = (*steps, Admit(one.pod))
    intervals[number] = replace(interval, steps=steps, judgements=(*interval.judgements, judgement))


def _left_meanwhile(one: ObservedPod, intervals: Sequence[JudgedInterval], besides: UnseenPods) -> bool:
    return any(refused_meanwhile(one, each.points, replace(besides, leaving=each.leaving)) for each in intervals)


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


def _held_at_the_start(interval: JudgedInterval) -> Holdings:
    """Return the devices of pods that are gone, and of those that were there when the kubelet started, if it did.

    What a starting kubelet refuses keeps its devices a while.
    """
    if not interval.has_restart or not interval.points:
        return interval.before.left
    return {**interval.before.left, **interval.points[0].node.providers.devices.held}


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
