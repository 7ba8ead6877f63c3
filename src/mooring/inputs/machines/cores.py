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
from typing import Final, TypeAlias

from mooring.engine.core.bits import CPUMask, members
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machineinfo import CPUKind
from mooring.inputs.machines.kernelfiles import HIGHEST_ID, Quirks, read_int, read_list, read_mask, read_uint
from mooring.inputs.machines.numanodes import Nest
from mooring.inputs.machines.tree import CPUS, Tree
from mooring.lazy import replace

_CPU_NAME: Final = re.compile(r"cpu([0-9]{1,7})")
_NEW_NAMES: Final = ("package_cpus", "core_cpus")
_OLD_NAMES: Final = ("core_siblings", "thread_siblings")
_BOOK_RANK: Final = 110
_CLUSTER_RANK: Final = 222
"""Of two groups with equal CPUs hwloc keeps the one of lower kind (private/private.h, HWLOC_GROUP_KIND)."""


_INDEXES: Final = frozenset(f"index{index}" for index in range(10))
"""hwloc looks no further; real machines have four or five."""
_LEVELS: Final = range(1, 6)
_INSTRUCTION_LEVELS: Final = range(1, 4)

Sharers: TypeAlias = Callable[[str], int | None]
"""Path -> the online CPUs in a mask file; None when there is none that can be read."""


def read_cpus(tree: Tree, quirks: Quirks, nest: Nest) -> tuple[int, int]:
    """Put the sets of CPUs into ``nest``, each when its smallest member is read, in the order that hwloc has.

    Returns:
        Masks of the CPUs that have a folder, online or not, and of those that are online and tell their topology: the
        only ones that hwloc shows.

    Raises:
        InputError: hwloc would refuse the tree: no CPU folders, no topology files at CPU 0 or the first online CPU,
            or no CPU online.
    """
    package_file, core_file = _file_names(tree)
    present, online = _present_and_online(tree)
    if not online:
        remedy = "take the snapshot again, with its cpu*/topology folders"
        raise InputError("no CPU is online", source=tree.name, field=CPUS, remedy=remedy)

    def sharers(path: str) -> int | None:
        mask = read_mask(tree, path)
        return None if mask is None else mask & online

    # AMD's compute units: every CPU is a core, whatever its siblings.
    threads_are_cores = quirks.has_compute_units and _threads_are_cores(tree, online, sharers, core_file)
    for cpu in members(online):
        folder = f"{CPUS}/cpu{cpu}/topology"
        core = sharers(f"{folder}/{core_file}")
        if core is not None and threads_are_cores:
            nest.add(1 << cpu, "core")
        elif core is not None and _smallest(core) == cpu:
            nest.add(core, "core")
        if core is None or _smallest(core) == cpu:
            _place_larger_sets(tree, sharers, package_file, cpu, nest)
        # A book or drawer without an id is none.
        for kind, name in (("book", "Book"), ("drawer", "Drawer")) if quirks.is_s390 else ():
            shared = sharers(f"{folder}/{kind}_siblings")
            if shared is None:
                break
            if _smallest(shared) == cpu and read_int(tree, f"{folder}/{kind}_id") is not None:
                nest.add_group(shared, _BOOK_RANK, name)
        _place_caches(tree, quirks, sharers, core_file, cpu, nest)
    return present, online


def _present_and_online(tree: Tree) -> tuple[int, int]:
    listed = read_list(tree, f"{CPUS}/online")
    present = online = 0
    for name in tree.names(CPUS):
        match = _CPU_NAME.match(name)
        if match is None or int(match[1]) > HIGHEST_ID:
            continue
        cpu = int(match[1])
        present |= 1 << cpu
        # Kernels without the common list tell it in the CPU's own file; without one it cannot be taken offline.
        own = tree.read(f"{CPUS}/cpu{cpu}/online") if listed is None else None
        is_online = (own or "1")[0] in "123456789" if listed is None else listed >> cpu & 1
        # A CPU that was taken offline loses this folder, even where its state is not told.
        if is_online and tree.exists(f"{CPUS}/cpu{cpu}/topology"):
            online |= 1 << cpu
    return present, online


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


