"""PCIe roots and the CPUs near them, from sysfs."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mooring.core.cpuset import CPUSet, CPUSetSyntaxError


def pcie_roots(sysfs: Path = Path("/sys")) -> dict[str, int]:
    """Return the PCIe roots of this machine with the masks of their local CPUs; those that name none are left out."""
    found: dict[str, int] = {}
    for root in sorted((sysfs / "devices").glob("pci????:??")):
        bus = root / "pci_bus" / root.name.removeprefix("pci") / "cpulistaffinity"
        with suppress(OSError, CPUSetSyntaxError, UnicodeDecodeError):
            local = CPUSet.parse(bus.read_text(encoding="ascii").strip()).mask
            if local:
                found[root.name] = local
    return found
