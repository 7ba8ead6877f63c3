"""The nodes of a cluster as states that are shared: nodes that decide alike are one, and each is asked once.

A state is a kubelet whose pods have names of its own, made of their shape and a number, so that nodes with the same
history have the same state. Pods to which no manager gives anything are not in it (:func:`is_plain`); of them
only sums count, and these are the scheduler's too.

:func:`~mooring.engine.kubelet.admit.view_key` stands for all that decides about a new pod; what each pod holds
decides what a removal gives back. Both together are the key of a state.

Changes of a node beside pods that come and go: a restart of its kubelet, CPUs offline or online, a resize.

The kubelet of a shared state has no pods to which no manager gives anything. For a change it gets all pods of the node,
in the order of their admission, so that the answer is that of a kubelet which had them all along.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, TypeAlias
from weakref import WeakValueDictionary

from mooring.engine.core.pod import Pod
from mooring.engine.kubelet.admit import Memo, PodShape, view_key
from mooring.engine.kubelet.events import Offline, Online, Restart, after_event
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.node import Node
from mooring.engine.node.node import numa_of_blocks
from mooring.explanations.phrases import nodes_of
from mooring.explanations.why import Prediction, predicted, prediction_of
from mooring.published.restored import holds

PodsInOrder: TypeAlias = Sequence[tuple[str, PodShape]]
"""Name in the state, empty for a pod to which no manager gives anything, and shape."""
_PLAIN = "plain"


KubeletChange: TypeAlias = Callable[[Kubelet], tuple[Kubelet, Mapping[str, Prediction], str, str]]
"""Returns a kubelet after a change, uid of a pod that is not admitted again -> why, configuration and release from then
on as text, empty where they cannot have changed, and why the change was not made, empty when it was."""


def with_all(kubelet: Kubelet, pods: PodsInOrder) -> tuple[Kubelet, list[str]]:
    """Return a kubelet that runs all pods of a node, and their uids in order."""
    active: dict[str, Pod] = {}
    for number, (place, shape) in enumerate(pods):
        uid = place or f"{_PLAIN}.{number}"
        active[uid] = kubelet.node.active[place] if place else replace(shape.pod, uid=uid, name=uid)
    return replace(kubelet, node=replace(kubelet.node, active=active, started=active)), list(active)


def without_plain(kubelet: Kubelet, names: Sequence[str]) -> Kubelet:
    """Return a kubelet without the pods to which no manager gives anything, and without resizes that wait."""
    plain = {name for name in names if name.startswith(f"{_PLAIN}.")}
    active = {uid: pod for uid, pod in kubelet.node.active.items() if uid not in plain}
    node = replace(kubelet.node, active=active, started=active, waiting={})
    return replace(kubelet, node=node).settled()


def held_by(kubelet: Kubelet) -> dict[str, str]:
    """Return what each pod of a kubelet holds, as text."""
    return {uid: held_text(kubelet.node, uid) for uid in kubelet.node.active}


def held_text(node: Node, uid: str) -> str:
    """Return what a pod holds, as text; what a resize may take back and what it will take count, too."""
    text, resized = repr(holds(node, uid)), (node.cpu.baselines.get(uid), node.cpu.pre_assignments.get(uid))
    return text if not any(resized) else f"{text}{resized}"


def restarting(restart: Restart) -> KubeletChange:
    """Return the change that a restart makes.

    Args:
        restart: with the configuration and the release from then on.
    """

    def change(kubelet: Kubelet) -> tuple[Kubelet, Mapping[str, Prediction], str, str]:
        facts: list[object] = []
        after, result = after_event(kubelet, restart, observer=facts.append)
        if result.refusal is not None or result.crash:
            message = result.crash if result.refusal is None else result.refusal.message
            return kubelet, {}, "", message
        refused = {one.pod.uid: prediction_of(one, after, facts) for one in result.admissions if not one.admitted}
        return after, refused, repr((after.settings.config, after.mooring.release)), ""

    return change


def changing_cpus(event: Offline | Online) -> KubeletChange:
    """Return the change that CPUs make which go offline or come online."""
    return lambda kubelet: (after_event(kubelet, event)[0], {}, "", "")


def resizing(number: int, pod: Pod) -> KubeletChange:
    """Return the change that a resize makes.

    Args:
        number: of the pod among those of the node.
        pod: with the resources that it wants.
    """

    def change(kubelet: Kubelet) -> tuple[Kubelet, Mapping[str, Prediction], str, str]:
        uid = list(kubelet.node.active)[number]
        after, answer = kubelet.resize(replace(pod, uid=uid, name=uid))
        return after, {}, "", "" if answer.accepted else f"{answer.reason}: {answer.message}"

    return change


_CHANGED: Final = "\n"
"""Between the name of a group and the configuration of a kubelet; no name has it."""
_MOST_ANSWERS: Final = 50_000
"""Answers that are remembered; those beyond are asked again where they are needed."""
_MOST_VIEWS: Final = 20_000
"""Views of which is remembered what they say of a shape."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SharedState:
    """A kubelet that stands for every node that decides as it does."""

    key: bytes
    kind: str
    """Of the node: its group, and the configuration that its kubelet got since the beginning."""
    kubelet: Kubelet
    view: bytes
    """Of all that decides about a new pod: states of one view refuse the same pods, with the same cause."""
    held: Mapping[str, str] = field(default_factory=dict)
    """Name of a pod in the state -> what it holds, as text."""

    @property
    def group(self) -> str:
        """Name of the node's group."""
        return self.kind.partition(_CHANGED)[0]

    def numa_nodes(self, pod: str) -> int:
        """Return on how many NUMA nodes the CPUs, devices and memory of a pod's own lie; 0 when it has none."""
        node, topology = self.kubelet.node, self.kubelet.settings.topology
        cpus = [*node.cpu.assignments.get(pod, {}).values(), node.cpu.pods.get(pod, 0)]
        found = {id_ for mask in cpus for id_ in nodes_of(topology, mask)} if topology is not None else set()
        blocks = [*node.memory.assignments.get(pod, {}).values(), node.memory.pods.get(pod, ())]
        found.update(id_ for held in blocks for id_ in numa_of_blocks(held))
        devices = node.providers.devices
        for container in devices.held.get(pod, {}).values():
            for resource, ids in container.items():
                for one in devices.devices[resource]:
                    if one.id in ids and one.numa and not found.intersection(one.numa):
                        found.add(one.numa[0])
        return len(found)


