"""Growing a container's memory in place: it keeps its NUMA nodes, and gets further ones where they do not suffice.

Memory that is in use cannot be taken from a running program, so that it never shrinks, and the kernel lets a cpuset
gain nodes but moves nothing. No released kubelet resizes memory of its own NUMA nodes: the gate
InPlacePodVerticalScalingExclusiveMemory of v1.37.1 only stops the refusal. The rules here follow those for CPUs.

Source: KEP-5554 by analogy; spec: resize.md section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.engine.core.bits import NO_NODES, NUMAMask, members
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.extensions.facts import MemoryGrowthAsked
from mooring.engine.memorymanager.facts import MemoryAssigned
from mooring.engine.memorymanager.hints import calculate_hints, hints_as_in_kubelet
from mooring.engine.memorymanager.policy import MemoryPolicy, Requests, container_requests, pod_requests
from mooring.engine.memorymanager.state import Block, MemoryState, NUMANodeState, charge, free_in
from mooring.engine.memorymanager.static import choose_nodes, remove
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hint, Hints
from mooring.engine.topologymanager.wide import AnyHints, Family, ResourceHints
from mooring.lazy import replace

PROHIBITED = "prohibitedMemoryAllocationError"


def check_feasible(policy: MemoryPolicy, before: Pod, after: Pod, container: Container) -> AllocationError | None:
    """Return why one container's memory can never be resized so; None when nothing speaks against it."""
    old = next(one for one in before.containers if one.name == container.name)
    allocated, requested = _requests(policy, before, old), _requests(policy, after, container)
    for resource, amount in sorted(allocated.items()):
        if requested.get(resource, 0) < amount:
            return AllocationError(
                "prohibitedMemoryAllocation Error: Skip resize, Not allowed to reduce container exclusively allocated "
                f"memory, (requested {resource} = {container.requests.get(resource, 0)}, "
                f"allocated {resource} = {old.requests.get(resource, 0)})",
                PROHIBITED,
            )
    return None


def _requests(policy: MemoryPolicy, pod: Pod, container: Container) -> Requests:
    """Return what a container requests; nothing where the manager leaves it alone."""
    if pod.qos is not QoS.GUARANTEED or pod.is_pod_level:
        return {}
    requests = container_requests(pod, container, policy.gates)
    return {} if isinstance(requests, str) else requests


def grows(policy: MemoryPolicy, state: MemoryState, pod: Pod, container: Container) -> bool:
    """Tell whether a container requests more memory than its blocks have."""
    held = state.assignments.get(pod.uid, {}).get(container.name, ())
    requests = _requests(policy, pod, container)
    return any(requests.get(block.type, 0) > block.size for block in held)


def container_hints(
    policy: MemoryPolicy, state: MemoryState, pod: Pod, container: Container, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a container of a pod that is resized: all its nodes are in each.

    A container without blocks has no opinion: its memory is not decided about, or it has ended.
    """
    held = state.assignments.get(pod.uid, {}).get(container.name)
    requests = _requests(policy, pod, container)
    if not held or not requests:
        return None
    if not grows(policy, state, pod, container):
        return hints_as_in_kubelet(held, requests)
    without = remove(policy, state, pod.uid, container.name)
    return _answer(calculate_hints(without.nodes, requests), _nodes_of(held), requests, pod, container.name, observer)


def pod_hints(
    policy: MemoryPolicy, state: MemoryState, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod that is resized: all nodes of its containers are in each."""
    held = state.assignments.get(pod.uid, {})
    requests = pod_requests(pod, policy.gates)
    if not held or pod.is_pod_level or isinstance(requests, str) or not requests:
        return None
    nodes = _nodes_of(block for blocks in held.values() for block in blocks)
    if not any(grows(policy, state, pod, container) for container in pod.containers):
        return dict.fromkeys(requests, Hints(preferred=(nodes,)))
    without = state
    for name in held:
        without = remove(policy, without, pod.uid, name)
    return _answer(calculate_hints(without.nodes, requests), nodes, requests, pod, "", observer)


def _nodes_of(blocks: Iterable[Block]) -> NUMAMask:
    nodes = NO_NODES
    for block in blocks:
        nodes |= block.mask
    return nodes


def _answer(
    hints: AnyHints | None, nodes: NUMAMask, requests: Requests, pod: Pod, container: str, observer: Observer | None
) -> ResourceHints:
    """Leave only hints that hold the nodes in use; none of them left means impossible, for in-use memory stays."""
    around: AnyHints = IMPOSSIBLE
    if isinstance(hints, Family):
        listed = tuple(mask for mask in hints.listed if mask & nodes == nodes)
        found = replace(hints, required=hints.required | nodes, listed=listed)
        around = found if listed or found.first_of_size_up() is not None else IMPOSSIBLE
    elif hints is not None:
        preferred, others = (
            tuple(mask for mask in masks if mask & nodes == nodes) for masks in (hints.preferred, hints.others)
        )
        around = Hints(preferred, others) if preferred or others else IMPOSSIBLE
    if observer is not None:
        observer(MemoryGrowthAsked(pod.uid, container, requests, nodes, around))
    return dict.fromkeys(requests, around)


def grown(
    policy: MemoryPolicy,
    state: MemoryState,
    pod: Pod,
    container: Container,
    affinity: Hint,
    observer: Observer | None = None,
) -> MemoryState | AllocationError:
    """Return the state with a container's blocks as large as it requests; the same value where they are.

    The nodes that it has are used as long as they suffice.

    Args:
        policy: the policy.
        state: before.
        pod: with the resources that it requests.
        container: one of its containers.
        affinity: the merged hint.
        observer: receives what was found.
    """
    if not grows(policy, state, pod, container):
        return state
    requests = _requests(policy, pod, container)
    held = state.assignments[pod.uid]
    nodes = _nodes_of(held[container.name])
    without = remove(policy, state, pod.uid, container.name)
    chosen: tuple[NUMAMask, str] | AllocationError = nodes, "affinity"
    if any(free_in(without.nodes, nodes, resource) < amount for resource, amount in requests.items()):
        chosen = choose_nodes(without.nodes, requests, replace(affinity, mask=nodes | (affinity.mask or NO_NODES)))
    if isinstance(chosen, AllocationError):
        return chosen
    cells = tuple(members(chosen[0]))
    blocks = tuple(Block(cells, resource, requests[resource]) for resource in sorted(requests))
    accounts: Mapping[int, NUMANodeState] = without.nodes
    for block in blocks:
        accounts = charge(accounts, cells, block.type, block.size)
    if observer is not None:
        observer(MemoryAssigned(pod.uid, container.name, affinity.mask, *chosen, blocks, ""))
    # The order of the containers is kept.
    own = {name: blocks if name == container.name else theirs for name, theirs in held.items()}
    return replace(state, nodes=accounts, assignments={**state.assignments, pod.uid: own})
