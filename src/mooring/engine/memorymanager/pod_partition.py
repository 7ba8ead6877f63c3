"""How the memory of a pod-level pod is divided among its containers, and whether those that share would have any.

Source: kubelet v1.37.1, memorymanager policy_static.go (validatePodScopeResources, AllocatePod), KEP-5526; spec:
pod-level.md sections 3 and 4.

Keeping the memory of a pod-level pod across a restart of the kubelet.

Defect pod-restart (spec: pod-level.md section 6; kubernetes/kubernetes#140989): v1.37.1 has no way to restore the
allocation of a whole pod. It holds the blocks of the pod's first container against the request of the pod, charges the
machine a second time, releases once, and then refuses its own file. Fixed: stored pod blocks are kept, containers that
miss theirs get them when those that have some form the beginning of the pod, and otherwise everything is released and
computed again. v1.38.0-beta.0 keeps stored pod blocks whatever they are, and completes nothing (up to 1.37: rule
pod-memory-not-restored; spec: preview.md section 9).
"""

from __future__ import annotations

from collections.abc import Collection

from mooring.engine.core.gotext import uint64
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates
from mooring.engine.memorymanager.policy import MemoryPolicy, Requests, container_requests
from mooring.engine.memorymanager.state import Block, MemoryState, release
from mooring.lazy import replace

EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: Requests, gates: PodLevelGates) -> tuple[str, str]:
    """Return the kubelet's text when nothing of a memory type is left for those who share, and the type; else nothing.

    Regular init containers never count towards what is taken for good. A request that is no 64-bit number fails the
    check, too.
    """
    taken: dict[str, int] = {}
    someone_shares = False
    for container in pod.containers:
        own = container_requests(pod, container, gates)
        if isinstance(own, str):
            return own, ""
        if container.kind is ContainerKind.INIT:
            used_up = None if own else _used_up(budget, taken)
            if used_up is not None:
                return f"pod rejected, pod has shared init containers but no {used_up} available for them", used_up
        elif not own:
            someone_shares = True
        else:
            for resource, amount in own.items():
                taken[resource] = uint64(taken.get(resource, 0) + amount)
    used_up = _used_up(budget, taken) if someone_shares else None
    if used_up is None:
        return "", ""
    text = (
        f"pod rejected, sum of exclusive container {used_up} requests equals pod budget, "
        "leaving no memory for shared containers"
    )
    return text, used_up


def _used_up(budget: Requests, taken: Requests) -> str | None:
    """Return the first memory type of which nothing is left."""
    return next((resource for resource in sorted(budget) if taken.get(resource, 0) >= budget[resource]), None)


def partition(pod: Pod, budget: Requests, gates: PodLevelGates) -> dict[str, Requests]:
    """Return each container's share: its own requests, or what is left for the sharing containers.

    A regular init container without requests shares what the sidecars before it leave; any other container without
    requests shares what sidecars and exclusive apps leave.
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
                    totals[resource] = uint64(totals.get(resource, 0) + amount)
        elif container.kind is ContainerKind.INIT:
            shares[container.name] = _less(budget, sidecars)
        else:
            late.append(container.name)
    rest = _less(budget, sidecars)
    # A type that the pod does not name wraps below zero.
    rest.update((resource, uint64(rest.get(resource, 0) - amount)) for resource, amount in apps.items())
    shares.update(dict.fromkeys(late, rest))
    return {container.name: shares[container.name] for container in pod.containers}


def _less(budget: Requests, taken: Requests) -> dict[str, int]:
    return {resource: uint64(amount - taken.get(resource, 0)) for resource, amount in budget.items()}


def blocks_of(cells: tuple[int, ...], amounts: Requests) -> tuple[Block, ...]:
    """Return the blocks of a share on the nodes of the pod; nothing is written down where nothing is left.

    >>> blocks_of((0,), {"memory": 5, "hugepages-2Mi": 0})
    (Block(numa=(0,), type='memory', size=5),)
    """
    return tuple(Block(cells, resource, amounts[resource]) for resource in sorted(amounts) if amounts[resource] > 0)


POD_RESTART = "pod-restart"


def keeps_pod(policy: MemoryPolicy, state: MemoryState, pod: Pod) -> bool:
    """Tell whether v1.38.0-beta.0 keeps the blocks of a pod as they are, be they none."""
    restores = not policy.older.pod_memory_not_restored and POD_RESTART not in policy.fixed_defects
    return restores and pod.uid in state.pods


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
    for position, container in enumerate(pod.containers):
        share = blocks_of(cells, shares[container.name])
        if container.name in held:
            if waiting or not _same(held[container.name], share):
                return None
            restored[container.name] = held[container.name]
        elif container.kind is not ContainerKind.INIT or not any(
            later.name in held for later in pod.containers[position + 1 :]
        ):
            waiting = True
            restored[container.name] = share
    return restored


def _same(blocks: tuple[Block, ...], others: tuple[Block, ...]) -> bool:
    """Compare without order: that of several types is random in files of the kubelet."""
    return sorted((block.type, block.size, sorted(block.numa)) for block in blocks) == sorted(
        (block.type, block.size, sorted(block.numa)) for block in others
    )


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
