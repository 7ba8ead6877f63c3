"""What the static policy answers when the topology manager asks.

Source: kubelet v1.37.1, memorymanager policy_static.go (GetTopologyHints, GetPodTopologyHints); spec:
memory-manager.md section 4.
"""

from __future__ import annotations

from mooring.core.observer import Observer
from mooring.core.pod import Container, Pod, QoS
from mooring.memorymanager import regenerated
from mooring.memorymanager.facts import MemoryHintsAsked
from mooring.memorymanager.hints import calculate_hints
from mooring.memorymanager.pod_budget import shared_pool_error
from mooring.memorymanager.pod_restore import POD_RESTART, is_served_as_a_whole, restored_blocks, without_pod
from mooring.memorymanager.policy import MemoryPolicy
from mooring.memorymanager.requests import Requests, container_requests, pod_requests
from mooring.memorymanager.reuse import ReusableMemory, leftover_for
from mooring.memorymanager.state import MemoryState
from mooring.topologymanager.entries import ResourceHints
from mooring.topologymanager.hints import IMPOSSIBLE


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
        return regenerated.container_hints(policy, container, existing, requests)
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
    if policy.gates.manages(pod) and shared_pool_error(pod, requests, policy.gates):
        return dict.fromkeys(requests, IMPOSSIBLE)
    if policy.gates.manages(pod) and POD_RESTART in policy.fixed_defects:
        if restored_blocks(policy, state, pod, requests) is not None:
            return regenerated.hints_as_in_kubelet(state.pods[pod.uid], requests)
        state = without_pod(state, pod.uid)
    held = state.assignments.get(pod.uid, {})
    if any(container.name in held for container in pod.containers):
        return regenerated.pod_hints(policy, pod, held, requests)
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
