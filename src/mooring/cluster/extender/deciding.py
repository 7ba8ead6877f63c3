"""What the extender says about one node and one pod, with the engine run once for all that is equal.

What a pod that is bound now may meet on a node is one value, shared by all nodes on which it is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from mooring.cluster.extender.claims import asked_node, wants_exclusive
from mooring.cluster.extender.options import UnknownNodes
from mooring.cluster.extender.scores import PlaceQuality, largest_aligned, probe_key, quality_of
from mooring.cluster.extender.wire import sentence
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import Load, Memo, PodShape, added, decide, load_of, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import emptied
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.engine.node.resources import pod_requests
from mooring.explanations.why import ADMITTED, Prediction, check, predicted
from mooring.published.possible_kubelets import UNJUDGED, UNKNOWN_FACTS, NodeKnowledge, possible_kubelets
from mooring.published.restored import NodeKind

TOO_OLD = "the published state of the node is too old"
_HOLDER = "mooring.others"


@dataclass(slots=True, weakref_slot=True, eq=False)
class View:
    """What the managers of a node look at for a new pod, without a name of any other."""

    key: bytes
    kubelet: Kubelet


@dataclass(slots=True, weakref_slot=True, eq=False)
class PossibleNode:
    """What is known about a node."""

    kind: NodeKind | None
    """Facts of the node; None when nothing can be said."""
    views: tuple[View, ...] = ()
    """One for each way that things can have gone; a pod is admitted when each of them admits it."""
    load: Load = field(default_factory=Load)
    trouble: str = ""
    """Why nothing can be said."""
    verdicts: dict[bytes, NodeVerdict] = field(default_factory=dict)
    """Key of a shape -> what was said. A delta gives the node another outlook."""
    merits: dict[bytes, PlaceQuality | None] = field(default_factory=dict)


CANNOT_BE_JUDGED = PossibleNode(None, trouble=UNJUDGED)
"""Of a node about which the engine cannot be asked."""


class PossibleNodes:
    """Makes outlooks; equal ones are one object."""

    def __init__(self) -> None:
        """Begin without any."""
        self._views: WeakValueDictionary[bytes, View] = WeakValueDictionary()
        self._made: WeakValueDictionary[object, PossibleNode] = WeakValueDictionary()

    def of(self, situation: NodeKnowledge) -> PossibleNode:
        """Return the outlook on a node."""
        kubelets, kind = possible_kubelets(situation), situation.kind
        if isinstance(kubelets, str) or not isinstance(kind, NodeKind):
            return self.trouble(kubelets if isinstance(kubelets, str) else UNKNOWN_FACTS)
        views: dict[bytes, View] = {}
        for kubelet in kubelets:
            key = situation.steps.of(view_key, kind.digest, kubelet.node)
            views[key] = self._views.get(key) or self._views.setdefault(key, View(key, anonymous(kubelet)))
        load = _heaviest(kubelets)
        made = PossibleNode(kind, tuple(views.values()), load)
        return self._made.setdefault((kind.digest, tuple(views), load), made)

    def with_sums(self, outlook: PossibleNode, kind: NodeKind, pod: Pod) -> PossibleNode:
        """Return the outlook on a node of a kind with one more pod that only adds to the sums."""
        sums = added(dict(outlook.load.used), pod_requests(pod))
        checked = kind.settings.reservation.capacity
        used = tuple(sorted((name, amount) for name, amount in sums.items() if name in checked and amount))
        load = Load(used, outlook.load.pods + 1)
        made = PossibleNode(kind, outlook.views, load, merits=outlook.merits)
        return self._made.setdefault((kind.digest, outlook.views, load), made)

    def trouble(self, reason: str) -> PossibleNode:
        """Return the outlook where nothing can be said."""
        return self._made.setdefault(reason, PossibleNode(None, trouble=reason))


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
_MOST_SHAPES = 64
_Said = TypeVar("_Said")


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
        self._answers: Memo[tuple[bytes, bytes], Prediction] = Memo(_MOST_ANSWERS)
        self._afterwards: Memo[tuple[bytes, bytes], Kubelet | None] = Memo(_MOST_AFTERWARDS)
        self._admits: Memo[tuple[object, ...], bool] = Memo(_MOST_ANSWERS)
        self._merits: Memo[tuple[bytes, bytes], PlaceQuality | None] = Memo(_MOST_ANSWERS)
        self._largest: Memo[tuple[str, object], int] = Memo(_MOST_ANSWERS)
        self._known = 0
        self.runs = 0
        """How often the engine was asked."""

    @property
    def hits(self) -> int:
        """How often an answer was known."""
        return self._known + self._answers.hits + self._merits.hits

    def verdict(self, outlook: PossibleNode, shape: PodShape) -> NodeVerdict:
        """Say whether a pod of this shape may be bound to a node with this outlook."""
        if outlook.kind is None:
            return self._without_knowledge(outlook, shape)
        found = outlook.verdicts.get(shape.key)
        if found is not None:
            self._known += 1
            return found
        answer, found = self.answer(outlook, shape), GOOD
        if not answer.admitted:
            found = NodeVerdict(sentence(answer.code, answer.reason), hopeless=not self.ever_admits(outlook, shape))
        return _remembered(outlook.verdicts, shape, found)

    def answer(self, outlook: PossibleNode, shape: PodShape) -> Prediction:
        """Return the first refusal among all ways that things can have gone, then that of the node resources check."""
        for view in outlook.views:
            answer = self._asked(view, shape)
            if not answer.admitted:
                return answer
        if outlook.kind is None:
            return ADMITTED
        return check(shape, outlook.load, outlook.kind.settings)

    def merit(self, outlook: PossibleNode, shape: PodShape) -> PlaceQuality | None:
        """Return how good a place the pod would get, at worst; None when it gets none or nothing is known."""
        if outlook.kind is None:
            return None
        if shape.key in outlook.merits:
            self._known += 1
            return outlook.merits[shape.key]
        merits = [self._merit(outlook.kind, view, shape) for view in outlook.views]
        found = [merit for merit in merits if merit is not None]
        return _remembered(outlook.merits, shape, None if len(found) < len(merits) else PlaceQuality.worst(found))

    def _without_knowledge(self, outlook: PossibleNode, shape: PodShape) -> NodeVerdict:
        if self._unknown is UnknownNodes.ALLOW:
            return GOOD
        if self._unknown is UnknownNodes.DENY_EXCLUSIVE and not wants_exclusive(shape.pod):
            return GOOD
        return NodeVerdict(f"mooring: {outlook.trouble}", hopeless=True)

    def _asked(self, view: View, shape: PodShape) -> Prediction:
        key = view.key, shape.key

        def ask() -> Prediction:
            after, answer = self._run(view.kubelet, shape)
            if answer.admitted:
                self._afterwards.put(key, after)
            return answer

        return self._answers.of(key, ask)

    def _merit(self, kind: NodeKind, view: View, shape: PodShape) -> PlaceQuality | None:
        key = view.key, shape.key

        def admitted() -> Kubelet | None:
            after, answer = self._run(view.kubelet, shape)
            return after if answer.admitted else None

        def ask() -> PlaceQuality | None:
            after = self._afterwards.of(key, admitted)
            return None if after is None else quality_of(after, shape.pod.uid, kind.distances, largest)

        def largest(after: Kubelet, topology: Topology, available: int) -> int:
            known = kind.digest, probe_key(after)
            return self._largest.of(known, partial(largest_aligned, after, topology, available))

        return self._merits.of(key, ask)

    def _run(self, kubelet: Kubelet, shape: PodShape) -> tuple[Kubelet, Prediction]:
        self.runs += 1
        return predicted(asked_node(kubelet, shape), shape.pod)

    def knows(self, outlook: PossibleNode, shape: PodShape, *, merit: bool) -> bool:
        """Tell whether a verdict or a merit takes no run of the engine."""
        if outlook.kind is None or shape.key in (outlook.merits if merit else outlook.verdicts):
            return True
        keys = [(view.key, shape.key) for view in outlook.views]
        if merit:
            return all(key in self._merits for key in keys)
        # Of a refusal it is asked, too, whether it would be one on an empty node.
        return all(key in self._answers for key in keys) and self.answer(outlook, shape).admitted

    def admits(self, outlook: PossibleNode, shape: PodShape) -> bool | None:
        """Tell whether a node admits a pod, for less than the reason costs; None when nothing can be said."""
        if outlook.kind is None:
            return None if self._without_knowledge(outlook, shape).reason else True
        if not check(shape, outlook.load, outlook.kind.settings).admitted:
            return False
        # What a node refuses when it is empty it refuses with pods: tests/laws/test_laws_whole_node.py. Containers that
        # come first could leave another one more room than there, and extensions may do anything.
        is_alone = len(shape.pod.containers) == 1 and not outlook.kind.settings.extensions
        if is_alone and outlook.views and not self.ever_admits(outlook, shape):
            return False
        return all(
            self._admits.of((view.key, shape.key), partial(self._admitted, view.kubelet, shape))
            for view in outlook.views
        )

    def ever_admits(self, outlook: PossibleNode, shape: PodShape) -> bool:
        """Tell whether the node would admit the pod if it had no other."""
        kind = outlook.kind
        if kind is None or not outlook.views or not check(shape, Load(), kind.settings).admitted:
            return False
        view = outlook.views[0].kubelet

        def ask() -> bool:
            empty = emptied(view)
            return empty is not None and self._admitted(empty, shape)

        return self._admits.of((kind.digest, repr(view.node.providers.devices.devices), shape.key), ask)

    def _admitted(self, kubelet: Kubelet, shape: PodShape) -> bool:
        self.runs += 1
        return decide(asked_node(kubelet, shape), shape.pod).admitted


def _remembered(known: dict[bytes, _Said], shape: PodShape, said: _Said) -> _Said:
    if len(known) >= _MOST_SHAPES:
        known.clear()
    known[shape.key] = said
    return said
