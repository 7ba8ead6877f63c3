"""NUMA nodes and cores as cAdvisor sees them.

Source: cAdvisor library 0.60.5, utils/sysinfo, GetNodesInfo, getCPUTopology and getCoresInfo; spec: topology.md
sections 3.1, 3.2 and 3.5. All lists come from file names in text order: node0, node1, node10, node2.

Caches as cAdvisor sees them, and whether it treats an L3 as a cache of the node or as an uncore cache of the cores.

Source: cAdvisor library 0.60.5, utils/sysinfo, addCacheInfo, and utils/sysfs, GetCacheInfo; spec: topology.md section
3.3.

Reading single files the way cAdvisor does, with the error text that Go gives when it cannot; online CPUs.

Numbers are read as strconv, strings and fmt of Go read them. cAdvisor is strict in some places (a number must fill the
whole text) and lax in others (``%d`` takes the digits in front and leaves the rest). Which files count as broken
follows from that, so both are reproduced to the letter.

Source: cAdvisor library 0.60.5, utils/sysfs (the version in kubelet v1.37.1), IsCPUOnline among it; spec: topology.md
section 3.2.

Memory and huge pages as cAdvisor sees them, of the machine and of a node.

Source: cAdvisor library 0.60.5, machine (GetMachineMemoryCapacity, GetMachineMemoryByType) and utils/sysinfo
(GetHugePagesInfo, getNodeMemInfo, getDistances); spec: topology.md sections 3.1 and 3.4.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import INT64_MAX, INT64_MIN, GoSyntaxError, atoi, quote
from mooring.engine.core.machineinfo import Cache, Core, HugePages, MemoryModules, NUMANode
from mooring.inputs.machines.tree import Tree

UINT64_MAX: Final = 2**64 - 1

_SPACE: Final = "\t\n\v\f\r \x85\xa0"
"""What Go's unicode.IsSpace accepts below U+0100; Python's strip() would also take the ASCII separators."""
_SCANNED_SIGNED: Final = re.compile("[\t\v\f \x85\xa0]*([+-]?)([0-9]+)")
_SCANNED_UNSIGNED: Final = re.compile("[\t\v\f \x85\xa0]*()([0-9]+)")
_DIGITS: Final = {10: re.compile("[0-9]+"), 16: re.compile("[0-9a-fA-F]+")}


def trim(text: str) -> str:
    r"""Return ``text`` as strings.TrimSpace leaves it.

    >>> trim(" 12\n")
    '12'
    """
    return text.strip(_SPACE)


def parse_uint(text: str, *, base: int = 10, bits: int = 64) -> int:
    """Return the number that makes up the whole text, without a sign (strconv.ParseUint).

    Raises:
        GoSyntaxError: with strconv's text.

    >>> parse_uint("ff", base=16)
    255
    """
    if not _DIGITS[base].fullmatch(text):
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: invalid syntax")
    # Python limits the length of what it converts, so the length is checked first. 64 bits have 20 decimal digits at
    # most.
    significant = text.lstrip("0") or "0"
    if len(significant) > 20 or (value := int(significant, base)) >> bits:
        raise GoSyntaxError(f"strconv.ParseUint: parsing {quote(text)}: value out of range")
    return value


def scan_int(text: str) -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d", &int64)`` reads, None when it fails; what follows the digits is ignored.

    >>> scan_int("-3\n"), scan_int("4K"), scan_int("x")
    (-3, 4, None)
    """
    value = _scan(_SCANNED_SIGNED, text)
    return value if value is not None and INT64_MIN <= value <= INT64_MAX else None


def scan_uint(text: str, *, suffix: str = "") -> int | None:
    r"""Return what ``fmt.Sscanf(text, "%d" + suffix, &uint64)`` reads, None when it fails.

    >>> scan_uint("512K\n", suffix="K"), scan_uint("512\n", suffix="K"), scan_uint("-1")
    (512, None, None)
    """
    value = _scan(_SCANNED_UNSIGNED, text, suffix)
    return value if value is not None and value <= UINT64_MAX else None


