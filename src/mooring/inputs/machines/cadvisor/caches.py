"""Caches as cAdvisor sees them, and whether it treats an L3 as a cache of the node or as an uncore cache of the cores.

Source: cAdvisor library 0.60.5, utils/sysinfo, addCacheInfo, and utils/sysfs, GetCacheInfo; spec: topology.md section
3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from mooring.engine.core.gotext import GoSyntaxError
from mooring.engine.core.machineinfo import Cache, Core
from mooring.inputs.machines.cadvisor.probe import CPUS, UINT64_MAX, parse_uint, scan_int, scan_uint, trim
from mooring.inputs.machines.tree import Tree

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
