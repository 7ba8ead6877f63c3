"""The machine as the kubelet knows it: what cAdvisor reads from sysfs and /proc, gaps and mistakes included.

Counts of sockets and cores, vendor and clock speed come from ``/proc/cpuinfo`` first, else from sysfs. Source: cAdvisor
library 0.60.5, the version in kubelet v1.37.1, machine (Info, GetSockets, GetPhysicalCores, GetBooks, GetClockSpeed)
and utils/sysfs (GetUniqueCPUPropertyCount); spec: topology.md section 3 and 3.6. No rule here knows a machine; where
cAdvisor is wrong about one, the same rule makes the same mistake.

cAdvisor behaves differently on s390x (books and drawers, caches without ids) and needs no clock speed on ARM, MIPS,
RISC-V and s390x. A kubelet knows its architecture from its own binary and from ``uname``; a snapshot tells it only by
its files.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from typing import Final

from mooring.engine.core.gotext import quote
from mooring.engine.core.machineinfo import MachineInfo, NUMANode
from mooring.inputs.machines import cadvisor_probe as probe
from mooring.inputs.machines.cadvisor_topology import TopologyReader, read_topology
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass, replace

_LONGEST_ERROR: Final = 160
"""cAdvisor quotes whole files in some errors; more than this is cut, so that an error stays one readable line."""


@dataclass(frozen=True, slots=True)
class CadvisorAnswer:
    """What cAdvisor says about a machine."""

    info: MachineInfo
    """The description; with ``info_error`` only the parts that can be had: counts, memory and topology."""
    info_error: str = ""
    """cAdvisor's error when it cannot describe the machine at all; a kubelet does not start then."""
    topology_error: str = ""
    """Why there is no topology although the description succeeds; the kubelet's managers then fail on 0 CPUs."""


def read_machine_info(tree: Tree) -> CadvisorAnswer:
    """Return the kubelet's view of the machine whose files are in ``tree``.

    Never fails for what the files hold or lack: what cAdvisor would fail on becomes ``info_error`` or
    ``topology_error``.
    """
    machine = architecture(tree)
    is_s390x = machine == "s390x"
    online = probe.online_cpus(tree)
    cpuinfo = tree.read("proc/cpuinfo") or ""
    topology: tuple[NUMANode, ...] = ()
    num_cores, memory, topology_error = 0, 0, ""
    try:
        topology, num_cores = read_topology(TopologyReader(tree, online, is_s390x=is_s390x))
    except probe.FAILURES as error:
        topology_error = _shortened(error.args[0])
    with suppress(*probe.FAILURES):
        memory = probe.memory_capacity(tree)

    def count(attribute: str) -> int:
        return _distinct_elements(tree, cpuinfo, online, attribute)

    parts = MachineInfo(
        num_cores=num_cores,
        num_sockets=count("physical_package_id"),
        memory_capacity=memory,
        topology=topology,
        num_physical_cores=count("core_id"),
        vendor_id=vendor(cpuinfo),
        num_books=count("book_id") if is_s390x else 0,
        num_drawers=count("drawer_id") if is_s390x else 0,
    )
    try:  # in this order: it decides which of several errors is reported
        info = replace(
            parts,
            cpu_frequency_khz=_clock_speed(tree, probe.read_or_fail(tree, "proc/cpuinfo"), machine),
            memory_capacity=probe.memory_capacity(tree),
            memory_by_type=probe.memory_by_type(tree),
            swap_capacity=probe.memory_capacity(tree, probe.SWAP),
            hugepages=probe.huge_pages(tree, "sys/kernel/mm/hugepages"),
        )
    except probe.FAILURES as error:
        return CadvisorAnswer(parts, info_error=_shortened(error.args[0]), topology_error=topology_error)
    return CadvisorAnswer(info, topology_error=topology_error)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_ERROR else f"{text[:_LONGEST_ERROR]}..."


_DECLARED: Final = re.compile(r"^Architecture:[ \t]*(\S+)", re.MULTILINE)
_CPUINFO_SIGNS: Final = (
    ("s390x", re.compile(r"^vendor_id\s*:\s*IBM/S390", re.MULTILINE)),
    ("ia64", re.compile(r"^arch\s*:\s*IA-64", re.MULTILINE)),
    ("x86_64", re.compile(r"^flags\s*:.*\blm\b", re.MULTILINE)),
    ("i686", re.compile(r"^(?:flags\s*:|fdiv_bug\s*:)", re.MULTILINE)),
    ("riscv64", re.compile(r"^isa\s*:\s*rv64", re.MULTILINE)),
    ("loongarch64", re.compile(r"^(?:ISA|CPU Family)\s*:\s*[Ll]oong", re.MULTILINE)),
    ("mips64", re.compile(r"^cpu model\s*:\s*(?:MIPS|Loongson|ICT|Cavium)", re.MULTILINE)),
    ("aarch64", re.compile(r"^CPU architecture\s*:\s*(?:8|9|AArch64)", re.MULTILINE)),
    ("arm", re.compile(r"^CPU (?:architecture|implementer)\s*:|^Processor\s*:\s*ARM", re.MULTILINE)),
    ("ppc64", re.compile(r"^revision\s*:.*\bpvr\b", re.MULTILINE)),
)
"""Lines that only one architecture's /proc/cpuinfo has (kernel sources, arch/*/kernel: show_cpuinfo), surest first."""


