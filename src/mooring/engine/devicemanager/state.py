"""Devices and who holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

from mooring.engine.core.bits import NO_NODES, NUMAMask, mask_of
from mooring.engine.core.pod import Container, ContainerKind
from mooring.lazy import dataclass, field, replace

NOWHERE = -1
"""What plugins report for devices whose NUMA node the kernel does not know, as in virtual machines: no node at all, but
the resource counts as one that has nodes (devicemanager/topology_hints.go, deviceHasTopologyAlignment)."""


@dataclass(frozen=True, slots=True)
class Device:
    """One device of a resource."""

    id: str
    numa: tuple[int, ...] | None = None
    """NUMA nodes that it is near to, several or one; None when nothing is known; :data:`NOWHERE` as reported."""
    healthy: bool = True
    root: str = ""
    """Its PCIe root, such as ``pci0000:3a``; empty when nothing is known."""

    @property
    def mask(self) -> NUMAMask:
        """Mask of its NUMA nodes; 0 when nothing is known."""
        return NUMAMask(mask_of(node for node in self.numa if node >= 0)) if self.numa else NO_NODES


class Preference(Enum):
    """A rule; the value is the word in a document."""

    PACKED = "packed"
    """As few PCIe roots as possible."""
    ALIGNED = "aligned"
    """As few NUMA nodes as possible, and on them as few PCIe roots."""
    PLUGIN = "plugin"
    """The plugin decides, and nobody has declared how."""


Holdings = Mapping[str, Mapping[str, Mapping[str, frozenset[str]]]]
"""Pod uid -> container -> resource -> device ids."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """Registered devices and allocations."""

    devices: Mapping[str, tuple[Device, ...]] = field(default_factory=dict)
    """Resource -> its devices."""
    held: Holdings = field(default_factory=dict)
    claimed: Holdings = field(default_factory=dict)
    """What pods have elsewhere, such as by claims; they hold it from when they are asked about."""
    preferences: Mapping[str, Preference] = field(default_factory=dict)
    """Resource -> which of its devices its plugin prefers."""
    drawn: Holdings = field(default_factory=dict)
    """What containers are given where the kubelet draws one of equally near devices; known where it has drawn."""

    def allocated(self, resource: str) -> frozenset[str]:
        """Return the ids of all devices of a resource that containers hold."""
        found: set[str] = set()
        for containers in self.held.values():
            for resources in containers.values():
                found |= resources.get(resource, frozenset())
        return frozenset(found)

    def capacity(self, resources: Iterable[str]) -> dict[str, int]:
        """Return how many devices of these resources the node resources check counts: the healthy or the given ones.

        Source: kubelet v1.37.1, cm/devicemanager/manager.go (sanitizeNodeAllocatable).
        """
        return {
            resource: max(sum(device.healthy for device in self.devices[resource]), len(self.allocated(resource)))
            for resource in resources
            if resource in self.devices
        }

    def available(self, resource: str) -> frozenset[str]:
        """Return the ids of the healthy devices that are not held."""
        healthy = {device.id for device in self.devices.get(resource, ()) if device.healthy}
        return frozenset(healthy - self.allocated(resource))

    def held_by(self, pod: str, container: str, resource: str) -> frozenset[str]:
        """Return what a container holds of a resource."""
        return self.held.get(pod, {}).get(container, {}).get(resource, frozenset())

    def held_by_pod(self, pod: str, resource: str) -> frozenset[str]:
        """Return what all containers of a pod hold of a resource."""
        found: frozenset[str] = frozenset()
        for resources in self.held.get(pod, {}).values():
            found |= resources.get(resource, frozenset())
        return found

    def holding(self, pod: str, held: Mapping[str, Mapping[str, tuple[Device, ...]]]) -> DeviceState:
        """Return the state in which a pod holds these devices and no others; they are registered as they are given.

        Args:
            pod: its uid.
            held: container -> resource -> devices, for callers who learn from somebody else what a pod holds. One
                device can be held by several containers.

        >>> state = DeviceState().holding("p", {"c": {"vendor.example/gpu": (Device("gpu0", (1,)),)}})
        >>> sorted(state.held_by_pod("p", "vendor.example/gpu")), state.devices["vendor.example/gpu"][0].numa
        (['gpu0'], (1,))
        """
        devices = dict(self.devices)
        for resources in held.values():
            for resource, found in resources.items():
                known = {device.id: device for device in devices.get(resource, ())}
                devices[resource] = tuple({**known, **{device.id: device for device in found}}.values())
        containers = {
            container: {resource: frozenset(device.id for device in found) for resource, found in resources.items()}
            for container, resources in held.items()
        }
        others = {uid: known for uid, known in self.held.items() if uid != pod}
        return replace(self, devices=devices, held={**others, pod: containers} if containers else others)

    def offering(self, devices: Mapping[str, tuple[Device, ...]]) -> DeviceState:
        """Return the state with devices as somebody else lists them; what is held and not listed stays.

        >>> state = DeviceState({"gpu": (Device("a", (1,)), Device("old"))}, {"p": {"c": {"gpu": frozenset({"a"})}}})
        >>> [(one.id, one.numa) for one in state.offering({"gpu": (Device("a"), Device("b", (0,)))}).devices["gpu"]]
        [('a', (1,)), ('b', (0,))]
        """
        merged = dict(self.devices)
        for resource, listed in devices.items():
            taken = self.allocated(resource)
            held = {one.id: one for one in self.devices.get(resource, ()) if one.id in taken}
            merged[resource] = tuple({**{one.id: one for one in listed}, **held}.values())
        return replace(self, devices=merged)

    def with_claimed(self, pod: str) -> DeviceState:
        """Return the state in which a pod holds what it has elsewhere, beside what it holds already."""
        if pod not in self.claimed:
            return self
        known = self.held.get(pod, {})
        containers = {name: {**known.get(name, {}), **found} for name, found in self.claimed[pod].items()}
        return replace(self, held={**self.held, pod: {**known, **containers}})


@dataclass(frozen=True, slots=True)
class ReusableDevices:
    """Devices that ended init containers of the pod now being admitted leave to its later containers."""

    pod: str = ""
    devices: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Resource -> device ids."""

    def of(self, pod: str, resource: str) -> frozenset[str]:
        """Return the ids for a pod and a resource; empty for every other pod."""
        return self.devices.get(resource, frozenset()) if pod == self.pod else frozenset()

    def after(self, pod: str, container: Container, held: Mapping[str, frozenset[str]]) -> ReusableDevices:
        """Return the record after a container was served: init containers add what they hold, all others take it."""
        if not held and not self.devices:
            return self
        left = dict(self.devices) if pod == self.pod else {}
        for resource, ids in held.items():
            known = left.get(resource, frozenset())
            left[resource] = known | ids if container.kind is ContainerKind.INIT else known - ids
        return ReusableDevices(pod, left)
