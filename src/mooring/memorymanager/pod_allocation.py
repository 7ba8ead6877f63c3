"""Memory for a whole pod with pod-level resources, and its partition among the containers.

Source: kubelet v1.37.1, memorymanager policy_static.go (AllocatePod), KEP-5526; spec: pod-level.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.core.bits import members
from mooring.core.observer import Observer
from mooring.core.pod import ContainerKind, Pod, QoS
from mooring.core.podlevel import PodLevelGates
from mooring.memorymanager.account import charge
from mooring.memorymanager.facts import MemoryAssigned
from mooring.memorymanager.pod_budget import EMPTY_SHARED_POOL, shared_pool_error
from mooring.memorymanager.requests import Requests, container_requests, pod_requests
from mooring.memorymanager.state import Block, MemoryState, NodeState
from mooring.memorymanager.static import (
    MemoryAllocated,
    MemoryPolicy,
    MemoryRefusal,
    ReusableMemory,
    choose_nodes,
)
from mooring.topologymanager.hints import Hint


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
    requests = pod_requests(pod, policy.gates)
    if isinstance(requests, str) or not requests:
        return MemoryAllocated(state, reusable)
    # 2. Someone would share nothing.
    empty = shared_pool_error(pod, requests, policy.gates)
    if empty:
        return MemoryRefusal(empty, EMPTY_SHARED_POOL)
    # 3. The nodes.
    chosen = choose_nodes(state.nodes, requests, {}, affinity)
    if isinstance(chosen, MemoryRefusal):
        return chosen
    # 4-5. The pod's blocks, the machine, the containers' blocks.
    cells = tuple(members(chosen.mask))
    nodes: Mapping[int, NodeState] = state.nodes
    for resource in sorted(requests):
        nodes = charge(nodes, chosen.mask, resource, requests[resource])
    pods = {**state.pods, pod.uid: _blocks(cells, requests)}
    held = {name: _blocks(cells, share) for name, share in _partition(pod, requests, policy.gates).items()}
    assignments = {**state.assignments, pod.uid: {**state.assignments.get(pod.uid, {}), **held}}
    if observer is not None:
        blocks = pods[pod.uid]
        observer(MemoryAssigned(pod.uid, "", affinity.mask, chosen.mask, chosen.way, blocks, ""))
    return MemoryAllocated(replace(state, nodes=nodes, assignments=assignments, pods=pods), reusable)


def _blocks(cells: tuple[int, ...], amounts: Requests) -> tuple[Block, ...]:
    return tuple(Block(cells, resource, amounts[resource]) for resource in sorted(amounts) if amounts[resource] > 0)


def _partition(pod: Pod, budget: Requests, gates: PodLevelGates) -> dict[str, Requests]:
    """Return each container's share: its own requests, or what is left for those who share.

    A regular init container without requests shares what the sidecars before it leave; everybody else without requests
    shares what sidecars and exclusive apps leave.
    """
    shares: dict[str, Requests] = {}
    sidecars: dict[str, int] = {}
    apps: dict[str, int] = {}
    late = []
    for container in pod.containers:
        own = container_requests(pod, container, gates)
        own = {} if isinstance(own, str) else own
        if own:
            shares[container.name] = own
            totals = {ContainerKind.SIDECAR: sidecars, ContainerKind.APP: apps}.get(container.kind)
            if totals is not None:
                for resource, amount in own.items():
                    totals[resource] = totals.get(resource, 0) + amount
        elif container.kind is ContainerKind.INIT:
            shares[container.name] = _less(budget, sidecars)
        else:
            late.append(container.name)
    rest = _less(_less(budget, sidecars), apps)
    shares.update(dict.fromkeys(late, rest))
    return {container.name: shares[container.name] for container in pod.containers}


def _less(budget: Requests, taken: Requests) -> Requests:
    return {resource: amount - taken.get(resource, 0) for resource, amount in budget.items()}