def architecture(tree: Tree) -> str:
    """Return what ``uname -m`` says on the tree's machine (such as ``x86_64``), or "" when nothing tells.

    The running machine is asked itself. A snapshot is searched in this order: the note that hwloc-gather-topology
    leaves in ``proc/hwloc-nofile-info``, lines of ``proc/cpuinfo`` that only one architecture prints, and a sysfs
    attribute that exists on s390x alone.
    """
    if tree.is_live:
        return os.uname().machine
    declared = _DECLARED.search(tree.read("proc/hwloc-nofile-info") or "")
    if declared:
        return declared[1]
    cpuinfo = tree.read("proc/cpuinfo") or ""
    for name, sign in _CPUINFO_SIGNS:
        if sign.search(cpuinfo):
            return name
    return "s390x" if tree.exists("sys/devices/system/cpu/cpu0/topology/book_id") else ""


_VENDOR: Final = re.compile(r"vendor_id[\t\n\f\r ]*:[\t\n\f\r ]*([0-9A-Za-z_]+)")
_CLOCK_MHZ: Final = re.compile(r"(?:cpu MHz|CPU MHz|clock)[\t\n\f\r ]*:[\t\n\f\r ]*([0-9]+\.[0-9]+)(?:MHz)?")
_FASTEST_KHZ: Final = f"{probe.CPUS}/cpu0/cpufreq/cpuinfo_max_freq"
_CPU_NUMBER: Final = re.compile("cpu([0-9]+)")
_CLOCKLESS: Final = ("mips64", "390", "aarch64", "arm", "riscv64")
"""Parts of architecture names for which cAdvisor accepts that nothing tells the clock speed."""


def vendor(cpuinfo: str) -> str:
    """Return the first ``vendor_id``, or "" when there is none."""
    match = _VENDOR.search(cpuinfo)
    return match[1] if match else ""


def _distinct_elements(tree: Tree, cpuinfo: str, online: int, attribute: str) -> int:
    """Count sockets, cores, books or drawers.

    Lines of ``/proc/cpuinfo`` are compared as text and over the whole machine: cores of different sockets with the same
    id count once, which is why cAdvisor's number of physical cores is too small on most multi-socket machines. Only
    where cpuinfo has no such line, sysfs is asked: online CPUs, pairs of the attribute and the package id, a missing
    file counting as 0.

    Args:
        tree: Files of the machine.
        cpuinfo: Text of ``/proc/cpuinfo``.
        online: mask of the CPUs that count.
        attribute: ``physical_package_id``, ``core_id``, ``book_id`` or ``drawer_id``.
    """
    line = rf"^{attribute.replace('_package', '').replace('_', ' ')}[\t\n\f\r ]*:[\t\n\f\r ]*[0-9]+$"
    if found := set(re.findall(line, cpuinfo, re.MULTILINE)):
        return len(found)
    seen: set[tuple[str, str]] = set()
    for name in probe.cpu_entries(tree, probe.CPUS):
        number = _CPU_NUMBER.match(name)
        if number is None:
            return 0
        if not probe.is_online(online, int(number[1][-20:])):
            continue
        folder = f"{probe.CPUS}/{name}/topology"
        value, package = (tree.read(f"{folder}/{file}") for file in (attribute, "physical_package_id"))
        seen.add(("0" if value is None else probe.trim(value), "0" if package is None else probe.trim(package)))
    return len(seen)


def _clock_speed(tree: Tree, cpuinfo: str, machine: str) -> int:
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
        text = probe.read_or_fail(tree, _FASTEST_KHZ)
        fastest = probe.scan_uint(text)
        if fastest is None:
            raise probe.ProbeError(f"could not parse frequency {quote(text)}")
        return fastest
    if any(part in machine for part in _CLOCKLESS):
        return 0
    match = _CLOCK_MHZ.search(cpuinfo)
    if match is None:
        raise probe.ProbeError(f"could not detect clock speed from output: {quote(cpuinfo)}")
    megahertz = float(match[1])
    if math.isinf(megahertz):
        raise probe.ProbeError(f"strconv.ParseFloat: parsing {quote(match[1])}: value out of range")
    kilohertz = megahertz * 1000
    return int(kilohertz) if kilohertz <= probe.UINT64_MAX else 0
