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
from typing import Final, TypeVar

from cachetools import LRUCache

from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.admit import AdmitMode, added, admit, out_of
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import is_plain, view_key
from mooring.engine.node.resources import pod_requests, total_requests
from mooring.published.objects import NodeState
from mooring.published.restored import NodeKind, holds, restored

MOST_SEQUENCES = 48
"""Sequences that are followed at once; with more of them nothing is promised."""


@dataclass(frozen=True, slots=True)
class _EventSequence:
    """One way that things can have gone."""

    kubelet: Kubelet
    """With the sums of all that may be there still."""
    leaving: frozenset[str]
    """Of the pods that are on the node, those that can go at any moment."""


def after_sequences(
    digest: str, base: Kubelet, leaving: Collection[str], pending: Sequence[Pod], most: int = MOST_SEQUENCES
) -> tuple[Kubelet, ...] | None:
    """Return every node that the state can have become, without those that are equal; None when there are too many.

    The first one is that in which no pod has left. All count everything in their sums that may still be there.

    Args:
        digest: of the node's facts.
        base: the node on its state.
        leaving: uids of pods that are deleted or have finished: each is there still, or gone again, or was never
            admitted.
        pending: pods bound since, in the order in which the node gets to see them.
        most: sequences followed at once.
    """
    tied = frozenset(uid for uid in leaving if uid in base.node.active and holds(base.node, uid) is not None)
    found = _with_departures(digest, [_EventSequence(base, tied)], most)
    if len(found) > most:
        return None
    for pod in pending:
        steps = (step for sequence in found for step in _admitted(sequence, pod, leaves=pod.uid in leaving))
        found = _with_departures(digest, steps, most)
        if len(found) > most:
            return None
    return tuple(sequence.kubelet for sequence in found)


def _admitted(sequence: _EventSequence, pod: Pod, *, leaves: bool) -> list[_EventSequence]:
    """Return what the node can be when it has come to a pod that was bound to it."""
    kubelet = sequence.kubelet
    if pod.uid in kubelet.node.active:
        return [sequence]
    after, result = admit(kubelet, pod, AdmitMode.MANAGERS)
    if result.crash:
        return [sequence]
    if not result.admitted:
        return [_EventSequence(kubelet.settled(), sequence.leaving)]
    wanted, used = pod_requests(pod), kubelet.used
    devices = after.node.providers.devices.capacity(wanted)
    refused = out_of(wanted, used, len(kubelet.node.active), kubelet.settings, devices)
    after = after.counting(added(used, wanted))
    if holds(after.node, pod.uid) is None:
        # It changes sums only, and these count it as long as it may be there.
        return [_EventSequence(after, sequence.leaving)]
    there = _EventSequence(after, sequence.leaving | {pod.uid} if leaves else sequence.leaving)
    # The sums count those too that may have left, so that a refusal by them is not certain.
    return [there, sequence] if leaves or refused is not None else [there]


def _with_departures(digest: str, begun: Iterable[_EventSequence], most: int) -> list[_EventSequence]:
    """Return the sequences without equal ones, and those in which any of the leaving pods are gone."""
    known: dict[object, _EventSequence] = {}
    for sequence in begun:
        known.setdefault(_identity(digest, sequence), sequence)
    found = list(known.values())
    position = 0
    while position < len(found) and len(found) <= most:
        sequence = found[position]
        position += 1
        for uid in sorted(sequence.leaving):
            # Its requests are still counted: a pod more in the sums is never wrong.
            less = _EventSequence(
                sequence.kubelet.without([uid]).counting(sequence.kubelet.used), sequence.leaving - {uid}
            )
            identity = _identity(digest, less)
            if identity not in known:
                known[identity] = less
                found.append(less)
    return found


def _identity(digest: str, sequence: _EventSequence) -> object:
    node = sequence.kubelet.node
    return view_key(digest, node), tuple((uid, repr(holds(node, uid))) for uid in sorted(sequence.leaving))


UNPUBLISHED = "the node has not published its state"
UNKNOWN_FACTS = "the facts of the node are not known"
UNREADABLE = "the state of the node cannot be read"
UNSETTLED = "too many pods start and end on the node to know its state"
UNJUDGED = "the published state of the node cannot be judged"
BEFORE_US = "pods were bound to the node before the extender started, and its state does not name them yet"

_T = TypeVar("_T")
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
    base = restored(kind, state, knowledge.pods)
    if isinstance(base, str):
        return UNREADABLE
    if knowledge.claimed:
        base = base.with_devices(replace(base.node.providers.devices, claimed=knowledge.claimed))
    members = frozenset(base.node.active)
    new = [knowledge.pods[uid] for uid in knowledge.pending if uid not in members]
    tied = {pod.uid for pod in new if pod.uid in knowledge.claimed or not is_plain(pod)}
    plain = [pod for pod in new if pod.uid not in tied]
    if plain:
        base = replace(base, node=base.node.adopt(plain))
        base = base.counting(base.used)
    pending = [pod for pod in new if pod.uid in tied]
    # Where a state names pods without uids, every member has to be described, or the name can mean it.
    is_clear = members <= knowledge.pods.keys()
    # Names of the state without a uid
    nameless = {(key.namespace, key.name) for key in state.pods if not key.uid} if is_clear else frozenset()
    for pod in pending:
        if pod.uid in knowledge.unsure and (pod.namespace, pod.name) not in nameless:
            return BEFORE_US
    gone = {uid for uid in members if uid not in knowledge.pods}.union(knowledge.leaving)
    kubelets = after_sequences(kind.digest, base, gone, pending)
    if kubelets is None:
        return UNSETTLED
    return tuple(_without_left(kubelet, knowledge) for kubelet in kubelets)


def _without_left(kubelet: Kubelet, knowledge: NodeKnowledge) -> Kubelet:
    """Return a kubelet without the pods that have certainly ended, and without their requests."""
    left = [uid for uid in knowledge.left if uid in knowledge.pods]
    there = [uid for uid in left if uid in kubelet.node.active]
    settled = kubelet.without(there) if there else kubelet
    return settled.counting(total_requests(settled.node.active.values())) if left else settled