def _scan(pattern: re.Pattern[str], text: str, suffix: str = "") -> int | None:
    match = pattern.match(text)
    if match is None or not text.startswith(suffix, match.end()):
        return None
    digits = match[2].lstrip("0") or "0"
    if len(digits) > 20:
        return None
    return -int(digits) if match[1] == "-" else int(digits)


CPUS: Final = "sys/devices/system/cpu"
"""Folder of the CPU directories."""
NODES: Final = "sys/devices/system/node"
"""Folder of the NUMA node directories."""

_CPU_ENTRY: Final = re.compile("cpu.*[0-9]", re.DOTALL)


class ProbeError(MooringError):
    """cAdvisor gives up on a part of the machine; the message is cAdvisor's."""


def read_or_fail(tree: Tree, path: str) -> str:
    """Return the text of a file that cAdvisor cannot do without.

    Raises:
        ProbeError: with the text of Go's os.ReadFile.
    """
    text = tree.read(path)
    if text is None:
        raise ProbeError(read_problem(tree, path))
    return text


def read_problem(tree: Tree, path: str) -> str:
    """Return what Go's os.ReadFile says about a file that cannot be read.

    The reason for a missing text is not in a tree, so it is derived from what stands in the place of the text.
    """
    parts = path.split("/")
    for depth in range(1, len(parts)):
        parent = "/".join(parts[:depth])
        if tree.exists(parent) and not tree.is_dir(parent):
            return f"open /{path}: not a directory"
    if tree.is_dir(path):
        return f"read /{path}: is a directory"
    return f"open /{path}: {'permission denied' if tree.exists(path) else 'no such file or directory'}"


def attribute(tree: Tree, path: str) -> str | None:
    """Return the trimmed text of a CPU attribute; None when there is no such file, which cAdvisor tolerates.

    Raises:
        ProbeError: the file is there but cannot be read.
    """
    text = tree.read(path)
    if text is not None:
        return trim(text)
    problem = read_problem(tree, path)
    if problem.endswith("no such file or directory"):
        return None
    raise ProbeError(problem)


def number_attribute(tree: Tree, path: str) -> int | None:
    """Return the signed decimal number in a CPU attribute (-1 is common); None when there is no such file.

    Raises:
        ProbeError: the file cannot be read or holds no number.
    """
    text = attribute(tree, path)
    if text is None:
        return None
    try:
        return atoi(text)
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None


def cpu_entries(tree: Tree, folder: str) -> tuple[str, ...]:
    """Return the names in ``folder`` that match Go's glob ``cpu*[0-9]``, in text order (cpu0, cpu1, cpu10, cpu2)."""
    return tuple(name for name in tree.names(folder) if name.startswith("cpu") and _CPU_ENTRY.fullmatch(name))


@dataclass(frozen=True, slots=True)
class OnlineCPUs:
    """Which CPUs cAdvisor takes for online."""

    mask: int
    """CPUs named before the first malformed part of the list."""
    every: bool
    """There is no list at all: the kernel cannot take CPUs offline, every CPU counts as online."""

    def __contains__(self, cpu: int) -> bool:
        # cAdvisor keeps the id in 16 bits here.
        return self.every or (self.mask >> (cpu & 0xFFFF)) & 1 == 1


def online_cpus(tree: Tree) -> OnlineCPUs:
    """Read ``/sys/devices/system/cpu/online``.

    cAdvisor walks the list again for every CPU and stops at the first part that names it, so a CPU in front of a
    malformed part is online and all others are not. An empty or unreadable list makes every CPU offline; only a missing
    file means "all".
    """
    path = f"{CPUS}/online"
    text = tree.read(path)
    if text is None:
        return OnlineCPUs(0, every=not tree.exists(path))
    mask = 0
    for part in trim(text).split(","):
        try:
            ends = [parse_uint(end, bits=16) for end in part.split("-", 2)]
        except GoSyntaxError:
            break
        if len(ends) == 3 or ends[0] > ends[-1]:
            break
        mask |= ((1 << (ends[-1] - ends[0] + 1)) - 1) << ends[0]
    return OnlineCPUs(mask, every=False)


