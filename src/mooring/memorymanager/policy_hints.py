"""What the static policy answers when the topology manager asks.

Source: kubelet v1.37.1, memorymanager policy_static.go (GetTopologyHints, GetPodTopologyHints); spec:
memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.core.bits import mask_of
from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod, QoS
from mooring.memorymanager.facts import MemoryHintsAsked
from mooring.memorymanager.hints import calculate_hints
from mooring.memorymanager.pod_budget import shared_pool_error
from mooring.memorymanager.requests import Requests, container_requests, pod_requests
from mooring.memorymanager.state import Block, MemoryState
from mooring.memorymanager.static import MemoryPolicy, ReusableMemory
from mooring.topologymanager.entries import AnyHints, ResourceHints
from mooring.topologymanager.hints import IMPOSSIBLE, Hints


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
        return _regenerated(policy, existing, requests)
    return _calculated(state, reusable, pod, container.name, requests, observer)


def pod_hints(
    policy: MemoryPolicy, state: MemoryState, reusable: ReusableMemory, pod: Pod, observer: Observer | None = None
) -> ResourceHints | None:
    """Return the hints for a whole pod; None when it has no opinion.

    When the pod has blocks already, those of its first container that has any are held against the request of the
    whole pod, so that a pod with several of them loses its opinion at a restart (defect memory-nil-hints).
    """
    if pod.qos is not QoS.GUARANTEED or policy.gates.leaves_out(pod):
        return None
    requests = pod_requests(pod, policy.gates)
    if isinstance(requests, str) or not requests:
        return None
    if policy.gates.manages(pod) and shared_pool_error(pod, requests, policy.gates):
        return dict.fromkeys(requests, IMPOSSIBLE)
    held = state.assignments.get(pod.uid, {})
    for container in pod.containers:
        if container.name in held:
            return _regenerated(policy, held[container.name], requests)
    return _calculated(state, reusable, pod, "", requests, observer)


def _calculated(
    state: MemoryState,
    reusable: ReusableMemory,
    pod: Pod,
    container: str,
    requests: Requests,
    observer: Observer | None,
) -> ResourceHints | None:
    hints = calculate_hints(state.nodes, requests, reusable.of(pod.uid))
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


def _regenerated(policy: MemoryPolicy, blocks: tuple[Block, ...], requests: Requests) -> ResourceHints | None:
    """Return one preferred hint for each type, from blocks that the container has already.

    Defect memory-nil-hints: where blocks and requests disagree the kubelet has no opinion instead of calling it
    impossible.
    """
    mismatch: Mapping[str, Hints] | None = None
    if "memory-nil-hints" in policy.fixed_defects:
        mismatch = dict.fromkeys(requests, IMPOSSIBLE)
    if len(blocks) != len(requests):
        return mismatch
    hints: dict[str, AnyHints | None] = {}
    for block in blocks:
        if requests.get(block.type) != block.size or not block.numa:
            return mismatch
        hints[block.type] = Hints(preferred=(mask_of(block.numa),))
    return hints
