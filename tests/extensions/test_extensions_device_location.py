"""Where devices of dynamic resource allocation are, and who holds them."""

from __future__ import annotations

import pytest

from mooring.engine.core.machine import PCIDevice
from mooring.engine.core.pod import (
    AttributeValue,
    ClaimedDevice,
    ClaimUse,
    Container,
    DynamicDevice,
    LocationAttributes,
    Pod,
    ResourceClaim,
)
from mooring.engine.devicemanager.state import Device
from mooring.engine.extensions.device_alignment import claimed_devices, dynamic_devices, located

DRIVER = "gpu.example.com"
STANDARD = "resource.kubernetes.io"
PCI = (
    PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1, "pci0000:3a"),
    PCIDevice("0000:5e:00.0", "020000", "15b3", "1021", None, "pci0000:3a"),
    PCIDevice("0000:af:00.0", "020000", "15b3", "1021", None, "pci0000:ae"),
)


@pytest.mark.parametrize(
    ("attributes", "nodes"),
    [
        ({f"{STANDARD}/numaNode": 3}, (3,)),
        # The list begins with the device's own node; what follows is only as near as the socket.
        ({f"{STANDARD}/numaNode": (5, 4, 6, 7)}, (5,)),
        ({f"{STANDARD}/numaNode": 0, f"{STANDARD}/pciBusID": "0000:3b:00.0"}, (0,)),
        ({f"{STANDARD}/pciBusID": "0000:3b:00.0"}, (1,)),
        ({f"{STANDARD}/pciBusID": "0000:3B:00.0"}, (1,)),
        # Its own files do not tell the node, another device of its root does.
        ({f"{STANDARD}/pciBusID": "0000:5e:00.0"}, (1,)),
        ({f"{STANDARD}/pcieRoot": "pci0000:3a"}, (1,)),
        ({f"{STANDARD}/pcieRoot": ("pci0000:ae", "pci0000:3a")}, (1,)),
        ({f"{STANDARD}/pcieRoot": "pci0000:ae"}, None),
        ({f"{STANDARD}/pciBusID": "0000:00:00.0"}, None),
        ({f"{STANDARD}/numaNode": -1}, None),
        ({f"{STANDARD}/numaNode": ()}, None),
        ({f"{STANDARD}/numaNode": "1"}, None),
        ({f"{STANDARD}/numaNode": True}, None),
        ({"dra.net/numaNode": 2, "dra.net/ifName": "eth1"}, (2,)),
        ({"dra.cpu/numaNodeID": 2}, (2,)),
        ({f"{DRIVER}/pcieBusID": "0000:3b:00.0"}, (1,)),
        ({f"{DRIVER}/pciAddr": "0000:3b:00.0"}, (1,)),
        ({f"{DRIVER}/pciRoot": "pci0000:3a"}, (1,)),
        ({f"{DRIVER}/model": "x"}, None),
        ({}, None),
    ],
)
def test_a_device_is_where_its_attributes_say(
    attributes: dict[str, AttributeValue], nodes: tuple[int, ...] | None
) -> None:
    assert located(DRIVER, attributes, PCI) == nodes


def test_a_configured_attribute_comes_first() -> None:
    rules = {DRIVER: LocationAttributes(numa_node=f"{DRIVER}/socket", pci_bus_id=f"{DRIVER}/bus")}
    attributes: dict[str, AttributeValue] = {f"{DRIVER}/socket": 7, f"{STANDARD}/numaNode": 1}
    assert located(DRIVER, attributes, PCI, rules) == (7,)
    assert located(DRIVER, {f"{DRIVER}/bus": "0000:3b:00.0"}, PCI, rules) == (1,)
    assert located("other.example.com", attributes, PCI, rules) == (1,)


def test_devices_of_slices_are_devices_of_the_record() -> None:
    listed = [DynamicDevice(DRIVER, "n", "g0", {f"{STANDARD}/numaNode": 1}), DynamicDevice(DRIVER, "n", "g1")]
    assert dynamic_devices(listed) == {DRIVER: (Device("n/g0", (1,)), Device("n/g1"))}


def test_containers_hold_what_they_use_of_a_claim_and_administrators_hold_nothing() -> None:
    def given(request: str, name: str, *, admin: bool = False) -> ClaimedDevice:
        return ClaimedDevice(request, DRIVER, "n", name, admin)

    claims = {
        "shared": ResourceClaim(
            "d", "shared", devices=(given("a", "g0"), given("b/fast", "g1"), given("c", "g2", admin=True))
        ),
    }
    uses = {"all": ClaimUse("shared"), "one": ClaimUse("shared", "b"), "none": ClaimUse("other")}
    pod = Pod("u", "web", "d", tuple(Container(name, claims=(use,)) for name, use in uses.items()))
    assert claimed_devices(pod, claims) == {
        "all": {DRIVER: frozenset({"n/g0", "n/g1"})},
        "one": {DRIVER: frozenset({"n/g1"})},
    }
