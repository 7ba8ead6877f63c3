"""PCI devices and their NUMA nodes.

Source: the kernel's Documentation/ABI/testing/sysfs-bus-pci (class, vendor, device, numa_node; -1 is "unknown").
"""

from __future__ import annotations

import re

from mooring.core.machine import PCIDevice
from mooring.discovery.tree import Tree

DEVICES = "sys/bus/pci/devices"
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_HEX = re.compile(r"0x([0-9a-fA-F]+)", re.ASCII)
_NUMBER = re.compile(r"-?[0-9]{1,9}", re.ASCII)


def read_pci_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI devices of a tree by address; those whose class cannot be read are left out."""
    found = []
    for address in tree.names(DEVICES):
        if not _ADDRESS.fullmatch(address):
            continue
        folder = f"{DEVICES}/{address}"
        class_code = _hex(tree.read(f"{folder}/class"), 6)
        if class_code:
            vendor, device = _hex(tree.read(f"{folder}/vendor"), 4), _hex(tree.read(f"{folder}/device"), 4)
            found.append(PCIDevice(address, class_code, vendor, device, _node(tree.read(f"{folder}/numa_node"))))
    return tuple(found)


def _hex(text: str | None, digits: int) -> str:
    match = _HEX.fullmatch((text or "").strip())
    return match.group(1).lower().rjust(digits, "0") if match else ""


def _node(text: str | None) -> int | None:
    text = (text or "").strip()
    if not _NUMBER.fullmatch(text):
        return None
    node = int(text)
    return node if node >= 0 else None
