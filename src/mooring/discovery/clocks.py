"""Clocks and capacities of CPUs, as far as they tell kinds of cores apart.

Source: kernel Documentation/admin-guide/pm/cpufreq.rst (cpuinfo_max_freq), intel_pstate.rst (base_frequency),
acpi/cppc_sysfs.rst (nominal_freq), ABI/testing/sysfs-devices-system-cpu (cpu_capacity); hwloc 2.14 for the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from mooring.core.bits import members
from mooring.discovery.cores import CPUS
from mooring.discovery.kernelfiles import read_uint
from mooring.discovery.tree import Tree

_TOLERANCE_PERCENT: Final = 10
"""Highest clocks of cores with one base clock may differ by less than this and still mean one kind."""


@dataclass(frozen=True, slots=True)
class Clocks:
    """Figures of one CPU; 0 is unknown."""

    highest: int = 0
    """Highest clock in kHz that the hardware reaches."""
    base: int = 0
    """Clock in kHz that the hardware sustains."""
    capacity: int = 0
    """Relative speed; the fastest CPU of a machine has 1024."""


def read_clocks(tree: Tree, online: int) -> dict[int, Clocks]:
    """Read the figures of every online CPU, with favoured cores of one kind made equal.

    The base clock comes from intel_pstate; ACPI's nominal clock stands in only where the first CPU does not have that
    file, since it is wrong on several Intel processors. Processors with Turbo Boost Max 3.0 let some of their equal
    cores clock higher: where every CPU tells a base clock, small differences among equal base clocks are levelled.
    """
    clocks: dict[int, Clocks] = {}
    nominal: bool | None = None  # not decided yet
    for cpu in members(online):
        folder = f"{CPUS}/cpu{cpu}"
        has_folder = tree.is_dir(f"{folder}/cpufreq")
        base = read_uint(tree, f"{folder}/cpufreq/base_frequency") if has_folder and nominal is not True else None
        if base is not None:
            nominal = False
        if nominal is not False:
            nominal_mhz = read_uint(tree, f"{folder}/acpi_cppc/nominal_freq") or 0
            nominal = nominal_mhz > 0
            base = nominal_mhz * 1000
        highest = read_uint(tree, f"{folder}/cpufreq/cpuinfo_max_freq") if has_folder else None
        capacity = read_uint(tree, f"{folder}/cpu_capacity")
        clocks[cpu] = Clocks(highest or 0, base or 0, capacity or 0)
    if all(clock.base for clock in clocks.values() if clock.highest):
        return _levelled(clocks)
    return clocks


def _levelled(clocks: dict[int, Clocks]) -> dict[int, Clocks]:
    """Give CPUs of one base clock the lowest of their highest clocks and capacities, if those clocks are close."""
    lowest: dict[int, Clocks] = {}
    for base in {clock.base for clock in clocks.values()}:
        alike = [clock for clock in clocks.values() if clock.base == base]
        low, high = min(clock.highest for clock in alike), max(clock.highest for clock in alike)
        if low < high and (high - low) * 100 < _TOLERANCE_PERCENT * low:
            lowest[base] = Clocks(low, base, min(clock.capacity for clock in alike))
    return {cpu: lowest.get(clock.base, clock) for cpu, clock in clocks.items()}
