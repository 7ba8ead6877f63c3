"""What the extender says about one node and one pod, with the engine run once for all that is equal.

What a pod that is bound now may meet on a node is one value, shared by all nodes on which it is the same. How good a
place is: how near its parts are, what it leaves for others, and how full the node gets. Every figure lies between 0 and
1. The placement is the engine's, and so is the word on what is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import TypeVar
from weakref import WeakValueDictionary

from mooring.cluster.extender.claims import asked_node, wants_exclusive
from mooring.cluster.extender.wire import sentence
from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import decide
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, Memo, PodShape, load_of, view_key
from mooring.engine.kubelet.start import emptied
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.explanations.probes import CPU, place_of, probe_pod
from mooring.explanations.why import ADMITTED, Prediction, check, predicted
from mooring.published.possible_kubelets import UNJUDGED, UNKNOWN_FACTS, NodeKnowledge, possible_kubelets
from mooring.published.restored import NodeKind

HIGHEST = 10
"""The scheduler's highest score of an extender."""
_LOCAL = 10
"""A NUMA node's distance to itself."""
_UNTOLD = 20
"""Distance between two NUMA nodes where the machine tells none; Linux's own default."""
_MOST_PROBES = 12
TOO_OLD = "the published state of the node is too old"
_HOLDER = "mooring.others"


@dataclass(frozen=True, slots=True)
class PlaceQuality:
    """A placement, judged."""

    alignment: float = 1.0
    """Local distance by mean distance between the NUMA nodes that the pod touches; 1 on one node."""
    room: float = 1.0
    """CPUs of the largest request that one NUMA node still takes alone, by those of the largest NUMA node."""
    free: float = 1.0
    """CPUs still available for exclusive use, divided by all."""

    @staticmethod
    def worst(merits: Sequence[PlaceQuality]) -> PlaceQuality:
        """Return the lowest of each figure."""
        if len(merits) == 1:
            return merits[0]
        return PlaceQuality(
            min(one.alignment for one in merits), min(one.room for one in merits), min(one.free for one in merits)
        )


@dataclass(frozen=True, slots=True)
class Weights:
    """How much each figure counts."""

    alignment: float = 2.0
    fragmentation: float = 1.0
    least_allocated: float = 0.0
    most_allocated: float = 0.0

    def score(self, merit: PlaceQuality) -> int:
        """Return the score of a placement, from 0 to 10.

        >>> Weights().score(PlaceQuality(1.0, 1.0, 0.2)), Weights().score(PlaceQuality(0.5, 0.5, 0.2))
        (10, 5)
        >>> Weights(0, 0, most_allocated=1).score(PlaceQuality(1.0, 1.0, 0.2))
        8
        """
        total = self.alignment + self.fragmentation + self.least_allocated + self.most_allocated
        if total <= 0:
            return 0
        sum_ = (
            self.alignment * merit.alignment
            + self.fragmentation * merit.room
            + self.least_allocated * merit.free
            + self.most_allocated * (1 - merit.free)
        )
        return round(HIGHEST * sum_ / total)


def quality_of(after: Kubelet, uid: str, distances: Mapping[int, tuple[int, ...]]) -> PlaceQuality:
    """Judge the place that a pod got."""
    topology, policy = after.settings.topology, after.settings.cpu
    alignment = nearness(_touched(after.node, uid), distances)
    if topology is None or policy is None:
        return PlaceQuality(alignment)
    ever = topology.all_cpus & ~policy.reserved
    available = available_cpus(policy, after.node.cpu)
    largest = max(((mask & ever).bit_count() for mask in topology.numa.values()), default=0)
    left = available.bit_count() / ever.bit_count() if ever else 0.0
    if not largest:
        return PlaceQuality(alignment)
    return PlaceQuality(alignment, largest_aligned(after, topology, available) / largest, left)


def nearness(nodes: Iterable[int], distances: Mapping[int, tuple[int, ...]]) -> float:
    """Return the local distance by the mean distance between any two of the nodes, each with itself included.

    >>> nearness([0], {}), round(nearness([0, 1], {0: (10, 12), 1: (12, 10)}), 3)
    (1.0, 0.909)
    """
    touched = list(nodes)
    if len(touched) < 2:
        return 1.0
    total = sum(_LOCAL if one == other else _between(one, other, distances) for one in touched for other in touched)
    return _LOCAL * len(touched) ** 2 / total


