"""Judging what a kubelet did between observations of it, by the engine on the state before.

Every stretch between two observations begins at the state that was observed, never at what the engine had made of an
older one: a difference is counted once, and nothing that follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mooring.devicemanager.state import Holdings
from mooring.kubelet.kubelet import Kubelet, StateTexts, cpu_text, memory_text
from mooring.kubelet.start import start_understood
from mooring.manifest.steps import Admit, Remove, Restart
from mooring.publisher.objects import PodKey
from mooring.publisher.restored import holds, kind_of, restored
from mooring.shadow.besides import Besides
from mooring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.shadow.observed import ObservedNode, ObservedPod
from mooring.shadow.orders import Changes, Mismatch, Order, OrderSearch, Step, unlike_files, unlike_outcome
from mooring.shadow.restarting import Restarting

_ANYTHING = PodKey("", "")
"""In a state of which it is not known which pods its files may name."""
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
    base: Kubelet | None = None
    """The engine on the state before; None where it would not start."""
    goal: Kubelet | None = None
    """The engine on the state after."""

    @property
    def is_emptied(self) -> bool:
        """Whether state files were removed before a start."""
        if self.base is None or not self.points:
            return False
        begun, seen = self.points[0].files, self.base.files
        return (begun.cpu, seen.cpu).count(None) == 1 or (begun.memory, seen.memory).count(None) == 1

    @property
    def begin(self) -> ObservedNode:
        """The observation whose machine and configuration a scenario begins with."""
        return self.after if self.is_emptied else self.before


@dataclass(slots=True)
class _Course:
    """What is known of the pods over all observations."""

    pods: Mapping[str, ObservedPod]
    refused: dict[str, ObservedPod]
    """By uid; those that were not decided before."""
    possible: dict[str, ObservedPod]
    """Pods that were admitted and that no observation lists, or that were gone before anything was told of them."""
    ran: frozenset[str]
    """Uids of pods that ran before they were refused: their kubelet started again."""
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
        if uid in course.used:
            event = KubeletEvent.REFUSED if one.reason else KubeletEvent.ADMITTED
            judgement = Judgement(Agreement.AGREED, event, uid, _name(one))
            stretches[-1] = replace(stretches[-1], judgements=(*stretches[-1].judgements, judgement))
        elif one.reason or one.ran:
            _answer(one, stretches, _besides(one, course))
    return tuple(stretches)


def engine_on(seen: ObservedNode, known: Mapping[str, ObservedPod], *, dropped: bool = True) -> Kubelet | str:
    """Return the engine on a state that was observed; a text says why it would not start.

    Args:
        seen: the state.
        known: what is known of its pods.
        dropped: whether the managers have dropped what pods that are gone left behind; a kubelet that starts does so
            only when it has asked about the pods that are there.
    """
    kind = kind_of(seen.state.facts, seen.facts)
    if isinstance(kind, str):
        return kind
    listed = seen.listed
    pods = {uid: one.pod for uid, one in known.items() if uid in listed and _is_in(uid, seen, known)}
    state = replace(seen.state, pods=tuple(key for key in seen.state.pods if key.uid not in known or key.uid in pods))
    if not dropped:
        devices = replace(state.devices, held={**seen.left, **state.devices.held})
        state = replace(state, pods=(*state.pods, _ANYTHING), devices=devices)
    found = restored(kind, state, pods)
    if isinstance(found, str):
        return found
    # A kubelet that starts admits its pods in the order of their creation.
    active = sorted(found.node.active.items(), key=lambda item: (_created(known, item[0]), item[0]))
    return replace(found, node=replace(found.node, active=dict(active))).counting(found.used)


def _is_in(uid: str, seen: ObservedNode, known: Mapping[str, ObservedPod]) -> bool:
    """Tell whether a pod that is listed was admitted: one that is refused later can be listed while it is asked about.

    One that ran can be refused, too, when its kubelet starts again.
    """
    return not known[uid].reason or (uid in seen.pods and seen.pods[uid].ran and not seen.pods[uid].reason)


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
    decided = before.held | {uid for uid in before.pods if before.is_decided(uid)}
    new = {uid: one for uid, one in last.pods.items() if uid not in decided}
    ran = frozenset(uid for look in looks for uid, one in look.pods.items() if one.ran and not one.reason)
    new = {uid: one for uid, one in new.items() if (one.reason and uid not in ran) or uid not in listed}
    refused = {uid: one for uid, one in new.items() if one.reason}
    possible = {uid: one for uid, one in new.items() if not one.reason and (one.ran or one.leaving)}
    return _Course(pods, refused, possible, ran)


def _stretch(before: ObservedNode, after: ObservedNode, course: _Course) -> Stretch:
    there, here = (frozenset(look.listed - course.refused.keys()) for look in (before, after))
    new = [uid for uid in course.pods if uid in here and uid not in there]
    arrived = [uid for uid in new if not _may_be_passed_by(uid, after)]
    possible = tuple(one.pod for uid, one in course.possible.items() if uid not in course.used)
    possible += tuple(course.pods[uid].pod for uid in new if uid not in arrived)
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
    search = OrderSearch(goal, refused, course.ran, after.state.files.memory)
    begins = _begins if restart is None else _begun
    order, said = _ordered(begins(base, before, changes, course, search), search, events)
    return replace(stretch, judgements=said, steps=order.steps, points=order.points, base=base, goal=goal)


def _begins(
    base: Kubelet, before: ObservedNode, changes: Changes, course: _Course, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield the node, and where memory lies on several NUMA nodes the node as it was seen, with what pods left behind.

    What is released first decides on which node the memory of others counts then, and the kubelet releases in random
    order.

    Source: kubelet v1.37.1, cm/memorymanager/memory_manager.go (removeStaleState: a walk over a map) and
    policy_static.go (releaseMemory); spec: memory-manager.md section 5.
    """
    yield base, changes
    whole = engine_on(before, course.pods, dropped=False)
    if isinstance(whole, str) or not (_is_over_several(whole) or _is_over_several(search.goal)):
        return
    left = tuple(uid for uid in whole.node.active if uid not in base.node.active)
    refused = tuple(one.pod for uid, one in course.refused.items() if uid not in course.used)
    happened = replace(changes, leaving=(*changes.leaving, *left))
    if left:
        yield whole, happened
    if refused:
        yield whole, replace(happened, refused=refused)


