"""In which order things happened between two observations: every order that can be is tried until one fits.

Between two looks at a kubelet several pods can have come and gone, and the kubelet can have started again. Which came
first is not known, and where a pod lies depends on it. An order fits when every decision on its way is the kubelet's
and the state files at its end say what the kubelet's say.

A pod that was refused stands in no order: it has to be refused in the kubelet's words at some point of one. Only where
memory lies on several NUMA nodes it can change something: on which of them the memory of others counts.

Beside the orders, predictions: what the engine says of pods that are bound and not decided yet, and which pods the same
node with another configuration would refuse.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec

from mooring.engine.core.bits import list_text
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.admit import AdmitResult, readmit
from mooring.engine.kubelet.events import Admit, Readmit, Remove, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.monitoring.shadow.judgement import DifferenceCause, Mismatch, unlike_answers, unlike_files, unlike_places
from mooring.monitoring.shadow.unseen import ObservedNode, ObservedPod, engine_on
from mooring.published.facts_document import kubelet_document

MOST_RUNS: Final = 600
"""Events that are tried for one pair of observations; with more the order is unknown."""
Step: TypeAlias = Admit | Remove | Restart


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened between two observations, in an order that is not known."""

    admitted: tuple[Pod, ...] = ()
    """In the order in which the API server told of them."""
    possible: tuple[Pod, ...] = ()
    """Pods that may have been there between the two."""
    leaving: tuple[str, ...] = ()
    """Uids of pods that the kubelet listed, or may have, and does not any more."""
    restart: Restart | None = None
    refused: tuple[Pod, ...] = ()
    """Refused pods that may have been asked about between the two."""
    asked: tuple[Pod, ...] = ()
    """Refused pods that were."""
    listed: tuple[tuple[Pod, ...], ...] = ()
    """New pods, refused ones included, about which a kubelet that starts may be asked together with those that run: by
    the second of their creation. Until it has asked about all of them its managers release nothing."""


@dataclass(frozen=True, slots=True)
class Order:
    """An order, and the node on its way."""

    kubelet: Kubelet
    """At its end."""
    steps: tuple[Step, ...] = ()
    points: tuple[Kubelet, ...] = ()
    """Before the first step and after every one."""
    has_listed: bool = False
    """Whether a new pod was asked about together with those that run."""
    mismatch: Mismatch | None = None
    """Set when it does not fit."""


