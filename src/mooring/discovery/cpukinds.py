"""Kinds of cores: performance and efficiency cores, or any others that the kernel tells apart.

Sources: cpufreq and acpi_cppc (clocks), cpu_capacity (relative speed on ARM and others), midr_el1 (ARM model), and the
performance counters ``cpu_core``, ``cpu_atom``, ``cpu_lowpower`` of hybrid Intel processors. hwloc 2.14
(topology-linux.c, look_sysfscpukinds; cpukinds.c) decides what makes a kind and which kind is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from mooring.core.bits import members
from mooring.core.cpuset import CPUSet
from mooring.core.hardware import CPUKind
from mooring.discovery.armmodels import describe, read_model
from mooring.discovery.clocks import Clocks, read_clocks
from mooring.discovery.cores import CPUS
from mooring.discovery.kernelfiles import read_list, read_uint
from mooring.discovery.quirks import Quirks
from mooring.discovery.tree import Tree

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
        _register_clocks(read_clocks(tree, online), kinds)
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


def _register_clocks(clocks: Mapping[int, Clocks], kinds: list[_Kind]) -> None:
    """Register highest clock, base clock and capacity, each from the lowest value up."""
    properties: tuple[tuple[str, Callable[[Clocks], int], bool], ...] = (
        ("FrequencyMaxMHz", lambda clock: clock.highest // 1000, False),
        ("FrequencyBaseMHz", lambda clock: clock.base // 1000, False),
        ("LinuxCapacity", lambda clock: clock.capacity, True),
    )
    for name, value_of, is_speed in properties:
        known = {cpu: value_of(clock) for cpu, clock in clocks.items() if value_of(clock)}
        for value, cpus in sorted(_by_value(known).items()):
            _register(kinds, cpus, value if is_speed else None, {(name, str(value)): None})


def _register_arm_models(tree: Tree, online: int, kinds: list[_Kind]) -> None:
    """Register each model of core with the lowest capacity among its CPUs; one model alone makes no kinds."""
    models = {cpu: model for cpu in members(online) if (model := read_model(tree, cpu))}
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
    return CPUKind(efficiency, CPUSet(kind.cpus), tuple(kind.infos))