_MEMORY: Final = re.compile(r"MemTotal:[\t\n\f\r ]*([0-9]+) kB")
_SWAP: Final = re.compile(r"SwapTotal:[\t\n\f\r ]*([0-9]+) kB")
_CONTROLLERS: Final = "sys/devices/system/edac/mc"
_CONTROLLER: Final = re.compile("mc[0-9]")
_MODULE: Final = re.compile("dimm[0-9]")


def memory_capacity(tree: Tree) -> int:
    """Return MemTotal of ``/proc/meminfo`` in bytes.

    Raises:
        ProbeError: the file is missing or does not say.
    """
    return _kib_field(read_or_fail(tree, "proc/meminfo"), _MEMORY)


def swap_capacity(tree: Tree) -> int:
    """Return SwapTotal of ``/proc/meminfo`` in bytes.

    Raises:
        ProbeError: the file is missing or does not say.
    """
    return _kib_field(read_or_fail(tree, "proc/meminfo"), _SWAP)


def node_memory(tree: Tree, folder: str) -> int:
    """Return MemTotal of a node's ``meminfo`` in bytes; 0 when the file cannot be read, which is no error.

    Raises:
        ProbeError: the file has no MemTotal.
    """
    text = tree.read(f"{folder}/meminfo")
    return 0 if text is None else _kib_field(trim(text), _MEMORY)


def node_distances(tree: Tree, folder: str) -> tuple[int, ...] | None:
    """Return a node's row of the distance table; None when the file cannot be read, which is no error.

    The row has one entry for each *online* node in ascending id, so neither id nor list position is an index into it.

    Raises:
        ProbeError: something between two single spaces is no number.
    """
    text = tree.read(f"{folder}/distance")
    if text is None:
        return None
    row: list[int] = []
    for token in trim(text).split(" "):
        try:
            row.append(parse_uint(token))
        except GoSyntaxError:
            raise ProbeError(f"cannot convert {token} to int") from None
    return tuple(row)


def huge_pages(tree: Tree, folder: str) -> tuple[HugePages, ...]:
    """Return the pools in a ``hugepages`` folder, in text order of their names; none when there is no such folder.

    Raises:
        ProbeError: a name or a number of pages cannot be read.
    """
    return tuple(_huge_page_pool(tree, folder, name) for name in tree.names(folder))


def _huge_page_pool(tree: Tree, folder: str, name: str) -> HugePages:
    _, dash, rest = name.partition("-")
    if not dash:  # cAdvisor indexes the second part unchecked
        raise ProbeError("panic: runtime error: index out of range [1] with length 1")
    try:
        page_size = parse_uint(rest.split("-")[0].split("kB")[0])
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None
    path = f"{folder}/{name}/nr_hugepages"
    count = trim(read_or_fail(tree, path))
    pages = scan_uint(count)
    if pages is None:
        raise ProbeError(f"could not parse file nr_hugepage for {name}, contents {quote(count)}")
    return HugePages(page_size, pages)


