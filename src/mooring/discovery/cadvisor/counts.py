"""Counts of sockets and cores, vendor and clock speed: from ``/proc/cpuinfo`` first, from sysfs else.

Source: cAdvisor library 0.60.5, machine (GetSockets, GetPhysicalCores, GetBooks, GetClockSpeed) and utils/sysfs
(GetUniqueCPUPropertyCount); spec: topology.md section 3.6.
"""

from __future__ import annotations

import math
import re
from typing import Final

from mooring.core.gotext import quote
from mooring.discovery.cadvisor.gonumbers import UINT64_MAX, scan_uint, trim
from mooring.discovery.cadvisor.probe import CPUS, OnlineCPUs, ProbeError, cpu_entries, read_or_fail
from mooring.discovery.tree import Tree

_VENDOR: Final = re.compile(r"vendor_id[\t\n\f\r ]*:[\t\n\f\r ]*([0-9A-Za-z_]+)")
_CLOCK_MHZ: Final = re.compile(r"(?:cpu MHz|CPU MHz|clock)[\t\n\f\r ]*:[\t\n\f\r ]*([0-9]+\.[0-9]+)(?:MHz)?")
_FASTEST_KHZ: Final = f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq"
_CPU_NUMBER: Final = re.compile("cpu([0-9]+)")
_CLOCKLESS: Final = ("mips64", "390", "aarch64", "arm", "riscv64")
"""Parts of architecture names for which cAdvisor accepts that nothing tells the clock speed."""

_CPUINFO_NAMES: Final = {
    "physical_package_id": "physical id",
    "core_id": "core id",
    "book_id": "book id",
    "drawer_id": "drawer id",
}
"""sysfs attribute -> the name of the same thing in ``/proc/cpuinfo``."""


def vendor(cpuinfo: str) -> str:
    """Return the first ``vendor_id``, or "" when there is none."""
    match = _VENDOR.search(cpuinfo)
    return match[1] if match else ""


def distinct_elements(tree: Tree, cpuinfo: str, online: OnlineCPUs, attribute: str) -> int:
    """Count sockets, cores, books or drawers.

    Lines of ``/proc/cpuinfo`` are compared as text and over the whole machine: cores of different sockets with the same
    id count once, which is why cAdvisor's number of physical cores is too small on most multi-socket machines. Only
    where cpuinfo has no such line, sysfs is asked: online CPUs, pairs of the attribute and the package id, a missing
    file counting as 0.

    Args:
        tree: Files of the machine.
        cpuinfo: Text of ``/proc/cpuinfo``.
        online: CPUs that count.
        attribute: ``physical_package_id``, ``core_id``, ``book_id`` or ``drawer_id``.
    """
    line = rf"^{_CPUINFO_NAMES[attribute]}[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$"
    found = len(set(re.findall(line, cpuinfo, re.MULTILINE)))
    return found or _distinct_in_sysfs(tree, online, attribute)


def _distinct_in_sysfs(tree: Tree, online: OnlineCPUs, attribute: str) -> int:
    seen: set[tuple[str, str]] = set()
    for name in cpu_entries(tree, CPUS):
        number = _CPU_NUMBER.match(name)
        if number is None:
            return 0
        if int(number[1][-20:]) not in online:
            continue
        folder = f"{CPUS}/{name}/topology"
        value, package = (tree.read(f"{folder}/{file}") for file in (attribute, "physical_package_id"))
        seen.add(("0" if value is None else trim(value), "0" if package is None else trim(package)))
    return len(seen)


def clock_speed(tree: Tree, cpuinfo: str, machine: str) -> int:
    """Return the highest clock speed in kHz.

    Args:
        tree: Files of the machine.
        cpuinfo: Text of ``/proc/cpuinfo``.
        machine: Architecture as ``uname -m`` says it.

    Raises:
        ProbeError: neither cpufreq nor cpuinfo tells, on an architecture where one should; the whole description fails
        then.
    """
    if tree.exists(_FASTEST_KHZ):
        text = read_or_fail(tree, _FASTEST_KHZ)
        fastest = scan_uint(text)
        if fastest is None:
            raise ProbeError(f"could not parse frequency {quote(text)}")
        return fastest
    if any(part in machine for part in _CLOCKLESS):
        return 0
    match = _CLOCK_MHZ.search(cpuinfo)
    if match is None:
        raise ProbeError(f"could not detect clock speed from output: {quote(cpuinfo)}")
    megahertz = float(match[1])
    if math.isinf(megahertz):
        raise ProbeError(f"strconv.ParseFloat: parsing {quote(match[1])}: value out of range")
    kilohertz = megahertz * 1000
    return int(kilohertz) if kilohertz <= UINT64_MAX else 0
