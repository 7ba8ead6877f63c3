"""Hints for what a container or a pod holds already, as a restart of the kubelet asks for them.

Source: kubelet v1.37.1, memorymanager policy_static.go (regenerateHints); spec: memory-manager.md section 4.

Defect memory-nil-hints: where blocks and requests disagree v1.37.1 has no opinion, which the topology manager reads as
"any node will do". In pod scope it holds the blocks of the first container against the request of the whole pod, so
that a pod with several of them always disagrees with itself. Fixed, each container is held against its own request, a
true disagreement is "impossible", and otherwise the nodes are those that the pod has. Init containers may hold less
than they asked for: later containers take over from them.
"""

from __future__ import annotations

from mooring.core.pod import Container, ContainerKind, Pod
from mooring.memorymanager.policy import MemoryPolicy
from mooring.memorymanager.requests import Requests, container_requests
from mooring.memorymanager.reuse import ContainerBlocks
from mooring.memorymanager.state import Block
from mooring.topologymanager.entries import ResourceHints
from mooring.topologymanager.hints import IMPOSSIBLE, Hints

MEMORY_NIL_HINTS = "memory-nil-hints"

HIGHEST_NODE = 63
"""The kubelet's masks of NUMA nodes have 64 bits."""


def container_hints(
    policy: MemoryPolicy, container: Container, blocks: tuple[Block, ...], requests: Requests
) -> ResourceHints | None:
    """Return the hints for a container that has blocks; None when the kubelet has no opinion."""
    if MEMORY_NIL_HINTS not in policy.fixed_defects:
        return hints_as_in_kubelet(blocks, requests)
    if not _fits(container, blocks, requests):
        return dict.fromkeys(requests, IMPOSSIBLE)
    return {block.type: Hints(preferred=(block.mask,)) for block in blocks}


def pod_hints(policy: MemoryPolicy, pod: Pod, held: ContainerBlocks, requests: Requests) -> ResourceHints | None:
    """Return the hints for a pod of which some container has blocks; None when the kubelet has no opinion."""
    holders = [container for container in pod.containers if container.name in held]
    if MEMORY_NIL_HINTS not in policy.fixed_defects:
        return hints_as_in_kubelet(held[holders[0].name], requests)
    nodes = 0
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
    masks: dict[str, tuple[int, ...]] = dict.fromkeys(requests, ())
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
