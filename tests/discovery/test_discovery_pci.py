"""PCI devices: address, class, vendor, device, NUMA node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from mooring.engine.core.machine import PCIDevice
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.loader import machine_of

MACHINES = Path(__file__).resolve().parents[3] / "shared/machines"
DEVICES = "sys/bus/pci/devices"
CPU = "sys/devices/system/cpu/cpu0/topology"


def devices_of(files: Mapping[str, bytes], links: Mapping[str, str] | None = None) -> tuple[PCIDevice, ...]:
    return machine_of(
        ArchiveTree("test", {f"{CPU}/core_id": b"0\n", f"{CPU}/thread_siblings": b"1\n", **files}, links)
    ).pci


def found(**files: str) -> tuple[PCIDevice, ...]:
    gpu = {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n", "numa_node": "1\n"}
    gpu.update(files)
    return devices_of({f"{DEVICES}/0000:3b:00.0/{name}": text.encode() for name, text in gpu.items()})


def test_a_device_has_its_ids_without_the_prefix_and_its_node() -> None:
    assert found() == (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1),)


def test_minus_one_and_nonsense_mean_that_the_node_is_unknown() -> None:
    for text in ("-1\n", "", "many\n", "99999999999\n"):
        assert found(numa_node=text)[0].numa is None


def test_a_device_without_a_readable_class_is_left_out() -> None:
    assert found(**{"class": "broken"}) == ()


def test_a_machine_without_a_bus_has_no_devices() -> None:
    assert devices_of({}) == ()


@pytest.mark.parametrize(
    ("place", "root"),
    [
        ("sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", "pci0000:3a"),
        ("sys/devices/LNXSYSTM:00/pci0001:00/0000:3b:00.0", "pci0001:00"),
    ],
    ids=["root", "host bridge of a platform"],
)
def test_a_device_knows_its_root_by_the_folder_that_it_is_linked_to(place: str, root: str) -> None:
    files = {f"{place}/class": b"0x030200\n", f"{place}/numa_node": b"1\n"}
    links = {f"{DEVICES}/0000:3b:00.0": f"../../../{place.removeprefix('sys/')}"}
    assert devices_of(files, links) == (PCIDevice("0000:3b:00.0", "030200", "", "", 1, root),)


def test_classes_have_words_for_what_pods_are_given() -> None:
    words = {
        code: PCIDevice("a", code, "", "", None).kind for code in ("030200", "038000", "020700", "010802", "120000")
    }
    assert words == {"030200": "GPU", "038000": "GPU", "020700": "NIC", "010802": "NVMe", "120000": "accelerator"}
    assert PCIDevice("a", "060400", "", "", None).kind == ""


@pytest.mark.parametrize("name", ["40intel64-2g2n4c+pcilocality", "fakepcilocalities"])
def test_recorded_machines_give_each_device_its_node_and_its_root(name: str) -> None:
    recording = MACHINES / name / "pci-devices.json"
    if not recording.exists():
        pytest.skip("the recorded machines are not here")
    recorded = json.loads(recording.read_bytes())
    # The recordings have no links: buses that no bridge of these machines leads to begin at a root of their own.
    roots = {address: f"pci{address[:4]}:{'00' if address[5] < '4' else address[5] + '0'}" for address in recorded}
    files, links = {}, {}
    for address, told in recorded.items():
        place = f"devices/{roots[address]}/{address}"
        links[f"{DEVICES}/{address}"] = f"../../../{place}"
        for file in ("class", "vendor", "device", "numa_node"):
            files[f"sys/{place}/{file}"] = f"{told[file]}\n".encode()
    read = {device.address: device for device in devices_of(files, links)}
    assert {address: device.root for address, device in read.items()} == roots
    assert {address: -1 if device.numa is None else device.numa for address, device in read.items()} == {
        address: int(told["numa_node"]) for address, told in recorded.items()
    }
    assert "NIC" in {device.kind for device in read.values()}
