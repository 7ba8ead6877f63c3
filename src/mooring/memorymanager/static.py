"""The static policy: which nodes serve a container, and what is written down.

Source: kubelet v1.37.1, memorymanager policy_static.go; spec: memory-manager.md sections 5 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from mooring.core.bits import mask_of, members
from mooring.core.observer import Observer
from mooring.core.pod import Container, ContainerKind, Pod, QoS
from mooring.core.podlevel import PodLevelGates
from mooring.memorymanager.account import charge, release
from mooring.memorymanager.facts import MemoryAssigned, MemoryReleased
from mooring.memorymanager.hints import ReusableByMask, calculate_hints, free_in
from mooring.memorymanager.requests import Requests, container_requests
from mooring.memorymanager.reserved import MEMORY
from mooring.memorymanager.state import Block, MemoryState, NodeState
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.hints import Hint
from mooring.topologymanager.wide import Family

STATIC = "Static"

NO_DEFAULT = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
NO_PREFERRED_DEFAULT = "[memorymanager] failed to find the default preferred hint"
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
NO_PREFERRED_EXTENSION = "[memorymanager] failed to find the extended preferred hint"
VIOLATION = "[memorymanager] preferred hint violates NUMA node allocation"


@dataclass(frozen=True, slots=True)
class MemoryPolicy:
    """Everything that the policy knows before the first pod."""

    default_nodes: Mapping[int, NodeState]
    """The machine state of an empty node."""
    gates: PodLevelGates = field(default_factory=PodLevelGates)
    fixed_defects: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ReusableMemory:
    """Memory that ended init containers of the pod now being admitted leave to its later containers.

    Kept in memory only; admitting another pod forgets it (spec: memory-manager.md section 5.1).
    """

    pod: str = ""
    amounts: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """Mask of NUMA nodes -> memory type -> bytes."""

    def of(self, pod: str) -> ReusableByMask:
        """Return the record of a pod; empty for every other."""
        return self.amounts if pod == self.pod else {}

    def after(self, pod: str, container: Container, blocks: tuple[Block, ...]) -> ReusableMemory:
        """Return the record after a container got its blocks.

        Init containers leave the largest of what was there and what they have; all others use it up.
        """
        amounts = {mask: dict(types) for mask, types in self.of(pod).items()}
        for block in blocks:
            types = amounts.setdefault(mask_of(block.numa), {})
            known = types.get(block.type, 0)
            if container.kind is ContainerKind.INIT:
                types[block.type] = max(known, block.size)
            else:
                types[block.type] = max(known - block.size, 0)
        return ReusableMemory(pod, amounts)


@dataclass(frozen=True, slots=True)
class MemoryRefusal:
    """Why a container is not admitted; the text is the kubelet's."""

    message: str
    reason: str = ""
    """The kubelet's reason where the error has a type of its own."""


@dataclass(frozen=True, slots=True)
class MemoryAllocated:
    """State and record after a container was served."""

    state: MemoryState
    reusable: ReusableMemory


@dataclass(frozen=True, slots=True)
class Chosen:
    """The nodes that serve a request, and how they were found."""

    mask: int
    way: str


def allocate(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    affinity: Hint,
    observer: Observer | None = None,
) -> MemoryAllocated | MemoryRefusal:
    """Serve one container of a pod that is being admitted.

    Args:
        policy: the policy.
        state: before.
        reusable: memory left by init containers.
        pod: the pod.
        container: one of its containers.
        affinity: the hint that the topology manager stored for it.
        observer: receives what was found.
    """
    # 1-3. Only Guaranteed pods, no pod-level pods without both gates, only containers that ask for memory.
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return MemoryAllocated(state, reusable)
    requests = container_requests(pod, container, policy.gates)
    if isinstance(requests, str):
        return MemoryRefusal(requests)
    if not requests:
        return MemoryAllocated(state, reusable)
    # 5. Existing blocks are kept.
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        return MemoryAllocated(state, reusable.after(pod.uid, container, existing))
    # 6-8. The nodes.
    left = reusable.of(pod.uid)
    chosen = choose_nodes(state.nodes, requests, left, affinity)
    if isinstance(chosen, MemoryRefusal):
        _report(observer, pod, container, affinity, Chosen(0, ""), (), chosen.message)
        return chosen
    # 9-10. The blocks.
    cells = tuple(members(chosen.mask))
    blocks = tuple(Block(cells, resource, requests[resource]) for resource in sorted(requests))
    nodes: Mapping[int, NodeState] = state.nodes
    for block in blocks:
        spare = left.get(chosen.mask, {}).get(block.type, 0)
        nodes = charge(nodes, chosen.mask, block.type, block.size - min(spare, block.size))
    held = _without_reused(pod, container, state.assignments.get(pod.uid, {}), blocks)
    assignments = {**state.assignments, pod.uid: {**held, container.name: blocks}}
    _report(observer, pod, container, affinity, chosen, blocks, "")
    return MemoryAllocated(
        replace(state, nodes=nodes, assignments=assignments), reusable.after(pod.uid, container, blocks)
    )


