"""Which CPUs there are, how they form cores, clusters, dies, packages, books and drawers, and which share caches.

Source: kernel Documentation/ABI/stable/sysfs-devices-system-cpu and admin-guide/cputopology.rst for the files; hwloc
2.14 (topology-linux.c, look_sysfscpu) for which of them count. Every set is read at its smallest CPU only, and only
online CPUs count in it. Caches: Documentation/ABI/testing/sysfs-devices-system-cpu (cache/index*).
"""

from __future__ import annotations

import re
from typing import Final

from mooring.engine.core.bits import members
from mooring.engine.core.errors import InputError
from mooring.inputs.machines.hardware.kernelfiles import HIGHEST_ID, Quirks, read_int, read_list, read_mask, read_uint
from mooring.inputs.machines.hardware.numanodes import Nest
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass

CPUS: Final = "sys/devices/system/cpu"
"""Folder of all CPUs."""

_CPU_NAME: Final = re.compile(r"cpu([0-9]{1,7})")
_NEW_NAMES: Final = ("package_cpus", "core_cpus")
_OLD_NAMES: Final = ("core_siblings", "thread_siblings")
_BOOK_RANK: Final = 110
_CLUSTER_RANK: Final = 222
"""Of two groups with equal CPUs hwloc keeps the one of lower kind (private/private.h, HWLOC_GROUP_KIND)."""


@dataclass(frozen=True, slots=True)
class CPUs:
    """The CPUs of a tree."""

    present: int
    """Mask of CPUs that have a folder, online or not."""
    online: int
    """Mask of CPUs that are online and tell their topology: the only ones that hwloc shows."""
    core_file: str
    """Name of the file with the CPUs of a core; Linux 5.2 renamed it."""
    package_file: str
    """Name of the file with the CPUs of a package."""
    threads_are_cores: bool = False
    """Every CPU is a core, whatever its siblings (AMD compute units)."""


def find_cpus(tree: Tree, quirks: Quirks) -> CPUs:
    """List the CPUs of a tree.

    Raises:
        InputError: hwloc would refuse the tree: no CPU folders, no topology files at CPU 0 or the first online CPU,
            or no CPU online.
    """
    package_file, core_file = _file_names(tree)
    listed = read_list(tree, f"{CPUS}/online")
    present = online = 0
    for name in tree.names(CPUS):
        match = _CPU_NAME.match(name)
        if match is None or int(match[1]) > HIGHEST_ID:
            continue
        cpu = int(match[1])
        present |= 1 << cpu
        if not (_is_online(tree, cpu) if listed is None else listed >> cpu & 1):
            continue
        # A CPU that was taken offline loses this folder, even where its state is not told.
        if tree.exists(f"{CPUS}/cpu{cpu}/topology"):
            online |= 1 << cpu
    if not online:
        remedy = "take the snapshot again, with its cpu*/topology folders"
        raise InputError("no CPU is online", source=tree.name, field=CPUS, remedy=remedy)
    units = quirks.has_compute_units and _threads_are_cores(tree, online, core_file)
    return CPUs(present, online, core_file, package_file, units)


def _file_names(tree: Tree) -> tuple[str, str]:
    """Return the names of the files that list a package and a core, as CPU 0 or the first online CPU has them."""
    first = read_list(tree, f"{CPUS}/online")
    candidates = [0] if first is None else [0, (first & -first).bit_length() - 1]
    for cpu in candidates:
        for names in (_NEW_NAMES, _OLD_NAMES):
            if any(tree.exists(f"{CPUS}/cpu{cpu}/topology/{name}") for name in names):
                return names
    remedy = f"name a folder or archive that holds {CPUS} of a machine"
    if not tree.is_dir(CPUS):
        raise InputError(f"holds no machine: {CPUS} is missing", source=tree.name, remedy=remedy)
    problem = "reports no CPU topology (hwloc refuses it, too)"
    raise InputError(problem, source=tree.name, field=f"{CPUS}/cpu0/topology", remedy=remedy)


def _is_online(tree: Tree, cpu: int) -> bool:
    """Read the CPU's own file, for kernels without the common list; without the file a CPU cannot be taken offline."""
    text = tree.read(f"{CPUS}/cpu{cpu}/online")
    return not text or text[0] in "123456789"


def place_cpu(tree: Tree, quirks: Quirks, cpus: CPUs, cpu: int, nest: Nest) -> None:
    """Put the sets into ``nest`` of which ``cpu`` is the smallest member, in the order that hwloc has."""
    folder = f"{CPUS}/cpu{cpu}/topology"
    core = _members(tree, f"{folder}/{cpus.core_file}", cpus)
    if core is not None and cpus.threads_are_cores:
        nest.add(1 << cpu, "core")
    elif core is not None and _smallest(core) == cpu:
        nest.add(core, "core")
    if core is None or _smallest(core) == cpu:
        _place_larger_sets(tree, cpus, cpu, nest)
    if quirks.is_s390:
        _place_books(tree, cpus, cpu, nest)


