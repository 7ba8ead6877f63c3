"""What the API server fills in before the kubelet sees a pod.

Source: API server v1.37.1, SetDefaults_Pod and, since PodLevelResourcesFixDefaulting,
DefaultPodLevelResources; spec: configuration.md section 6. The fix moved the pod-level part behind the
admission webhooks and taught it to fill limits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mooring.core.pod import Container, ContainerKind, PodResources, ResourceList
from mooring.core.quantity import Quantity
from mooring.manifest.gates import PodGates
from mooring.manifest.qos import is_supported
from mooring.manifest.resources import HUGE_PAGES


def with_pod_defaults(resources: PodResources, containers: Sequence[Container], gates: PodGates) -> PodResources:
    """Return pod-level resources with the API server's defaults; the containers must have theirs already."""
    if not gates.pod_level_resources or not (resources.requests or resources.limits):
        return resources
    requests, limits = dict(resources.requests), dict(resources.limits)
    _fill_huge_page_limits(requests, limits, total(containers, _limits))
    if gates.defaulting_fix or limits:
        _fill_requests(requests, limits, total(containers, _requests))
    if gates.defaulting_fix:
        _fill_limits(requests, limits, containers)
    return PodResources(requests, limits)


def total_requests(containers: Sequence[Container]) -> dict[str, Quantity]:
    """Return what the containers request together at the moment when they request most."""
    return total(containers, _requests)


def total_limits(containers: Sequence[Container]) -> dict[str, Quantity]:
    """Return the limits of the containers together, counted like requests."""
    return total(containers, _limits)


def total(containers: Sequence[Container], of: Callable[[Container], ResourceList]) -> dict[str, Quantity]:
    """Return max(apps + sidecars, each regular init container + the sidecars before it), as KEP-753 counts."""
    running: dict[str, Quantity] = {}
    sidecars: dict[str, Quantity] = {}
    peak: dict[str, Quantity] = {}
    for container in containers:
        own = of(container)
        if container.kind is not ContainerKind.INIT:
            _add(running, own)
        if container.kind is ContainerKind.SIDECAR:
            _add(sidecars, own)
            _raise(peak, sidecars)
        elif container.kind is ContainerKind.INIT:
            together = dict(own)
            _add(together, sidecars)
            _raise(peak, together)
    _raise(running, peak)
    return running


def _requests(container: Container) -> ResourceList:
    return container.requests


def _limits(container: Container) -> ResourceList:
    return container.limits


def _add(into: dict[str, Quantity], amounts: ResourceList) -> None:
    for name, amount in amounts.items():
        into[name] = into[name] + amount if name in into else amount


def _raise(into: dict[str, Quantity], amounts: Mapping[str, Quantity]) -> None:
    for name, amount in amounts.items():
        if name not in into or amount > into[name]:
            into[name] = amount


def _fill_huge_page_limits(
    requests: Mapping[str, Quantity], limits: dict[str, Quantity], of_containers: Mapping[str, Quantity]
) -> None:
    for name, amount in of_containers.items():
        if name.startswith(HUGE_PAGES) and name not in requests:
            limits.setdefault(name, amount)


def _fill_requests(
    requests: dict[str, Quantity], limits: Mapping[str, Quantity], of_containers: Mapping[str, Quantity]
) -> None:
    for name in ("cpu", "memory"):
        if name in of_containers:
            requests.setdefault(name, of_containers[name])
    # Huge pages cannot be promised twice: their request is always the limit.
    for name, amount in limits.items():
        if is_supported(name):
            requests.setdefault(name, amount)


def _fill_limits(
    requests: Mapping[str, Quantity], limits: dict[str, Quantity], containers: Sequence[Container]
) -> None:
    of_containers = total(containers, _limits)
    for name, request in requests.items():
        everywhere = is_supported(name) and all(name in container.limits for container in containers)
        if everywhere and name not in limits and name in of_containers:
            limits[name] = max(of_containers[name], request)
