"""A node as it stands according to what it published: the engine on its state, with the pods that are in it.

Whatever cannot be read or does not fit together is a reason in words, never an exception: it came over a network, and
a scheduler waits for an answer about many nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final

from cachetools import LRUCache

from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.errors import MooringError
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.cpumanager.policy import STATIC, exclusive_cpus
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.engine.kubelet.start import NotStarted, start_kubelet
from mooring.engine.memorymanager.policy import container_requests
from mooring.engine.node import Node
from mooring.engine.node.hotplug import remembered
from mooring.engine.node.settings import Settings, build_settings
from mooring.published.objects import NodeFacts, NodeState

_MEMORY_STATIC = "Static"
_KIND_SIZE: Final = 16_000
_CORE_SIZE: Final = 300
"""Bytes of memory that facts take, and each of their cores: measured, rounded up."""
_MOST_CPUS: Final = 8192
"""As many as Linux can have."""
_MOST_SPARE: Final = 64_000_000
"""Bytes of facts that are kept although no state refers to them."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Facts that were understood: what all nodes with the same digest share."""

    digest: str
    facts: NodeFacts
    settings: Settings

    @property
    def distances(self) -> dict[int, tuple[int, ...]]:
        """NUMA node -> its row of the distance table, where the machine has one."""
        return {node.node_id: node.distances or () for node in self.facts.machine.topology}


class KnownKinds:
    """Facts, by digest, or why they cannot be used: those that states refer to, and others as far as a budget goes.

    Any publisher can make any number of facts; a state, of which a node has one, is what makes them count.
    """

    def __init__(self) -> None:
        """Begin without any."""
        self._used: dict[str, NodeKind | str] = {}
        self._spare: LRUCache[str, NodeKind | str] = LRUCache(_MOST_SPARE, getsizeof=_size_of)
        self._has_dropped = False

    def put(self, digest: str, kind: NodeKind | str, *, is_used: bool) -> None:
        """Take facts; of those that no state refers to the oldest are dropped beyond the budget."""
        if is_used:
            self._used[digest] = kind
            return
        before = len(self._spare) + (digest not in self._spare)
        self._spare[digest] = kind
        self._has_dropped |= len(self._spare) < before

    def used(self, digest: str) -> NodeKind | str | None:
        """Return facts that a state refers to; None when they are not known."""
        spare = self._spare.pop(digest, None)
        if spare is not None:
            self._used[digest] = spare
        return self._used.get(digest)

    def get(self, digest: str) -> NodeKind | str | None:
        """Return facts, whether a state refers to them or not; None when they are not known."""
        return self._used.get(digest) or self._spare.get(digest)

    def keep(self, used: AbstractSet[str], listed: AbstractSet[str] | None = None) -> None:
        """Take it that states refer to these only, and that there are no others than those listed."""
        for digest in self._used.keys() - used:
            self.put(digest, self._used.pop(digest), is_used=False)
        for digest in () if listed is None else self._spare.keys() - listed:
            del self._spare[digest]

    def misses(self, used: AbstractSet[str]) -> bool:
        """Tell whether facts that states refer to may have been dropped, and so are to be read again; said once."""
        if not self._has_dropped or all(self.get(digest) for digest in used):
            return False
        self._has_dropped = False
        return True


def _size_of(kind: NodeKind | str) -> int:
    if isinstance(kind, str):
        return _CORE_SIZE
    return _KIND_SIZE + _CORE_SIZE * sum(len(node.cores) for node in kind.facts.machine.topology)


def kind_of(digest: str, facts: NodeFacts | str) -> NodeKind | str:
    """Understand facts; a text says why a kubelet would not start with them, or why they could not be read."""
    if isinstance(facts, str):
        return facts
    try:
        settings = build_settings(facts.config, facts.mooring, facts.machine)
    except MooringError as error:
        return f"the kubelet would not start: {error}"
    if isinstance(settings, StartRefusal):
        return f"the kubelet would not start: {settings.message}"
    return NodeKind(digest, facts, settings)


def restored(kind: NodeKind, state: NodeState, pods: Mapping[str, Pod]) -> Kubelet | str:
    """Return the node on its state, with the pods of the state as active ones; a text says why it cannot be.

    Pods of the state run already and are not decided about. Of a pod without a description only what it holds
    is known.

    Args:
        kind: facts of the node.
        state: what it published.
        pods: by uid, at least those that may be in the state.
    """
    start = started_on(kind, state)
    return start if isinstance(start, str) else with_running_pods(start, state, pods)