def _place_larger_sets(tree: Tree, sharers: Sharers, package_file: str, cpu: int, nest: Nest) -> None:
    """Place the package, cluster and die that begin with ``cpu``.

    Where ``cpu`` is not the first of a set, nothing larger is looked for. A cluster or die of one CPU is the kernel's
    way to say that it knows none; one equal to the next larger set says nothing new.
    """
    folder = f"{CPUS}/cpu{cpu}/topology"
    cluster = _unless_single(sharers(f"{folder}/cluster_cpus"))
    if cluster is not None and _smallest(cluster) != cpu:
        return
    die = _unless_single(sharers(f"{folder}/die_cpus"))
    package = None
    if die is None or _smallest(die) == cpu:
        package = sharers(f"{folder}/{package_file}")
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


def _threads_are_cores(tree: Tree, online: int, sharers: Sharers, core_file: str) -> bool:
    """Tell whether the first two CPUs that claim to share a core have different core ids."""
    for cpu in members(online):
        core = sharers(f"{CPUS}/cpu{cpu}/topology/{core_file}") or 0
        if core & (core - 1):
            sibling = _smallest(core & ~(1 << cpu))
            ids = [read_int(tree, f"{CPUS}/cpu{thread}/topology/core_id") for thread in (cpu, sibling)]
            return ids[0] != ids[1]
    return False


def _smallest(mask: int) -> int:
    """Return the smallest member; -1 of an empty set, which equals no CPU."""
    return (mask & -mask).bit_length() - 1


def _unless_single(mask: int | None) -> int | None:
    return None if mask is not None and mask.bit_count() == 1 else mask


def _place_caches(tree: Tree, quirks: Quirks, sharers: Sharers, core_file: str, cpu: int, nest: Nest) -> None:
    """Put the caches into ``nest`` of which ``cpu`` is the smallest member.

    The ``id`` file is not asked: firmware gets it wrong (some virtual machines give every CPU its own), and older
    kernels, ARM and POWER have none. Sharing alone tells caches apart.
    """
    folder = f"{CPUS}/cpu{cpu}/cache"
    for index in tree.names(folder):
        if index not in _INDEXES:
            continue
        shared = sharers(f"{folder}/{index}/shared_cpu_map")
        if shared == 0:
            # ia64 kernels leave it empty for caches of one core.
            shared = sharers(f"{CPUS}/cpu{cpu}/topology/{core_file}")
        if shared is None or _smallest(shared) != cpu:
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


_SPEED: Final = "LinuxCapacity"
"""What the kernel itself ranks cores by."""
_INTEL_TYPES: Final = (("cpu_atom", "IntelAtom"), ("cpu_core", "IntelCore"), ("cpu_lowpower", "IntelLowPower"))
_INTEL_RANKS: Final = {"IntelLowPower": 1, "IntelAtom": 2, "IntelCore": 3}