def _is_over_several(kubelet: Kubelet) -> bool:
    """Tell whether memory of a container lies on several NUMA nodes."""
    return any(len(node.cells) > 1 for node in kubelet.node.memory.nodes.values())


def _begun(
    base: Kubelet, before: ObservedNode, changes: Changes, course: _Course, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield what the node may have been when its kubelet started, and what happened to it then.

    The managers learn that all pods were read when the first of them have been asked about, and release nothing until
    then (removeStaleState and UpdateAllocatedDevices return until sourcesReady.AllReady()).

    Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (syncLoopIteration), cm/cpumanager/cpu_manager.go,
    cm/memorymanager/memory_manager.go and cm/devicemanager/manager.go; spec: cpu-manager.md section 11 and
    topology-manager.md section 7.1.
    """
    if changes.restart is None:
        raise AssertionError("only a kubelet that started is asked on what")
    created = {uid: one.created for uid, one in course.pods.items()}
    restarting = Restarting(
        changes.restart, before.facts.config, created, lambda answer, kubelet: search.unlike(answer, kubelet) is None
    )
    gone = [uid for uid in changes.leaving if uid not in course.pods or not course.pods[uid].reason]
    whole = engine_on(before, course.pods, dropped=False)
    nodes = [base]
    if not isinstance(whole, str) and whole.node.active.keys() != base.node.active.keys():
        nodes.insert(0, whole)
    for node in nodes:
        left = tuple(uid for uid in node.node.active if uid not in base.node.active)
        happened = replace(changes, leaving=(*changes.leaving, *left))
        for begun in restarting.begun(node, gone):
            yield begun, happened


def _ordered(
    begun: Iterable[tuple[Kubelet, Changes]], search: OrderSearch, events: tuple[Judgement, ...]
) -> tuple[Order, tuple[Judgement, ...]]:
    is_cut = False
    for base, changes in begun:
        search.runs = 0
        found = search.run(base, changes)
        if found is not None:
            return found, events
        is_cut = is_cut or search.is_cut
    nearest = search.nearest or Order(search.goal)
    mismatch = nearest.mismatch or Mismatch(DifferenceCause.ORDER, "", "")
    if is_cut:
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
        there = replace(besides, leaving=stretch.leaving, held=_held_at_the_start(stretch))
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


def _held_at_the_start(stretch: Stretch) -> Holdings:
    """Return the devices that pods had when the kubelet started, if it did: what it refuses then keeps them a while."""
    if stretch.before.starts == stretch.after.starts or not stretch.points:
        return {}
    return stretch.points[0].node.providers.devices.held


def _besides(one: ObservedPod, course: _Course) -> Besides:
    return Besides(
        possible=[other.pod for uid, other in course.possible.items() if uid not in course.used and other is not one],
        ending=[other.pod for other in course.refused.values() if other.leaving and other is not one],
    )


def _may_be_passed_by(uid: str, seen: ObservedNode) -> bool:
    """Tell whether a kubelet that lists a pod may not have been asked about it: it was deleted before."""
    return uid in seen.pods and seen.pods[uid].leaving and not seen.pods[uid].ran and uid not in seen.holding


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
