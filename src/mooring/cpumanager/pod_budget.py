"""Whether the containers of a pod-level pod that share its CPUs would have any.

Source: kubelet v1.37.1, cpumanager policy_static.go (validatePodScopeResources), KEP-5526; spec: pod-level.md section
3.
"""

from __future__ import annotations

from mooring.core.gotext import int64
from mooring.core.pod import ContainerKind, Pod
from mooring.core.podlevel import PodLevelGates
from mooring.cpumanager.requests import exclusive_cpus

EMPTY_SHARED_POOL = "EmptyPodSharedPoolError"


def shared_pool_error(pod: Pod, budget: int, gates: PodLevelGates) -> str:
    """Return the kubelet's text when nothing is left for those who share, or an empty text.

    Regular init containers never count towards what is taken for good.
    """
    taken = 0
    someone_shares = False
    for container in pod.containers:
        own = exclusive_cpus(pod, container, gates)
        if container.kind is ContainerKind.INIT:
            if own == 0 and taken >= budget:
                return "pod rejected, pod has shared init containers but no cpus available for them"
        elif own == 0:
            someone_shares = True
        else:
            taken = int64(taken + own)
    if someone_shares and taken >= budget:
        return (
            "pod rejected, sum of exclusive container cpu requests equals pod budget, "
            "leaving no cpus for shared containers"
        )
    return ""