def read_kinds(tree: Tree, quirks: Quirks, online: int) -> tuple[CPUKind, ...]:
    """Return the kinds of cores, the slowest first where they can be ranked; empty when all are alike."""
    if quirks.has_one_kind:
        return ()
    kinds: list[CPUKind] = []
    if quirks.is_arm and tree.exists(f"{CPUS}/cpu0/regs/identification/midr_el1"):
        # Each model of core has the lowest capacity among its CPUs.
        models = {cpu: model for cpu in members(online) if (model := _read_model(tree, cpu))}
        by_model = _by_value(models)
        for model, cpus in by_model.items():
            capacity = min(read_uint(tree, f"{CPUS}/cpu{cpu}/cpu_capacity") or 0 for cpu in members(cpus))
            infos = {_SPEED: str(capacity)} | describe(model, by_model)
            _register(kinds, cpus, tuple(infos.items()))
    else:
        # Register highest clock, base clock and capacity, each from the lowest value up
        clocks = _read_clocks(tree, online)
        for index, (name, unit) in enumerate((("FrequencyMaxMHz", 1000), ("FrequencyBaseMHz", 1000), (_SPEED, 1))):
            known = {cpu: figures[index] // unit for cpu, figures in clocks.items() if figures[index] // unit}
            for value, cpus in sorted(_by_value(known).items()):
                _register(kinds, cpus, ((name, str(value)),))
        if quirks.is_x86:
            for folder, name in _INTEL_TYPES:
                _register(kinds, read_list(tree, f"sys/devices/{folder}/cpus") or 0, (("CoreType", name),))
    # With a single kind, hwloc shows no kinds in the recorded answers.
    if len(kinds) < 2:
        return ()
    # By speed; where two come out equal, none gets a rank. The kernel's capacity is believed first, if every kind has
    # one; then Intel's type of core and, within it, the clock.
    capacities = [int(value) for kind in kinds for name, value in kind.infos if name == _SPEED]
    for speeds in (capacities, _speeds_by_type_and_clock(kinds)):
        if len(set(speeds)) == len(kinds):
            by_speed = sorted(zip(speeds, kinds, strict=True), key=lambda one: one[0])
            return tuple(replace(kind, efficiency=rank) for rank, (_, kind) in enumerate(by_speed))
    return tuple(kinds)


def _register(kinds: list[CPUKind], mask: int, infos: tuple[tuple[str, str], ...]) -> None:
    """Add a property of some CPUs: a kind that has it in part is split in two."""
    cpus = CPUSet(CPUMask(mask))
    for index, kind in enumerate(tuple(kinds)):
        common = kind.cpus & cpus
        if not common:
            continue
        alike = replace(kind, cpus=common, infos=(*kind.infos, *infos))
        if common == kind.cpus:
            kinds[index] = alike
        else:
            kinds[index] = replace(kind, cpus=kind.cpus - common)
            kinds.append(alike)
        cpus -= common
    if cpus:
        kinds.append(CPUKind(-1, cpus, infos))


def _by_value(values: Mapping[int, int]) -> dict[int, int]:
    """Return the mask of the CPUs that have each value, in order of appearance."""
    masks: dict[int, int] = {}
    for cpu, value in values.items():
        masks[value] = masks.get(value, 0) | 1 << cpu
    return masks


def _speeds_by_type_and_clock(kinds: Iterable[CPUKind]) -> list[int]:
    """Return a figure per kind; none when neither types nor clocks are known throughout."""
    infos = [dict(kind.infos) for kind in kinds]
    types = [_INTEL_RANKS.get(info.get("CoreType", ""), 0) for info in infos]
    base = [int(info.get("FrequencyBaseMHz", "0")) for info in infos]
    highest = [int(info.get("FrequencyMaxMHz", "0")) for info in infos]
    if not (all(types) or all(base) or all(highest)):
        return []
    return [(kind << 20) + clock for kind, clock in zip(types, base if all(base) else highest, strict=True)]


_TOLERANCE_PERCENT: Final = 10
"""Highest clocks of cores with one base clock may differ by less than this and still mean one kind."""


Clocks: TypeAlias = tuple[int, int, int]
"""Of a CPU: the highest clock that the hardware reaches and the clock that it sustains, both in kHz, and its relative
speed, 1024 for the fastest CPU of a machine; 0 is unknown."""


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
        clocks[cpu] = (highest or 0, base or 0, capacity or 0)
    if all(base for highest, base, _ in clocks.values() if highest):
        # CPUs of one base clock the lowest of their highest clocks and capacities, if those clocks are close
        lowest: dict[int, Clocks] = {}
        for base in {base for _, base, _ in clocks.values()}:
            alike = [figures for figures in clocks.values() if figures[1] == base]
            low, high = min(alike)[0], max(alike)[0]
            if low < high and (high - low) * 100 < _TOLERANCE_PERCENT * low:
                lowest[base] = (low, base, min(capacity for _, _, capacity in alike))
        return {cpu: lowest.get(figures[1], figures) for cpu, figures in clocks.items()}
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
