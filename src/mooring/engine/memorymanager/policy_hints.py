"""What the static policy answers when the topology manager asks: calculated hints, or those of what is held already.

Source: kubelet v1.37.1, memorymanager policy_static.go (GetTopologyHints, GetPodTopologyHints, regenerateHints); spec:
memory-manager.md section 4.

Defect memory-nil-hints: where blocks and requests disagree v1.37.1 has no opinion, which the topology manager reads as
"any node will do". In pod scope it holds the blocks of the first container against the request of the whole pod, so
that a pod with several of them always disagrees with itself. Fixed, each container is held against its own request, a
true disagreement is "impossible", and otherwise the nodes are those that the pod has. Init containers may hold less
than they asked for: later containers take over from them.
"""

from __future__ import annotations

from mooring.engine.core.bits import NO_NODES, NUMAMask
from mooring.engine.core.observer import Observer
from mooring.engine.core.pod import Container, ContainerKind, Pod, QoS
from mooring.engine.memorymanager.facts import MemoryHintsAsked
from mooring.engine.memorymanager.hints import calculate_hints
from mooring.engine.memorymanager.pod_partition import shared_pool_error
from mooring.engine.memorymanager.pod_restore import POD_RESTART, is_served_as_a_whole, restored_blocks, without_pod
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.requests import Requests, container_requests, pod_requests
from mooring.engine.memorymanager.reuse import ContainerBlocks, ReusableMemory, leftover_for
from mooring.engine.memorymanager.state import Block, MemoryState
from mooring.engine.topologymanager.entries import ResourceHints
from mooring.engine.topologymanager.hints import IMPOSSIBLE, Hints


def container_hints(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: Container,
    observer: Observer | None = None,
) -> ResourceHints | None:
    """Return the hints for one container; None when it has no opinion."""
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return None
    requests = container_requests(pod, container, policy.gates)
    if isinstance(requests, str) or not requests:
        return None
    existing = state.assignments.get(pod.uid, {}).get(container.name)
    if existing is not None:
        return _regenerated_for_container(policy, container, existing, requests)
    if is_served_as_a_whole(policy, state, pod):
        return None
    return _calculated(policy, state, reusable, pod, container.name, requests, observer)


def pod_hints(
    policy: MemoryPolicy, state: MemoryState, reusable: ReusableMemory, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod; None when it has no opinion."""
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return None
    requests = pod_requests(pod, policy.gates)
    if isinstance(requests, str) or not requests:
        return None
    if policy.gates.manages(pod) and shared_pool_error(pod, requests, policy.gates)[0]:
        return dict.fromkeys(requests, IMPOSSIBLE)
    if policy.gates.manages(pod) and POD_RESTART in policy.fixed_defects:
        if restored_blocks(policy, state, pod, requests) is not None:
            return hints_as_in_kubelet(state.pods[pod.uid], requests)
        state = without_pod(state, pod.uid)
    held = state.assignments.get(pod.uid, {})
    if any(container.name in held for container in pod.containers):
        return _regenerated_for_pod(policy, pod, held, requests)
    return _calculated(policy, state, reusable, pod, "", requests, observer)


def _calculated(
    policy: MemoryPolicy,
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: str,
    requests: Requests,
    observer: Observer | None,
) -> ResourceHints | None:
    charged = {} if policy.counts_as_a_whole(state, pod.uid) else state.assignments.get(pod.uid, {})
    leftover = leftover_for(policy.fixed_defects, reusable, pod, container, charged)
    hints = calculate_hints(state.nodes, requests, leftover)
    if observer is not None:
        observer(
            MemoryHintsAsked(
                pod=pod.uid,
                container=container,
                requests=requests,
                free={
                    node: {resource: table.free for resource, table in account.memory.items()}
                    for node, account in state.nodes.items()
                },
                groups=tuple(
                    sorted({tuple(sorted(node.cells)) for node in state.nodes.values() if len(node.cells) > 1})
                ),
                hints=hints,
            )
        )
    return None if hints is None else dict.fromkeys(requests, hints)


MEMORY_NIL_HINTS = "memory-nil-hints"

HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


def _regenerated_for_container(
    policy: MemoryPolicy, container: Container, blocks: tuple[Block, ...], requests: Requests
) -> ResourceHints | None:
    """Return the hints for a container that has blocks; None when the kubelet has no opinion."""
    if MEMORY_NIL_HINTS not in policy.fixed_defects:
        return hints_as_in_kubelet(blocks, requests)
    if not _fits(container, blocks, requests):
        return dict.fromkeys(requests, IMPOSSIBLE)
    return {block.type: Hints(preferred=(block.mask,)) for block in blocks}


def _regenerated_for_pod(
    policy: MemoryPolicy, pod: Pod, held: ContainerBlocks, requests: Requests
) -> ResourceHints | None:
    """Return the hints for a pod of which some container has blocks; None when the kubelet has no opinion."""
    holders = [container for container in pod.containers if container.name in held]
    if MEMORY_NIL_HINTS not in policy.fixed_defects:
        return hints_as_in_kubelet(held[holders[0].name], requests)
    nodes = NO_NODES
    for container in holders:
        own = container_requests(pod, container, policy.gates)
        if isinstance(own, str) or not _fits(container, held[container.name], own):
            return dict.fromkeys(requests, IMPOSSIBLE)
        for block in held[container.name]:
            nodes |= block.mask
    return dict.fromkeys(requests, Hints(preferred=(nodes,)))


def hints_as_in_kubelet(blocks: tuple[Block, ...], requests: Requests) -> ResourceHints | None:
    """Return one preferred hint for each block, or None where blocks and requests disagree.

    >>> hints_as_in_kubelet((Block((0,), "memory", 5),), {"memory": 5})
    {'memory': Hints(preferred=(1,), others=(), nil=())}
    >>> hints_as_in_kubelet((Block((0,), "memory", 4),), {"memory": 5})
    """
    if len(blocks) != len(requests):
        return None
    masks: dict[str, tuple[NUMAMask, ...]] = dict.fromkeys(requests, ())
    for block in blocks:
        if requests.get(block.type) != block.size or not all(0 <= node <= HIGHEST_NODE for node in block.numa):
            return None
        masks[block.type] += (block.mask,)
    return {resource: Hints(preferred=found) for resource, found in masks.items()}


def _fits(container: Container, blocks: tuple[Block, ...], requests: Requests) -> bool:
    sizes = {block.type: block.size for block in blocks}
    if len(blocks) != len(requests) or sizes.keys() != requests.keys():
        return False
    if container.kind is ContainerKind.INIT:
        return all(size <= requests[resource] for resource, size in sizes.items())
    return sizes == requests
