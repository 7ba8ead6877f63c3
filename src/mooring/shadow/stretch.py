"""What a kubelet did between two observations, compared with the engine: one order of events that fits is enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from mooring.core.pod import Pod
from mooring.kubelet.admit import AdmitMode, admit
from mooring.kubelet.kubelet import Kubelet, StateTexts, cpu_text, memory_text
from mooring.kubelet.start import running
from mooring.manifest.steps import Admit, Remove, Restart
from mooring.publisher.objects import PodKey
from mooring.publisher.restored import holds, kind_of, restored
from mooring.shadow.judgement import Agreement, DifferenceCause, Judgement, KubeletEvent
from mooring.shadow.observed import ObservedNode, ObservedPod
from mooring.shadow.orders import Changes, Mismatch, Order, OrderSearch, Step, unlike_files, with_started
from mooring.shadow.restarting import Restarting, absent

_ANYTHING = PodKey("", "")
"""In a state of which it is not known which pods its files may name."""


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


@dataclass(slots=True)
class Window:
    """What is known of the pods over the observations that are judged together."""

    pods: Mapping[str, ObservedPod]
    refused: dict[str, ObservedPod]
    """By uid; those that were not decided before."""
    possible: dict[str, ObservedPod]
    """Pods that were admitted and that no observation lists, or that were gone before anything was told of them."""
    waiting: dict[str, ObservedPod]
    """Pods that the kubelet lists and has not decided about at the end, as far as is known."""
    ran: frozenset[str]
    """Uids of pods that ran before they were refused: their kubelet started again."""
    used: set[str] = field(default_factory=set)


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
    return uid not in seen.waiting and (not known[uid].reason or _runs(uid, seen))


def _runs(uid: str, seen: ObservedNode) -> bool:
    return uid in seen.pods and seen.pods[uid].ran and not seen.pods[uid].reason


def stretch_between(before: ObservedNode, after: ObservedNode, window: Window, asked: tuple[Pod, ...] = ()) -> Stretch:
    """Compare what happened between two observations with the engine.

    Args:
        before: the first of them.
        after: the second.
        window: what is known of the pods.
        asked: refused pods that have to be refused in the kubelet's words on the way.
    """
    there, here = (look.listed - window.refused.keys() - look.waiting for look in (before, after))
    new = [uid for uid in window.pods if uid in here and uid not in there]
    arrived = [uid for uid in new if not _may_be_passed_by(uid, after)]
    possible = tuple(one.pod for uid, one in window.possible.items() if uid not in window.used)
    possible += tuple(window.pods[uid].pod for uid in new if uid not in arrived)
    leaving = tuple(sorted(there - here))
    facts = after.facts
    restart = Restart(facts.config, facts.mooring.release) if after.starts != before.starts else None
    changes = Changes(tuple(window.pods[uid].pod for uid in arrived), possible, leaving, restart, asked=asked)
    base, goal = (engine_on(look, window.pods) for look in (before, after))
    events = tuple(_events(changes, window.pods, _holders(before, base) - _holders(after, goal)))
    stretch = Stretch(before, after, leaving=leaving, ran=window.ran)
    unknown = _unknown_pods(before, after, window)
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
    # A pod that runs can be refused at a later start.
    refused = {uid: one for uid, one in window.pods.items() if one.reason and not _runs(uid, after)}
    search = OrderSearch(goal, refused, window.ran, after.state.files.memory, after.left)
    begins = _begins if restart is None else _begun
    order, said = _ordered(begins(base, before, changes, window, search), search, events)
    return replace(
        stretch,
        judgements=said,
        steps=order.steps,
        points=order.points,
        base=base,
        goal=goal,
        fits=order.mismatch is None,
        has_listed=order.has_listed,
    )


def _begins(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
) -> Iterator[tuple[Kubelet, Changes]]:
    """Yield the node, and where memory lies on several NUMA nodes the node as it was seen, with what pods left behind.

    What is released first decides on which node the memory of others counts then, and the kubelet releases in random
    order.

    Source: kubelet v1.37.1, cm/memorymanager/memory_manager.go (removeStaleState: a walk over a map) and
    policy_static.go (releaseMemory); spec: memory-manager.md section 5.
    """
    yield base, changes
    started = with_started(base)
    if started.files != base.files:
        yield started, changes
    whole = engine_on(before, window.pods, dropped=False)
    if isinstance(whole, str) or not (is_over_several(whole) or is_over_several(search.goal)):
        return
    whole = absent(whole, before.waiting)
    left = tuple(uid for uid in whole.node.active if uid not in base.node.active)
    refused = tuple(one.pod for uid, one in window.refused.items() if uid not in window.used)
    happened = replace(changes, leaving=(*changes.leaving, *left))
    if left:
        yield whole, happened
    if refused:
        yield whole, replace(happened, refused=refused)


def is_over_several(kubelet: Kubelet) -> bool:
    """Tell whether memory of a container lies on several NUMA nodes."""
    return any(len(node.cells) > 1 for node in kubelet.node.memory.nodes.values())


def _counts_elsewhere(kubelet: Kubelet, goal: Kubelet) -> bool:
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


def _begun(
    base: Kubelet, before: ObservedNode, changes: Changes, window: Window, search: OrderSearch
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
    created = {uid: one.created for uid, one in window.pods.items()}
    restarting = Restarting(
        changes.restart, before.facts.config, created, lambda answer, kubelet: search.unlike(answer, kubelet) is None
    )
    gone = [uid for uid in changes.leaving if uid not in window.pods or not window.pods[uid].reason]
    whole = engine_on(before, window.pods, dropped=False)
    nodes = [base]
    whole = whole if isinstance(whole, str) else absent(whole, before.waiting)
    if not isinstance(whole, str) and whole.node.active.keys() != base.node.active.keys():
        # What refused pods left behind is there still, and such a pod is not asked about again.
        left = [uid for uid in whole.node.active if uid not in base.node.active]
        nodes = [absent(whole, left), whole, base]
    for node in nodes:
        left = [uid for uid in node.node.active if uid not in base.node.active]
        happened = replace(changes, leaving=(*changes.leaving, *left))
        for begun in restarting.begun(node, gone):
            yield begun, happened
    if listed := _listed(changes, window):
        for node in nodes:
            for begun in restarting.begun(node, gone):
                yield begun, replace(changes, listed=listed)


def _listed(changes: Changes, window: Window) -> tuple[tuple[Pod, ...], ...]:
    """Return the new pods that a starting kubelet may find in its first list, by the second of their creation."""
    refused = [one.pod for uid, one in window.refused.items() if uid not in window.used]
    created: dict[str, list[Pod]] = {}
    for pod in (*changes.admitted, *refused):
        created.setdefault(window.pods[pod.uid].created, []).append(pod)
    return tuple(tuple(pods) for _, pods in sorted(created.items()))


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
    if mismatch.cause is DifferenceCause.MEMORY_FILE and _counts_elsewhere(nearest.kubelet, search.goal):
        said = _all(events, DifferenceCause.ORDER, "on which NUMA node of several memory counts depends on releases")
    elif is_cut:
        said = _all(events, DifferenceCause.ORDER, f"{search.runs} steps were tried")
    elif mismatch.cause is DifferenceCause.UNSUPPORTED:
        said = _all(events, mismatch.cause, mismatch.engine)
    elif mismatch.cause is DifferenceCause.CPUS and _changed_meanwhile(nearest, search.goal):
        said = _all(events, DifferenceCause.ORDER, "a pod left while another was asked about")
    else:
        said = _verdicts(events, nearest.steps, mismatch)
    return nearest, tuple(said)


def _changed_meanwhile(order: Order, goal: Kubelet) -> bool:
    """Tell whether the node changed between two containers of the last pod that was asked about.

    The managers look at the active pods anew at each container: what a pod that has just left had goes to the next one.

    Source: kubelet v1.37.1, cm/cpumanager/cpu_manager.go (Allocate: removeStaleState).
    """
    step = order.steps[-1] if order.steps else None
    if not isinstance(step, Admit) or not any(isinstance(one, Remove) for one in order.steps):
        return False
    uid = step.pod.uid
    there = goal.node.cpu.assignments.get(uid, {})
    answers = [admit(point, step.pod, AdmitMode.TRIAL)[1].decided for point in order.points[:-1]]
    given = [one.node.cpu.assignments.get(uid, {}) for one in answers]
    return len(there) > 1 and all(any(one.get(name) == cpus for one in given) for name, cpus in there.items())


def _may_be_passed_by(uid: str, seen: ObservedNode) -> bool:
    """Tell whether a kubelet that lists a pod may not have been asked about it: it was deleted before."""
    return uid in seen.pods and seen.pods[uid].leaving and not seen.pods[uid].ran and uid not in seen.holding


def _written_again(seen: ObservedNode) -> StateTexts:
    """Return the state files as the engine writes what it read in them: their form is compared, to the byte."""
    kind, files = kind_of(seen.state.facts, seen.facts), seen.state.files
    if isinstance(kind, str):
        return files
    started = running(kind.facts.machine, kind.settings, kind.facts.mooring, files).kubelet
    if started is None:
        return files
    settings, node = started.settings, started.node
    return StateTexts(
        None if files.cpu is None else cpu_text(settings, node.cpu),
        None if files.memory is None else memory_text(settings, node.memory),
    )


def _created(known: Mapping[str, ObservedPod], uid: str) -> str:
    return known[uid].created if uid in known else ""


def _unknown_pods(before: ObservedNode, after: ObservedNode, window: Window) -> list[str]:
    """Return the pods that the kubelet lists and of which nothing else is known."""
    keys = {key for seen in (before, after) for key in seen.state.pods}
    return sorted(f"{key.namespace}/{key.name}" for key in keys if key.uid not in window.pods)


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
    match step:
        case Admit(pod):
            return pod.uid
        case Remove(uid):
            return uid
        case Restart():
            return ""
