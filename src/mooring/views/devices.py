"""Devices as they are drawn: at their NUMA node, with owner, health and PCI address."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mooring.views.labels import cut

UNHEALTHY = "×"
"""The sign of a device that is unhealthy and free."""


@dataclass(frozen=True, slots=True)
class DeviceView:
    """One device: a GPU, a network interface, an accelerator."""

    resource: str
    """What pods request it by, such as ``nvidia.com/gpu``; the kind of device where no device plugin offers it."""
    id: str
    numa: tuple[int, ...]
    """NUMA nodes that it is near to; empty when nothing is known."""
    healthy: bool = True
    address: str = ""
    """On the PCI bus, such as ``0000:3b:00.0``; empty when it is not known."""
    root: str = ""
    """Its PCIe root, such as ``pci0000:3a``; empty when it is not known."""
    offered: bool = True
    """Whether a device plugin offers it to pods."""
    owner: str = ""
    """Label of the container that has it; empty when none has."""

    @property
    def state(self) -> str:
        """Whether it is free, in use or unhealthy, in a few words."""
        if not self.offered:
            return "not offered to pods"
        if self.owner:
            return "in use" if self.healthy else "unhealthy, in use"
        return "free" if self.healthy else "unhealthy"

    @property
    def sentence(self) -> str:
        """Everything about it in one line, for tooltips."""
        where = f"NUMA node {', '.join(map(str, self.numa))}" if self.numa else "NUMA node unknown"
        address = f"PCI {self.address}" if self.address and self.address != self.id else ""
        root = f"PCIe root {self.root}" if self.root else ""
        state = f"{self.state} by {self.owner}" if self.owner else self.state
        return " · ".join(part for part in (f"{self.resource} {self.id}", address, root, where, state) if part)


@dataclass(frozen=True, slots=True)
class DeviceGroup:
    """Devices of one resource in one box; those that no plugin offers are of one PCIe root too."""

    resource: str
    devices: tuple[DeviceView, ...]

    @property
    def headings(self) -> tuple[str, ...]:
        """Forms of what stands above the devices, longest first: the resource, with how many of them are free."""
        short = self.resource.rpartition("/")[2]
        if not self.devices[0].offered:
            root = self.devices[0].root
            return (f"{self.resource} · {root}", self.resource) if root else (self.resource, short)
        free = sum(device.state == "free" for device in self.devices)
        figures = f"{free} of {len(self.devices)} free"
        return (f"{self.resource} · {figures}", f"{short} · {figures}", short)


def grouped(devices: Iterable[DeviceView]) -> tuple[DeviceGroup, ...]:
    """Return the devices by resource, and those that no plugin offers by PCIe root too, in the order as they come."""
    found: dict[tuple[str, str], list[DeviceView]] = {}
    for device in devices:
        found.setdefault((device.resource, "" if device.offered else device.root), []).append(device)
    return tuple(DeviceGroup(resource, tuple(members)) for (resource, _), members in found.items())


def amounts_by_owner(devices: Iterable[DeviceView]) -> dict[str, str]:
    """Return how many devices of each resource every owner has, in words.

    >>> amounts_by_owner([DeviceView("x/gpu", "0", (), owner="a/b/c"), DeviceView("x/gpu", "1", (), owner="a/b/c")])
    {'a/b/c': '2 gpu'}
    """
    counts: dict[str, Counter[str]] = {}
    for device in devices:
        if device.owner:
            counts.setdefault(device.owner, Counter())[device.resource.rpartition("/")[2]] += 1
    return {owner: ", ".join(f"{count} {name}" for name, count in found.items()) for owner, found in counts.items()}


def most_of_one_kind(devices: Iterable[DeviceView]) -> int:
    """Return the largest number of devices of one resource that are near the same NUMA nodes."""
    return max(Counter((device.resource, device.numa) for device in devices).values(), default=0)


def device_names(devices: Sequence[DeviceView], room: int) -> dict[tuple[str, str], str]:
    """Return what to write for each device, by resource and id: the id, cut to ``room`` characters, and the address.

    PCI addresses lose their domain where it is 0000. Devices of one resource whose ids look alike when they are cut
    are numbered instead.

    >>> from mooring.views.devices import DeviceView
    >>> nic = DeviceView("nic", "0000:3b:00.0", (), address="0000:3b:00.0")
    >>> list(device_names([DeviceView("gpu", "GPU-5c6a-1", ()), nic], 8).values())
    ['GPU-5…-1', '3b:00.0']
    """
    plain = {(one.resource, one.id): _bus_name(one.id) if one.id == one.address else one.id for one in devices}
    short = {key: cut(name, room) or f"…{name[1 - room :]}" for key, name in plain.items()}
    uses = Counter((resource, short[resource, id_]) for resource, id_ in short)
    numbers: Counter[str] = Counter()
    for key in short:
        numbers[key[0]] += 1
        if uses[key[0], short[key]] > 1:
            short[key] = f"#{numbers[key[0]]}"
    for one in devices:
        if one.address and one.address != one.id:
            short[one.resource, one.id] += f" {_bus_name(one.address)}"
    return short


def _bus_name(address: str) -> str:
    return address.removeprefix("0000:")
