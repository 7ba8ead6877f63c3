"""Devices of dynamic resource allocation as values: what slices offer, and what claims were given.

Source: resource.k8s.io/v1 of v1.37 (KEP-4381, KEP-5075 shares, KEP-5018 adminAccess). A device's full name is driver,
pool and device. In the record of devices (:class:`mooring.engine.devicemanager.state.DeviceState`) the driver is the
resource and ``POOL/DEVICE`` the id: a driver's name has no slash and cannot be a device plugin's resource.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from mooring.lazy import dataclass, field

AttributeValue: TypeAlias = bool | int | str | tuple[bool, ...] | tuple[int, ...] | tuple[str, ...]
Attributes: TypeAlias = Mapping[str, AttributeValue]
"""Fully qualified name -> value; versions are texts."""


@dataclass(frozen=True, slots=True)
class DynamicDevice:
    """One device of a ResourceSlice."""

    driver: str
    pool: str
    name: str
    attributes: Attributes = field(default_factory=dict)
    is_shared: bool = False
    """Whether several claims can have it at once (``allowMultipleAllocations``)."""

    @property
    def id(self) -> str:
        """Its id among the driver's devices."""
        return f"{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class ClaimedDevice:
    """One device that a claim was given."""

    request: str
    """Name of the claim's request, ``REQUEST/SUBREQUEST`` where there are alternatives."""
    driver: str
    pool: str
    name: str
    admin_access: bool = False
    """Given for administration: whoever uses it keeps it, and nobody is tied to it."""
    share: str = ""
    """Id of the share of a device that several claims have."""

    @property
    def id(self) -> str:
        """Its id among the driver's devices."""
        return f"{self.pool}/{self.name}"


@dataclass(frozen=True, slots=True)
class ResourceClaim:
    """A claim, and what it was given."""

    namespace: str
    name: str
    uid: str = ""
    is_allocated: bool = False
    devices: tuple[ClaimedDevice, ...] = ()
    pods: frozenset[str] = frozenset()
    """Uids of the pods for which it is reserved."""


@dataclass(frozen=True, slots=True)
class LocationAttributes:
    """Attributes in which an older driver says where its devices are; empty where it has none."""

    numa_node: str = ""
    pci_bus_id: str = ""
    pcie_root: str = ""