def _report(
    observer: Observer | None,
    pod: Pod,
    container: Container,
    affinity: Hint,
    chosen: Chosen,
    blocks: tuple[Block, ...],
    error: str,
) -> None:
    if observer is not None:
        observer(MemoryAssigned(pod.uid, container.name, affinity.mask, chosen.mask, chosen.way, blocks, error))


def choose_nodes(
    nodes: Mapping[int, NodeState], requests: Requests, reusable: ReusableByMask, affinity: Hint
) -> Chosen | MemoryRefusal:
    """Return the nodes that serve the requests, or the kubelet's error.

    The affinity's nodes if they suffice; without an affinity the best default; else the best wider set around them.
    Reusable memory makes hints but does not count when the affinity is checked, so that it can lead to an extension.
    """
    mask, preferred, way = affinity.mask, affinity.preferred, "affinity"
    if mask is None:
        best = _best(calculate_hints(nodes, requests, reusable), 0)
        if best is None:
            return MemoryRefusal(NO_DEFAULT)
        if preferred and not best.preferred:
            return MemoryRefusal(NO_PREFERRED_DEFAULT)
        mask, preferred, way = best.mask or 0, best.preferred, "default"
    if any(free_in(nodes, mask, resource) < amount for resource, amount in requests.items()):
        # The kubelet looks only at the hints for ordinary memory here.
        hints = calculate_hints(nodes, requests, reusable) if MEMORY in requests else None
        best = _best(hints, mask)
        if best is None:
            return MemoryRefusal(NO_EXTENSION)
        if preferred and not best.preferred:
            return MemoryRefusal(NO_PREFERRED_EXTENSION)
        mask, way = best.mask or 0, "extended"
    if mask.bit_count() > 1 and _violates_groups(nodes, mask):
        return MemoryRefusal(VIOLATION)
    return Chosen(mask, way)


def _best(hints: AnyHints | None, around: int) -> Hint | None:
    """Return the best hint around some nodes: preferred first, then fewer nodes, then the smaller mask."""
    if hints is None:
        return None
    if isinstance(hints, Family):
        mask = hints.best_around(around)
        return None if mask is None else Hint(mask, hints.prefers(mask))
    for preferred, masks in ((True, hints.preferred), (False, hints.others)):
        wide_enough = [mask for mask in masks if mask & around == around]
        if wide_enough:
            return Hint(min(wide_enough, key=lambda mask: (mask.bit_count(), mask)), preferred)
    return None


def _violates_groups(nodes: Mapping[int, NodeState], mask: int) -> bool:
    return any(
        node in nodes
        and nodes[node].assignments > 0
        and (len(nodes[node].cells) == 1 or mask_of(nodes[node].cells) != mask)
        for node in members(mask)
    )


def _without_reused(
    pod: Pod, container: Container, held: Mapping[str, tuple[Block, ...]], blocks: tuple[Block, ...]
) -> dict[str, tuple[Block, ...]]:
    """Shrink the blocks of earlier init containers by what the new blocks take over from them.

    So the sum of a pod's blocks stays what the machine is charged. Blocks may shrink to nothing and stay (spec:
    memory-manager.md section 5.3).
    """
    reduced = dict(held)
    for block in blocks:
        size = block.size
        for earlier in pod.containers:
            if earlier.name == container.name:
                break
            if earlier.kind is not ContainerKind.INIT or earlier.name not in reduced:
                continue
            kept = []
            for old in reduced[earlier.name]:
                taken = 0
                if old.type == block.type and mask_of(old.numa) == mask_of(block.numa):
                    taken = min(old.size, size)
                    size -= taken
                kept.append(replace(old, size=old.size - taken) if taken else old)
            reduced[earlier.name] = tuple(kept)
    return reduced


def remove(
    policy: MemoryPolicy, state: MemoryState, pod: str, container: str, observer: Observer | None = None
) -> MemoryState:
    """Return the state without one container's blocks. Blocks of a whole pod go with its last container."""
    containers = state.assignments.get(pod, {})
    if container not in containers:
        return state
    blocks = containers[container]
    rest = {name: held for name, held in containers.items() if name != container}
    assignments = {uid: held for uid, held in state.assignments.items() if uid != pod}
    if rest:
        assignments[pod] = rest
    pods = state.pods
    if policy.gates.managers and pod in pods:
        blocks = () if rest else pods[pod]
        if not rest:
            pods = {uid: held for uid, held in pods.items() if uid != pod}
    if observer is not None:
        observer(MemoryReleased(pod, container, blocks))
    return replace(state, nodes=release(state.nodes, blocks), assignments=assignments, pods=pods)
