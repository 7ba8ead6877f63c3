"""How much memory of each type a container or a pod requests.

Source: kubelet v1.37.1, memorymanager policy_static.go (getRequestedResources, getPodRequestedResources); spec:
memory-manager.md section 4.
"""

from __future__ import annotations

from collections.abc import Mapping

from mooring.engine.core.gotext import UINT64_MAX, uint64
from mooring.engine.core.pod import Container, ContainerKind, Pod, PodLevelGates, ResourceList, guaranteed_equivalent
from mooring.engine.memorymanager.machine import is_memory

NOT_INT64 = "[memorymanager] failed to represent quantity as int64"

Requests = Mapping[str, int]
"""Memory type -> bytes."""


def container_requests(pod: Pod, container: Container, gates: PodLevelGates) -> Requests | str:
    """Return what a container requests, or the kubelet's error text; zero amounts are kept.

    In a pod that takes the path of KEP-5526 only containers with requests equal to limits get memory of their own.
    """
    if gates.manages(pod) and not guaranteed_equivalent(container):
        return {}
    return _amounts(gates.requests_of(container))


def _amounts(resources: ResourceList) -> Requests | str:
    amounts: dict[str, int] = {}
    for resource, quantity in resources.items():
        if is_memory(resource):
            amount = quantity.as_int64()
            if amount is None:
                return NOT_INT64
            amounts[resource] = amount & UINT64_MAX
    return amounts


def pod_requests(pod: Pod, gates: PodLevelGates) -> Requests | str:
    """Return what a whole pod requests at once, or the kubelet's error text.

    Without KEP-5526 it is, for each type that an app container requests, the larger of what runs together: apps and
    sidecars, or an init container beside the sidecars started before it.
    """
    if gates.manages(pod) and pod.resources is not None:
        asked = _amounts(pod.resources.requests)
        return (
            asked if isinstance(asked, str) else {resource: amount for resource, amount in asked.items() if amount > 0}
        )
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    apps: dict[str, int] = {}
    for container in pod.containers:
        amounts = container_requests(pod, container, gates)
        if isinstance(amounts, str):
            return amounts
        for resource, amount in amounts.items():
            if container.kind is ContainerKind.SIDECAR:
                sidecars[resource] = uint64(sidecars.get(resource, 0) + amount)
            elif container.kind is ContainerKind.INIT:
                peak[resource] = max(peak.get(resource, 0), uint64(sidecars.get(resource, 0) + amount))
            else:
                apps[resource] = uint64(apps.get(resource, 0) + amount)
    return {
        resource: max(peak.get(resource, 0), uint64(amount + sidecars.get(resource, 0)))
        for resource, amount in apps.items()
    }
