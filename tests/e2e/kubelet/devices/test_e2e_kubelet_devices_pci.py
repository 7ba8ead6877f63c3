"""Devices of which the driver says the PCI address or the PCIe root, and no NUMA node: the agent finds the node."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.cases import Case
from tests.e2e.kubelet.claiming import CLAIMS
from tests.e2e.kubelet.decided import Played, Playing
from tests.e2e.kubelet.devices.cases import COUNT, FOUR_NODES
from tests.e2e.kubelet.devices.driver import Attributes, claim_for, request_of
from tests.e2e.kubelet.devices.settings import DRIVERS, alignment, device_node

from mooring.engine.devicemanager.state import Device
from mooring.inputs.machines.loader import load_machine

GPUS = alignment.devices_on(load_machine(FOUR_NODES))[alignment.GPU]
BUSES = {device.id: 0x10 + number for number, device in enumerate(GPUS)}


def attributes(device: Device) -> Attributes:
    """Return the PCI address of every second GPU, the PCIe root of the others, and nothing of other devices."""
    bus = BUSES.get(device.id)
    if bus is None:
        return {}
    if bus % 2:
        return {"resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{bus:02x}"}}
    return {"resource.kubernetes.io/pciBusID": {"string": f"0000:{bus:02x}:00.0"}}


def with_bus(folder: Path) -> Path:
    """Write the GPUs as PCI devices into the files of a machine: each has a root of its own."""
    for device in GPUS:
        root, address = f"pci0000:{BUSES[device.id]:02x}", f"0000:{BUSES[device.id]:02x}:00.0"
        place, links = folder / "sys/devices" / root / address, folder / "sys/bus/pci/devices"
        place.mkdir(parents=True)
        links.mkdir(parents=True, exist_ok=True)
        assert device.numa is not None
        for name, text in {"class": "0x030200", "numa_node": str(device.numa[0])}.items():
            (place / name).write_text(f"{text}\n", encoding="ascii")
        (links / address).symlink_to(f"../../../devices/{root}/{address}")
    return folder


def test_cpus_and_memory_are_beside_devices_of_which_only_the_bus_tells_the_numa_node(
    api: APIServer, kube: Any, playing: Playing, played: Played, tmp_path: Path
) -> None:
    def with_gpus(case: Case) -> Path:
        copied = tmp_path / case.name
        shutil.copytree(played(case), copied, symlinks=True)
        return with_bus(copied)

    setting = alignment.Setting.AGENT_CLAIMS
    with device_node(api, kube, playing, with_gpus, FOUR_NODES, setting, attributes=attributes) as node:
        found: dict[str, set[int]] = {}
        for number in range(COUNT):
            name = f"pod-{number}"
            api.post(CLAIMS, claim_for(name, request_of("gpu", DRIVERS[alignment.GPU].replace(".", "-"))))
            made = node.arrive_as(node.sharing(name, name, 1))
            assert node.runs(made), name
            [gpu] = node.held(made)["app0"][alignment.GPU]
            [found[gpu]] = [node.numa_nodes(made)["app0"]]
        assert found == {device.id: set(device.numa or ()) for device in GPUS}
