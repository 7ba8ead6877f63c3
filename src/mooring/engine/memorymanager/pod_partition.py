"""How the memory of a pod-level pod is divided among its containers, and whether those that share would have any.

Source: kubelet v1.37.1, memorymanager policy_static.go (validatePodScopeResources, AllocatePod), KEP-5526; spec:
pod-level.md sections 3 and 4.
"""

from __future__ import annotations

from mooring.engine.core.gotext import uint64
from mooring.engine.core.pod import ContainerKind, Pod, PodLevelGates
from mooring.engine.memorymanager.requests import Requests, container_requests
from mooring.engine.memorymanager.state import Block

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
