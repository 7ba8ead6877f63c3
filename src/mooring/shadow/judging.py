"""Judging what a kubelet did between observations of it, by the engine on the state before.

Every stretch between two observations begins at the state that was observed, never at what the engine had made of an
older one: a difference is counted once, and nothing that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mooring.kubelet.kubelet import Kubelet, StateTexts, cpu_text, memory_text
from mooring.kubelet.start import start_understood
from mooring.manifest.steps import Admit, Remove, Restart
from mooring.publisher.restored import holds, kind_of, restored
from mooring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.shadow.observed import ObservedNode, ObservedPod
from mooring.shadow.orders import Besides, Changes, Mismatch, Order, OrderSearch, Step, unlike_files, unlike_outcome

_UNTOLD = frozenset({DifferenceCause.ORDER, DifferenceCause.UNSUPPORTED})


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is said of everything between two observations that follow one another."""

    before: ObservedNode
    after: ObservedNode
    judgements: tuple[Judgement, ...] = ()
    steps: tuple[Step, ...] = ()
    """What happened, in an order that fits, or in the one that goes furthest."""
    points: tuple[Kubelet, ...] = ()
    """The engine on the way."""
    leaving: tuple[str, ...] = ()


@dataclass(slots=True)
class _Course:
    """What is known of the pods over all observations."""

    pods: Mapping[str, ObservedPod]
    refused: dict[str, ObservedPod]
    """By uid; those that were not decided before."""
    possible: dict[str, ObservedPod]
    """Pods that were admitted and that no observation lists, or that were gone before anything was told of them."""
    used: set[str] = field(default_factory=set)


def judge(before: ObservedNode, *looks: ObservedNode) -> tuple[Stretch, ...]:
    """Compare what happened since an observation with the engine.

    Pods that the kubelet has not decided about, as far as the last observation tells, are left for a later one.

    Args:
        before: the observation up to which everything is judged.
        looks: those since, in order; which pods were refused is taken from the last.
    """
    course = _course(before, looks)
    stretches = list(_stretches((before, *looks), course))
    for uid, one in (course.refused | course.possible).items():
        if one.reason or (one.ran and uid not in course.used):
            _answer(one, stretches, _besides(one, course))
        elif uid in course.used:
            judgement = Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, uid, _name(one))
            stretches[-1] = replace(stretches[-1], judgements=(*stretches[-1].judgements, judgement))
    return tuple(stretches)


def engine_on(seen: ObservedNode, known: Mapping[str, ObservedPod]) -> Kubelet | str:
    """Return the engine on a state that was observed; a text says why it would not start.

    Args:
        seen: the state.
        known: what is known of its pods.
    """
    kind = kind_of(seen.state.facts, seen.facts)
    if isinstance(kind, str):
        return kind
    pods = {uid: one.pod for uid, one in known.items() if uid in seen.listed and not one.reason}
    keys = tuple(key for key in seen.state.pods if key.uid not in known or key.uid in pods)
    found = restored(kind, replace(seen.state, pods=keys), pods)
    if isinstance(found, str):
        return found
    # A kubelet that starts admits its pods in the order of their creation.
    active = sorted(found.node.active.items(), key=lambda item: (_created(known, item[0]), item[0]))
    return replace(found, node=replace(found.node, active=dict(active))).counting(found.used)


def _stretches(looks: Sequence[ObservedNode], course: _Course) -> Iterator[Stretch]:
    """Yield stretches as short as they can be: a look in the middle of a decision is left out."""
    begin = 0
    while begin < len(looks) - 1:
        ends = range(begin + 1, len(looks))
        tried: list[Stretch] = []
        for end in ends:
            tried.append(_stretch(looks[begin], looks[end], course))
            if all(one.verdict is Agreement.AGREED for one in tried[-1].judgements):
                break
        else:
            # None fits: the shortest with a difference tells most.
            end = next((end for end, one in zip(ends, tried, strict=True) if one.judgements), len(looks) - 1)
        found = tried[end - begin - 1]
        course.used.update(step.pod.uid for step in found.steps if isinstance(step, Admit))
        yield found
        begin = end


