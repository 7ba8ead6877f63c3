"""Devices of init containers that end: no API tells them, and CPUs that these containers leave are used again.

The kubelet's record on disk has a device plugin's devices of every container. Where it cannot be read, an init
container counts as holding as many devices of its pod as it requests: those that it leaves are the first that the
containers after it take (kubelet v1.37.1, devicemanager manager.go, devicesToAllocate). A claim is one for all of its
containers.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

from mooring.agent.pods.devices import is_extended
from mooring.engine.checkpoint.device_file import device_record, read_device_file
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod
from mooring.engine.devicemanager.state import Device

_Held = Mapping[str, Mapping[str, tuple[Device, ...]]]


def with_init_containers(
    pod: Pod, held: _Held, claimed: Mapping[str, AbstractSet[tuple[str, str]]], socket: Path
) -> _Held:
    """Return what the containers of a pod hold, with those that end.

    Args:
        pod: with its limits and claims.
        held: container -> resource -> devices of the others.
        claimed: claim -> its devices as driver and id.
        socket: of the kubelet's PodResources API, beside which its record is.
    """
    ending = [one for one in pod.containers if one.kind is ContainerKind.INIT and (one.claims or _limits(one))]
    if not ending:
        return held
    known: dict[str, dict[str, Device]] = {}
    for resources in held.values():
        for resource, devices in resources.items():
            known.setdefault(resource, {}).update({device.id: device for device in devices})
    recorded = _recorded(pod.uid, socket) if any(_limits(one) for one in ending) else {}
    found = {**held}
    for one in ending:
        mine = {
            resource: recorded.get((one.name, resource)) or (*known.get(resource, {}).values(),)[:count]
            for resource, count in _limits(one).items()
        }
        for use in one.claims:
            for driver, name in sorted(claimed.get(use.claim, ())):
                device = known.get(driver, {}).get(name)
                if device is not None and device not in mine.get(driver, ()):
                    mine[driver] = (*mine.get(driver, ()), device)
        if any(mine.values()):
            found[one.name] = {resource: devices for resource, devices in mine.items() if devices}
    return found


def _limits(container: Container) -> dict[str, int]:
    return {name: amount.units for name, amount in sorted(container.limits.items()) if is_extended(name)}


def _recorded(uid: str, socket: Path) -> dict[tuple[str, str], tuple[Device, ...]]:
    """Return the devices of a pod in the kubelet's record, by container and resource; none where it cannot be read."""
    try:
        record = device_record(read_device_file(socket.parent.parent))
    except InputError:
        return {}
    return {(one.container, one.resource): one.devices for one in record.held if one.uid == uid}
