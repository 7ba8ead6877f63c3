"""Which CPUs there are, how they form cores, clusters, dies, packages, books and drawers, and which share caches.

Source: kernel Documentation/ABI/stable/sysfs-devices-system-cpu and admin-guide/cputopology.rst for the files; hwloc
2.14 (topology-linux.c, look_sysfscpu) for which of them count. Every set is read at its smallest CPU only, and only
online CPUs count in it. Caches: Documentation/ABI/testing/sysfs-devices-system-cpu (cache/index*).

Kinds of cores: performance and efficiency cores, or any others that the kernel tells apart.

Sources: cpufreq and acpi_cppc (clocks), cpu_capacity (relative speed on ARM and others), midr_el1 (ARM model), and the
performance counters ``cpu_core``, ``cpu_atom``, ``cpu_lowpower`` of hybrid Intel processors. hwloc 2.14
(topology-linux.c, look_sysfscpukinds; cpukinds.c) decides what makes a kind and which kind is faster.

Sources of the files: kernel Documentation/admin-guide/pm/cpufreq.rst (cpuinfo_max_freq), intel_pstate.rst
(base_frequency), acpi/cppc_sysfs.rst (nominal_freq), ABI/testing/sysfs-devices-system-cpu (cpu_capacity),
arch/arm64/cpu-feature-registers.rst with the Arm Architecture Reference Manual (MIDR_EL1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from mooring.engine.core.bits import CPUMask, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import CPUKind
from mooring.inputs.machines.hardware.kernelfiles import HIGHEST_ID, Quirks, read_int, read_list, read_mask, read_uint
from mooring.inputs.machines.hardware.numanodes import Nest
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass, field

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
        # A book or drawer without an id is none.
        for kind, name in (("book", "Book"), ("drawer", "Drawer")):
            members = _members(tree, f"{folder}/{kind}_siblings", cpus)
            if members is None:
                return
            if _smallest(members) == cpu and read_int(tree, f"{folder}/{kind}_id") is not None:
                nest.add_group(members, _BOOK_RANK, name)


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


_INTEL_TYPES: Final = (("cpu_atom", "IntelAtom"), ("cpu_core", "IntelCore"), ("cpu_lowpower", "IntelLowPower"))
_INTEL_RANKS: Final = {"IntelLowPower": 1, "IntelAtom": 2, "IntelCore": 3}


@dataclass(slots=True)
class _Kind:
    """CPUs that are alike in everything registered so far."""

    cpus: int
    forced: int | None
    """Speed that the kernel itself gives (capacity); None when it gives none."""
    infos: dict[tuple[str, str], None] = field(default_factory=dict)
    """Pairs of name and value in the order in which they came."""


def read_kinds(tree: Tree, quirks: Quirks, online: int) -> tuple[CPUKind, ...]:
    """Return the kinds of cores, the slowest first where they can be ranked; empty when all are alike."""
    if quirks.has_one_kind:
        return ()
    kinds: list[_Kind] = []
    if quirks.is_arm and tree.exists(f"{CPUS}/cpu0/regs/identification/midr_el1"):
        # Each model of core has the lowest capacity among its CPUs.
        models = {cpu: model for cpu in members(online) if (model := _read_model(tree, cpu))}
        by_model = _by_value(models)
        for model, cpus in by_model.items():
            capacity = min(read_uint(tree, f"{CPUS}/cpu{cpu}/cpu_capacity") or 0 for cpu in members(cpus))
            infos = {"LinuxCapacity": str(capacity)} | describe(model, by_model)
            _register(kinds, cpus, capacity, dict.fromkeys(infos.items()))
    else:
        # Register highest clock, base clock and capacity, each from the lowest value up
        clocks = _read_clocks(tree, online)
        properties: tuple[tuple[str, Callable[[Clocks], int], bool], ...] = (
            ("FrequencyMaxMHz", lambda clock: clock.highest // 1000, False),
            ("FrequencyBaseMHz", lambda clock: clock.base // 1000, False),
            ("LinuxCapacity", lambda clock: clock.capacity, True),
        )
        for name, value_of, is_speed in properties:
            known = {cpu: value_of(clock) for cpu, clock in clocks.items() if value_of(clock)}
            for value, cpus in sorted(_by_value(known).items()):
                _register(kinds, cpus, value if is_speed else None, {(name, str(value)): None})
        if quirks.is_x86:
            for folder, name in _INTEL_TYPES:
                _register(kinds, read_list(tree, f"sys/devices/{folder}/cpus") or 0, None, {("CoreType", name): None})
    # With a single kind, hwloc shows no kinds in the recorded answers.
    if len(kinds) < 2:
        return ()
    # By speed; where two come out equal, none gets a rank. The kernel's capacity is believed first, if every kind has
    # one; then Intel's type of core and, within it, the clock.
    forced = [kind.forced for kind in kinds if kind.forced is not None]
    for speeds in (forced, _speeds_by_type_and_clock(kinds)):
        if len(set(speeds)) == len(kinds):
            order = sorted(range(len(kinds)), key=speeds.__getitem__)
            return tuple(_finished(kinds[index], rank) for rank, index in enumerate(order))
    return tuple(_finished(kind, -1) for kind in kinds)


def _register(kinds: list[_Kind], cpus: int, forced: int | None, infos: Mapping[tuple[str, str], None]) -> None:
    """Add a property of some CPUs: a kind that has it in part is split in two."""
    for kind in tuple(kinds):
        common = kind.cpus & cpus
        if not common:
            continue
        if common == kind.cpus:
            kind.infos.update(infos)
            if kind.forced is None:
                kind.forced = forced
        else:
            kind.cpus &= ~common
            kinds.append(_Kind(common, forced, {**kind.infos, **infos}))
        cpus &= ~common
    if cpus:
        kinds.append(_Kind(cpus, forced, dict(infos)))


def _by_value(values: Mapping[int, int]) -> dict[int, int]:
    """Return the mask of the CPUs that have each value, in order of appearance."""
    masks: dict[int, int] = {}
    for cpu, value in values.items():
        masks[value] = masks.get(value, 0) | 1 << cpu
    return masks


def _speeds_by_type_and_clock(kinds: Iterable[_Kind]) -> list[int]:
    """Return a figure per kind; none when neither types nor clocks are known throughout."""
    infos = [dict(kind.infos.keys()) for kind in kinds]
    types = [_INTEL_RANKS.get(info.get("CoreType", ""), 0) for info in infos]
    base = [int(info.get("FrequencyBaseMHz", "0")) for info in infos]
    highest = [int(info.get("FrequencyMaxMHz", "0")) for info in infos]
    if not (all(types) or all(base) or all(highest)):
        return []
    return [(kind << 20) + clock for kind, clock in zip(types, base if all(base) else highest, strict=True)]


def _finished(kind: _Kind, efficiency: int) -> CPUKind:
    return CPUKind(efficiency, CPUSet(CPUMask(kind.cpus)), tuple(kind.infos))


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


def _read_clocks(tree: Tree, online: int) -> dict[int, Clocks]:
    """Read the figures of every online CPU, with favoured cores of one kind made equal.

    The base clock comes from intel_pstate; ACPI's nominal clock is used only where the first CPU does not have that
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
        # CPUs of one base clock the lowest of their highest clocks and capacities, if those clocks are close
        lowest: dict[int, Clocks] = {}
        for base in {clock.base for clock in clocks.values()}:
            alike = [clock for clock in clocks.values() if clock.base == base]
            low, high = min(clock.highest for clock in alike), max(clock.highest for clock in alike)
            if low < high and (high - low) * 100 < _TOLERANCE_PERCENT * low:
                lowest[base] = Clocks(low, base, min(clock.capacity for clock in alike))
        return {cpu: lowest.get(clock.base, clock) for cpu, clock in clocks.items()}
    return clocks


