"""The static policy: which nodes serve a container or a whole pod, and what is written down.

Source: kubelet v1.37.1, memorymanager policy_static.go (Allocate, AllocatePod), KEP-5526; spec: memory-manager.md
sections 5, 6 and 9, pod-level.md sections 2 and 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mooring.engine.core.bits import NO_NODES, NUMAMask, mask_of, members
from mooring.engine.core.decision import AllocationError, Observer
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS, with_entry
from mooring.engine.core.release import NEWEST_RULES, ReleaseRules
from mooring.engine.memorymanager import facts, pod_partition
from mooring.engine.memorymanager.hints import best_hint, calculate_hints
from mooring.engine.memorymanager.policy import MEMORY, MemoryPolicy, Requests, container_requests, pod_requests
from mooring.engine.memorymanager.state import (
    NOTHING_LEFT,
    Block,
    Leftover,
    MemoryState,
    NUMANodeState,
    ReusableMemory,
    charge,
    free_in,
    leftover_for,
    release,
    take_over,
)
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import replace

NO_DEFAULT = "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
NO_PREFERRED_DEFAULT = "[memorymanager] failed to find the default preferred hint"
NO_EXTENSION = "[memorymanager] failed to find NUMA nodes to extend the current topology hint"
NO_PREFERRED_EXTENSION = "[memorymanager] failed to find the extended preferred hint"
VIOLATION = "[memorymanager] preferred hint violates NUMA node allocation"


def allocate(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    affinity: Hint,
    observer: Observer | None = None,
) -> tuple[MemoryState, ReusableMemory] | AllocationError:
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
    # 1-3. Only Guaranteed pods, no pod-level pods without both gates, only containers that request memory. Up to
    # v1.36 a container of a pod-level pod may request none (rule empty-memory-request-is-served; spec: releases.md
    # section 5).
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return state, reusable
    requests = container_requests(pod, container, policy.gates)
    if isinstance(requests, str):
        _report(observer, pod, container, affinity, (NO_NODES, ""), (), requests)
        # Up to v1.36 such a container is counted (rule memory-pinning-counted-first; spec: releases.md section 9).
        if observer is not None and policy.older.memory_pinning_counted_first:
            observer(facts.MemoryPinningRequested(pod.uid, container.name))
            observer(facts.MemoryPinningFailed(pod.uid, container.name, requests))
        return AllocationError(requests)
    if not requests and not policy.older.empty_memory_request_is_served:
        return state, reusable
    # 4. From here on every error counts as a failure to pin.
    if observer is not None:
        observer(facts.MemoryPinningRequested(pod.uid, container.name))
    answer = _pinned(policy, state, reusable, pod, container, requests, affinity, observer)
    if observer is not None and isinstance(answer, AllocationError):
        observer(facts.MemoryPinningFailed(pod.uid, container.name, answer.message))
    return answer


def _pinned(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    requests: Requests,
    affinity: Hint,
    observer: Observer | None,
) -> tuple[MemoryState, ReusableMemory] | AllocationError:
    """Serve a container that requests memory."""
    # 5. Existing blocks are kept.
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        return state, reusable.after(pod.uid, container, existing)
    if pod_partition.is_served_as_a_whole(policy, state, pod):
        return state, reusable
    # 6-8. The nodes.
    held = state.assignments.get(pod.uid, {})
    charged = {} if policy.counts_as_a_whole(state, pod.uid) else held
    leftover = leftover_for(policy.fixed_defects, reusable, pod, container.name, charged)
    chosen = choose_nodes(state.nodes, requests, affinity, leftover, policy.older)
    if isinstance(chosen, AllocationError):
        _report(observer, pod, container, affinity, (NO_NODES, ""), (), chosen.message)
        return chosen
    # 9-10. The blocks.
    cells = tuple(members(chosen[0]))
    blocks = tuple([Block(cells, resource, requests[resource]) for resource in sorted(requests)])
    reduced, taken = take_over(leftover, pod, container.name, held, blocks)
    nodes: Mapping[int, NUMANodeState] = state.nodes
    for block in blocks:
        nodes = charge(nodes, cells, block.type, block.size - taken.get(block.type, 0))
    assignments = with_entry(state.assignments, pod.uid, {**reduced, container.name: blocks})
    _report(observer, pod, container, affinity, chosen, blocks, "")
    return replace(state, nodes=nodes, assignments=assignments), reusable.after(pod.uid, container, blocks)


def _report(
    observer: Observer | None,
    pod: Pod,
    container: Container,
    affinity: Hint,
    chosen: tuple[NUMAMask, str],
    blocks: tuple[Block, ...],
    error: str,
) -> None:
    if observer is not None:
        observer(facts.MemoryAssigned(pod.uid, container.name, affinity.mask, *chosen, blocks, error))


def choose_nodes(
    nodes: Mapping[int, NUMANodeState],
    requests: Requests,
    affinity: Hint,
    leftover: Leftover = NOTHING_LEFT,
    older: ReleaseRules = NEWEST_RULES,
) -> tuple[NUMAMask, str] | AllocationError:
    """Return the nodes that serve the requests and how they were found, or the kubelet's error.

    The affinity's nodes if they suffice; without an affinity the best default; else the best wider set around them.
    Huge pages without memory reach this up to v1.33, in a pod that is Guaranteed by its pod-level resources.
    Reusable memory makes hints but does not count when the affinity is checked, so that it can lead to an extension.
    Up to v1.31 nodes of different groups are taken as they are (rule violating-hints-accepted; spec: releases.md
    section 8).

    Raises:
        KubeletCrashError: there is no affinity, and no request for ordinary memory.
    """
    mask, preferred, way = affinity.mask, affinity.preferred, "affinity"
    if mask is None:
        best = best_hint(calculate_hints(nodes, requests, leftover), NO_NODES) if requests else None
        if best is None:
            return AllocationError(NO_DEFAULT)
        # The kubelet looks only at the hints for ordinary memory, here and below.
        if preferred and not (best.preferred and MEMORY in requests):
            return AllocationError(NO_PREFERRED_DEFAULT)
        if MEMORY not in requests:
            raise KubeletCrashError(
                "a container requests huge pages and no memory, and nothing says on which NUMA nodes: the kubelet "
                "crashes when it looks for a default"
            )
        mask, preferred, way = best.mask or NO_NODES, best.preferred, "default"
    if any(free_in(nodes, mask, resource) < amount for resource, amount in requests.items()):
        hints = calculate_hints(nodes, requests, leftover) if MEMORY in requests else None
        best = best_hint(hints, mask)
        if best is None:
            return AllocationError(NO_EXTENSION)
        if preferred and not best.preferred:
            return AllocationError(NO_PREFERRED_EXTENSION)
        mask, way = best.mask or NO_NODES, "extended"
    if mask.bit_count() > 1 and not older.violating_hints_accepted:
        grouped = leftover.ungrouped(nodes)
        in_use = [grouped[node].cells for node in members(mask) if node in grouped and grouped[node].assignments > 0]
        if any(len(cells) == 1 or mask_of(cells) != mask for cells in in_use):
            return AllocationError(VIOLATION)
    return mask, way


def remove_pods(state: MemoryState, pods: Iterable[str]) -> MemoryState:
    """Return the state without all that some pods have, as :func:`remove` would leave it, in one step.

    For pods without blocks of their own.
    """
    assignments, blocks = dict(state.assignments), list[Block]()
    for pod in pods:
        for _, held in sorted(assignments.pop(pod).items()):
            blocks += held
    return replace(state, nodes=release(state.nodes, tuple(blocks)), assignments=assignments)


def remove(
    policy: MemoryPolicy, state: MemoryState, pod: str, container: str, observer: Observer | None = None
) -> MemoryState:
    """Return the state without one container's blocks. Blocks of a whole pod go with its last container."""
    containers = state.assignments.get(pod, {})
    if container not in containers:
        return state
    blocks = containers[container]
    rest = {name: held for name, held in containers.items() if name != container}
    assignments = dict(state.assignments)  # a copy without the key costs a tenth of a comprehension
    del assignments[pod]
    if rest:
        assignments[pod] = rest
    pods = state.pods
    if policy.counts_as_a_whole(state, pod):
        blocks = () if rest else pods[pod]
        if not rest:
            pods = {uid: held for uid, held in pods.items() if uid != pod}
    if observer is not None:
        observer(facts.MemoryReleased(pod, container, blocks))
    return replace(state, nodes=release(state.nodes, blocks), assignments=assignments, pods=pods)


