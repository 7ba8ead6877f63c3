"""Another amount in a pod: requests, limits, and the QoS class that follows from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from mooring.core.errors import InputError
from mooring.core.pod import Container, Pod, PodResources, ResourceList
from mooring.core.quantity import Quantity
from mooring.manifest.defaults import PodGates, qos_of
from mooring.manifest.validation import check_containers_fit, check_pod_resources, check_resources

_NATIVE = ("cpu", "memory", "ephemeral-storage")


def with_amount(pod: Pod, container: str, resource: str, amount: Quantity, gates: Mapping[str, bool]) -> Pod:
    """Return a pod one of whose containers asks for another amount.

    Args:
        pod: the pod.
        container: name of a container; empty for the pod-level resources.
        resource: what is asked for.
        amount: how much of it.
        gates: the feature gates of the configuration; they decide about the QoS class.

    Raises:
        InputError: there is no such container, or the API server would refuse the pod.
    """
    containers, resources = pod.containers, pod.resources
    if container:
        if all(one.name != container for one in containers):
            raise InputError(f"has no container {container!r}", remedy=f"it has {names_of(pod)}")
        containers = tuple(
            _container_with(one, resource, amount) if one.name == container else one for one in containers
        )
    elif resources is None:
        raise InputError("has no pod-level resources", remedy=f"name a container: {names_of(pod)}")
    else:
        resources = PodResources(*_with(resources.requests, resources.limits, resource, amount))
        check_pod_resources(resources)
    if resources is not None and pod.is_pod_level:
        check_containers_fit(resources, containers)
    qos = qos_of(containers, resources, PodGates.of(gates))
    return replace(pod, containers=containers, resources=resources, qos=qos)


def names_of(pod: Pod) -> str:
    """Return the names of a pod's containers, in order."""
    return ", ".join(container.name for container in pod.containers)


def _container_with(container: Container, resource: str, amount: Quantity) -> Container:
    requests, limits = _with(container.requests, container.limits, resource, amount)
    check_resources(requests, limits)
    return replace(container, requests=requests, limits=limits)


def _with(
    requests: ResourceList, limits: ResourceList, resource: str, amount: Quantity
) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    request, limit = requests.get(resource), limits.get(resource)
    after, bound = dict(requests), dict(limits)
    after[resource] = amount
    needs_limit = request is None or resource not in _NATIVE
    if needs_limit if limit is None else limit == request or limit < amount:
        bound[resource] = amount
    return after, bound
