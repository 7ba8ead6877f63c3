"""Everything that is known about one node, and every kubelet that it may have by now.

Pods were bound to a node that its published state does not name, and pods of the state are leaving. How far the node
has come is not known: whether a pod that leaves is gone yet, or was gone before another one was admitted. Where a pod
lies depends on that. So every sequence of events that the node can have had is followed, and a pod is promised a place
only where each of them admits it.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias, TypeVar

from cachetools import LRUCache

from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.admit import AdmitMode, added, admit, is_plain, out_of, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node.resources import pod_requests, total_requests
from mooring.published.objects import NodeState
from mooring.published.restored import NodeKind, holders_of, holds, started_on, with_running_pods

_T = TypeVar("_T")
MOST_SEQUENCES = 48
"""Sequences that are followed at once; with more of them nothing is promised."""


class Steps:
    """What functions answered on the way to a node's possible kubelets: one more pod changes the last steps only.

    Answers are known by the identity of what was asked about, which is kept as long. Used by one thread at a time.
    """

    __slots__ = ("_before", "_known")

    def __init__(self) -> None:
        """Begin without any."""
        self._known: dict[object, tuple[Any, tuple[object, ...]]] = {}
        self._before = self._known

    def begin(self) -> None:
        """Begin once more: what is not asked from here to the next time is forgotten."""
        self._before, self._known = self._known, {}

    def of(self, ask: Callable[..., _T], *given: object) -> _T:
        """Return what a function without effects answers."""
        key = (ask, *map(id, given))
        found = self._known.get(key) or self._before.get(key) or (ask(*given), given)
        self._known[key] = found
        answer: _T = found[0]
        return answer


_EventSequence: TypeAlias = tuple[Kubelet, frozenset[str]]
"""One way that things can have gone: the node, with the sums of all that may be there still, and of the pods that are
on it those that can go at any moment."""


def after_sequences(
    digest: str, base: Kubelet, leaving: Collection[str], pending: Sequence[Pod], steps: Steps | None = None
) -> tuple[Kubelet, ...] | None:
    """Return every node that the state can have become, without those that are equal; None when there are too many.

    The first one is that in which no pod has left. All count everything in their sums that may still be there.

    Args:
        digest: of the node's facts.
        base: the node on its state.
        leaving: uids of pods that are deleted or have finished: each is there still, or gone again, or was never
            admitted.
        pending: pods bound since, in the order in which the node gets to see them.
        steps: known from the time before.
    """
    steps = steps or Steps()
    tied = frozenset(uid for uid in leaving if uid in base.node.active and holds(base.node, uid) is not None)
    found = _with_departures(digest, [(base, tied)], steps)
    if len(found) > MOST_SEQUENCES:
        return None
    for pod in pending:
        later: list[_EventSequence] = []
        for kubelet, tied in found:
            after, holds_some, is_unsure = steps.of(_with_arrived, kubelet, pod)
            leaves = holds_some and pod.uid in leaving
            later.append((after, tied | {pod.uid} if leaves else tied))
            if leaves or is_unsure:
                later.append((kubelet, tied))
        found = _with_departures(digest, later, steps)
        if len(found) > MOST_SEQUENCES:
            return None
    return tuple(kubelet for kubelet, _ in found)


def _with_arrived(kubelet: Kubelet, pod: Pod) -> tuple[Kubelet, bool, bool]:
    """Return what the node is when it has come to a pod that was bound to it.

    Also whether the pod holds something there, and whether it may have been refused all the same.
    """
    if pod.uid in kubelet.node.active:
        return kubelet, False, False
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.crash:
        return kubelet, False, False
    if not result.admitted:
        return kubelet.settled(), False, False
    wanted, used = pod_requests(pod), kubelet.used
    devices = after.node.providers.devices.capacity(wanted)
    refused = out_of(wanted, used, len(kubelet.node.active), kubelet.settings, devices)
    after = after.counting(added(used, wanted))
    # Without anything it changes sums only, and these count it as long as it may be there. The sums count those too
    # that may have left, so that a refusal by them is not certain.
    holds_some = holds(after.node, pod.uid) is not None
    return after, holds_some, holds_some and refused is not None


def _with_departures(digest: str, begun: Iterable[_EventSequence], steps: Steps) -> list[_EventSequence]:
    """Return the sequences without equal ones, and those in which any of the leaving pods are gone."""

    def identity(sequence: _EventSequence) -> object:
        kubelet, leaving = sequence
        held = tuple((uid, repr(holds(kubelet.node, uid))) for uid in sorted(leaving))
        return steps.of(view_key, digest, kubelet.node), held

    known: dict[object, _EventSequence] = {}
    for sequence in begun:
        known.setdefault(identity(sequence), sequence)
    found = list(known.values())
    position = 0
    while position < len(found) and len(found) <= MOST_SEQUENCES:
        kubelet, leaving = found[position]
        position += 1
        for uid in sorted(leaving):
            less = steps.of(_without, kubelet, uid), leaving - {uid}
            known_less = identity(less)
            if known_less not in known:
                known[known_less] = less
                found.append(less)
    return found


def _without(kubelet: Kubelet, uid: str) -> Kubelet:
    """Return a kubelet without a pod. Its requests are still counted: a pod more in the sums is never wrong."""
    return kubelet.without([uid]).counting(kubelet.used)


UNPUBLISHED = "the node has not published its state"
UNKNOWN_FACTS = "the facts of the node are not known"
UNREADABLE = "the state of the node cannot be read"
UNSETTLED = "too many pods start and end on the node to know its state"
UNJUDGED = "the published state of the node cannot be judged"
BEFORE_US = "pods were bound to the node before the extender started, and its state does not name them yet"

_MOST_TOLD: Final = 10_000


class NodeFaults:
    """The one place where the engine is asked about what a node published: its fault is that node's answer.

    A node can publish what no kubelet writes. No other node's answer, and no thread, may end with it.
    """

    def __init__(self, report: Callable[[str, str], object] = lambda _about, _problem: None) -> None:
        """Begin without faults.

        Args:
            report: receives what a fault is about, and the fault; once for each cause.
        """
        self._report = report
        self._told: LRUCache[tuple[str, str], None] = LRUCache(_MOST_TOLD)
        self._lock = threading.Lock()
        self.count = 0
        """Of all faults."""

    def guarded(self, about: str, ask: Callable[[], _T], otherwise: Callable[[Exception], _T]) -> _T:
        """Return an answer about a node, or what is said instead.

        Args:
            about: name of the node.
            ask: asks.
            otherwise: gives the answer when that raises anything.
        """
        try:
            return ask()
        except Exception as error:  # noqa: BLE001 - whatever one node published, the others are answered
            last = traceback.extract_tb(error.__traceback__)[-1]
            cause = f"{type(error).__name__} in {last.name}"
            with self._lock:
                self.count += 1
                is_told = (about, cause) in self._told
                self._told[about, cause] = None
            if not is_told:
                self._report(about, f"{UNJUDGED}: {cause}: {str(error)[:200]}")
            return otherwise(error)


def unjudged(_error: Exception) -> str:
    """Return what is said of a node after a fault."""
    return UNJUDGED


@dataclass(frozen=True, slots=True)
class NodeKnowledge:
    """Everything that is known about one node."""

    kind: NodeKind | str | None
    """Its facts, or why they cannot be used; None when they are not known."""
    state: NodeState | str | None
    """What it published, or why that cannot be read."""
    pods: Mapping[str, Pod]
    """Pods that are bound to it, by uid, those included that are gone and may be there still."""
    leaving: Collection[str]
    """Uids of those that are gone or on their way."""
    pending: Sequence[str] = ()
    """Uids of those that no state has named, in the order of their binding."""
    left: Collection[str] = frozenset()
    """Uids of those that have finished or are deleted: the node lets them go before it sees what is bound from now on.
    When they went is open."""
    unsure: Collection[str] = frozenset()
    """Uids of those before which unknown pods may have come and gone."""
    claimed: Holdings = field(default_factory=dict)
    """What those that no state has named have by claims."""
    steps: Steps = field(default_factory=Steps, compare=False)
    """Known from the time before, of the same node."""

    def without(self, uid: str) -> NodeKnowledge:
        """Return the knowledge as if a pod had never come."""
        return replace(
            self,
            pods={known: pod for known, pod in self.pods.items() if known != uid},
            pending=[known for known in self.pending if known != uid],
        )

    def with_possible(self, pods: Sequence[Pod]) -> NodeKnowledge:
        """Return the knowledge with pods that may come before the one that is asked about, or may not."""
        return replace(
            self,
            pods={**self.pods, **{pod.uid: pod for pod in pods}},
            leaving=frozenset(self.leaving) | {pod.uid for pod in pods},
            pending=(*self.pending, *(pod.uid for pod in pods)),
        )


def possible_kubelets(knowledge: NodeKnowledge) -> tuple[Kubelet, ...] | str:
    """Return every node that this one may be by now; a text says why that cannot be told."""
    kind, state = knowledge.kind, knowledge.state
    if isinstance(state, str):
        return UNREADABLE
    if state is None:
        return UNPUBLISHED
    if kind is None or isinstance(kind, str):
        return UNKNOWN_FACTS if kind is None else UNREADABLE
    steps, start = knowledge.steps, knowledge.steps.of(started_on, kind, state)
    if isinstance(start, str):
        return UNREADABLE
    inside = [knowledge.pods[uid] for uid in steps.of(_uids_in, start, state) if uid in knowledge.pods]
    base = steps.of(_with_pods, start, state, *inside)
    if knowledge.claimed:
        base = base.with_devices(replace(base.node.providers.devices, claimed=knowledge.claimed))
    members = frozenset(base.node.active)
    new = [knowledge.pods[uid] for uid in knowledge.pending if uid not in members]
    tied = {pod.uid for pod in new if pod.uid in knowledge.claimed or not is_plain(pod)}
    for pod in new:
        if pod.uid not in tied:
            base = steps.of(_with_adopted, base, pod)
    pending = [pod for pod in new if pod.uid in tied]
    # Where a state names pods without uids, every member has to be described, or the name can mean it.
    is_clear = members <= knowledge.pods.keys()
    # Names of the state without a uid
    nameless = {(key.namespace, key.name) for key in state.pods if not key.uid} if is_clear else frozenset()
    for pod in pending:
        if pod.uid in knowledge.unsure and (pod.namespace, pod.name) not in nameless:
            return BEFORE_US
    gone = {uid for uid in members if uid not in knowledge.pods}.union(knowledge.leaving)
    kubelets = after_sequences(kind.digest, base, gone, pending, steps=steps)
    if kubelets is None:
        return UNSETTLED
    return tuple(_without_left(kubelet, knowledge) for kubelet in kubelets)


def _uids_in(start: Kubelet, state: NodeState) -> Collection[str]:
    """Return the uids that a state names, or that hold something there."""
    return dict.fromkeys((*(key.uid for key in state.pods), *holders_of(start)))


def _with_pods(start: Kubelet, state: NodeState, *pods: Pod) -> Kubelet:
    return with_running_pods(start, state, {pod.uid: pod for pod in pods})


def _with_adopted(kubelet: Kubelet, pod: Pod) -> Kubelet:
    """Return a kubelet with a pod to which managers give nothing."""
    used, node = kubelet.used, kubelet.node.adopt([pod])
    return replace(kubelet, node=node).counting(added(used, pod_requests(pod)))


def _without_left(kubelet: Kubelet, knowledge: NodeKnowledge) -> Kubelet:
    """Return a kubelet without the pods that have certainly ended, and without their requests."""
    left = [uid for uid in knowledge.left if uid in knowledge.pods]
    there = [uid for uid in left if uid in kubelet.node.active]
    settled = kubelet.without(there) if there else kubelet
    return settled.counting(total_requests(settled.node.active.values())) if left else settled
