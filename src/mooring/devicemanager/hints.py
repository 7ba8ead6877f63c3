"""The device manager's hints.

Source: kubelet v1.37.1, devicemanager topology_hints.go; spec: topology-manager.md section 7.
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.core.bits import mask_of, members
from mooring.core.pod import Container, ContainerKind, Pod
from mooring.devicemanager.state import Device, DeviceState, ReusableDevices
from mooring.topologymanager.hints import IMPOSSIBLE, Hints, ResourceHints


def device_requests(container: Container, state: DeviceState) -> dict[str, int]:
    """Return how many devices of each registered resource a container wants: its limits."""
    return {
        resource: container.limits[resource].units for resource in sorted(container.limits) if resource in state.devices
    }


def pod_device_requests(pod: Pod, state: DeviceState) -> dict[str, int]:
    """Return how many devices a pod needs at once.

    Apps run with the sidecars; an init container runs with the sidecars before it.
    """
    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    apps: dict[str, int] = {}
    for container in pod.containers:
        for resource, count in device_requests(container, state).items():
            if container.kind is ContainerKind.SIDECAR:
                sidecars[resource] = sidecars.get(resource, 0) + count
            elif container.kind is ContainerKind.INIT:
                peak[resource] = max(peak.get(resource, 0), sidecars.get(resource, 0) + count)
            else:
                apps[resource] = apps.get(resource, 0) + count
    return {
        resource: max(peak.get(resource, 0), apps.get(resource, 0) + sidecars.get(resource, 0))
        for resource in sorted({*sidecars, *peak, *apps})
    }


def container_hints(
    state: DeviceState, reusable: ReusableDevices, nodes: Sequence[int], pod: Pod, container: Container
) -> ResourceHints | None:
    """Return the hints for one container; None when it wants no device.

    Args:
        state: devices and holders.
        reusable: devices that init containers leave.
        nodes: ids of all NUMA nodes of the machine.
        pod: the pod.
        container: one of its containers.
    """
    hints: dict[str, Hints | None] = {}
    for resource, count in device_requests(container, state).items():
        existing = state.held_by(pod.uid, container.name, resource)
        left = reusable.of(pod.uid, resource)
        hints[resource] = _hints(state, nodes, resource, count, existing, left)
    return hints or None


def pod_hints(state: DeviceState, nodes: Sequence[int], pod: Pod) -> ResourceHints | None:
    """Return the hints for a whole pod; nothing is reused in pod scope. None when it wants no device."""
    hints: dict[str, Hints | None] = {}
    for resource, count in pod_device_requests(pod, state).items():
        existing = state.held_by_pod(pod.uid, resource)
        hints[resource] = _hints(state, nodes, resource, count, existing, frozenset())
    return hints or None


def _hints(
    state: DeviceState,
    nodes: Sequence[int],
    resource: str,
    count: int,
    existing: frozenset[str],
    left: frozenset[str],
) -> Hints | None:
    devices = state.devices[resource]
    # 1. Devices without NUMA nodes have no opinion.
    if not any(device.numa for device in devices):
        return None
    # 2. What is held already is all there is to it.
    if existing:
        return generate_hints(devices, nodes, existing, frozenset(), count) if len(existing) == count else IMPOSSIBLE
    # 3. Too few.
    available = state.available(resource)
    if len(available | left) < count:
        return IMPOSSIBLE
    return generate_hints(devices, nodes, available, left, count)


def generate_hints(
    devices: Sequence[Device], nodes: Sequence[int], available: frozenset[str], reusable: frozenset[str], count: int
) -> Hints:
    """Return a hint for every set of NUMA nodes that enough devices touch.

    Only nodes that host a device of the resource take part; all of them when none is known. Preferred are the sets
    that are as small as all devices, unhealthy ones included, would allow.
    """
    known = mask_of(nodes)
    hosts = 0
    for device in devices:
        hosts |= device.mask & known
    ids = tuple(members(hosts or known))
    everything = [device.mask for device in devices]
    free = [device.mask for device in devices if device.id in available]
    kept = [device.mask for device in devices if device.id in reusable and device.mask]
    smallest = len(ids)
    found = []
    for index in range(1, 1 << len(ids)):
        mask = mask_of(ids[position] for position in members(index))
        size = index.bit_count()
        if size < smallest and _touching(everything, mask) >= count:
            smallest = size
        if any(not device & mask for device in kept):
            continue
        if len(kept) + _touching(free, mask) >= count:
            found.append(mask)
    return Hints(
        preferred=tuple(mask for mask in found if mask.bit_count() == smallest),
        others=tuple(mask for mask in found if mask.bit_count() != smallest),
    )


def _touching(masks: Sequence[int], mask: int) -> int:
    return sum(1 for device in masks if device & mask)
