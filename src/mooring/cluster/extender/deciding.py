"""What the extender says about one node and one pod, with the engine run once for all that is equal.

What a pod that is bound now may meet on a node: one value, shared by all nodes on which it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from weakref import WeakValueDictionary

from cachetools import LRUCache

from mooring.answers.base.prediction import ADMITTED, Prediction, check, predicted
from mooring.cluster.extender.claims import asked_node
from mooring.cluster.extender.scoring import Merit, merit_of
from mooring.engine.core.pod import Container, Pod, PodLevelGates
from mooring.engine.cpumanager.requests import exclusive_cpus, exclusive_cpus_of_pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, PodShape, load_of, view_key
from mooring.engine.kubelet.start import emptied
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.explain.codes.pages import page
from mooring.published.possible_kubelets import UNJUDGED, UNKNOWN_FACTS, Situation, kubelets_of
from mooring.published.restored import NodeKind

TOO_OLD = "the published state of the node is too old"

_HOLDER = "mooring.others"


@dataclass(slots=True, weakref_slot=True, eq=False)
class View:
    """What the managers of a node look at for a new pod, without a name of any other."""

    key: bytes
    kubelet: Kubelet


@dataclass(slots=True, weakref_slot=True, eq=False)
class Outlook:
    """What is known about a node."""

    kind: NodeKind | None
    """Facts of the node; None when nothing can be said."""
    views: tuple[View, ...] = ()
    """One for each way that things can have gone; a pod is admitted when each of them admits it."""
    load: Load = field(default_factory=Load)
    trouble: str = ""
    """Why nothing can be said."""


CANNOT_BE_JUDGED = Outlook(None, trouble=UNJUDGED)
"""Of a node about which the engine cannot be asked."""


class Outlooks:
    """Makes outlooks; equal ones are one object."""

    def __init__(self) -> None:
        """Begin without any."""
        self._views: WeakValueDictionary[bytes, View] = WeakValueDictionary()
        self._made: WeakValueDictionary[object, Outlook] = WeakValueDictionary()

    def of(self, situation: Situation) -> Outlook:
        """Return the outlook on a node."""
        kubelets = kubelets_of(situation)
        if isinstance(kubelets, str) or not isinstance(situation.kind, NodeKind):
            return self.trouble(kubelets if isinstance(kubelets, str) else UNKNOWN_FACTS)
        return self.shared(situation.kind, kubelets)

    def shared(self, kind: NodeKind, kubelets: Sequence[Kubelet]) -> Outlook:
        """Return the outlook on what a node may be."""
        views = {view.key: view for view in (self._view(kind, one) for one in kubelets)}
        load = _heaviest(kubelets)
        key = kind.digest, tuple(views), load
        found = self._made.get(key)
        if found is None:
            found = Outlook(kind, tuple(views.values()), load)
            self._made[key] = found
        return found

    def trouble(self, reason: str) -> Outlook:
        """Return the outlook where nothing can be said."""
        found = self._made.get(reason)
        if found is None:
            found = Outlook(None, trouble=reason)
            self._made[reason] = found
        return found

    def _view(self, kind: NodeKind, kubelet: Kubelet) -> View:
        key = view_key(kind.digest, kubelet.node)
        found = self._views.get(key)
        if found is None:
            found = View(key, anonymous(kubelet))
            self._views[key] = found
        return found


def anonymous(kubelet: Kubelet) -> Kubelet:
    """Return a kubelet that decides about a new pod as this one does, without what each pod has and without files."""
    node, providers = kubelet.node, kubelet.node.providers
    cpu, memory, devices = providers.cpu, providers.memory, providers.devices
    held = {resource: devices.allocated(resource) for resource in devices.devices}
    someone = Pod(_HOLDER, _HOLDER, "", (Container(_HOLDER),))
    slim = Providers(
        CPUState(cpu.policy, cpu.default, {}, offline=cpu.withheld),
        MemoryState(memory.policy, memory.nodes, {}),
        DeviceState(devices.devices, {_HOLDER: {_HOLDER: held}}),
    )
    bare = Node(node.settings, slim, active={_HOLDER: someone}, moment=node.moment)
    return Kubelet(kubelet.info, kubelet.mooring, bare, None, None)


def _heaviest(kubelets: Sequence[Kubelet]) -> Load:
    """Return sums that no course exceeds."""
    loads = [load_of(one) for one in kubelets]
    used: dict[str, int] = {}
    for load in loads:
        for name, amount in load.used:
            used[name] = max(used.get(name, 0), amount)
    return Load(tuple(sorted(used.items())), max(load.pods for load in loads))


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