_ARCHITECTURES: Final = {1: "4", 2: "4T", 3: "5", 4: "5T", 5: "5TE", 6: "5TEJ", 7: "6", 15: "8"}
_NUMBER: Final = re.compile(r"[ \t]*(0[xX][0-9a-fA-F]{1,19}|[0-9]{1,20})")

_FIELDS: Final[tuple[tuple[str, int, int, Callable[[int], str]], ...]] = (
    ("CPUImplementer", 24, 0xFF, "0x{:02x}".format),
    ("CPUArchitecture", 16, 0xF, lambda value: _ARCHITECTURES.get(value, "unknown")),
    ("CPUVariant", 20, 0xF, "0x{:x}".format),
    ("CPUPart", 4, 0xFFF, "0x{:03x}".format),
    ("CPURevision", 0, 0xF, "{}".format),
)
"""Name, lowest bit, mask and printed form of each field."""


def _read_model(tree: Tree, cpu: int) -> int:
    """Return the CPU's identification register; 0 when it is not shown."""
    match = _NUMBER.match((tree.read(f"{CPUS}/cpu{cpu}/regs/identification/midr_el1") or "")[:21])
    return int(match[1], 16 if match[1][:2] in {"0x", "0X"} else 10) if match else 0


def describe(model: int, models: Iterable[int]) -> dict[str, str]:
    """Return the fields of ``model`` in which ``models`` differ from one another.

    >>> describe(0x410FD871, [0x410FD871, 0x410FD851])
    {'CPUPart': '0xd87'}
    """
    return {
        name: form(model >> low & mask)
        for name, low, mask, form in _FIELDS
        if len({other >> low & mask for other in models}) > 1
    }
