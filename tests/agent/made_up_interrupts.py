"""A machine's files about interrupts, made of plain files: what is written into one is in force at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DEFAULT = "proc/irq/default_smp_affinity"


@dataclass(frozen=True, slots=True)
class MadeUpInterrupts:
    root: Path

    def put(self, path: str, text: str) -> None:
        """Make a file, or put another in its place in one step."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_name(f".{file.name}.new")
        new.write_text(f"{text}\n")
        new.replace(file)

    def add(self, number: int, name: str, allowed: str = "0-7", device: str = "") -> None:
        """Add an interrupt, of a PCI device or of none."""
        self.put(f"proc/irq/{number}/smp_affinity_list", allowed)
        self.put(f"sys/kernel/irq/{number}/actions", name)
        if device:
            self.put(f"sys/bus/pci/devices/{device}/msi_irqs/{number}", "msix")

    def cpus(self, number: int) -> str:
        """Return what an interrupt may use; empty while it is being written."""
        return (self.root / f"proc/irq/{number}/smp_affinity_list").read_text().strip()

    def move(self, number: int, cpus: str) -> None:
        """Move an interrupt, as an administrator or irqbalance does."""
        self.put(f"proc/irq/{number}/smp_affinity_list", cpus)

    @property
    def beginning(self) -> str:
        """Where new interrupts begin, as a mask."""
        return (self.root / DEFAULT).read_text().strip()


def made_up_interrupts(root: Path, boot: str = "boot-1") -> MadeUpInterrupts:
    """Make a machine of eight CPUs with two interrupts of a network card and one of a disk."""
    made = MadeUpInterrupts(root)
    made.put("sys/devices/system/cpu/online", "0-7")
    made.put("proc/sys/kernel/random/boot_id", boot)
    made.put(DEFAULT, "ff")
    made.add(24, "eth0-rx", device="0000:03:00.1")
    made.add(25, "eth0-tx", "2", device="0000:03:00.1")
    made.add(26, "nvme0q0", "4-5")
    return made