@dataclass(slots=True)
class OrderSearch:
    """Looks for an order that fits."""

    goal: Kubelet
    """The engine on the state that was observed afterwards."""
    refused: Mapping[str, ObservedPod] = field(default_factory=dict)
    """Pods that the kubelet refused, by uid; all others it admitted."""
    ran: frozenset[str] = frozenset()
    """Uids of refused pods that the kubelet had admitted before: it refused them when it started again."""
    memory: str | None = None
    """The memory manager's state file at the end, as it was observed."""
    left: Holdings = field(default_factory=dict)
    """Devices at the end of pods that are gone by then."""
    deleted: frozenset[str] = frozenset()
    """Uids of pods that ran and are deleted: of these a kubelet that starts does not publish that it refused them."""
    runs: int = 0
    nearest: Order | None = None
    """Of those that do not fit, the one that went furthest; of equals the first."""
    _seen: set[tuple[object, ...]] = field(default_factory=set)

    @property
    def is_cut(self) -> bool:
        """Whether there were too many orders to try them all."""
        return self.runs >= MOST_RUNS

    def run(self, base: Kubelet, changes: Changes) -> Order | None:
        """Return an order that fits; None when there is none, or too many were tried."""
        return next(self._orders(Order(base, points=(base,)), changes), None)

    def _orders(self, order: Order, left: Changes) -> Iterator[Order]:
        if self.is_cut:
            return
        if not left.admitted and not left.asked and left.restart is None:
            found = self._unlike_at_the_end(order.kubelet)
            if found is None:
                for uid in left.leaving:
                    order = self._after(order, Remove(uid))
                yield order
                return
            self._remember(replace(order, mismatch=found))
        for step, rest in _choices(left):
            self.runs += 1
            tried = self._after(order, step)
            if tried.mismatch is not None:
                self._remember(tried)
                continue
            files, coming = tried.kubelet.files, (*rest.admitted, *rest.possible, *rest.refused, *rest.asked)
            listed = tuple(tuple(one.uid for one in pods) for pods in rest.listed)
            place = rest.leaving, rest.restart is None, listed, tried.has_listed
            there = tuple(sorted(tried.kubelet.node.active)), tuple(one.uid for one in coming)
            key = files.cpu, files.memory, *there, place
            if key not in self._seen:
                self._seen.add(key)
                yield from self._orders(tried, rest)

    def _unlike_at_the_end(self, kubelet: Kubelet) -> Mismatch | None:
        """Compare the state files without the pods that have left.

        What such a pod had is released before the next pod is asked about: its CPUs within the reconcile period, its
        memory blocks not before. Until then the files have it still.

        Source: kubelet v1.37.1, cm/cpumanager and cm/memorymanager (removeStaleState); spec: state-files.md.
        """
        there = self.goal.node.active
        ended = [uid for uid in self.deleted & there.keys() if uid not in kubelet.node.active]
        goal = with_started(self.goal.without(ended)).files
        # Memory assignments in the order in which a file has them
        memory = kubelet.node.memory
        ordered = {uid: dict(sorted(held.items())) for uid, held in sorted(memory.assignments.items())}
        providers = replace(kubelet.node.providers, memory=replace(memory, assignments=ordered))
        read = replace(kubelet, node=replace(kubelet.node, providers=providers))
        kept = with_started(read.without([uid for uid in kubelet.node.active if uid not in there])).files
        # Where memory is released on several NUMA nodes depends on what is released first.
        if self.memory is not None and self.memory == kubelet.files.memory:
            kept = replace(kept, memory=goal.memory)
        return unlike_files(goal, kept)

    def _remember(self, order: Order) -> None:
        if self.nearest is None or len(order.steps) > len(self.nearest.steps):
            self.nearest = order

    def _after(self, order: Order, event: Step | Readmit) -> Order:
        is_asked = isinstance(event, Admit | Readmit)
        kubelet = order.kubelet
        devices, held = kubelet.node.providers.devices, {**self.left, **self.goal.node.providers.devices.held}
        if is_asked and devices.drawn != held:
            # What is known of the devices that pods were given: which of equal ones is random.
            kubelet = kubelet.with_devices(replace(devices, drawn=held))
        kubelet, result = after_event(kubelet, event)
        step: Step = Admit(event.pod) if isinstance(event, Readmit) else event
        has_listed = order.has_listed or isinstance(event, Readmit)
        steps, points = (*order.steps, step), (*order.points, kubelet)
        if result.crash or result.refusal is not None:
            words = result.crash or (result.refusal.message if result.refusal is not None else "")
            return Order(kubelet, steps, points, mismatch=Mismatch(DifferenceCause.START, "started", words))
        for answer in result.admissions:
            mismatch = self.unlike(answer, kubelet, is_first=is_asked)
            if mismatch is not None:
                return Order(kubelet, steps, points, mismatch=mismatch)
        return Order(kubelet, steps, points, has_listed)

    def unlike(self, answer: AdmitResult, kubelet: Kubelet, *, is_first: bool = False) -> Mismatch | None:
        """Return in what an answer departs from what the kubelet did with the pod.

        Args:
            answer: of the engine.
            kubelet: that answered, afterwards.
            is_first: whether the pod is new, and does not run already.
        """
        uid = answer.pod.uid
        refused = None if is_first and uid in self.ran else self.refused.get(uid)
        if refused is None and not (answer.admitted or answer.never_returns or is_first) and uid in self.deleted:
            return None
        if refused is not None or not answer.admitted:
            return unlike_answers(answer, refused)
        return unlike_places(answer, kubelet, self.goal)


def _choices(left: Changes) -> Iterator[tuple[Step | Readmit, Changes]]:
    """Yield what can have come next, the likely first: the restart, pods as they were told of, pods that left."""
    if left.restart is not None:
        yield left.restart, replace(left, restart=None)
    for number, pods in enumerate(left.listed if left.restart is None else ()):
        later = left.listed[number + 1 :]
        for pod in pods:
            second = tuple(one for one in pods if one is not pod)
            rest = replace(left, listed=(second, *later) if second else later)
            admitted, refused, asked = (
                tuple(one for one in some if one.uid != pod.uid) for some in (rest.admitted, rest.refused, rest.asked)
            )
            yield Readmit(pod), replace(rest, admitted=admitted, refused=refused, asked=asked)
    left = replace(left, listed=left.listed if left.restart is not None else ())
    for pod in left.admitted:
        yield Admit(pod), replace(left, admitted=tuple(one for one in left.admitted if one is not pod))
    for uid in left.leaving:
        yield Remove(uid), replace(left, leaving=tuple(one for one in left.leaving if one != uid))
    for pod in left.possible:
        rest = replace(left, possible=tuple(one for one in left.possible if one is not pod))
        yield Admit(pod), replace(rest, leaving=(*left.leaving, pod.uid))
    for pod in left.asked:
        yield Admit(pod), replace(left, asked=tuple(one for one in left.asked if one is not pod))
    for pod in left.refused:
        yield Admit(pod), replace(left, refused=tuple(one for one in left.refused if one is not pod))


def with_started(kubelet: Kubelet) -> Kubelet:
    """Return the kubelet when the containers of all pods have started: init containers have released their memory."""
    for uid in kubelet.node.active:
        kubelet = kubelet.start_containers(uid)
    return kubelet


_DIGITS: Final = 12


