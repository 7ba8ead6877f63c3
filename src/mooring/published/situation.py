"""Everything that is known about one node, and every node that it may be by now.

A published state may be older than the pods that are bound to the node: :mod:`mooring.published.courses` follows what
can have happened since.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

from cachetools import LRUCache

from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import is_plain
from mooring.engine.node.resources import total_requests
from mooring.published.courses import Pending, courses
from mooring.published.objects import NodeState
from mooring.published.restored import NodeKind, restored

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
            self._take(about, error)
            return otherwise(error)

    def _take(self, about: str, error: Exception) -> None:
        last = traceback.extract_tb(error.__traceback__)[-1]
        cause = f"{type(error).__name__} in {last.name}"
        with self._lock:
            self.count += 1
            is_told = (about, cause) in self._told
            self._told[about, cause] = None
        if not is_told:
            self._report(about, f"{UNJUDGED}: {cause}: {str(error)[:200]}")


def unjudged(_error: Exception) -> str:
    """Return what is said of a node after a fault."""
    return UNJUDGED


@dataclass(frozen=True, slots=True)
class Situation:
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

    def without(self, uid: str) -> Situation:
        """Return the situation as if a pod had never come."""
        return replace(
            self,
            pods={known: pod for known, pod in self.pods.items() if known != uid},
            pending=[known for known in self.pending if known != uid],
        )

    def with_possible(self, pods: Sequence[Pod]) -> Situation:
        """Return the situation with pods that may come before the one that is asked about, or may not."""
        return replace(
            self,
            pods={**self.pods, **{pod.uid: pod for pod in pods}},
            leaving=frozenset(self.leaving) | {pod.uid for pod in pods},
            pending=(*self.pending, *(pod.uid for pod in pods)),
        )


def kubelets_of(situation: Situation) -> tuple[Kubelet, ...] | str:
    """Return every node that this one may be by now; a text says why that cannot be told."""
    kind, state = situation.kind, situation.state
    if isinstance(state, str):
        return UNREADABLE
    if state is None:
        return UNPUBLISHED
    if kind is None or isinstance(kind, str):
        return UNKNOWN_FACTS if kind is None else UNREADABLE
    base = restored(kind, state, situation.pods)
    if isinstance(base, str):
        return UNREADABLE
    if situation.claimed:
        base = base.with_devices(replace(base.node.providers.devices, claimed=situation.claimed))
    members = frozenset(base.node.active)
    new = [situation.pods[uid] for uid in situation.pending if uid not in members]
    tied = {pod.uid for pod in new if pod.uid in situation.claimed or not is_plain(pod)}
    plain = [pod for pod in new if pod.uid not in tied]
    if plain:
        base = replace(base, node=base.node.adopt(plain))
        base = base.counting(base.used)
    pending = [Pending(pod, pod.uid in situation.leaving) for pod in new if pod.uid in tied]
    # Where a state names pods without uids, every member has to be described, or the name can mean it.
    is_clear = members <= situation.pods.keys()
    if any(entry.pod.uid in situation.unsure and not (is_clear and _is_named(entry.pod, state)) for entry in pending):
        return BEFORE_US
    gone = [uid for uid in members if uid in situation.leaving or uid not in situation.pods]
    found_courses = courses(kind.digest, base, gone, pending)
    if found_courses is None:
        return UNSETTLED
    return tuple(_without_left(kubelet, situation) for kubelet in found_courses)


def _without_left(kubelet: Kubelet, situation: Situation) -> Kubelet:
    """Return a kubelet without the pods that have certainly ended, and without their requests."""
    left = [uid for uid in situation.left if uid in situation.pods]
    there = [uid for uid in left if uid in kubelet.node.active]
    settled = kubelet.without(there) if there else kubelet
    return settled.counting(total_requests(settled.node.active.values())) if left else settled


def _is_named(pod: Pod, state: NodeState) -> bool:
    """Tell whether a state names a pod without its uid."""
    return any(not key.uid and (key.namespace, key.name) == (pod.namespace, pod.name) for key in state.pods)