def largest_aligned(kubelet: Kubelet, topology: Topology, available: int) -> int:
    """Return the CPUs of the largest request that one NUMA node would take alone, as the engine says."""
    policy = kubelet.settings.cpu
    step = max(policy.group_size, 1) if policy is not None and policy.rules.whole_cores else 1
    most = max(((mask & available).bit_count() for mask in topology.numa.values()), default=0)
    most -= most % step
    for count in range(most, max(most - _MOST_PROBES * step, 0), -step):
        result = decide(kubelet, probe_pod(CPU, count, guided=False))
        place = place_of(result.decision, kubelet.settings.topology) if result.admitted else None
        if place is not None and len(place.nodes) <= 1:
            return count
    return 0


def _touched(node: Node, uid: str) -> list[int]:
    """Return the NUMA nodes of a pod's CPUs, memory and devices; a device counts where it is near to no other part."""
    topology = node.settings.topology
    cpus = node.cpu.pods.get(uid, 0)
    for mask in node.cpu.assignments.get(uid, {}).values():
        cpus |= mask
    touched = {id_ for id_, mask in topology.numa.items() if mask & cpus} if topology is not None else set()
    for blocks in node.memory.assignments.get(uid, {}).values():
        for block in blocks:
            touched.update(block.numa)
    devices = node.providers.devices
    for resources in devices.held.get(uid, {}).values():
        for resource, ids in resources.items():
            for device in devices.devices.get(resource, ()):
                if device.id in ids and device.numa and not touched & set(device.numa):
                    touched.add(device.numa[0])
    return sorted(touched)


def _between(one: int, other: int, distances: Mapping[int, tuple[int, ...]]) -> int:
    row = distances.get(one, ())
    return row[other] if 0 <= other < len(row) else _UNTOLD


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
        kubelets = possible_kubelets(situation)
        if isinstance(kubelets, str) or not isinstance(situation.kind, NodeKind):
            return self.trouble(kubelets if isinstance(kubelets, str) else UNKNOWN_FACTS)
        return self.shared(situation.kind, kubelets)

    def shared(self, kind: NodeKind, kubelets: Sequence[Kubelet]) -> PossibleNode:
        """Return the outlook on what a node may be."""
        views = {view.key: view for view in (self._view(kind, one) for one in kubelets)}
        load = _heaviest(kubelets)
        key = kind.digest, tuple(views), load
        found = self._made.get(key)
        if found is None:
            found = PossibleNode(kind, tuple(views.values()), load)
            self._made[key] = found
        return found

    def trouble(self, reason: str) -> PossibleNode:
        """Return the outlook where nothing can be said."""
        found = self._made.get(reason)
        if found is None:
            found = PossibleNode(None, trouble=reason)
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
_MOST_SHAPES = 64
_Said = TypeVar("_Said")


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
        self._answers: Memo[tuple[bytes, bytes], Prediction] = Memo(_MOST_ANSWERS)
        self._afterwards: Memo[tuple[bytes, bytes], Kubelet | None] = Memo(_MOST_AFTERWARDS)
        self._admits: Memo[tuple[object, ...], bool] = Memo(_MOST_ANSWERS)
        self._merits: Memo[tuple[bytes, bytes], PlaceQuality | None] = Memo(_MOST_ANSWERS)
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
            return None if after is None else quality_of(after, shape.pod.uid, kind.distances)

        return self._merits.of(key, ask)

    def _run(self, kubelet: Kubelet, shape: PodShape) -> tuple[Kubelet, Prediction]:
        self.runs += 1
        return predicted(asked_node(kubelet, shape), shape.pod)

    def admits(self, outlook: PossibleNode, shape: PodShape) -> bool | None:
        """Tell whether a node admits a pod, for less than the reason costs; None when nothing can be said."""
        if outlook.kind is None:
            return None if self._without_knowledge(outlook, shape).reason else True
        if not check(shape, outlook.load, outlook.kind.settings).admitted:
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
