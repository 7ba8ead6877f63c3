"""PCI devices with class, NUMA node and PCIe root: in ``mooring topology`` and in the picture of a node."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import pytest
from tests.cli.command import mooring

MACHINES = Path(__file__).resolve().parents[3] / "shared/machines"
NAME = "32em64t-2n8c+dax+nvme+mic+dimms"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return the recorded machine with its PCI devices below the roots of its two sockets."""
    if not MACHINES.is_dir():
        pytest.skip("the recorded machines are not here")
    with tarfile.open(MACHINES / NAME / f"{NAME}.tar.gz") as archive:
        archive.extractall(tmp_path / "m", filter="data")
    (root,) = (path.parent for path in (tmp_path / "m").rglob("sys") if path.is_dir())
    links = root / "sys/bus/pci/devices"
    links.mkdir(parents=True)
    for address, told in json.loads((MACHINES / NAME / "pci-devices.json").read_bytes()).items():
        place = f"devices/pci0000:{'80' if address[5:7] >= '80' else '00'}/{address}"
        (root / "sys" / place).mkdir(parents=True)
        for file in ("class", "vendor", "device", "numa_node"):
            (root / "sys" / place / file).write_text(f"{told[file]}\n", encoding="utf-8")
        (links / address).symlink_to(f"../../../{place}")
    return root


def test_the_text_lists_what_pods_are_given_by_node_and_root(machine: Path) -> None:
    text = mooring("topology", "--machine", machine).out
    rows = [line.split() for line in text.partition("Devices on the PCI bus")[2].splitlines()]
    assert ["NIC", "0000:82:00.0", "1", "pci0000:80", "15b3:1003"] in rows
    assert ["co-processor", "0000:83:00.0", "1", "pci0000:80", "8086:225c"] in rows
    assert ["NVMe", "0000:00:02.0", "unknown", "pci0000:00", "8086:0953"] in rows


def test_the_document_has_every_device(machine: Path) -> None:
    devices = mooring("topology", "--machine", machine, "-o", "json").document["pciDevices"]
    recorded = json.loads((MACHINES / NAME / "pci-devices.json").read_bytes())
    assert {one["address"] for one in devices} == recorded.keys()
    assert {one["kind"] for one in devices} == {"", "NIC", "NVMe", "VGA", "co-processor"}
    assert {one["pcieRoot"] for one in devices} == {"pci0000:00", "pci0000:80"}


def test_a_collected_archive_has_the_same_devices(machine: Path, tmp_path: Path) -> None:
    packed = tmp_path / "node.tar.gz"
    assert mooring("collect", "--root", machine, "--no-kubectl", "--to", packed).code == 0
    of_archive = mooring("topology", "--machine", packed, "-o", "json").document["pciDevices"]
    assert of_archive == mooring("topology", "--machine", machine, "-o", "json").document["pciDevices"]


def test_the_picture_has_devices_below_their_root_in_the_box_of_their_node(machine: Path, tmp_path: Path) -> None:
    pods = tmp_path / "pod.yaml"
    pods.write_text("{kind: Pod, metadata: {name: a}, spec: {containers: [{name: c}]}}", encoding="utf-8")
    drawn = mooring("show", "--machine", machine, "-f", pods).out
    near, far = (" ".join(line[start : start + 36] for line in drawn.splitlines()[3:12]) for start in (0, 38))
    assert "NIC · pci0000:00" in near
    assert "02:00.0" in near
    assert "co-processor · pci0000:80" in far
    picture = mooring("show", "--machine", machine, "-f", pods, "-o", "svg").out
    assert "NIC 0000:82:00.0 · PCIe root pci0000:80 · NUMA node 1 · not offered to pods" in picture
