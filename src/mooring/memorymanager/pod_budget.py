"""Whether the containers of a pod-level pod that share its memory would have any.

Source: kubelet v1.37.1, memorymanager policy_static.go (validatePodScopeResources), KEP-5526; spec: pod-level.md
section 3.
"""

from __future__ import annotations

from mooring.core.pod import Container, ContainerKind, Pod
from mooring.core.podlevel import PodLevelGates
from mooring.memorymanager.requests import Requests, container_requests

EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: Requests, gates: PodLevelGates) -> str:
    """Return the kubelet's text for the first memory type that leaves nothing to those who share, or an empty text.

    Regular init containers never count towards what is taken for good.
    """
    for resource in sorted(budget):
        text = _error_for(pod, resource, budget[resource], gates)
        if text:
            return text
    return ""


def _error_for(pod: Pod, resource: str, budget: int, gates: PodLevelGates) -> str:
    taken = 0
    someone_shares = False
    for container in pod.containers:
        own = _own(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            if not own and taken >= budget:
                return f"pod rejected, pod has shared init containers but no {resource} available for them"
        elif not own:
            someone_shares = True
        else:
            taken += own.get(resource, 0)
    if someone_shares and taken >= budget:
        return (
            f"pod rejected, sum of exclusive container {resource} requests equals pod budget, "
            "leaving no memory for shared containers"
        )
    return ""


def _own(pod: Pod, container: Container, gates: PodLevelGates) -> Requests:
    requests = container_requests(pod, container, gates)
    return {} if isinstance(requests, str) else requests
