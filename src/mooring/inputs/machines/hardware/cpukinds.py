"""Kinds of cores: performance and efficiency cores, or any others that the kernel tells apart.

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
from mooring.engine.core.machine import CPUKind
from mooring.inputs.machines.hardware.cores import CPUS
from mooring.inputs.machines.hardware.kernelfiles import Quirks, read_list, read_uint
from mooring.inputs.machines.tree import Tree
from mooring.lazy import dataclass, field

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
        _register_arm_models(tree, online, kinds)
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
    return _ranked(kinds) if len(kinds) > 1 else ()


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


def _register_arm_models(tree: Tree, online: int, kinds: list[_Kind]) -> None:
    """Register each model of core with the lowest capacity among its CPUs; one model alone makes no kinds."""
    models = {cpu: model for cpu in members(online) if (model := _read_model(tree, cpu))}
    by_model = _by_value(models)
    if len(by_model) < 2:
        return
    for model, cpus in by_model.items():
        capacity = min(read_uint(tree, f"{CPUS}/cpu{cpu}/cpu_capacity") or 0 for cpu in members(cpus))
        infos = {"LinuxCapacity": str(capacity)} | describe(model, by_model)
        _register(kinds, cpus, capacity, dict.fromkeys(infos.items()))


def _by_value(values: Mapping[int, int]) -> dict[int, int]:
    """Return the mask of the CPUs that have each value, in order of appearance."""
    masks: dict[int, int] = {}
    for cpu, value in values.items():
        masks[value] = masks.get(value, 0) | 1 << cpu
    return masks


def _ranked(kinds: list[_Kind]) -> tuple[CPUKind, ...]:
    """Order the kinds by speed; where two come out equal, none gets a rank.

    The kernel's capacity is believed first, if every kind has one; then Intel's type of core and, within it, the clock.
    """
    forced = [kind.forced for kind in kinds if kind.forced is not None]
    for speeds in (forced, _speeds_by_type_and_clock(kinds)):
        if len(set(speeds)) == len(kinds):
            order = sorted(range(len(kinds)), key=speeds.__getitem__)
            return tuple(_finished(kinds[index], rank) for rank, index in enumerate(order))
    return tuple(_finished(kind, -1) for kind in kinds)


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
    if match is None:
        return 0
    return int(match[1], 16) if match[1][:2] in {"0x", "0X"} else int(match[1])


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
