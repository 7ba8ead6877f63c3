"""Where a device of dynamic resource allocation is: its NUMA node from its attributes and the machine's PCI devices.

Sources: k8s.io/dynamic-resource-allocation v0.37.1, deviceattribute, and KEP-6072: ``numaNode`` is a number, or a list
that begins with the node of the device itself; nodes of the same socket follow, which match in a claim's constraint but
are not where the device is. ``pcieRoot`` and ``pciBusID`` are texts. Older drivers name such attributes in their own
domain: ``dra.cpu/numaNodeID``, ``dra.net/numaNode`` and ``dra.net/pciAddress``, ``gpu.nvidia.com/pcieBusID``,
``gpu.amd.com/pciAddr``, ``gpu.intel.com/pciAddress`` and ``pciRoot``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from mooring.engine.core.dynamic import Attributes, AttributeValue, DynamicDevice, LocationAttributes, ResourceClaim
from mooring.engine.core.machine import PCIDevice
from mooring.engine.core.machineinfo import HIGHEST_NODE
from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Device

STANDARD: Final = LocationAttributes(
    "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/pcieRoot"
)
_OLDER_NODES: Final = ("numaNode", "numaNodeID", "numa")
_OLDER_ADDRESSES: Final = ("pciBusID", "pcieBusID", "pciAddress", "pciAddr", "pciBusId")
_OLDER_ROOTS: Final = ("pcieRoot", "pciRoot")

LocationRules = Mapping[str, LocationAttributes]
"""Driver -> its attributes (``deviceAttributes`` of the configuration)."""


def located(
    driver: str, attributes: Attributes, pci: Iterable[PCIDevice] = (), rules: LocationRules | None = None
) -> tuple[int, ...] | None:
    """Return the NUMA nodes of a device; None when nothing tells them.

    The configured attributes come first, then the standard ones, then those of older drivers; of each first the node,
    then the PCI address, then the PCIe root, whose devices have one node or several.

    Args:
        driver: that offers the device.
        attributes: of the device.
        pci: the machine's PCI devices.
        rules: attributes of drivers that no standard knows.

    >>> located("gpu.example.com", {"resource.kubernetes.io/numaNode": (5, 4, 6, 7)})
    (5,)
    """
    devices = tuple(pci)
    for names in (*_configured(driver, rules or {}), STANDARD, *_older(driver, attributes)):
        found = _by(names, attributes, devices)
        if found:
            return found
    return None


def pci_address_of(driver: str, attributes: Attributes, rules: LocationRules | None = None) -> str:
    """Return the PCI address of a device, such as ``0000:3b:00.0``; empty when no attribute tells it.

    Args:
        driver: that offers the device.
        attributes: of the device.
        rules: attributes of drivers that no standard knows.

    >>> pci_address_of("dra.net", {"dra.net/pciAddress": "0000:3B:00.0"})
    '0000:3b:00.0'
    """
    for names in (*_configured(driver, rules or {}), STANDARD, *_older(driver, attributes)):
        address = _first(attributes.get(names.pci_bus_id))
        if isinstance(address, str) and address:
            return address.lower()
    return ""


def dynamic_devices(
    devices: Iterable[DynamicDevice], pci: Iterable[PCIDevice] = (), rules: LocationRules | None = None
) -> dict[str, tuple[Device, ...]]:
    """Return the devices of slices as the record of devices has them: driver -> devices.

    >>> one = DynamicDevice("gpu.example.com", "node-1", "gpu0", {"resource.kubernetes.io/numaNode": 1})
    >>> dynamic_devices([one])
    {'gpu.example.com': (Device(id='node-1/gpu0', numa=(1,), healthy=True, root=''),)}
    """
    known, found = tuple(pci), dict[str, list[Device]]()
    for one in devices:
        found.setdefault(one.driver, []).append(Device(one.id, located(one.driver, one.attributes, known, rules)))
    return {driver: tuple(listed) for driver, listed in found.items()}


def claimed_devices(pod: Pod, claims: Mapping[str, ResourceClaim]) -> dict[str, dict[str, frozenset[str]]]:
    """Return what the containers of a pod hold by claims: container -> driver -> ids.

    Devices that are given for administration are held by nobody (KEP-5018).

    Args:
        pod: the pod.
        claims: of its namespace, by name.
    """
    held: dict[str, dict[str, frozenset[str]]] = {}
    for container in pod.containers:
        for use in container.claims:
            claim = claims.get(use.claim)
            for device in claim.devices if claim else ():
                if device.admin_access or use.request not in ("", device.request, device.request.partition("/")[0]):
                    continue
                of_driver = held.setdefault(container.name, {})
                of_driver[device.driver] = of_driver.get(device.driver, frozenset()) | {device.id}
    return held


def _configured(driver: str, rules: LocationRules) -> Iterator[LocationAttributes]:
    if driver in rules:
        yield rules[driver]


def _older(driver: str, attributes: Attributes) -> Iterator[LocationAttributes]:
    """Yield the attributes of an older driver: its own domain first, then others."""
    domains = sorted({name.rpartition("/")[0] for name in attributes}, key=lambda domain: (domain != driver, domain))
    for domain in domains:
        yield LocationAttributes(
            *(
                next((f"{domain}/{name}" for name in names if f"{domain}/{name}" in attributes), "")
                for names in (_OLDER_NODES, _OLDER_ADDRESSES, _OLDER_ROOTS)
            )
        )


def _by(names: LocationAttributes, attributes: Attributes, pci: tuple[PCIDevice, ...]) -> tuple[int, ...] | None:
    node = _first(attributes.get(names.numa_node))
    if type(node) is int:
        return (node,) if 0 <= node <= HIGHEST_NODE else None
    address = _first(attributes.get(names.pci_bus_id))
    if isinstance(address, str):
        near = next((one for one in pci if one.address == address.lower()), None)
        if near is not None and near.numa is not None:
            return (near.numa,)
        if near is not None and near.root:
            return _nodes_of_root(near.root, pci)
    root = attributes.get(names.pcie_root)
    roots = root if isinstance(root, tuple) else (root,)
    nodes = {node for one in roots if isinstance(one, str) for node in _nodes_of_root(one, pci) or ()}
    return tuple(sorted(nodes)) or None


def _nodes_of_root(root: str, pci: tuple[PCIDevice, ...]) -> tuple[int, ...] | None:
    return tuple(sorted({one.numa for one in pci if one.root == root and one.numa is not None})) or None


def _first(value: AttributeValue | None) -> AttributeValue | None:
    return (value[0] if value else None) if isinstance(value, tuple) else value
