"""What a pod that is bound now may meet on a node: one value, shared by all nodes on which it is the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakValueDictionary

from mooring.core.pod import Container, Pod
from mooring.cpumanager.state import CPUState
from mooring.devicemanager.state import DeviceState
from mooring.kubelet.kubelet import Kubelet
from mooring.kubelet.shapes import Load, is_plain, load_of, view_key
from mooring.memorymanager.state import MemoryState
from mooring.node import Node
from mooring.node.providers import Providers
from mooring.node.resources import total_requests
from mooring.publisher.objects import NodeState
from mooring.publisher.restored import NodeKind, restored
from mooring.scheduling.courses import Pending, courses

UNPUBLISHED = "the node has not published its state"
_UNKNOWN_FACTS = "the facts of the node are not known"
UNREADABLE = "the state of the node cannot be read"
UNSETTLED = "too many pods start and end on the node to know its state"
BEFORE_US = "pods were bound to the node before the extender started, and its state does not name them yet"
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
        return _UNKNOWN_FACTS if kind is None else UNREADABLE
    base = restored(kind, state, situation.pods)
    if isinstance(base, str):
        return UNREADABLE
    members = frozenset(base.node.active)
    new = [situation.pods[uid] for uid in situation.pending if uid not in members]
    plain = [pod for pod in new if is_plain(pod)]
    if plain:
        base = replace(base, node=base.node.adopt(plain))
        base = base.counting(base.used)
    pending = [Pending(pod, pod.uid in situation.leaving) for pod in new if not is_plain(pod)]
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
            return self.trouble(kubelets if isinstance(kubelets, str) else _UNKNOWN_FACTS)
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