def memory_by_type(tree: Tree) -> tuple[MemoryModules, ...]:
    """Return what the memory controllers tell about their modules, by type; nothing without a controller driver.

    Raises:
        ProbeError: a module lacks its type or size.
    """
    totals: dict[str, list[int]] = {}
    for controller in filter(_CONTROLLER.search, tree.names(_CONTROLLERS)):
        folder = f"{_CONTROLLERS}/{controller}"
        if not tree.is_dir(folder):
            raise ProbeError(read_problem(tree, f"{folder}/"))
        for module in filter(_MODULE.search, tree.names(folder)):
            kind = trim(read_or_fail(tree, f"{folder}/{module}/dimm_mem_type"))
            size = trim(read_or_fail(tree, f"{folder}/{module}/size"))
            try:
                mebibytes = atoi(size)
            except GoSyntaxError as error:
                raise ProbeError(str(error)) from None
            total = totals.setdefault(kind, [0, 0])
            total[0] = total[0] + mebibytes * 2**20 & UINT64_MAX
            total[1] += 1
    return tuple(MemoryModules(kind, capacity, count) for kind, (capacity, count) in sorted(totals.items()))


def _kib_field(text: str, field: re.Pattern[str]) -> int:
    match = field.search(text)
    if match is None:
        raise ProbeError(f"failed to match regexp in output: {quote(text)}")
    try:
        return parse_uint(match[1]) * 1024 & UINT64_MAX
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None


_CORE_LEVELS: Final = 2
"""Caches up to this level can belong to a core; those above it to the node or the uncore."""


@dataclass(frozen=True, slots=True)
class SharedCache:
    """One cache and how many online CPUs share it."""

    cache: Cache
    sharers: int


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
        for entry in shared:
            if entry.cache.level <= _CORE_LEVELS:
                # A level 2 cache of several cores (E-core clusters, Bulldozer modules) is dropped here.
                if entry.sharers == threads:
                    own.append(entry.cache)
                continue
            home = node_caches if entry.sharers == len(cores) * threads else uncore
            if entry.cache not in home:
                home.append(entry.cache)
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
    for name in names:
        if name.startswith("index"):
            cache = _read_cache(tree, f"{folder}/{name}", has_ids=has_ids)
            if cache is None:
                return None
            caches.append(cache)
    return caches


def _read_cache(tree: Tree, folder: str, *, has_ids: bool) -> SharedCache | None:
    number = scan_int(tree.read(f"{folder}/id") or "") if has_ids else 0
    if number is None:
        return None
    size = scan_uint(tree.read(f"{folder}/size") or "", suffix="K")
    level = scan_int(tree.read(f"{folder}/level") or "")
    kind = tree.read(f"{folder}/type")
    sharers = _sharers(tree.read(f"{folder}/shared_cpu_map"))
    if size is None or level is None or kind is None or sharers is None:
        return None
    return SharedCache(Cache(number, size * 1024 & UINT64_MAX, trim(kind), level), sharers)


def _sharers(cpu_map: str | None) -> int | None:
    """Count the bits in a list of hexadecimal words; None when a word is none. Words have at most 64 bits."""
    if cpu_map is None:
        return None
    try:
        return sum(parse_uint(trim(word), base=16).bit_count() for word in cpu_map.split(","))
    except GoSyntaxError:
        return None


_NODE_ENTRY: Final = re.compile("node.*[0-9]", re.DOTALL)
_NODE_DIGITS: Final = re.compile("node([0-9]*)")
_CPU_DIGITS: Final = re.compile("cpu([0-9]+)")


@dataclass(frozen=True, slots=True)
class TopologyReader:
    """What reading the cores of any node needs."""

    tree: Tree
    online: OnlineCPUs
    is_s390x: bool
    """Books and drawers tell cores apart, and caches have no ids."""

    def caches_of(self, cpu: int) -> list[SharedCache] | None:
        """Return the caches of a CPU, or None when they cannot be read."""
        return read_caches(self.tree, cpu, has_ids=not self.is_s390x)


def read_topology(reader: TopologyReader) -> tuple[tuple[NUMANode, ...], int]:
    """Return the nodes and the number of logical CPUs.

    Raises:
        ProbeError: one file of any node is worse than missing; cAdvisor then has no topology and 0 CPUs.
    """
    tree = reader.tree
    names = [name for name in tree.names(NODES) if _NODE_ENTRY.fullmatch(name)]
    if not names:
        return _nodes_of_packages(reader)
    nodes = tuple(_read_node(reader, name) for name in names)
    # A CPU linked from two nodes is counted twice.
    return nodes, sum(len(core.thread_ids) for node in nodes for core in node.cores)


