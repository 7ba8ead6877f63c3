"""Devices of device plugins: listed by hand, or chosen from the machine's PCI devices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import PCIDevice
from mooring.engine.devicemanager.state import Device
from mooring.inputs.configuration.devices import declared_devices, offered_devices
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.compact import parse_compact

MACHINE = parse_compact("cores=2")
GPU = PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 0)
FAR_GPU = PCIDevice("0000:af:00.0", "030200", "10de", "2330", None)
NIC = PCIDevice("0000:5e:00.0", "020000", "15b3", "1021", 1)


def document(devices: Any) -> dict[str, Any]:
    return {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": devices}


def test_listed_devices_keep_their_nodes_and_health() -> None:
    items = [{"id": "a", "numa": [0, 1]}, {"id": "b", "numa": None}, {"id": "c", "unhealthy": True}]
    declared, _ = declared_devices(document({"example/x": items}), source="d.yaml")
    assert offered_devices(declared, replace(MACHINE, pci=())) == {
        "example/x": (Device("a", (0, 1)), Device("b"), Device("c", healthy=False)),
    }


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({"class": "0302"}, [GPU, FAR_GPU]),
        ({"class": "0x02"}, [NIC]),
        ({"vendor": "10DE", "device": "2330"}, [GPU, FAR_GPU]),
        ({"vendor": "15b3", "class": "03"}, []),
    ],
)
def test_pci_devices_are_chosen_by_class_vendor_and_device(selector: dict[str, str], chosen: list[PCIDevice]) -> None:
    declared, _ = declared_devices(document({"example/x": {"pci": selector}}), source="d.yaml")
    offered = offered_devices(declared, replace(MACHINE, pci=(GPU, FAR_GPU, NIC)))["example/x"]
    assert [device.id for device in offered] == [found.address for found in chosen]
    assert [device.numa for device in offered] == [None if found.numa is None else (found.numa,) for found in chosen]


@pytest.mark.parametrize(("devices", "field"), cases(__file__, "refused-devices.yaml", "devices", "field"))
def test_bad_declarations_are_refused_by_field(devices: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        declared_devices(document(devices), source="d.yaml")
    assert caught.value.field == field
    assert caught.value.source == "d.yaml"


def test_a_configuration_may_bring_its_devices_along(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(
        "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n---\n"
        "apiVersion: mooring/v1alpha1\nkind: NodeDevices\ndevices:\n  example/x:\n  - {id: a, numa: [1]}\n"
    )
    assert load_config(file).devices == {"example/x": (Device("a", (1,)),)}
