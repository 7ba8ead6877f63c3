"""What the extender says about one node and one pod, with the engine run once for all that is equal.

How good the place of a pod is: how near its parts are, what it leaves for others, and how full the node gets. Every
figure lies between 0 and 1. The placement is the engine's, and so is the word on what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from mooring.cluster.extender.claims import asked_node, wants_exclusive
from mooring.cluster.extender.options import UnknownNodes
from mooring.cluster.extender.possible_nodes import GOOD, NodeVerdict, PlaceQuality, PossibleNode, View
from mooring.cluster.extender.wire import sentence
from mooring.engine.core.topology import Topology
from mooring.engine.cpumanager.policy import available_cpus
from mooring.engine.kubelet.admit import Load, Memo, PodShape, decide, view_key
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import emptied
from mooring.engine.node import Node
from mooring.explanations.probes import CPU, MEMORY, place_of, probe_pod
from mooring.explanations.why import ADMITTED, Prediction, check, predicted
from mooring.published.restored import NodeKind

_LOCAL = 10
"""A NUMA node's distance to itself."""
_UNTOLD = 20
"""Distance between two NUMA nodes where the machine tells none; Linux's own default."""
_MOST_PROBES = 12
_MOST_ANSWERS = 20_000
_MOST_AFTERWARDS = 256
_MOST_SHAPES = 64
_Said = TypeVar("_Said")


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


def quality_of(
    after: Kubelet,
    uid: str,
    distances: Mapping[int, tuple[int, ...]],
    largest: Callable[[Kubelet, Topology, int], int] | None = None,
) -> PlaceQuality:
    """Judge the place that a pod got.

    Args:
        after: its node.
        uid: of the pod.
        distances: between NUMA nodes.
        largest: is asked in place of :func:`largest_aligned`.
    """
    topology, policy = after.settings.topology, after.settings.cpu
    alignment = nearness(_touched(after.node, uid), distances)
    if topology is None or policy is None:
        return PlaceQuality(alignment)
    ever = topology.all_cpus & ~policy.reserved
    available = available_cpus(policy, after.node.cpu)
    whole = max(((mask & ever).bit_count() for mask in topology.numa.values()), default=0)
    left = available.bit_count() / ever.bit_count() if ever else 0.0
    if not whole:
        return PlaceQuality(alignment)
    return PlaceQuality(alignment, (largest or largest_aligned)(after, topology, available) / whole, left)


def nearness(nodes: Iterable[int], distances: Mapping[int, tuple[int, ...]]) -> float:
    """Return the local distance by the mean distance between any two of the nodes, each with itself included.

    >>> nearness([0], {}), round(nearness([0, 1], {0: (10, 12), 1: (12, 10)}), 3)
    (1.0, 0.909)
    """
    touched = list(nodes)
    if len(touched) < 2:
        return 1.0
    total = 0
    for one in touched:
        row = distances.get(one, ())
        far = [row[other] if 0 <= other < len(row) else _UNTOLD for other in touched if other != one]
        total += _LOCAL + sum(far)
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


def probe_key(kubelet: Kubelet) -> object:
    """Return what decides about probes for CPUs: of memory they request a byte, which a NUMA node has or has not."""
    node = kubelet.node
    tables = {id_: one.memory.get(MEMORY) for id_, one in node.memory.nodes.items()}
    if node.settings.plugins is not None or any(one and one.allocatable > one.total for one in tables.values()):
        return view_key("", node)  # amounts that wrap around add up in other ways
    memory = tuple(
        (id_, one.assignments > 0, tuple(one.cells), table and (table.free > 0, table.allocatable > 0))
        for (id_, one), table in zip(node.memory.nodes.items(), tables.values(), strict=True)
    )
    return node.cpu.default, memory


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
