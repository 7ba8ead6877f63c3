"""Memory for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, memorymanager policy_static.go (AllocatePod), KEP-5526;
spec: pod-level.md sections 2 and 4, memory-manager.md section 9.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.bits import members
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import ContainerKind, Pod, QoS, with_entry
from mooring.engine.memorymanager.facts import (
    MemoryAssigned,
    MemoryPartitioned,
    MemoryPinningFailed,
    MemoryPinningRequested,
)
from mooring.engine.memorymanager.pod_partition import (
    EMPTY_SHARED_POOL,
    POD_RESTART,
    blocks_of,
    keeps_pod,
    partition,
    restored_blocks,
    shared_pool_error,
    without_pod,
)
from mooring.engine.memorymanager.policy import MemoryPolicy, Requests, container_requests, pod_requests
from mooring.engine.memorymanager.reuse import ReusableMemory
from mooring.engine.memorymanager.state import MemoryState, NUMANodeState, charge
from mooring.engine.memorymanager.static import MemoryAllocated, MemoryRefusal, choose_nodes
from mooring.engine.topologymanager.hints import Hint
from mooring.lazy import replace


def allocate_pod(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    affinity: Hint,
    observer: Observer | None = None,
) -> MemoryAllocated | MemoryRefusal:
    """Serve a pod as a whole; the machine is charged once, with the pod's numbers.

    Args:
        policy: the policy.
        state: before.
        reusable: passed through; nothing is reused here.
        pod: a pod that takes the path of KEP-5526.
        affinity: the hint stored for its first container.
        observer: receives what was found.
    """
    # 1. Not Guaranteed, or requests that cannot be read (logged by the kubelet): nothing is allocated.
    if pod.qos is not QoS.GUARANTEED:
        return MemoryAllocated(state, reusable)
    requests = pod_requests(pod, policy.gates, policy.older)
    if isinstance(requests, str) or not requests:
        return MemoryAllocated(state, reusable)
    if keeps_pod(policy, state, pod):
        return MemoryAllocated(state, reusable)
    # 2. From here on every error counts as a failure to pin.
    if observer is not None:
        observer(MemoryPinningRequested(pod.uid, ""))
    answer = _partitioned(policy, state, pod, requests, affinity, observer)
    if isinstance(answer, MemoryRefusal):
        if observer is not None:
            observer(MemoryPinningFailed(pod.uid, "", answer.message))
        return answer
    return MemoryAllocated(answer, reusable)


def _partitioned(
    policy: MemoryPolicy, state: MemoryState, pod: Pod, requests: Requests, affinity: Hint, observer: Observer | None
) -> MemoryState | MemoryRefusal:
    """Return the state with the pod's memory divided among its containers, or the kubelet's error."""
    # 2. Someone would share nothing.
    empty, _ = shared_pool_error(pod, requests, policy.gates)
    if empty:
        return MemoryRefusal(empty, EMPTY_SHARED_POOL)
    if POD_RESTART in policy.fixed_defects:
        restored = restored_blocks(policy, state, pod, requests)
        if restored is not None:
            # The state with what containers missed; the very same one when they missed nothing
            if restored == state.assignments.get(pod.uid):
                return state
            return replace(state, assignments=with_entry(state.assignments, pod.uid, restored))
        state = without_pod(state, pod.uid)
    # 3. The nodes.
    chosen = choose_nodes(state.nodes, requests, affinity, older=policy.older)
    if isinstance(chosen, MemoryRefusal):
        return chosen
    # 4-5. The pod's blocks, the machine, the containers' blocks.
    cells = tuple(members(chosen[0]))
    nodes: Mapping[int, NUMANodeState] = state.nodes
    for resource in sorted(requests):
        nodes = charge(nodes, cells, resource, requests[resource])
    pods = with_entry(state.pods, pod.uid, blocks_of(cells, requests))
    held = {name: blocks_of(cells, share) for name, share in partition(pod, requests, policy.gates).items()}
    assignments = with_entry(state.assignments, pod.uid, {**state.assignments.get(pod.uid, {}), **held})
    if observer is not None:
        blocks = pods[pod.uid]
        observer(MemoryAssigned(pod.uid, "", affinity.mask, *chosen, blocks, ""))
        # Report who asked for a part: every init container, and the apps that have requests of their own
        exclusive = tuple(
            container.name
            for container in pod.containers
            if (own := container_requests(pod, container, policy.gates)) and not isinstance(own, str)
        )
        for container in pod.containers:
            if container.kind is not ContainerKind.APP or container.name in exclusive:
                observer(MemoryPinningRequested(pod.uid, container.name))
        shared = tuple(container.name for container in pod.containers if container.name not in exclusive)
        observer(MemoryPartitioned(pod.uid, exclusive, shared))
    return replace(state, nodes=nodes, assignments=assignments, pods=pods)
