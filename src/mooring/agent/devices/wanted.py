"""What a pod wants of devices, what its init containers have had, and the pod without that.

The kubelet beside the agent has given the devices already. No API reports those of init containers that end, and
CPUs that these containers leave are used again. The kubelet's record on disk has a device plugin's devices of every
container. Where it cannot be read, an init container counts as holding as many devices of its pod as it requests: those
that it leaves are the first that the containers after it take (kubelet v1.37.1, devicemanager manager.go,
devicesToAllocate). A claim is one for all of its containers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from mooring.agent.state import DevicesFound
from mooring.engine.checkpoint.device_file import device_record, read_device_file
from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Container, ContainerKind, Pod, ResourceList
from mooring.engine.devicemanager.state import Device


@dataclass(frozen=True, slots=True)
class WantedDevices:
    """Devices of one resource, or of one claim, that a container wants.

    >>> print(WantedDevices("train", "nvidia.com/gpu", 2)), print(WantedDevices("train", "", claim="nics"))
    2 nvidia.com/gpu of train
    claim nics of train
    (None, None)
    """

    container: str
    """Empty for any."""
    name: str
    """Of the resource; empty for a claim, whose driver is known only once it is reported."""
    count: int = 1
    claim: str = ""

    def __str__(self) -> str:
        what = f"claim {self.claim}" if self.claim else f"{self.count} {self.name}"
        return f"{what} of {self.container}" if self.container else self.name


def wanted_of(pod: Pod) -> list[WantedDevices]:
    """Return what the containers of a pod want; no API reports what init containers that end have."""
    found = []
    for one in pod.containers:
        if one.kind is ContainerKind.INIT:
            continue
        found += [
            WantedDevices(one.name, name, one.limits[name].units) for name in sorted(one.limits) if is_extended(name)
        ]
        found += [WantedDevices(one.name, "", claim=claim) for claim in dict.fromkeys(use.claim for use in one.claims)]
    return [each for each in found if each.count]


def wants_devices(pod: Pod) -> bool:
    """Tell whether a container of the pod wants a device, one that ends included."""
    return any(one.claims or any(is_extended(name) for name in one.limits) for one in pod.containers)


def is_extended(resource: str) -> bool:
    """Tell whether a resource can be one of a device plugin's: it has a domain, and not Kubernetes' own.

    >>> is_extended("nvidia.com/gpu"), is_extended("cpu"), is_extended("hugepages-2Mi")
    (True, False, False)
    """
    domain, slash, _ = resource.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def without_devices(pod: Pod) -> Pod:
    """Return the pod without requests and limits of extended resources."""
    containers = tuple(replace(one, requests=_plain(one.requests), limits=_plain(one.limits)) for one in pod.containers)
    return pod if containers == pod.containers else replace(pod, containers=containers)


def _plain(amounts: ResourceList) -> ResourceList:
    return {name: amount for name, amount in amounts.items() if not is_extended(name)}


class DeviceSource(Protocol):
    """Knows what pods hold of devices; :class:`mooring.agent.devices.lookup.DeviceLookup` is one."""

    def of_pod(self, pod: Pod, answer_by: float, *, is_derived: bool = False) -> DevicesFound | None:
        """Return what a pod holds, in time; None when it wants no device."""

    def of_all(
        self, pods: Mapping[str, Pod], missing: Mapping[str, Iterable[str]], timeout: float
    ) -> Mapping[str, DevicesFound]:
        """Return what pods hold, by uid."""


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