StateAnswer: TypeAlias = tuple[Prediction, SharedState, str]
"""What asking a state about a shape came to: the state afterwards, the same one where the pod was refused, and the name
of the pod in it, then empty."""
StateChange: TypeAlias = tuple[SharedState, Mapping[int, Prediction], str]
"""What a change of a kubelet came to: the state afterwards, place of a pod among those of the node -> why the kubelet
does not admit it again, and why it does not start again or a resize was not taken, empty when all is well."""


class SharedStates:
    """Every state that a node has had; used by one thread."""

    def __init__(self) -> None:
        """Begin without any."""
        self._known: WeakValueDictionary[bytes, SharedState] = WeakValueDictionary()
        self._admitted: Memo[tuple[bytes, bytes], StateAnswer] = Memo(_MOST_ANSWERS)
        self._predicted: dict[bytes, dict[bytes, Prediction]] = {}
        self._removed: Memo[tuple[bytes, str], SharedState] = Memo(_MOST_ANSWERS)
        self._changed: Memo[Hashable, StateChange] = Memo(_MOST_ANSWERS)
        self.asked = 0
        """How often the engine was asked."""

    def of(self, kind: str, kubelet: Kubelet) -> SharedState:
        """Return the state of a node of a kind; pods that it has keep their uids as their names."""
        return self._shared(kind, kubelet, held_by(kubelet))

    def admit(self, state: SharedState, shape: PodShape) -> StateAnswer:
        """Return what a node does with a pod."""

        def ask() -> StateAnswer:
            self.asked += 1
            # Return the first name for a pod of a shape that no pod of the state has
            stem, number = shape.key.hex(), 0
            while f"{stem}.{number}" in state.held:
                number += 1
            name = f"{stem}.{number}"
            after, prediction = predicted(state.kubelet, replace(shape.pod, uid=name, name=name))
            if not prediction.admitted:
                return prediction, state, ""
            # What a refused pod leaves behind is gone before the next one is asked about, and so is it here.
            held = {**state.held, name: held_text(after.node, name)}
            return prediction, self._shared(state.kind, after, held), name

        return self._admitted.of((state.key, shape.key), ask)

    def would(self, state: SharedState, shape: PodShape) -> Prediction:
        """Return what a node would do with a pod, asked once for all states of a view."""
        known = self._predicted.setdefault(shape.key, {})
        found = known.get(state.view)
        if found is None:
            if len(known) >= _MOST_VIEWS:
                known.clear()
            found = known[state.view] = self.admit(state, shape)[0]
        return found

    def would_each(self, states: Iterable[SharedState], shape: PodShape) -> list[Prediction]:
        """Return what many nodes would do with a pod."""
        known = self._predicted.setdefault(shape.key, {})
        return [known.get(state.view) or self.would(state, shape) for state in states]

    def remove(self, state: SharedState, pod: str) -> SharedState:
        """Return a node after one of its pods has ended."""

        def ask() -> SharedState:
            kubelet = state.kubelet.without([pod])
            held = {name: text for name, text in state.held.items() if name != pod}
            # A CPU that comes free may replace an offline one of another pod.
            return self._shared(state.kind, kubelet, held_by(kubelet) if kubelet.node.cpu.offline else held)

        return self._removed.of((state.key, pod), ask)

    def changed(self, state: SharedState, change: KubeletChange, pods: PodsInOrder, key: Hashable) -> StateChange:
        """Return a node after its kubelet or its CPUs changed.

        Args:
            state: before.
            change: what happens to the kubelet.
            pods: all pods of the node in the order of their admission.
            key: of the change; equal changes of equal nodes are asked once.
        """

        def ask() -> StateChange:
            self.asked += 1
            full, names = with_all(state.kubelet, pods)
            after, refused, configuration, message = change(full)
            kubelet = without_plain(after, names)
            kind = f"{state.group}{_CHANGED}{configuration}" if configuration else state.kind
            by_place = {names.index(uid): prediction for uid, prediction in refused.items()}
            return self._shared(kind, kubelet, held_by(kubelet)), by_place, message

        return self._changed.of((state.key, tuple((place, shape.key) for place, shape in pods), key), ask)

    def _shared(self, kind: str, kubelet: Kubelet, held: Mapping[str, str]) -> SharedState:
        cpu = kubelet.node.cpu
        gone = (cpu.offline, sorted(cpu.displaced.items())) if cpu.offline or cpu.displaced else ()
        view = view_key(kind, kubelet.node)
        parts = view, sorted(held.items()), *gone
        key = blake2b(repr(parts).encode(), digest_size=16).digest()
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = SharedState(key, kind, kubelet, key if gone else view, held)
        return found
