"""What the extender says about one node and one pod, with the engine run once for all that is equal."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache

from cachetools import LRUCache

from mooring.cluster.extender.claims import asked_node
from mooring.cluster.extender.outlook import Outlook, View
from mooring.cluster.extender.scoring import Merit, merit_of
from mooring.engine.core.pod import Pod, PodLevelGates
from mooring.engine.cpumanager.policy import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, PodShape
from mooring.engine.kubelet.start import emptied
from mooring.explain.codes.pages import page
from mooring.explain.prediction import ADMITTED, Prediction, check, predicted
from mooring.published.restored import NodeKind

_MOST_ANSWERS = 20_000
_MOST_AFTERWARDS = 256


class UnknownNodes(Enum):
    """What is said about a node of which nothing can be said."""

    DENY_EXCLUSIVE = "denyExclusive"
    """No to pods that want exclusive CPUs, yes to all others."""
    ALLOW = "allow"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The extender's word about one node."""

    reason: str = ""
    """Why not, in words that are equal for equal causes; empty when the node is good."""
    hopeless: bool = False
    """Whether removing pods from the node would change nothing."""


GOOD = NodeVerdict()


class Decider:
    """Answers; used by one thread at a time."""

    def __init__(self, unknown: UnknownNodes = UnknownNodes.DENY_EXCLUSIVE) -> None:
        """Begin without answers.

        Args:
            unknown: what to say about nodes of which nothing can be said.
        """
        self._unknown = unknown
        self._answers: LRUCache[tuple[bytes, bytes], Prediction] = LRUCache(_MOST_ANSWERS)
        self._afterwards: LRUCache[tuple[bytes, bytes], Kubelet] = LRUCache(_MOST_AFTERWARDS)
        self._ever: LRUCache[tuple[object, ...], Prediction] = LRUCache(_MOST_ANSWERS)
        self._merits: LRUCache[tuple[bytes, bytes], Merit] = LRUCache(_MOST_ANSWERS)
        self.runs = 0
        """How often the engine was asked."""
        self.hits = 0
        """How often an answer was known."""

    def verdict(self, outlook: Outlook, shape: PodShape) -> NodeVerdict:
        """Say whether a pod of this shape may be bound to a node with this outlook."""
        if outlook.kind is None:
            return self._without_knowledge(outlook, shape)
        answer = self.answer(outlook, shape)
        if answer.admitted:
            return GOOD
        return NodeVerdict(sentence(answer.code, answer.reason), hopeless=not self._ever_admitted(outlook, shape))

    def answer(self, outlook: Outlook, shape: PodShape) -> Prediction:
        """Return the first refusal among all ways that things can have gone, then that of the node resources check."""
        for view in outlook.views:
            answer = self._asked(view, shape)
            if not answer.admitted:
                return answer
        if outlook.kind is None:
            return ADMITTED
        return check(shape, outlook.load, outlook.kind.settings)

    def merit(self, outlook: Outlook, shape: PodShape) -> Merit | None:
        """Return how good a place the pod would get, at worst; None when it gets none or nothing is known."""
        if outlook.kind is None:
            return None
        merits = [self._merit(outlook.kind, view, shape) for view in outlook.views]
        found = [merit for merit in merits if merit is not None]
        return None if len(found) < len(merits) else Merit.worst(found)

    def _without_knowledge(self, outlook: Outlook, shape: PodShape) -> NodeVerdict:
        if self._unknown is UnknownNodes.ALLOW:
            return GOOD
        if self._unknown is UnknownNodes.DENY_EXCLUSIVE and not _wants_exclusive(shape.pod):
            return GOOD
        return NodeVerdict(f"mooring: {outlook.trouble}", hopeless=True)

    def _asked(self, view: View, shape: PodShape) -> Prediction:
        key = view.key, shape.key
        found = self._answers.get(key)
        if found is not None:
            self.hits += 1
            return found
        self.runs += 1
        after, answer = predicted(asked_node(view.kubelet, shape), shape.pod)
        self._answers[key] = answer
        if answer.admitted:
            self._afterwards[key] = after
        return answer

    def _merit(self, kind: NodeKind, view: View, shape: PodShape) -> Merit | None:
        key = view.key, shape.key
        found = self._merits.get(key)
        if found is not None:
            self.hits += 1
            return found
        after = self._afterwards.get(key)
        if after is None:
            self.runs += 1
            after, answer = predicted(asked_node(view.kubelet, shape), shape.pod)
            if not answer.admitted:
                return None
        found = merit_of(after, shape.pod.uid, kind.distances)
        self._merits[key] = found
        return found

    def _ever_admitted(self, outlook: Outlook, shape: PodShape) -> bool:
        """Tell whether the node would admit the pod if it had no other."""
        kind = outlook.kind
        if kind is None or not outlook.views:
            return False
        view = outlook.views[0].kubelet
        devices = view.node.providers.devices.devices
        key = kind.digest, repr(devices), shape.key
        found = self._ever.get(key)
        if found is None:
            self.runs += 1
            empty = emptied(view)
            if empty is None:
                return False
            _, found = predicted(asked_node(empty, shape), shape.pod)
            found = found if not found.admitted else check(shape, Load(), kind.settings)
            self._ever[key] = found
        return found.admitted


@cache
def sentence(code: str, reason: str) -> str:
    """Return the words for a refusal, the same for the same cause on whichever node.

    >>> sentence("MOOR-101", "UnexpectedAdmissionError")
    'mooring: fewer CPUs are free than the pod requests (MOOR-101, UnexpectedAdmissionError)'
    """
    title = page(code).title
    first = title if title[:2].isupper() else title[:1].lower() + title[1:]
    return f"mooring: {first} ({code}{', ' + reason if reason else ''})"


def _wants_exclusive(pod: Pod) -> bool:
    """Tell whether a kubelet with static CPU manager policy would give the pod CPUs of its own."""
    gates = PodLevelGates(True, True)
    if pod.is_pod_level and exclusive_cpus_of_pod(pod, gates):
        return True
    return any(exclusive_cpus(pod, container, gates) for container in pod.containers)
