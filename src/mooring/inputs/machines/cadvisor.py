"""The machine as the kubelet knows it: what cAdvisor reads from sysfs and /proc, gaps and mistakes included.

No rule here knows a machine; where cAdvisor is wrong about one, the same rule makes the same mistake.

Counts of sockets and cores, vendor and clock speed come from ``/proc/cpuinfo`` first, else from sysfs. Source: cAdvisor
library 0.60.5, the version in kubelet v1.37.1, machine (Info, GetSockets, GetPhysicalCores, GetBooks, GetClockSpeed)
and utils/sysfs (GetUniqueCPUPropertyCount); spec: topology.md section 3 and 3.6.

NUMA nodes and cores: utils/sysinfo, GetNodesInfo, getCPUTopology and getCoresInfo; spec: topology.md sections 3.1, 3.2
and 3.5. All lists come from file names in text order: node0, node1, node10, node2.

Caches, and whether an L3 is one of the node or an uncore cache of the cores: utils/sysinfo, addCacheInfo, and
utils/sysfs, GetCacheInfo; spec: topology.md section 3.3.

cAdvisor behaves differently on s390x (books and drawers, caches without ids) and needs no clock speed on ARM, MIPS,
RISC-V and s390x. A kubelet knows its architecture from its own binary and from ``uname``; a snapshot tells it only by
its files.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias

from mooring.engine.core.gotext import GoSyntaxError, atoi, quote
from mooring.engine.core.machineinfo import Cache, Core, MachineInfo, NUMANode
from mooring.inputs.machines import cadvisor_probe as probe
from mooring.inputs.machines.tree import CPUS, NODES, Tree
from mooring.lazy import replace

_CORE_LEVELS: Final = 2
"""Caches up to this level can belong to a core; those above it to the node or the uncore."""


SharedCache: TypeAlias = tuple[Cache, int]
"""One cache and how many online CPUs share it."""


def place_caches(
    cores: Sequence[Core], caches_of: Callable[[int], Sequence[SharedCache] | None]
) -> tuple[tuple[Core, ...], tuple[Cache, ...]]:
    """Hand the caches of a node's cores to the cores, the uncore or the node.

    The node's size is guessed as (number of cores) x (threads of *this* core), which is wrong on machines with one- and
    two-thread cores under one L3. The guess is the kubelet's: uncore ids follow from it.

    Args:
        cores: The node's cores, without caches.
        caches_of: CPU id -> its caches, or None when they cannot be read. Asked for the first listed thread of each
        core; the
            first None ends cache reading for the node, and cores handled before keep what they have.

    Returns:
        The cores with their caches, and the caches of the node.
    """
    placed: list[Core] = []
    node_caches: list[Cache] = []
    for core in cores:
        shared = caches_of(core.thread_ids[0])
        if shared is None:
            break
        threads = len(core.thread_ids)
        own: list[Cache] = []
        uncore: list[Cache] = []
        for cache, sharers in shared:
            if cache.level > _CORE_LEVELS:
                home = node_caches if sharers == len(cores) * threads else uncore
                if cache not in home:
                    home.append(cache)
            elif sharers == threads:
                # A level 2 cache of several cores (E-core clusters, Bulldozer modules) is dropped here.
                own.append(cache)
        placed.append(replace(core, caches=tuple(own), uncore_caches=tuple(uncore)))
    return (*placed, *cores[len(placed) :]), tuple(node_caches)


def read_caches(tree: Tree, cpu: int, *, has_ids: bool) -> list[SharedCache] | None:
    """Read the caches of one CPU; None when any file of any of them is missing or malformed, ``id`` included.

    Kernels before 4.10 on x86 and most ARM and POWER machines have no ``id``, which costs the node all its caches.

    Args:
        tree: Files of the machine.
        cpu: CPU id.
        has_ids: False on s390x, where cAdvisor does not read ``id`` and uses 0.
    """
    folder = f"{CPUS}/cpu{cpu}/cache"
    names = tree.names(folder)
    if not names and not tree.is_dir(folder):
        return None
    caches: list[SharedCache] = []
    for index in (f"{folder}/{name}" for name in names if name.startswith("index")):
        number = probe.scan_int(tree.read(f"{index}/id") or "") if has_ids else 0
        size = probe.scan_uint(tree.read(f"{index}/size") or "", suffix="K")
        level = probe.scan_int(tree.read(f"{index}/level") or "")
        kind, cpu_map = tree.read(f"{index}/type"), tree.read(f"{index}/shared_cpu_map")
        if number is None or size is None or level is None or kind is None or cpu_map is None:
            return None
        try:  # words of at most 64 bits
            sharers = sum(probe.parse_uint(probe.trim(word), base=16).bit_count() for word in cpu_map.split(","))
        except GoSyntaxError:
            return None
        caches.append((Cache(number, size * 1024 & probe.UINT64_MAX, probe.trim(kind), level), sharers))
    return caches


_NODE_ENTRY: Final = re.compile("node.*[0-9]", re.DOTALL)
_NODE_DIGITS: Final = re.compile("node([0-9]*)")
_CPU_DIGITS: Final = re.compile("cpu([0-9]+)")


def read_topology(tree: Tree, online: int, *, is_s390x: bool) -> tuple[tuple[NUMANode, ...], int]:
    """Return the nodes and the number of logical CPUs.

    Args:
        tree: Files of the machine.
        online: Mask.
        is_s390x: Books and drawers tell cores apart, and caches have no ids.

    Raises:
        ProbeError: one file of any node is worse than missing; cAdvisor then has no topology and 0 CPUs.
    """
    nodes: list[NUMANode] = []
    names = [name for name in tree.names(NODES) if _NODE_ENTRY.fullmatch(name)]
    for name in names:
        folder = f"{NODES}/{name}"
        number = _number(_NODE_DIGITS, name)
        # Membership follows the links alone; the node's own cpulist is never read.
        cores, caches = _read_cores(tree, online, folder, probe.cpu_entries(tree, folder), is_s390x=is_s390x)
        memory, pools = probe.node_memory(tree, folder), probe.huge_pages(tree, f"{folder}/hugepages")
        nodes.append(NUMANode(number, memory, pools, cores, probe.node_distances(tree, folder), caches))
    if names:
        # A CPU linked from two nodes is counted twice.
        return tuple(nodes), sum(len(core.thread_ids) for node in nodes for core in node.cores)
    # Kernels without NUMA: a node of every package (spec: topology.md section 3.5). Its id is the package's, memory is
    # never filled in, and offline CPUs count. The kubelet's order of these nodes is random (a Go map); ascending is as
    # good as any and the same in every run.
    cpus = probe.cpu_entries(tree, CPUS)
    if not cpus:
        raise probe.ProbeError(f"no CPU is available, cpusPath: /{CPUS}")
    packages: dict[int, list[str]] = {}
    for name in cpus:
        package = probe.number_attribute(tree, f"{CPUS}/{name}/topology/physical_package_id")
        if package is not None:
            packages.setdefault(package, []).append(name)
    for package, members in sorted(packages.items()):
        cores, caches = _read_cores(tree, online, CPUS, members, is_s390x=is_s390x)
        nodes.append(NUMANode(package, memory=0, cores=cores, caches=caches))
    return tuple(nodes), len(cpus)


def _read_cores(
    tree: Tree, online: int, folder: str, names: Sequence[str], *, is_s390x: bool
) -> tuple[tuple[Core, ...], tuple[Cache, ...]]:
    """Group CPU directories into cores: same core_id and package id within one node (s390x: and same book and drawer).

    Offline CPUs and CPUs without these files are left out. thread_siblings is never read.
    """
    groups: dict[tuple[int, int, str, str], list[int]] = {}
    for name in names:
        path = f"{folder}/{name}"
        try:
            cpu = _number(_CPU_DIGITS, name)
        except probe.FAILURES:
            problem = rf"unexpected format of CPU directory, cpuDirRegExp /cpu(\d+), cpuDir: /{path}"
            raise probe.ProbeError(problem) from None
        if not probe.is_online(online, cpu):
            continue
        core_id = probe.number_attribute(tree, f"{path}/topology/core_id")
        if core_id is None:
            continue
        package = probe.number_attribute(tree, f"{path}/topology/physical_package_id")
        if package is None:
            continue
        book = probe.attribute(tree, f"{path}/topology/book_id") if is_s390x else ""
        drawer = probe.attribute(tree, f"{path}/topology/drawer_id") if is_s390x and book is not None else ""
        if book is not None and drawer is not None:
            groups.setdefault((core_id, package, book, drawer), []).append(cpu)
    cores = [
        Core(core_id, tuple(cpus), socket_id=package, book_id=book, drawer_id=drawer)
        for (core_id, package, book, drawer), cpus in groups.items()
    ]
    return place_caches(cores, lambda cpu: read_caches(tree, cpu, has_ids=not is_s390x))


def _number(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.match(name)
    if match is None:
        raise probe.ProbeError(f"failed to match regexp, str: {name}")
    return atoi(match[1])


_LONGEST_ERROR: Final = 160
"""cAdvisor quotes whole files in some errors; more than this is cut, so that an error stays one readable line."""


def read_machine_info(tree: Tree) -> tuple[MachineInfo, str, str]:
    """Return the kubelet's view of the machine whose files are in ``tree``, and two errors of cAdvisor.

    Never fails for what the files hold or lack. With the first error cAdvisor cannot describe the machine at all, and a
    kubelet does not start; the description has only the parts that can be had: counts, memory and topology. With the
    second there is no topology although the description succeeds; the kubelet's managers then fail on 0 CPUs.
    """
    machine = architecture(tree)
    is_s390x = machine == "s390x"
    online = probe.online_cpus(tree)
    cpuinfo = tree.read("proc/cpuinfo") or ""
    topology: tuple[NUMANode, ...] = ()
    num_cores, memory, topology_error = 0, 0, ""
    try:
        topology, num_cores = read_topology(tree, online, is_s390x=is_s390x)
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
        for name in probe.cpu_entries(tree, CPUS):
            number = _CPU_DIGITS.match(name)
            if number is None:
                return 0
            if not probe.is_online(online, int(number[1][-20:])):
                continue
            folder = f"{CPUS}/{name}/topology"
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
        return parts, _shortened(error.args[0]), topology_error
    return info, "", topology_error


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
    return "s390x" if tree.exists(f"{CPUS}/cpu0/topology/book_id") else ""


_VENDOR: Final = re.compile(r"vendor_id[\t\n\f\r ]*:[\t\n\f\r ]*([0-9A-Za-z_]+)")
_CLOCK_MHZ: Final = re.compile(r"(?:cpu MHz|CPU MHz|clock)[\t\n\f\r ]*:[\t\n\f\r ]*([0-9]+\.[0-9]+)(?:MHz)?")
_FASTEST_KHZ: Final = f"{CPUS}/cpu0/cpufreq/cpuinfo_max_freq"
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
