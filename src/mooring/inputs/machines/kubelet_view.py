"""The kubelet's view of a machine laid open by CPU, for comparison with the hardware.

Descriptions of machines that no cAdvisor writes, and what the kubelet makes of them. Source: kubelet v1.37.1,
cm/cpumanager/topology; spec: topology.md section 1.

Before that, the machine as the kubelet knows it: what cAdvisor reads from sysfs and /proc, gaps and mistakes included.

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
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Final

from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.gotext import quote
from mooring.engine.core.machine import Finding
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.inputs.machines import cadvisor_probe as probe
from mooring.inputs.machines.cadvisor_topology import TopologyReader, read_topology
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass, replace

L3_LEVEL: Final = 3
"""Caches from this level on are node or uncore caches."""


@dataclass(frozen=True, slots=True)
class KubeletView:
    """Where the kubelet takes each CPU to be. A CPU listed twice is where it was listed last, as in the kubelet."""

    info: MachineInfo
    nodes: Mapping[int, NUMANode]
    """CPU -> its NUMA node."""
    cores: Mapping[int, Core]
    """CPU -> its core."""
    core_ids: Mapping[int, int]
    """CPU -> the kubelet's id of its core, which is the core's smallest CPU."""
    listed_again: CPUSet
    """CPUs that are listed in more than one place."""

    @property
    def cpus(self) -> CPUSet:
        """All CPUs that are listed."""
        return CPUSet.from_ids(self.cores)

    @property
    def uncores(self) -> dict[int, int]:
        """CPU -> uncore id: that of the core's first uncore cache, else the socket id (spec: topology.md section 2)."""
        return {
            cpu: core.uncore_caches[0].id if core.uncore_caches else core.socket_id for cpu, core in self.cores.items()
        }


def kubelet_view(info: MachineInfo) -> KubeletView:
    """Lay a description open by CPU."""
    nodes: dict[int, NUMANode] = {}
    cores: dict[int, Core] = {}
    core_ids: dict[int, int] = {}
    again: set[int] = set()
    for node in info.topology:
        for core in node.cores:
            first = min(core.thread_ids, default=0)
            for cpu in core.thread_ids:
                if cpu in cores:
                    again.add(cpu)
                nodes[cpu], cores[cpu], core_ids[cpu] = node, core, first
    return KubeletView(info, nodes, cores, core_ids, CPUSet.from_ids(again))


def regrouped(
    kubelet: Mapping[int, Hashable], real: Mapping[int, Hashable], merged: tuple[str, str], divided: tuple[str, str]
) -> Iterator[Finding]:
    """Yield warnings where two groupings of CPUs differ.

    Args:
        kubelet: CPU -> its group for the kubelet.
        real: CPU -> its group on the machine.
        merged: code and message where the kubelet treats several groups as one. The message has no full stop; in it
            ``{group}``, ``{count}`` and ``{parts}`` are filled in from the first of several cases.
        divided: the same, where the kubelet treats one group as several.

    >>> merged, divided = ("1", "{group} is {count}: {parts}"), ("2", "")
    >>> [one.message for one in regrouped({0: "a", 1: "a", 2: "b"}, {0: 0, 1: 1, 2: 2}, merged, divided)]
    ['a is 2: 0 and 1.']
    """
    cells: dict[tuple[Hashable, Hashable], list[int]] = defaultdict(list)
    for cpu in sorted(kubelet.keys() & real.keys()):
        cells[kubelet[cpu], real[cpu]].append(cpu)
    for side, (code, message) in enumerate((merged, divided)):
        parts_of: dict[Hashable, list[CPUSet]] = defaultdict(list)
        for groups, cpus in cells.items():
            parts_of[groups[side]].append(CPUSet.from_ids(cpus))
        several = {group: parts for group, parts in parts_of.items() if len(parts) > 1}
        for group, parts in list(several.items())[:1]:
            shown = " and ".join(map(str, parts[:4])) + (f" and {len(parts) - 4} more" if len(parts) > 4 else "")
            text = message.format(group=group, count=len(parts), parts=shown)
            whole = text_of_cpus(CPUSet.from_ids(cpu for some in several.values() for part in some for cpu in part))
            yield Finding("warning", whole, f"{text}{likewise(len(several))}.", code)


