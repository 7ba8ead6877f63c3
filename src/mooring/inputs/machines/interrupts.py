"""Interrupts as the files of a machine show them, and the PCI devices that raise them with their NUMA nodes.

Source: kernel Documentation/core-api/irq/irq-affinity.rst, Documentation/ABI/testing/sysfs-kernel-irq and
sysfs-bus-pci (class, vendor, device, numa_node; -1 is "unknown"); kernel/irq/proc.c and debugfs.c.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import Final

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet, CPUSetSyntaxError
from mooring.engine.core.machine import PCIDevice
from mooring.engine.extensions.interrupts import Interrupt
from mooring.inputs.machines.kernelfiles import read_mask
from mooring.inputs.machines.tree import PCI_DEVICES, Tree

IRQ: Final = "proc/irq"
DEFAULT: Final = f"{IRQ}/default_smp_affinity"
"""Where interrupts begin that are set up later."""
_LINES: Final = "sys/kernel/irq"
_DEBUG: Final = "sys/kernel/debug/irq/irqs"
"""Only where debugfs is mounted and the kernel has CONFIG_GENERIC_IRQ_DEBUGFS."""
_CHIP_ADDRESS: Final = re.compile(r"PCI-MSIX?-([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])")
"""How newer kernels name the chip of a device's interrupts."""

Modes = Callable[[str], int | None]
"""Path below the root -> mode of the file; None when it is not known."""


def file_modes(root: str) -> Modes:
    """Return how to read modes of files below a folder, where kernels since 6.13 show what takes no write."""

    def mode(path: str) -> int | None:
        try:
            return os.stat(f"{root.rstrip('/')}/{path}").st_mode  # noqa: PTH116 - called for every interrupt
        except OSError:
            return None

    return mode


def no_modes(_path: str) -> int | None:
    """Know no modes: those of an archive are not a kernel's."""
    return None


def read_interrupts(tree: Tree, modes: Modes = no_modes) -> tuple[Interrupt, ...] | None:
    """Return the interrupts of a machine by number; None when its files do not tell.

    Args:
        tree: of the machine.
        modes: tell what takes no write.
    """
    return tuple(_interrupts(tree, modes)) if tree.is_dir(IRQ) else None


def cpus_of_mask(tree: Tree, path: str) -> CPUSet | None:
    """Return the CPUs of a mask file, such as :data:`DEFAULT`; None when there is none that can be read."""
    mask = read_mask(tree, path)
    return None if mask is None else CPUSet(CPUMask(mask))


def _interrupts(tree: Tree, modes: Modes) -> Iterator[Interrupt]:
    # The table has a column for every CPU: large machines pay dearly for what small files tell as well.
    text = "" if tree.is_dir(_LINES) else tree.read("proc/interrupts") or ""
    table = {int(number): (" ".join(words[:-1]), words[-1] if words else "") for number, words in numbered_lines(text)}
    # Of message-signalled interrupts: lines of older devices are shared and say nothing.
    devices = {
        int(number): address
        for address in tree.names(PCI_DEVICES)
        for number in tree.names(f"{PCI_DEVICES}/{address}/msi_irqs")
        if number.isdecimal()
    }
    shows_state = tree.is_dir(_DEBUG)
    for entry in sorted((name for name in tree.names(IRQ) if name.isdecimal()), key=int):
        path, number = f"{IRQ}/{entry}/smp_affinity_list", int(entry)
        allowed = cpu_list(tree.read(path))
        if not allowed:
            continue
        told = ((tree.read(f"{_LINES}/{entry}/{file}") or "").strip() for file in ("chip_name", "actions"))
        chip, name = table.get(number) or told
        on_chip = _CHIP_ADDRESS.search(chip)
        mode = modes(path)
        managed = (mode is not None and not mode & 0o222) or (
            shows_state and "IRQD_AFFINITY_MANAGED" in (tree.read(f"{_DEBUG}/{entry}") or "")
        )
        effective = cpu_list(tree.read(f"{IRQ}/{entry}/effective_affinity_list"))
        device = devices.get(number) or (on_chip[1] if on_chip else "")
        yield Interrupt(number, name, allowed, effective or None, device, managed)


def numbered_lines(text: str) -> Iterator[tuple[str, list[str]]]:
    r"""Yield the numbers of ``/proc/interrupts`` with what is behind the counts: the chip, its words, and the devices.

    >>> list(numbered_lines("     CPU0\n 24:   17  PCI-MSI 1-edge  nvme0q1\nNMI:   0  Non-maskable\n"))
    [('24', ['PCI-MSI', '1-edge', 'nvme0q1'])]
    """
    heading, _, rest = text.partition("\n")
    for line in rest.splitlines():
        number, _, told = line.partition(":")
        if number.strip().isdecimal():
            yield number.strip(), told.split()[len(heading.split()) :]


def cpu_list(text: str | None) -> CPUSet | None:
    """Return the CPUs of a list; None for no text, or one that is no list."""
    if text is None:
        return None
    try:
        return CPUSet.parse(text.strip())
    except CPUSetSyntaxError:
        return None


_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", re.ASCII)
_HEX = re.compile(r"0x([0-9a-fA-F]+)", re.ASCII)
_NUMBER = re.compile(r"-0+|[0-9]{1,9}", re.ASCII)


def read_pci_devices(tree: Tree) -> tuple[PCIDevice, ...]:
    """Return the PCI devices of a tree by address; those whose class cannot be read are left out."""
    found = []
    for address in tree.names(PCI_DEVICES):
        if not _ADDRESS.fullmatch(address):
            continue
        folder = f"{PCI_DEVICES}/{address}"
        class_code = _hex(tree.read(f"{folder}/class"), 6)
        if class_code:
            vendor, device = _hex(tree.read(f"{folder}/vendor"), 4), _hex(tree.read(f"{folder}/device"), 4)
            text = tree.read(f"{folder}/numa_node")
            text = (text or "").strip()
            node = int(text) if _NUMBER.fullmatch(text) else None
            root = pcie_root(tree.place(folder) or "")
            found.append(PCIDevice(address, class_code, vendor, device, node, root))
    return tuple(found)


def pcie_root(path: str) -> str:
    """Return the PCIe root in the path of a device below ``sys/devices``; empty when none is in it.

    >>> pcie_root("sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"), pcie_root("sys/bus/pci/devices/0000:3b:00.0")
    ('pci0000:3a', '')
    """
    # A host bridge that is no PCI device itself, such as that of a virtual machine, stands before the root.
    return next((part for part in path.split("/") if _ROOT.fullmatch(part)), "")


def _hex(text: str | None, digits: int) -> str:
    match = _HEX.fullmatch((text or "").strip())
    return match.group(1).lower().rjust(digits, "0") if match else ""