def started_on(kind: NodeKind, state: NodeState) -> Kubelet | str:
    """Return the node on the files and devices of its state, without pods; a text says why it cannot be."""
    config = kind.settings.config
    if config.cpu_manager_policy == STATIC and state.files.cpu is None:
        return "it lacks the file of the CPU manager"
    if config.memory_manager_policy == _MEMORY_STATIC and state.files.memory is None:
        return "it lacks the file of the memory manager"
    try:
        start = start_kubelet(kind.facts.machine, kind.settings, kind.facts.mooring, state.files, runs=True)
        if isinstance(start, Kubelet) and (state.offline or state.displaced):
            start = replace(start, node=remembered(start.node, state.offline, state.displaced))
    except (MooringError, ValueError, ArithmeticError, LookupError) as error:
        return f"{type(error).__name__}: {error}"
    if isinstance(start, NotStarted):
        return start.refusal.message
    cpu = start.node.cpu
    highest = max(cpu.default, cpu.held, *cpu.pods.values()).bit_length() - 1
    if highest >= _MOST_CPUS:
        return f"its CPU manager has CPU {highest}, a machine at most {_MOST_CPUS} CPUs"
    counted, there = start.node.memory.nodes, {one.node_id for one in kind.facts.machine.topology}
    cells = {cell for one in counted.values() for cell in one.cells}
    if kind.settings.memory is not None and not (counted.keys() == there and cells <= there):
        found, wanted = (", ".join(map(str, sorted(nodes)))[:200] for nodes in (counted.keys() | cells, there))
        return f"its memory manager has NUMA nodes {found}, its facts {wanted}"
    return start.with_devices(state.devices)


def holders_of(kubelet: Kubelet) -> dict[str, list[str]]:
    """Return uid -> containers of everything that is recorded as holding something."""
    found: dict[str, dict[str, None]] = {}
    for held in (kubelet.node.cpu.assignments, kubelet.node.memory.assignments, kubelet.node.providers.devices.held):
        for uid, containers in held.items():
            found.setdefault(uid, {}).update(dict.fromkeys(containers))
    for whole in (kubelet.node.cpu.pods, kubelet.node.memory.pods):
        for uid in whole:
            found.setdefault(uid, {})
    return {uid: list(containers) for uid, containers in found.items()}


def with_running_pods(kubelet: Kubelet, state: NodeState, pods: Mapping[str, Pod]) -> Kubelet:
    """Return a kubelet that has started on the files and devices of a state with the pods that are in it."""
    holders = holders_of(kubelet)
    # The uids of the pods that are in the state, in the order in which it names them. Where the source tells no uids, a
    # pod is in the state when the files name it: what holds nothing decides nothing. Holders that are neither named nor
    # known may then be any of the named ones, and stay. Where every name has a uid, such a holder is what a refused pod
    # left behind, and the managers drop it when they are asked the next time.
    named = {key.uid: None for key in state.pods if key.uid}
    is_nameless = any(not key.uid for key in state.pods)
    members = named | {uid: None for uid in holders if uid in pods or is_nameless}
    adopted = [
        # Of a pod without a description only its containers' names are known.
        pods.get(uid) or Pod(uid, uid, "", tuple(map(Container, holders[uid])), QoS.GUARANTEED)
        for uid in members
        if uid in pods or uid in holders
    ]
    kubelet = replace(kubelet, node=kubelet.node.adopt(adopted)).settled()
    return kubelet.counting(kubelet.used)


def holds(node: Node, uid: str) -> object:
    """Return what a pod holds, as a value that can be compared; None when it holds nothing."""
    cpus = node.cpu.assignments.get(uid), node.cpu.pods.get(uid)
    memory = node.memory.assignments.get(uid), node.memory.pods.get(uid)
    devices = node.providers.devices.held.get(uid)
    found = (cpus, memory, devices)
    return found if any((*cpus, *memory, devices)) else None


def holds_all(node: Node, pod: Pod) -> bool:
    """Tell whether a pod holds something, and all of its containers have what the managers give them.

    A kubelet gives containers their CPUs and memory one after another; between two of them a merge can take minutes.
    """
    if holds(node, pod.uid) is None:
        return False
    settings, gates = node.settings, node.settings.pod_level
    if gates.manages(pod) or gates.leaves_out(pod):
        return True
    cpus, memory = node.cpu.assignments.get(pod.uid, {}), node.memory.assignments.get(pod.uid, {})
    for container in pod.containers:
        if settings.cpu is not None and container.name not in cpus and exclusive_cpus(pod, container, gates) > 0:
            return False
        # What an init container had is released when it has ended.
        is_pinned = (
            settings.memory is not None and pod.qos is QoS.GUARANTEED and container.kind is not ContainerKind.INIT
        )
        if is_pinned and container.name not in memory and container_requests(pod, container, gates):
            return False
    return True
