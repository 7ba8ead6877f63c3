"""The quality-of-service class of a pod.

Source: kubelet v1.37.1, pkg/apis/core/v1/helper/qos; spec: configuration.md section 6.
"""

from __future__ import annotations

from collections.abc import Iterable

from mooring.core.pod import Container, PodResources, QoS, ResourceList
from mooring.core.quantity import Quantity
from mooring.manifest.gates import PodGates

_ZERO = Quantity.of_bytes(0)


def qos_of(containers: Iterable[Container], resources: PodResources | None, gates: PodGates) -> QoS:
    """Return the class that the kubelet computes when the pod's status does not tell it.

    >>> qos_of([], None, PodGates())
    <QoS.BEST_EFFORT: 'BestEffort'>
    """
    if resources is not None and _decides(resources, gates):
        return _class_of(resources.requests, resources.limits)
    found: QoS | None = None
    for container in containers:
        own = _class_of(container.requests, container.limits)
        if own is QoS.BURSTABLE or (found is not None and own is not found):
            return QoS.BURSTABLE
        found = own
    return found or QoS.BEST_EFFORT


def is_supported(resource: str) -> bool:
    """Tell whether a resource can be set for a whole pod (KEP-2837)."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _decides(resources: PodResources, gates: PodGates) -> bool:
    # Without the fix an empty ``resources: {}`` decides as well, and makes the pod BestEffort.
    if not gates.pod_level_resources or not gates.qos_fix:
        return gates.pod_level_resources
    return any(is_supported(name) for part in (resources.requests, resources.limits) for name in part)


def _class_of(requests: ResourceList, limits: ResourceList) -> QoS:
    if not requests and not limits:
        return QoS.BEST_EFFORT
    zeros = 0
    for name in ("cpu", "memory"):
        request = requests.get(name, _ZERO).nano
        if request != limits.get(name, _ZERO).nano:
            return QoS.BURSTABLE
        zeros += not request
    # One of the two set, the other not: neither class fits.
    return (QoS.GUARANTEED, QoS.BURSTABLE, QoS.BEST_EFFORT)[zeros]