def _course(before: ObservedNode, looks: Sequence[ObservedNode]) -> _Course:
    last = looks[-1]
    pods = {uid: one for look in (before, *looks) for uid, one in look.pods.items()}
    listed = frozenset().union(*(look.held for look in looks))
    pods |= last.pods
    new = {uid: one for uid, one in last.pods.items() if not _was_decided(before, uid)}
    new = {uid: one for uid, one in new.items() if one.reason or uid not in listed}
    refused = {uid: one for uid, one in new.items() if one.reason}
    possible = {uid: one for uid, one in new.items() if not one.reason and (one.ran or one.leaving)}
    return _Course(pods, refused, possible)


def _stretch(before: ObservedNode, after: ObservedNode, course: _Course) -> Stretch:
    there, here = (frozenset(look.listed - course.refused.keys()) for look in (before, after))
    arrived = [uid for uid in course.pods if uid in here and uid not in there]
    possible = tuple(one.pod for uid, one in course.possible.items() if uid not in course.used)
    leaving = tuple(sorted(there - here))
    facts = after.facts
    restart = Restart(facts.config, facts.mooring.release) if after.starts != before.starts else None
    changes = Changes(tuple(course.pods[uid].pod for uid in arrived), possible, leaving, restart)
    base, goal = (engine_on(look, course.pods) for look in (before, after))
    events = tuple(_events(changes, course.pods, _holders(before, base) - _holders(after, goal)))
    stretch = Stretch(before, after, leaving=leaving)
    unknown = _unknown_pods(before, after, course)
    if unknown:
        return replace(stretch, judgements=tuple(_all(events, DifferenceCause.PODS, f"{', '.join(unknown)} not known")))
    if isinstance(base, str):
        return replace(stretch, judgements=tuple(_all(events, DifferenceCause.START, base)))
    if isinstance(goal, str):
        return replace(
            stretch, judgements=tuple(_verdicts(events, (), Mismatch(DifferenceCause.START, "started", goal)))
        )
    misformed = unlike_files(after.state.files, _written_again(after))
    if misformed is not None:
        return replace(stretch, judgements=tuple(_verdicts(events, (), misformed)))
    refused = {uid: one for uid, one in course.pods.items() if one.reason}
    order, said = _ordered(_with_restarted(base, before, after), OrderSearch(goal, refused), changes, events)
    return replace(stretch, judgements=said, steps=order.steps, points=order.points)


def _ordered(
    base: Kubelet, search: OrderSearch, changes: Changes, events: tuple[Judgement, ...]
) -> tuple[Order, tuple[Judgement, ...]]:
    found = search.run(base, changes)
    if found is not None:
        return found, events
    nearest = search.nearest or Order(base)
    mismatch = nearest.mismatch or Mismatch(DifferenceCause.ORDER, "", "")
    if search.is_cut:
        said = _all(events, DifferenceCause.ORDER, f"{search.runs} steps were tried")
    elif mismatch.cause is DifferenceCause.UNSUPPORTED:
        said = _all(events, mismatch.cause, mismatch.engine)
    else:
        said = _verdicts(events, nearest.steps, mismatch)
    return nearest, tuple(said)


def _answer(one: ObservedPod, stretches: list[Stretch], besides: Besides) -> None:
    """Say of a pod that no observation lists what there is to say: one point of one stretch has to explain it."""
    refused, event = (one, KubeletEvent.REFUSED) if one.reason else (None, KubeletEvent.ADMITTED)
    judgement = Judgement(Agreement.AGREED, event, one.pod.uid, _name(one))
    mismatch, position, number = None, None, 0
    for number, stretch in enumerate(stretches):  # noqa: B007 - the last one is where a difference is told
        there = replace(besides, leaving=stretch.leaving)
        mismatch, position = unlike_outcome(one.pod, refused, stretch.points, there)
        if mismatch is None:
            break
    stretch, steps = stretches[number], stretches[number].steps
    if mismatch is None and position is not None and one.reason:
        steps = (*steps[:position], Admit(one.pod), *steps[position:])
        points = (*stretch.points[: position + 1], *stretch.points[position:])
        stretch = replace(stretch, points=points)
    elif mismatch is not None and (mismatch.cause in _UNTOLD or not all(each.points for each in stretches)):
        judgement = replace(judgement, verdict=Agreement.UNKNOWN, cause=DifferenceCause.AFTER_DIFFERENCE)
    elif mismatch is not None:
        judgement = _differing(judgement, mismatch)
        steps = (*steps, Admit(one.pod))
    stretches[number] = replace(stretch, steps=steps, judgements=(*stretch.judgements, judgement))