def _place_larger_sets(tree: Tree, cpus: CPUs, cpu: int, nest: Nest) -> None:
    """Place the package, cluster and die that begin with ``cpu``.

    Where ``cpu`` is not the first of a set, nothing larger is looked for. A cluster or die of one CPU is the kernel's
    way to say that it knows none; one equal to the next larger set says nothing new.
    """
    folder = f"{CPUS}/cpu{cpu}/topology"
    cluster = _unless_single(_members(tree, f"{folder}/cluster_cpus", cpus))
    if cluster is not None and _smallest(cluster) != cpu:
        return
    die = _unless_single(_members(tree, f"{folder}/die_cpus", cpus))
    package = None
    if die is None or _smallest(die) == cpu:
        package = _members(tree, f"{folder}/{cpus.package_file}", cpus)
    else:
        die = None
    if package is not None and _smallest(package) == cpu:
        number = read_int(tree, f"{folder}/physical_package_id")
        # The kernel's own word for an unknown id is -1; hwloc reports all others as unsigned numbers.
        nest.add(package, "package", None if number in {None, -1} else (number or 0) % 2**32)
    if cluster is not None and cluster not in {die, package}:
        nest.add_group(cluster, _CLUSTER_RANK, "Cluster")
    if die is not None and die != package:
        nest.add(die, "die")


def _place_books(tree: Tree, cpus: CPUs, cpu: int, nest: Nest) -> None:
    """Place the s390 book and drawer that begin with ``cpu``; one without an id is none."""
    folder = f"{CPUS}/cpu{cpu}/topology"
    for kind, name in (("book", "Book"), ("drawer", "Drawer")):
        members = _members(tree, f"{folder}/{kind}_siblings", cpus)
        if members is None:
            return
        if _smallest(members) == cpu and read_int(tree, f"{folder}/{kind}_id") is not None:
            nest.add_group(members, _BOOK_RANK, name)


def _threads_are_cores(tree: Tree, online: int, core_file: str) -> bool:
    """Tell whether the first two CPUs that claim to share a core have different core ids."""
    for cpu in members(online):
        folder = f"{CPUS}/cpu{cpu}/topology"
        core = (read_mask(tree, f"{folder}/{core_file}") or 0) & online
        if core & (core - 1):
            sibling = _smallest(core & ~(1 << cpu))
            ids = [read_int(tree, f"{CPUS}/cpu{thread}/topology/core_id") for thread in (cpu, sibling)]
            return ids[0] != ids[1]
    return False


def _members(tree: Tree, path: str, cpus: CPUs) -> int | None:
    mask = read_mask(tree, path)
    return None if mask is None else mask & cpus.online


def _smallest(mask: int) -> int:
    """Return the smallest member; -1 of an empty set, which equals no CPU."""
    return (mask & -mask).bit_length() - 1


def _unless_single(mask: int | None) -> int | None:
    return None if mask is not None and mask.bit_count() == 1 else mask


_INDEXES: Final = frozenset(f"index{index}" for index in range(10))
"""hwloc looks no further; real machines have four or five."""
_LEVELS: Final = range(1, 6)
_INSTRUCTION_LEVELS: Final = range(1, 4)


def place_caches(tree: Tree, quirks: Quirks, cpus: CPUs, cpu: int, nest: Nest) -> None:
    """Put the caches into ``nest`` of which ``cpu`` is the smallest member.

    The ``id`` file is not asked: firmware gets it wrong (some virtual machines give every CPU its own), and older
    kernels, ARM and POWER have none. Sharing alone tells caches apart.
    """
    folder = f"{CPUS}/cpu{cpu}/cache"
    for index in tree.names(folder):
        if index not in _INDEXES:
            continue
        shared = read_mask(tree, f"{folder}/{index}/shared_cpu_map")
        if shared == 0:
            # ia64 kernels leave it empty for caches of one core.
            shared = read_mask(tree, f"{CPUS}/cpu{cpu}/topology/{cpus.core_file}")
        shared = (shared or 0) & cpus.online
        if shared & -shared != 1 << cpu:
            continue
        level = read_uint(tree, f"{folder}/{index}/level")
        # Knights Landing tells of an L3 without size that does not exist.
        if level == 3 and quirks.is_knights_landing and not read_uint(tree, f"{folder}/{index}/size"):
            continue
        is_instruction = (tree.read(f"{folder}/{index}/type") or "").startswith("Instruction")
        if is_instruction and level in _INSTRUCTION_LEVELS:
            nest.add(shared, f"l{level}i")
        elif not is_instruction and level in _LEVELS:
            nest.add(shared, f"l{level}")
