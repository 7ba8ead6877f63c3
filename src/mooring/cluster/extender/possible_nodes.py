"""What a pod that is bound now may meet on a node, and what was said about it; equal nodes share both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mooring.cluster.extender.options import Weights
from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.admit import Load, added, load_of, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.engine.node.resources import pod_requests
from mooring.published.possible_kubelets import UNJUDGED, UNKNOWN_FACTS, NodeKnowledge, possible_kubelets
from mooring.published.restored import NodeKind

HIGHEST = 10
"""The scheduler's highest score of an extender."""
TOO_OLD = "the published state of the node is too old"
_HOLDER = "mooring.others"


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """The extender's word about one node."""

    reason: str = ""
    """Why not, in words that are equal for equal causes; empty when the node is good."""
    hopeless: bool = False
    """Whether removing pods from the node would change nothing."""


GOOD = NodeVerdict()


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

    def score(self, weights: Weights) -> int:
        """Return the score of the placement, from 0 to 10.

        >>> weights = Weights(alignment=2.0, fragmentation=1.0)
        >>> PlaceQuality(1.0, 1.0, 0.2).score(weights), PlaceQuality(0.5, 0.5, 0.2).score(weights)
        (10, 5)
        >>> PlaceQuality(1.0, 1.0, 0.2).score(Weights(most_allocated=1))
        8
        """
        total = weights.alignment + weights.fragmentation + weights.least_allocated + weights.most_allocated
        if total <= 0:
            return 0
        sum_ = (
            weights.alignment * self.alignment
            + weights.fragmentation * self.room
            + weights.least_allocated * self.free
            + weights.most_allocated * (1 - self.free)
        )
        return round(HIGHEST * sum_ / total)


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