def _read_node(reader: TopologyReader, name: str) -> NUMANode:
    tree, folder = reader.tree, f"{NODES}/{name}"
    node_id = _number(_NODE_DIGITS, name)
    # Membership follows the links alone; the node's own cpulist is never read.
    cores, caches = place_caches(_read_cores(reader, folder, cpu_entries(tree, folder)), reader.caches_of)
    return NUMANode(
        node_id,
        memory=node_memory(tree, folder),
        hugepages=huge_pages(tree, f"{folder}/hugepages"),
        cores=cores,
        distances=node_distances(tree, folder),
        caches=caches,
    )


def _nodes_of_packages(reader: TopologyReader) -> tuple[tuple[NUMANode, ...], int]:
    """Make a node of every package, for kernels without NUMA (spec: topology.md section 3.5).

    The node id is the package id, memory is never filled in, and offline CPUs count. The kubelet's order of these nodes
    is random (a Go map); ascending is as good as any and the same in every run.
    """
    names = cpu_entries(reader.tree, CPUS)
    if not names:
        raise ProbeError(f"no CPU is available, cpusPath: /{CPUS}")
    packages: dict[int, list[str]] = {}
    for name in names:
        package = number_attribute(reader.tree, f"{CPUS}/{name}/topology/physical_package_id")
        if package is not None:
            packages.setdefault(package, []).append(name)
    nodes: list[NUMANode] = []
    for package, members in sorted(packages.items()):
        cores, caches = place_caches(_read_cores(reader, CPUS, members), reader.caches_of)
        nodes.append(NUMANode(package, memory=0, cores=cores, caches=caches))
    return tuple(nodes), len(names)


def _read_cores(reader: TopologyReader, folder: str, names: Sequence[str]) -> list[Core]:
    """Group CPU directories into cores: same core_id and package id within one node (s390x: and same book and drawer).

    Offline CPUs and CPUs without these files are left out. thread_siblings is never read.
    """
    groups: dict[tuple[int, int, str, str], list[int]] = {}
    for name in names:
        path = f"{folder}/{name}"
        try:
            cpu = _number(_CPU_DIGITS, name)
        except ProbeError:
            problem = rf"unexpected format of CPU directory, cpuDirRegExp /cpu(\d+), cpuDir: /{path}"
            raise ProbeError(problem) from None
        if cpu not in reader.online:
            continue
        core_id = number_attribute(reader.tree, f"{path}/topology/core_id")
        if core_id is None:
            continue
        package = number_attribute(reader.tree, f"{path}/topology/physical_package_id")
        if package is None:
            continue
        place = _book_and_drawer(reader, path)
        if place is not None:
            groups.setdefault((core_id, package, *place), []).append(cpu)
    return [
        Core(core_id, tuple(cpus), socket_id=package, book_id=book, drawer_id=drawer)
        for (core_id, package, book, drawer), cpus in groups.items()
    ]


def _book_and_drawer(reader: TopologyReader, path: str) -> tuple[str, str] | None:
    """Return the book and drawer of a CPU on s390x, None when one is missing there, and two empty texts elsewhere."""
    if not reader.is_s390x:
        return "", ""
    book = attribute(reader.tree, f"{path}/topology/book_id")
    if book is None:
        return None
    drawer = attribute(reader.tree, f"{path}/topology/drawer_id")
    return None if drawer is None else (book, drawer)


def _number(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.match(name)
    if match is None:
        raise ProbeError(f"failed to match regexp, str: {name}")
    try:
        return atoi(match[1])
    except GoSyntaxError as error:
        raise ProbeError(str(error)) from None