def allocate_pod(
    policy: MemoryPolicy,
    state: MemoryState,
    pod: Pod,
    affinity: Hint,
    observer: Observer | None = None,
) -> MemoryState | AllocationError:
    """Serve a pod as a whole.

    The machine is charged once, with the pod's numbers, and nothing is reused from init containers.

    Args:
        policy: the policy.
        state: before.
        pod: a pod that takes the path of KEP-5526.
        affinity: the hint stored for its first container.
        observer: receives what was found.
    """
    # 1. Not Guaranteed, or requests that cannot be read (logged by the kubelet): nothing is allocated.
    if pod.qos is not QoS.GUARANTEED:
        return state
    requests = pod_requests(pod, policy.gates, policy.older)
    if isinstance(requests, str) or not requests or pod_partition.keeps_pod(policy, state, pod):
        return state
    # 2. From here on every error counts as a failure to pin.
    if observer is not None:
        observer(facts.MemoryPinningRequested(pod.uid, ""))
    answer = _partitioned(policy, state, pod, requests, affinity, observer)
    if observer is not None and isinstance(answer, AllocationError):
        observer(facts.MemoryPinningFailed(pod.uid, "", answer.message))
    return answer


def _partitioned(
    policy: MemoryPolicy, state: MemoryState, pod: Pod, requests: Requests, affinity: Hint, observer: Observer | None
) -> MemoryState | AllocationError:
    """Return the state with the pod's memory divided among its containers, or the kubelet's error."""
    # 2. Someone would share nothing.
    empty, _ = pod_partition.shared_pool_error(pod, requests, policy.gates)
    if empty:
        return AllocationError(empty, pod_partition.EMPTY_SHARED_POOL)
    if pod_partition.POD_RESTART in policy.fixed_defects:
        restored = pod_partition.restored_blocks(policy, state, pod, requests)
        if restored is not None:
            # The state with what containers missed; the very same one when they missed nothing
            if restored == state.assignments.get(pod.uid):
                return state
            return replace(state, assignments=with_entry(state.assignments, pod.uid, restored))
        state = pod_partition.without_pod(state, pod.uid)
    # 3. The nodes.
    chosen = choose_nodes(state.nodes, requests, affinity, older=policy.older)
    if isinstance(chosen, AllocationError):
        return chosen
    # 4-5. The pod's blocks, the machine, the containers' blocks.
    cells = tuple(members(chosen[0]))
    nodes: Mapping[int, NUMANodeState] = state.nodes
    for resource in sorted(requests):
        nodes = charge(nodes, cells, resource, requests[resource])
    pods = with_entry(state.pods, pod.uid, pod_partition.blocks_of(cells, requests))
    held = {
        name: pod_partition.blocks_of(cells, share)
        for name, share in pod_partition.partition(pod, requests, policy.gates).items()
    }
    assignments = with_entry(state.assignments, pod.uid, {**state.assignments.get(pod.uid, {}), **held})
    if observer is not None:
        blocks = pods[pod.uid]
        observer(facts.MemoryAssigned(pod.uid, "", affinity.mask, *chosen, blocks, ""))
        # Report who asked for a part: every init container, and the apps that have requests of their own
        exclusive = tuple(
            container.name
            for container in pod.containers
            if (own := container_requests(pod, container, policy.gates)) and not isinstance(own, str)
        )
        for container in pod.containers:
            if container.kind is not ContainerKind.APP or container.name in exclusive:
                observer(facts.MemoryPinningRequested(pod.uid, container.name))
        shared = tuple(container.name for container in pod.containers if container.name not in exclusive)
        observer(facts.MemoryPartitioned(pod.uid, exclusive, shared))
    return replace(state, nodes=nodes, assignments=assignments, pods=pods)
