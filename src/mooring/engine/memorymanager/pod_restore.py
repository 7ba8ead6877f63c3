"""Keeping the memory of a pod-level pod across a restart of the kubelet.

Defect pod-restart (spec: pod-level.md section 6; kubernetes/kubernetes#140989): v1.37.1 has no way to restore the
allocation of a whole pod. It holds the blocks of the pod's first container against the request of the pod, charges the
machine a second time, releases once, and then refuses its own file. Fixed, as later kubelets have it: stored pod
blocks are kept, containers that miss theirs get them when those that have some form the beginning of the pod, and
otherwise everything is released and computed again.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from mooring.engine.core.pod import ContainerKind, Pod
from mooring.engine.memorymanager.account import release
from mooring.engine.memorymanager.pod_partition import blocks_of, partition
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.requests import Requests
from mooring.engine.memorymanager.reuse import ContainerBlocks
from mooring.engine.memorymanager.state import Block, MemoryState

POD_RESTART = "pod-restart"


def restored_blocks(
    policy: MemoryPolicy, state: MemoryState, pod: Pod, requests: Requests
) -> dict[str, tuple[Block, ...]] | None:
    """Return the blocks of the pod's containers when the stored ones can stay, else None.

    Regular init containers that have no blocks while a later container has some are those that have ended; they get
    none. Pod blocks without any container were never charged (spec: memory-manager.md section 7: only pods with
    container entries are visited) and do not count.
    """
    stored, held = state.pods.get(pod.uid, ()), state.assignments.get(pod.uid, {})
    cells = stored[0].numa if stored else ()
    if not held or not _same(stored, blocks_of(cells, requests)):
        return None
    shares = partition(pod, requests, policy.gates)
    restored: dict[str, tuple[Block, ...]] = {}
    waiting = False
    for container in pod.containers:
        share = blocks_of(cells, shares[container.name])
        if container.name in held:
            if waiting or not _same(held[container.name], share):
                return None
            restored[container.name] = held[container.name]
        elif not _has_ended(pod, container.name, held):
            waiting = True
            restored[container.name] = share
    return restored


def _same(blocks: tuple[Block, ...], others: tuple[Block, ...]) -> bool:
    """Compare without order: that of several types is random in files of the kubelet."""
    return sorted((block.type, block.size, sorted(block.numa)) for block in blocks) == sorted(
        (block.type, block.size, sorted(block.numa)) for block in others
    )


def _has_ended(pod: Pod, name: str, held: ContainerBlocks) -> bool:
    names = [container.name for container in pod.containers]
    position = names.index(name)
    return pod.containers[position].kind is ContainerKind.INIT and any(later in held for later in names[position + 1 :])


def without_pod(state: MemoryState, uid: str) -> MemoryState:
    """Return the state as if the pod had never been served."""
    held = state.assignments.get(uid, {})
    if not held and uid not in state.pods:
        return state
    blocks: tuple[Block, ...] = ()
    if held:
        blocks = state.pods[uid] if uid in state.pods else tuple(block for mine in held.values() for block in mine)
    return replace(
        state,
        nodes=release(state.nodes, blocks),
        assignments={pod: mine for pod, mine in state.assignments.items() if pod != uid},
        pods={pod: mine for pod, mine in state.pods.items() if pod != uid},
    )


def without_orphans(policy: MemoryPolicy, state: MemoryState, active: Collection[str]) -> MemoryState:
    """Return the state without pod blocks that no container entry leads to, as a write that was cut short leaves them.

    v1.37.1 looks at container entries, and at containers that ran at its start: blocks of other pods it never drops,
    and those of such a pod, which were never charged, it releases (defect pod-restart).
    """
    if not policy.gates.managers:
        return state
    if POD_RESTART not in policy.fixed_defects:
        for uid in sorted(state.refused.difference(active, state.assignments)):
            left = dict(state.pods)
            nodes = release(state.nodes, left.pop(uid, ()))
            state = replace(state, nodes=nodes, pods=left, refused=state.refused - {uid})
        return state
    for uid in sorted(state.pods):
        if uid not in active and uid not in state.assignments:
            state = without_pod(state, uid)
    return state


def refused_at_start(state: MemoryState, uid: str) -> MemoryState:
    """Return the state after a start refused a pod that ran: its blocks go with the next removal of stale state."""
    if uid not in state.pods or uid in state.assignments:
        return state
    return replace(state, refused=state.refused | {uid})


def is_served_as_a_whole(policy: MemoryPolicy, state: MemoryState, pod: Pod) -> bool:
    """Tell whether a container's memory lies in blocks of its pod, also when the scope is container now.

    v1.37.1 charges it again, and the next start finds more charged than the pod's blocks say (defect pod-restart).
    """
    return POD_RESTART in policy.fixed_defects and policy.gates.manages(pod) and pod.uid in state.pods
