"""What a pod that is bound now may meet on a node: one value, shared by all nodes on which it is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from mooring.engine.core.pod import Container, Pod
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.devicemanager.state import DeviceState
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.shapes import Load, load_of, view_key
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.node import Node
from mooring.engine.node.providers import Providers
from mooring.published.restored import NodeKind
from mooring.published.situation import UNJUDGED, UNKNOWN_FACTS, Situation, kubelets_of

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
