"""Differences that observations cannot decide about, because they show nothing of what happened within a decision.

What a kubelet did between two observations, compared with the engine: one order of events that fits is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations
from typing import Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import AdmitMode, AdmitResult, admit
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts, cpu_text, memory_text
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.memorymanager.state import Block
from mooring.monitoring.shadow.judgement import (
    Agreement,
    DifferenceCause,
    Judgement,
    KubeletEvent,
    Mismatch,
    unlike_answers,
    unlike_files,
)
from mooring.monitoring.shadow.orders import Changes, Order, OrderSearch, Step
from mooring.monitoring.shadow.starts import possible_starts
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, UnseenPods, Window, engine_on, holding
from mooring.published.restored import holds, kind_of

LEFT_MEANWHILE: Final = "a pod left while another was asked about"
_MOST_REMOVED: Final = 6
"""Pods that left while another was asked about, of which all sets are tried."""


def changed_meanwhile(order: Order, goal: Kubelet) -> bool:
    """Tell whether the node changed between two containers of the last pod that was asked about.

    The managers look at the active pods anew at each container: what a pod that has just left had goes to the next one.

    Source: kubelet v1.37.1, cm/cpumanager/cpu_manager.go (Allocate: removeStaleState).
    """
    step = order.steps[-1] if order.steps else None
    removed = [one.uid for one in order.steps if isinstance(one, Remove)]
    if not isinstance(step, Admit) or not removed:
        return False
    there = goal.node.cpu.assignments.get(step.pod.uid, {})
    names = [one.name for one in step.pod.containers if one.name in there]
    nodes = {frozenset(map(str, range(number))): point for number, point in enumerate(order.points[:-1])}
    were_there = all(uid in order.points[0].node.active for uid in removed)
    if were_there and len(removed) == len(order.steps) - 1 and len(removed) <= _MOST_REMOVED:
        subsets = chain.from_iterable(combinations(removed, count) for count in range(len(removed) + 1))
        nodes = {frozenset(uids): order.points[0].without(uids) for uids in subsets}
    given = {gone: _given(node, step.pod) for gone, node in nodes.items()}
    if len(there) > 1 and all(any(one.get(name) == cpus for one in given.values()) for name, cpus in there.items()):
        return True
    for gone, first in given.items():
        for count in range(1, len(names)):
            kept = {name: there[name] for name in names[:count] if first.get(name) == there[name]}
            later = (node for others, node in nodes.items() if gone < others)
            if len(kept) == count and any(_given(node, step.pod, kept) == there for node in later):
                return True
    return False


def refused_meanwhile(refused: ObservedPod, points: Sequence[Kubelet], besides: UnseenPods) -> bool:
    """Tell whether a pod was refused in the kubelet's words if another left between two of its containers.

    A refused pod leaves, too: while the kubelet ends it, it has still what it was given.

    Args:
        refused: the pod.
        points: nodes on the way.
        besides: which pods may have left.
    """
    pod = refused.pod
    for with_it, without in chain.from_iterable(_leaving(point, besides) for point in points):
        given = _given(with_it, pod)
        names = [one.name for one in pod.containers if one.name in given]
        for count in range(1, len(names) + 1):
            kept = {name: given[name] for name in names[:count]}
            if unlike_answers(_asked(without, pod, kept), refused) is None:
                return True
    return False


def _leaving(point: Kubelet, besides: UnseenPods) -> Iterator[tuple[Kubelet, Kubelet]]:
    """Yield a node with a pod that left and without it."""
    for uid in besides.leaving:
        if uid in point.node.active:
            yield point, point.without([uid])
    for pod in besides.ending:
        if pod.uid not in point.node.active:
            ends = holding(besides.accepted, point, pod)
            if ends is not point:
                yield ends, point


def _given(kubelet: Kubelet, pod: Pod, kept: Mapping[str, CPUMask] | None = None) -> Mapping[str, CPUMask]:
    """Return the exclusive CPUs that the containers of a pod would get where some of them have theirs already."""
    return _asked(kubelet, pod, kept or {}).decided.node.cpu.assignments.get(pod.uid, {})


def _asked(kubelet: Kubelet, pod: Pod, kept: Mapping[str, CPUMask]) -> AdmitResult:
    """Return the answer about a pod of which some containers have their exclusive CPUs already."""
    cpu, taken = kubelet.node.cpu, CPUMask(sum(kept.values()))
    if kept and not taken & ~cpu.default:
        cpu = replace(cpu, default=cpu.default & ~taken, assignments={**cpu.assignments, pod.uid: kept})
        node = kubelet.node.with_cpu(cpu)
        kubelet = replace(kubelet, node=node)
    return admit(kubelet, pod, AdmitMode.TRIAL)[1]


def counts_elsewhere(kubelet: Kubelet, goal: Kubelet) -> bool:
    """Tell whether two differ only in which NUMA node of several the memory of a container counts on."""

    def sums(one: Kubelet) -> dict[tuple[tuple[int, ...], str], int]:
        found: dict[tuple[tuple[int, ...], str], int] = {}
        for node in one.node.memory.nodes.values():
            for kind, table in node.memory.items():
                found[node.cells, kind] = found.get((node.cells, kind), 0) + table.reserved
        return found

    there = goal.node.active
    kept = kubelet.without([uid for uid in kubelet.node.active if uid not in there])
    return kept.node.memory.assignments == goal.node.memory.assignments and sums(kept) == sums(goal)


def has_init_containers_that_run(order: Order, goal: Kubelet) -> bool:
    """Tell whether the last pod has what it would get while init containers of pods that came before it run still.

    An order lets them end at once. What they have more than the other containers is released when these start.

    Source: kubelet v1.37.1, cm/memorymanager/memory_manager.go (Allocate, AddContainer) and policy_static.go
    (updatePodReusableMemory).
    """
    step = order.steps[-1] if order.steps else None
    if not isinstance(step, Admit):
        return False
    node = order.points[0]
    for before in order.steps[:-1]:
        match before:
            case Admit(pod):
                started, answer = admit(node, pod)
                node = answer.decided.counting(started.used) if answer.admitted else started
            case Remove(uid) if uid in node.node.active:
                node = node.without([uid])
            case _:
                return False
    return _held(admit(node, step.pod)[1].decided, step.pod) == _held(goal, step.pod)


def _held(kubelet: Kubelet, pod: Pod) -> tuple[Mapping[str, CPUMask], Mapping[str, frozenset[Block]]]:
    blocks = kubelet.node.memory.assignments.get(pod.uid, {})
    return kubelet.node.cpu.assignments.get(pod.uid, {}), {name: frozenset(found) for name, found in blocks.items()}


_PLACES = frozenset({DifferenceCause.CPUS, DifferenceCause.MEMORY})


@dataclass(frozen=True, slots=True)
class JudgedInterval:
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
    fits: bool = False
    """Whether the order fits."""
    has_listed: bool = False
    """Whether a kubelet that started was asked about new pods together with those that ran: no steps say that."""
    ran: frozenset[str] = frozenset()
    """Uids of pods that were admitted, and refused when their kubelet started again."""

    @property
    def has_restart(self) -> bool:
        """Whether the kubelet started between the two."""
        return self.before.starts != self.after.starts

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


def judged_between(
    before: ObservedNode, after: ObservedNode, window: Window, asked: tuple[Pod, ...] = ()
) -> JudgedInterval:
    """Compare what happened between two observations with the engine.

    Args:
        before: the first of them.
        after: the second.
        window: what is known of the pods.
        asked: refused pods that have to be refused in the kubelet's words on the way.
    """
    there, here = (look.listed - window.refused.keys() - look.waiting for look in (before, after))
    new = [uid for uid in window.pods if uid in here and uid not in there]
    # A kubelet may not have been asked about a pod that it lists and that was deleted before.
    passed = {uid for uid, one in after.pods.items() if one.leaving and not one.ran and uid not in after.holding}
    arrived = [uid for uid in new if uid not in passed]
    possible = tuple(one.pod for uid, one in window.possible.items() if uid not in window.used)
    possible += tuple(window.pods[uid].pod for uid in new if uid not in arrived)
    leaving = tuple(sorted(there - here))
    facts = after.facts
    restart = Restart(facts.config, facts.mooring.release) if after.starts != before.starts else None
    changes = Changes(tuple(window.pods[uid].pod for uid in arrived), possible, leaving, restart, asked=asked)
    base, goal = (engine_on(look, window.pods) for look in (before, after))
    events = tuple(_events(changes, window.pods, _holders(before, base) - _holders(after, goal)))
    keys = {key for seen in (before, after) for key in seen.state.pods if key.uid not in window.pods}
    unknown = sorted(f"{key.namespace}/{key.name}" for key in keys)
    if unknown:
        said = _all(events, DifferenceCause.PODS, f"{', '.join(unknown)} not known")
    elif isinstance(base, str):
        said = _all(events, DifferenceCause.START, base)
    elif isinstance(goal, str):
        said = _verdicts(events, (), Mismatch(DifferenceCause.START, "started", goal))
    elif (misformed := unlike_files(after.state.files, _written_again(after))) is not None:
        said = _verdicts(events, (), misformed)
    else:
        # A pod that runs can be refused at a later start.
        refused = {uid: one for uid, one in window.pods.items() if one.reason and not after.runs(uid)}
        deleted = frozenset(uid for uid, one in window.pods.items() if one.deleted and after.runs(uid))
        search = OrderSearch(goal, refused, window.ran, after.state.files.memory, after.left, deleted)
        order, judgements = _ordered(possible_starts(base, before, changes, window, search), search, events)
        return JudgedInterval(
            before,
            after,
            judgements,
            leaving=leaving,
            ran=window.ran,
            steps=order.steps,
            points=order.points,
            base=base,
            goal=goal,
            fits=order.mismatch is None,
            has_listed=order.has_listed,
        )
    return JudgedInterval(before, after, tuple(said), leaving=leaving, ran=window.ran)


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
    mismatch = Mismatch(DifferenceCause.ORDER, "", "")
    nearest = search.nearest or Order(search.goal, mismatch=mismatch)
    mismatch = nearest.mismatch or mismatch
    if mismatch.cause is DifferenceCause.MEMORY_FILE and counts_elsewhere(nearest.kubelet, search.goal):
        said = _all(events, DifferenceCause.ORDER, "on which NUMA node of several memory counts depends on releases")
    elif is_cut:
        said = _all(events, DifferenceCause.ORDER, f"{search.runs} steps were tried")
    elif mismatch.cause is DifferenceCause.UNSUPPORTED:
        said = _all(events, mismatch.cause, mismatch.engine)
    elif mismatch.cause is DifferenceCause.CPUS and changed_meanwhile(nearest, search.goal):
        said = _all(events, DifferenceCause.ORDER, LEFT_MEANWHILE)
    elif mismatch.cause in _PLACES and has_init_containers_that_run(nearest, search.goal):
        said = _all(events, DifferenceCause.ORDER, "an init container of another pod ran still")
    else:
        said = _verdicts(events, nearest.steps, mismatch)
    return nearest, tuple(said)


def _written_again(seen: ObservedNode) -> StateTexts:
    """Return the state files as the engine writes what it read in them: their form is compared, to the byte."""
    kind, files = kind_of(seen.state.facts, seen.facts), seen.state.files
    if isinstance(kind, str):
        return files
    started = start_kubelet(kind.facts.machine, kind.settings, kind.facts.mooring, files, runs=True)
    if isinstance(started, NotStarted):
        return files
    settings, node = started.settings, started.node
    return StateTexts(
        None if files.cpu is None else cpu_text(settings, node.cpu),
        None if files.memory is None else memory_text(settings, node.memory),
    )


def _events(changes: Changes, pods: Mapping[str, ObservedPod], released: frozenset[str]) -> Iterator[Judgement]:
    """Yield what there is to judge: of pods that left only those that held something."""
    if changes.restart is not None:
        yield Judgement(Agreement.AGREED, KubeletEvent.RESTARTED)
    for pod in changes.admitted:
        yield Judgement(Agreement.AGREED, KubeletEvent.ADMITTED, pod.uid, f"{pod.namespace}/{pod.name}")
    for uid in changes.leaving:
        if uid in released:
            yield Judgement(Agreement.AGREED, KubeletEvent.REMOVED, uid, name_of(pods[uid]) if uid in pods else uid)


def _holders(seen: ObservedNode, engine: Kubelet | str) -> frozenset[str]:
    if isinstance(engine, str):
        return frozenset()
    return frozenset(uid for uid in seen.listed if holds(engine.node, uid) is not None)


def name_of(one: ObservedPod) -> str:
    """Return namespace and name of a pod."""
    return f"{one.pod.namespace}/{one.pod.name}"


def _all(events: Iterable[Judgement], cause: DifferenceCause, words: str) -> Iterator[Judgement]:
    for one in events:
        yield replace(one, verdict=Agreement.UNKNOWN, cause=cause, engine=words)


def differing(one: Judgement, mismatch: Mismatch) -> Judgement:
    """Return a judgement as one that differs."""
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
            yield differing(one, mismatch)
        elif one.uid in fitting:
            yield one
        else:
            yield replace(one, verdict=Agreement.UNKNOWN, cause=DifferenceCause.AFTER_DIFFERENCE)


def _subject(step: Step) -> str:
    """Return the uid of the pod of a step; empty for a restart."""
    if isinstance(step, Admit):
        return step.pod.uid
    return step.uid if isinstance(step, Remove) else ""