WouldBe: TypeAlias = tuple[Kubelet, frozenset[str]]
"""The kubelet of a node that does not exist, beside the one that does, and the uids of the pods of the real node about
which it was asked, whatever it answered."""


@dataclass(frozen=True, slots=True)
class WouldBeAnswer:
    """The outcome of one pod."""

    uid: str
    name: str
    """Namespace and name."""
    did: bool
    """Whether the kubelet admitted it."""
    would: bool
    """Whether the other node does."""


def configuration_digest(config: KubeletConfig) -> str:
    """Return the digest of a configuration: counts of one configuration are not continued with another."""
    return sha256(msgspec.json.encode(kubelet_document(config), order="sorted")).hexdigest()[:_DIGITS]


def would_be(seen: ObservedNode, config: KubeletConfig) -> WouldBe | str:
    """Return the node that would be there had its kubelet another configuration; a text says why it would not start.

    The pods of the node are admitted in the order of their creation, on a node without state files. It is asked about
    those that the kubelet has not decided about when they are decided.
    """
    start = start_kubelet(seen.facts.machine, config, seen.facts.mooring, StateTexts())
    if isinstance(start, NotStarted):
        return start.refusal.message
    empty = start.with_devices(replace(seen.state.devices, held={}))
    pods = _admitted(seen)
    kubelet, _ = readmit(empty, pods)
    return kubelet, frozenset(pod.uid for pod in pods)


def after_steps(
    node: WouldBe, steps: Iterable[Step], refused: Collection[str]
) -> tuple[WouldBe, tuple[WouldBeAnswer, ...]]:
    """Apply the same steps to it, and return the outcome of the pods.

    Args:
        node: before.
        steps: what happened to the real node.
        refused: uids of the pods that its kubelet refused.
    """
    (kubelet, asked), answers = node, list[WouldBeAnswer]()
    for step in steps:
        if isinstance(step, Restart) or (isinstance(step, Remove) and step.uid not in kubelet.node.active):
            continue
        kubelet, result = after_event(kubelet, step)
        if isinstance(step, Admit):
            pod, would = step.pod, result.admissions[0].admitted
            answers.append(WouldBeAnswer(pod.uid, f"{pod.namespace}/{pod.name}", pod.uid not in refused, would))
    return (kubelet, asked.union(one.uid for one in answers)), tuple(answers)


def reconciled(node: WouldBe, seen: ObservedNode) -> tuple[WouldBe, tuple[WouldBeAnswer, ...]]:
    """Give it the pods of the real node, and return the outcome of those about which it was not asked yet.

    Steps do not tell all: where no order fits, or a pod is not known, admissions and removals are missing, and what
    the kubelet refused has no removal.

    Args:
        node: before.
        seen: the real node.
    """
    (before, asked), held = node, seen.held
    gone = [Remove(uid) for uid in before.node.active if uid not in held]
    missed = [Admit(pod) for pod in _admitted(seen) if pod.uid not in asked]
    (kubelet, asked), answers = after_steps(node, [*gone, *missed], refused=())
    return (kubelet, asked & held), answers


def _admitted(seen: ObservedNode) -> list[Pod]:
    """Return the pods that a kubelet has admitted, in the order of their creation."""
    there = seen.held - seen.waiting
    ordered = sorted(seen.pods.items(), key=lambda item: (item[1].created, item[0]))
    return [one.pod for uid, one in ordered if uid in there]


def undecided(seen: ObservedNode) -> list[str]:
    """Return the uids of the pods that are bound and not decided, the oldest first."""
    waiting = [(one.created, uid) for uid, one in seen.pods.items() if not (one.leaving or seen.is_decided(uid))]
    return [uid for _, uid in sorted(waiting)]


def predictions(seen: ObservedNode, uids: Collection[str]) -> Iterator[tuple[str, bool, str]]:
    """Yield what happens when the kubelet decides about pods one after another; nothing where the engine cannot tell.

    Each with its uid, whether the engine admits it, and a line with the exclusive CPUs of its containers, or reason and
    message of its refusal.

    Args:
        seen: the node; other pods that are not decided are left out.
        uids: of the pods.
    """
    engine = engine_on(seen, seen.pods)
    if isinstance(engine, str):
        return
    engine = engine.without([uid for uid in undecided(seen) if uid in engine.node.active])
    for uid in uids:
        pod = seen.pods[uid].pod
        engine, result = after_event(engine, Admit(pod))
        [answer] = result.admissions
        if answer.crash or answer.never_returns:
            return
        given = engine.node.cpu.assignments.get(uid, {}) if answer.admitted else {}
        words = [f"{name}: {list_text(cpus)}" for name, cpus in given.items()]
        words += [] if answer.admitted else [f"{answer.decision.reason}: {answer.decision.message}"]
        did = f"predicted: {pod.namespace}/{pod.name} {'admitted' if answer.admitted else 'refused'}"
        yield uid, answer.admitted, ", ".join((did, *words))
