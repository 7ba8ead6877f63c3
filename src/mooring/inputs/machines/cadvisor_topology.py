"""NUMA nodes and cores as cAdvisor sees them.

Source: cAdvisor library 0.60.5, utils/sysinfo, GetNodesInfo, getCPUTopology and getCoresInfo; spec: topology.md
sections 3.1, 3.2 and 3.5. All lists come from file names in text order: node0, node1, node10, node2.

Caches as cAdvisor sees them, and whether it treats an L3 as a cache of the node or as an uncore cache of the cores.

Source: cAdvisor library 0.60.5, utils/sysinfo, addCacheInfo, and utils/sysfs, GetCacheInfo; spec: topology.md section
3.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from mooring.engine.core.gotext import GoSyntaxError, atoi
from mooring.engine.core.machineinfo import Cache, Core, NUMANode
from mooring.inputs.machines import cadvisor_probe as probe
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass, replace

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
    folder = f"{probe.CPUS}/cpu{cpu}/cache"
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
    number = probe.scan_int(tree.read(f"{folder}/id") or "") if has_ids else 0
    if number is None:
        return None
    size = probe.scan_uint(tree.read(f"{folder}/size") or "", suffix="K")
    level = probe.scan_int(tree.read(f"{folder}/level") or "")
    kind = tree.read(f"{folder}/type")
    cpu_map = tree.read(f"{folder}/shared_cpu_map")
    if size is None or level is None or kind is None or cpu_map is None:
        return None
    try:  # words of at most 64 bits
        sharers = sum(probe.parse_uint(probe.trim(word), base=16).bit_count() for word in cpu_map.split(","))
    except GoSyntaxError:
        return None
    return Cache(number, size * 1024 & probe.UINT64_MAX, probe.trim(kind), level), sharers


_NODE_ENTRY: Final = re.compile("node.*[0-9]", re.DOTALL)
_NODE_DIGITS: Final = re.compile("node([0-9]*)")
_CPU_DIGITS: Final = re.compile("cpu([0-9]+)")


@dataclass(frozen=True, slots=True)
class TopologyReader:
    """What reading the cores of any node needs."""

    tree: Tree
    online: int
    """Mask."""
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
    names = [name for name in tree.names(probe.NODES) if _NODE_ENTRY.fullmatch(name)]
    if not names:
        # Kernels without NUMA: a node of every package (spec: topology.md section 3.5). Its id is the package's, memory
        # is never filled in, and offline CPUs count. The kubelet's order of these nodes is random (a Go map); ascending
        # is as good as any and the same in every run.
        cpus = probe.cpu_entries(reader.tree, probe.CPUS)
        if not cpus:
            raise probe.ProbeError(f"no CPU is available, cpusPath: /{probe.CPUS}")
        packages: dict[int, list[str]] = {}
        for name in cpus:
            package = probe.number_attribute(reader.tree, f"{probe.CPUS}/{name}/topology/physical_package_id")
            if package is not None:
                packages.setdefault(package, []).append(name)
        made: list[NUMANode] = []
        for package, members in sorted(packages.items()):
            cores, caches = place_caches(_read_cores(reader, probe.CPUS, members), reader.caches_of)
            made.append(NUMANode(package, memory=0, cores=cores, caches=caches))
        return tuple(made), len(cpus)
    nodes = tuple(_read_node(reader, name) for name in names)
    # A CPU linked from two nodes is counted twice.
    return nodes, sum(len(core.thread_ids) for node in nodes for core in node.cores)


def _read_node(reader: TopologyReader, name: str) -> NUMANode:
    tree, folder = reader.tree, f"{probe.NODES}/{name}"
    node_id = _number(_NODE_DIGITS, name)
    # Membership follows the links alone; the node's own cpulist is never read.
    cores, caches = place_caches(_read_cores(reader, folder, probe.cpu_entries(tree, folder)), reader.caches_of)
    return NUMANode(
        node_id,
        memory=probe.node_memory(tree, folder),
        hugepages=probe.huge_pages(tree, f"{folder}/hugepages"),
        cores=cores,
        distances=probe.node_distances(tree, folder),
        caches=caches,
    )


def _read_cores(reader: TopologyReader, folder: str, names: Sequence[str]) -> list[Core]:
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
        if not probe.is_online(reader.online, cpu):
            continue
        core_id = probe.number_attribute(reader.tree, f"{path}/topology/core_id")
        if core_id is None:
            continue
        package = probe.number_attribute(reader.tree, f"{path}/topology/physical_package_id")
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
    book = probe.attribute(reader.tree, f"{path}/topology/book_id")
    if book is None:
        return None
    drawer = probe.attribute(reader.tree, f"{path}/topology/drawer_id")
    return None if drawer is None else (book, drawer)


def _number(pattern: re.Pattern[str], name: str) -> int:
    match = pattern.match(name)
    if match is None:
        raise probe.ProbeError(f"failed to match regexp, str: {name}")
    return atoi(match[1])