def likewise(count: int) -> str:
    """Return what follows the description of the first of several groups.

    >>> likewise(2), likewise(1)
    (' (and 1 more case)', '')
    """
    return f" (and {count - 1} more case{'s' if count > 2 else ''})" if count > 1 else ""


def text_of_cpus(cpus: CPUSet) -> str:
    """Return the CPUs as a person writes them.

    >>> text_of_cpus(CPUSet.of(3)), text_of_cpus(CPUSet.of(3, 4))
    ('CPU 3', 'CPUs 3-4')
    """
    return f"CPU{'s' if len(cpus) > 1 else ''} {cpus}"


def text_of_nodes(ids: Iterable[int]) -> str:
    """Return the nodes as a person writes them.

    >>> text_of_nodes([2]), text_of_nodes([2, 1, 0])
    ('NUMA node 2', 'NUMA nodes 0-2')
    """
    distinct = set(ids)
    return f"NUMA node{'s' if len(distinct) > 1 else ''} {ids_text(distinct)}"


def ids_text(ids: Iterable[int]) -> str:
    """Return node ids as a list with runs, negative ones first.

    >>> ids_text([2, 0, 1, -1])
    '-1,0-2'
    """
    distinct = set(ids)
    negative = [str(number) for number in sorted(distinct) if number < 0]
    runs = list_text(mask_of(number for number in distinct if number >= 0))
    return ",".join(part for part in (*negative, runs) if part)


_MOST_REPORTED: Final = 20


def oddities(info: MachineInfo, prefix: str = "") -> dict[str, str]:
    """Return the paths of odd fields, with what the kubelet makes of each.

    Args:
        info: the description.
        prefix: of every path.

    >>> oddities(MachineInfo(0, 0, 0, ()))
    {'topology': 'there are no CPUs: the kubelet does not start'}
    """
    # No oddities are seen at less cost than looking for them: publishers' facts are read often.
    cores = [core for node in info.topology for core in node.cores]
    cpus = [cpu for core in cores for cpu in core.thread_ids]
    is_ordinary = (
        len(cpus) == len(set(cpus)) > 0
        and len({node.node_id for node in info.topology}) == len(info.topology)
        and min((core.core_id for core in cores), default=0) >= 0
    )
    return {} if is_ordinary else dict(islice(_found(info, prefix), _MOST_REPORTED))


def _found(info: MachineInfo, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the odd fields one after another."""
    nodes: set[int] = set()
    cpus: set[int] = set()
    for index, node in enumerate(info.topology):
        field = f"{prefix}topology[{index}]"
        if node.node_id in nodes:
            problem = f"NUMA node {node.node_id} is there twice: the kubelet adds its CPUs up and takes the last memory"
            yield f"{field}.node_id", problem
        nodes.add(node.node_id)
        for position, core in enumerate(node.cores):
            inner = f"{field}.cores[{position}]"
            if core.core_id < 0:
                yield f"{inner}.core_id", f"{core.core_id} is negative: the kubelet numbers cores by their first CPU"
            again = sorted(cpus & set(core.thread_ids))
            if again:
                yield f"{inner}.thread_ids", f"CPU {again[0]} is in another core, too: the kubelet keeps the last"
            cpus.update(core.thread_ids)
    if not cpus:
        problem = "there are no CPUs: " + (
            "the kubelet starts and its managers find none" if info.num_cores else "the kubelet does not start"
        )
        yield f"{prefix}topology", problem


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
        """Count sockets, cores, books or drawers by the name of their file.

        Lines of ``/proc/cpuinfo`` are compared as text and over the whole machine: cores of different sockets with the
        same id count once, which is why cAdvisor's number of physical cores is too small on most multi-socket machines.
        Only where cpuinfo has no such line, sysfs is asked: online CPUs, pairs of the attribute and the package id, a
        missing file counting as 0.
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