def _besides(one: ObservedPod, course: _Course) -> Besides:
    return Besides(
        possible=[other.pod for uid, other in course.possible.items() if uid not in course.used and other is not one],
        ending=[other.pod for other in course.refused.values() if other.leaving and other is not one],
    )


def _written_again(seen: ObservedNode) -> StateTexts:
    """Return the state files as the engine writes what it read in them: their form is compared, to the byte."""
    kind, files = kind_of(seen.state.facts, seen.facts), seen.state.files
    if isinstance(kind, str):
        return files
    started = start_understood(kind.facts.machine, kind.settings, kind.facts.mooring, files).kubelet
    if started is None:
        return files
    settings, node = started.settings, started.node
    return StateTexts(
        None if files.cpu is None else cpu_text(settings, node.cpu),
        None if files.memory is None else memory_text(settings, node.memory),
    )


def _created(known: Mapping[str, ObservedPod], uid: str) -> str:
    return known[uid].created if uid in known else ""


def _with_restarted(base: Kubelet, before: ObservedNode, after: ObservedNode) -> Kubelet:
    """Return the node before; state files that an operator removed for another policy are gone."""
    if after.starts == before.starts:
        return base
    old, new = before.facts.config, after.facts.config
    return replace(
        base,
        cpu_file=None if old.cpu_manager_policy != new.cpu_manager_policy else base.cpu_file,
        memory_file=None if old.memory_manager_policy != new.memory_manager_policy else base.memory_file,
    )


def _was_decided(before: ObservedNode, uid: str) -> bool:
    return uid in before.held or (uid in before.pods and before.is_decided(uid))


def _unknown_pods(before: ObservedNode, after: ObservedNode, course: _Course) -> list[str]:
    """Return the pods that the kubelet lists and of which nothing else is known."""
    keys = {key for seen in (before, after) for key in seen.state.pods}
    return sorted(f"{key.namespace}/{key.name}" for key in keys if key.uid not in course.pods)


def _events(changes: Changes, pods: Mapping[str, ObservedPod], released: frozenset[str]) -> Iterator[Judgement]:
    """Yield what there is to judge: of pods that left only those that held something."""
    if changes.restart is not None:
        yield Judgement(Agreement.AGREED, KubeletEvent.RESTARTED)
    for pod in changes.admitted:
        yield Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, pod.uid, f"{pod.namespace}/{pod.name}")
    for uid in changes.leaving:
        if uid in released:
            yield Judgement(Agreement.AGREED, KubeletEvent.REMOVED, uid, _name(pods[uid]) if uid in pods else uid)


def _holders(seen: ObservedNode, engine: Kubelet | str) -> frozenset[str]:
    if isinstance(engine, str):
        return frozenset()
    return frozenset(uid for uid in seen.listed if holds(engine.node, uid) is not None)


def _name(one: ObservedPod) -> str:
    return f"{one.pod.namespace}/{one.pod.name}"


def _all(events: Iterable[Judgement], cause: DifferenceCause, words: str) -> Iterator[Judgement]:
    for one in events:
        yield replace(one, verdict=Agreement.UNKNOWN, cause=cause, engine=words)


def _differing(one: Judgement, mismatch: Mismatch) -> Judgement:
    return replace(
        one, verdict=Agreement.DIFFERS, cause=mismatch.cause, kubelet=mismatch.kubelet, engine=mismatch.engine
    )


def _verdicts(events: Iterable[Judgement], steps: tuple[Step, ...], mismatch: Mismatch) -> Iterator[Judgement]:
    """Yield what is said where no order fits: one decision differs; what the order had before it agrees."""
    events = list(events)
    fitting = {_subject(step) for step in steps[:-1]}
    guilty = mismatch.uid if any(one.uid == mismatch.uid for one in events) else _subject(steps[-1]) if steps else ""
    if events and all(one.uid != guilty for one in events):
        guilty = events[-1].uid
    for one in events:
        if one.uid == guilty:
            yield _differing(one, mismatch)
        elif one.uid in fitting:
            yield one
        else:
            yield replace(one, verdict=Agreement.UNKNOWN, cause=DifferenceCause.AFTER_DIFFERENCE)


def _subject(step: Step) -> str:
    """Return the uid of the pod of a step; empty for a restart."""
    match step:
        case Admit(pod):
            return pod.uid
        case Remove(uid):
            return uid
        case Restart():
            return ""
