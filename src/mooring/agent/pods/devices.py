"""What a pod wants of devices, and the pod without that: the kubelet beside the agent has given the devices already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from mooring.agent.reactor.values import DevicesFound
from mooring.engine.core.pod import Container, ContainerKind, Pod, ResourceList


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
    """Of the resource; empty for a claim, whose driver is not known before it is told."""
    count: int = 1
    claim: str = ""

    def __str__(self) -> str:
        what = f"claim {self.claim}" if self.claim else f"{self.count} {self.name}"
        return f"{what} of {self.container}" if self.container else self.name


def wanted_of(pod: Pod) -> list[WantedDevices]:
    """Return what the containers of a pod want; what init containers that end have is told by nobody."""
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
    containers = tuple(_without(one) for one in pod.containers)
    return pod if containers == pod.containers else replace(pod, containers=containers)


def _without(container: Container) -> Container:
    return replace(container, requests=_plain(container.requests), limits=_plain(container.limits))


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
