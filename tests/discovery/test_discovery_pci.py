"""PCI devices: address, class, vendor, device, NUMA node."""

from __future__ import annotations

from mooring.core.machine import PCIDevice
from mooring.discovery.archive import ArchiveTree
from mooring.discovery.interrupts import DEVICES, read_pci_devices


def tree(**files: str) -> ArchiveTree:
    gpu = {"class": "0x030200\n", "vendor": "0x10de\n", "device": "0x2330\n", "numa_node": "1\n"}
    gpu.update(files)
    return ArchiveTree("test", {f"{DEVICES}/0000:3b:00.0/{name}": text.encode() for name, text in gpu.items()})


def test_a_device_has_its_ids_without_the_prefix_and_its_node() -> None:
    assert read_pci_devices(tree()) == (PCIDevice("0000:3b:00.0", "030200", "10de", "2330", 1),)


def test_minus_one_and_nonsense_mean_that_the_node_is_unknown() -> None:
    for text in ("-1\n", "", "many\n", "99999999999\n"):
        assert read_pci_devices(tree(numa_node=text))[0].numa is None


def test_a_device_without_a_readable_class_is_left_out() -> None:
    assert read_pci_devices(tree(**{"class": "broken"})) == ()


def test_a_machine_without_a_bus_has_no_devices() -> None:
    assert read_pci_devices(ArchiveTree("test", {"proc/meminfo": b""})) == ()
