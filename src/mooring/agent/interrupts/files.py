"""The kernel's files about interrupts, below a root that tests choose, with the kernel's "no" as a type.

Source: kernel/irq/proc.c (write_irq_affinity, default_affinity_write): EIO for an interrupt that the kernel manages,
EINVAL for a set without a CPU that is online, ENOSPC where a CPU has no vector left.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from enum import Enum

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.extensions.interrupts import NEW, NEW_NAME, Interrupt
from mooring.inputs.machines.files import FolderTree, LiveTree
from mooring.inputs.machines.interrupts import (
    DEFAULT,
    IRQ,
    cpu_list,
    file_modes,
    read_interrupts,
    read_new_interrupts,
)
from mooring.inputs.machines.isolation import IRQBalance, KernelWords, kernel_words, read_balance
from mooring.inputs.machines.tree import Tree

BOOT = "proc/sys/kernel/random/boot_id"
_ONLINE = "sys/devices/system/cpu/online"


class InterruptTrouble(Enum):
    """Why a write came to nothing; the value is the name in logs and metrics."""

    GONE = "gone"
    """There is no such interrupt any more."""
    MANAGED = "managed"
    """The kernel places it itself. It will say so every time."""
    UNWRITABLE = "unwritable"
    """The agent may not write there at all: the files are read-only to it."""
    REFUSED = "refused"
    """The kernel does not take this set."""


_OF_OPEN = {errno.ENOENT: InterruptTrouble.GONE, errno.ENOTDIR: InterruptTrouble.GONE}
_OF_WRITE = {
    errno.EIO: InterruptTrouble.MANAGED,
    errno.EPERM: InterruptTrouble.MANAGED,
    errno.ENOENT: InterruptTrouble.GONE,
}


@dataclass(frozen=True, slots=True)
class InterruptsFound:
    """What there is at one moment."""

    interrupts: tuple[Interrupt, ...]
    """Under :data:`~mooring.engine.extensions.interrupts.NEW` where new ones begin."""
    online: CPUSet


@dataclass(frozen=True, slots=True)
class BalanceFound:
    """The service that moves interrupts, and the kernel's boot parameters for it."""

    service: IRQBalance | None
    words: KernelWords | None


class IRQFiles:
    """Reads and writes the affinities of one machine."""

    def __init__(self, root: str = "/") -> None:
        """Look at nothing yet.

        Args:
            root: folder that stands for ``/``.
        """
        self.root = root

    def boot(self) -> str:
        """Return what tells one boot from another; empty when nothing does."""
        return (self._tree().read(BOOT) or "").strip()

    def read(self) -> InterruptsFound:
        """Return the interrupts as they are now; none where there is no /proc/irq."""
        tree = self._tree()
        found = read_interrupts(tree, file_modes(self.root)) or ()
        beginning = read_new_interrupts(tree)
        if beginning:
            found = (Interrupt(NEW, NEW_NAME, beginning, None), *found)
        return InterruptsFound(found, cpu_list(tree.read(_ONLINE)) or CPUSet())

    def balance(self, online: CPUSet) -> BalanceFound:
        """Return what is known of irqbalance; reads every process."""
        tree = self._tree()
        line = tree.read("proc/cmdline")
        return BalanceFound(read_balance(tree), kernel_words(line, online) if line is not None else None)

    def shown(self, number: int) -> CPUSet | None:
        """Return what an interrupt may use now; None when it is gone."""
        tree = self._tree()
        return read_new_interrupts(tree) if number == NEW else cpu_list(tree.read(_path(number)))

    def write(self, number: int, cpus: CPUSet) -> InterruptTrouble | None:
        """Let an interrupt use these CPUs; return why it does not, None when it does."""
        text = mask_text(cpus) if number == NEW else str(cpus)
        try:
            descriptor = os.open(f"{self.root.rstrip('/')}/{_path(number)}", os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        except OSError as error:
            return _OF_OPEN.get(error.errno or 0, InterruptTrouble.UNWRITABLE)
        try:
            os.write(descriptor, f"{text}\n".encode("ascii"))
        except OSError as error:
            return _OF_WRITE.get(error.errno or 0, InterruptTrouble.REFUSED)
        finally:
            os.close(descriptor)
        return None

    def _tree(self) -> Tree:
        return LiveTree() if self.root == "/" else FolderTree(self.root, is_root_directory=True)


def mask_text(cpus: CPUSet) -> str:
    """Return a set as the kernel reads masks: words of 32 bits in hexadecimal, the highest first.

    >>> mask_text(CPUSet.parse("0-3,32"))
    '00000001,0000000f'
    """
    digits = f"{cpus.mask:x}"
    digits = digits.zfill(-(-len(digits) // 8) * 8)
    return ",".join(digits[at : at + 8] for at in range(0, len(digits), 8))


def _path(number: int) -> str:
    return DEFAULT if number == NEW else f"{IRQ}/{number}/smp_affinity_list"
