"""Whether the containers of a pod-level pod that share its memory would have any.

Source: kubelet v1.37.1, memorymanager policy_static.go (validatePodScopeResources), KEP-5526; spec: pod-level.md
section 3.
"""

from __future__ import annotations

from mooring.core.gotext import uint64
from mooring.core.pod import ContainerKind, Pod
from mooring.core.podlevel import PodLevelGates
from mooring.memorymanager.requests import Requests, container_requests

EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: Requests, gates: PodLevelGates) -> str:
    """Return the kubelet's text when nothing of a memory type is left for those who share, or an empty text.

    Regular init containers never count towards what is taken for good. A request that is no 64-bit number fails the
    check, too.
    """
    taken: dict[str, int] = {}
    someone_shares = False
    for container in pod.containers:
        own = container_requests(pod, container, gates)
        if isinstance(own, str):
            return own
        if container.kind is ContainerKind.INIT:
            used_up = None if own else _used_up(budget, taken)
            if used_up is not None:
                return f"pod rejected, pod has shared init containers but no {used_up} available for them"
        elif not own:
            someone_shares = True
        else:
            for resource, amount in own.items():
                taken[resource] = uint64(taken.get(resource, 0) + amount)
    used_up = _used_up(budget, taken) if someone_shares else None
    if used_up is None:
        return ""
    return (
        f"pod rejected, sum of exclusive container {used_up} requests equals pod budget, "
        "leaving no memory for shared containers"
    )


def _used_up(budget: Requests, taken: Requests) -> str | None:
    """Return the first memory type of which nothing is left."""
    return next((resource for resource in sorted(budget) if taken.get(resource, 0) >= budget[resource]), None)
