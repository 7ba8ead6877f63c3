"""Kinds of cores: what makes one, and which is faster."""

from __future__ import annotations

import pytest
from tests.discovery.trees import X86, Files, cores, hardware, per_cpu

from mooring.engine.core.machineinfo import CPUKind

ARM = {"proc/hwloc-nofile-info": "Architecture: aarch64\n"}


def kinds(*parts: Files) -> tuple[CPUKind, ...]:
    return hardware(cores(4), *parts).kinds


def highest(*mhz: int | None) -> Files:
    return per_cpu("cpufreq/cpuinfo_max_freq", *(None if value is None else value * 1000 for value in mhz))


def base(*mhz: int | None) -> Files:
    return per_cpu("cpufreq/base_frequency", *(None if value is None else value * 1000 for value in mhz))


def shown(found: tuple[CPUKind, ...]) -> list[tuple[int, str, dict[str, str]]]:
    return [(kind.efficiency, str(kind.cpus), dict(kind.infos)) for kind in found]


def ranks(found: tuple[CPUKind, ...]) -> list[tuple[int, str]]:
    return [(kind.efficiency, str(kind.cpus)) for kind in found]


def test_equal_cores_have_no_kinds() -> None:
    for files in ({}, highest(3000, 3000, 3000, 3000), per_cpu("cpu_capacity", 1024, 1024, 1024, 1024)):
        assert kinds(files) == ()


def test_cores_are_ranked_by_base_clock_if_all_tell_it() -> None:
    found = kinds(highest(3000, 3000, 5000, 5000), base(2500, 2500, 1400, 1400))
    assert shown(found) == [
        (0, "2-3", {"FrequencyMaxMHz": "5000", "FrequencyBaseMHz": "1400"}),
        (1, "0-1", {"FrequencyMaxMHz": "3000", "FrequencyBaseMHz": "2500"}),
    ]


def test_cores_are_ranked_by_highest_clock_else() -> None:
    assert ranks(kinds(highest(5000, 3000, 5000, 3000))) == [(0, "1,3"), (1, "0,2")]
    assert ranks(kinds(highest(5000, 5000, 3000, 4000), base(None, None, 1000, 1000))) == [
        (0, "2"),
        (1, "3"),
        (2, "0-1"),
    ]


def test_favoured_cores_of_one_base_clock_are_no_kind_of_their_own() -> None:
    assert kinds(highest(5000, 5000, 5300, 5400), base(2000, 2000, 2000, 2000)) == ()
    assert ranks(kinds(highest(5000, 5000, 5500, 5500), base(2000, 2000, 2000, 2000))) == [(-1, "0-1"), (-1, "2-3")]
    assert ranks(kinds(highest(5000, 5000, 5300, 5300))) == [(0, "0-1"), (1, "2-3")], (
        "without base clock none is favoured"
    )


def test_kinds_that_come_out_equal_have_no_rank() -> None:
    found = kinds(
        highest(3000, 3000, 3000, 2000), base(2500, 1200, 1200, 1200), per_cpu("cpu_capacity", 234, 234, 234, 1025)
    )
    assert ranks(found) == [(-1, "3"), (-1, "0"), (-1, "1-2")]


def test_the_capacity_that_the_kernel_gives_outweighs_clocks() -> None:
    found = kinds(highest(5000, 5000, 3000, 3000), per_cpu("cpu_capacity", 400, 400, 1024, 1024))
    assert ranks(found) == [(0, "0-1"), (1, "2-3")]
    assert dict(found[0].infos) == {"FrequencyMaxMHz": "5000", "LinuxCapacity": "400"}


def test_the_nominal_clock_stands_in_only_where_the_first_cpu_has_no_base_clock() -> None:
    nominal = per_cpu("acpi_cppc/nominal_freq", 2000, 2000, 1000, 1000)
    assert shown(kinds(nominal)) == [(0, "2-3", {"FrequencyBaseMHz": "1000"}), (1, "0-1", {"FrequencyBaseMHz": "2000"})]
    assert kinds(nominal, base(1800, 1800, 1800, 1800)) == ()
    assert kinds(nominal, per_cpu("acpi_cppc/nominal_freq", 0, 2000, 1000, 1000)) == ()


def test_intel_types_rank_above_clocks_and_count_on_x86_only() -> None:
    types = {
        "sys/devices/cpu_core/cpus": "0\n",
        "sys/devices/cpu_atom/cpus": "1-2\n",
        "sys/devices/cpu_lowpower/cpus": "3\n",
    }
    found = kinds(types, X86)
    assert shown(found) == [
        (0, "3", {"CoreType": "IntelLowPower"}),
        (1, "1-2", {"CoreType": "IntelAtom"}),
        (2, "0", {"CoreType": "IntelCore"}),
    ]
    assert ranks(kinds(types, X86, highest(1000, 2000, 2000, 3000))) == [(0, "3"), (1, "1-2"), (2, "0")]
    assert kinds(types) == ()


def test_one_type_split_by_clock_is_ranked_by_clock() -> None:
    types = {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"}
    found = kinds(types, X86, highest(4000, 5000, 3000, 3000))
    assert ranks(found) == [(0, "2-3"), (1, "0"), (2, "1")]


def test_a_list_that_cuts_through_a_kind_splits_it() -> None:
    found = kinds({"sys/devices/cpu_atom/cpus": "1-2\n"}, X86, highest(3000, 3000, 4000, 4000))
    assert ranks(found) == [(0, "0"), (1, "3"), (2, "1"), (3, "2")]


@pytest.mark.parametrize(("family", "count"), [(23, 0), (25, 0), (26, 2), (21, 2)])
def test_clocks_of_amd_before_zen_5_are_not_asked(family: int, count: int) -> None:
    cpuinfo = {"proc/cpuinfo": f"processor : 0\nvendor_id : AuthenticAMD\ncpu family : {family}\n\n"}
    assert len(kinds(cpuinfo, X86, highest(3000, 3000, 4000, 4000))) == count


def test_arm_models_are_kinds_ranked_by_capacity_and_clocks_do_not_count() -> None:
    models = per_cpu("regs/identification/midr_el1", *["0x00000000410fd871"] * 2, *["0x00000000410fd851"] * 2)
    clocks = highest(1000, 2000, 3000, 4000)
    found = kinds(ARM, models, clocks, per_cpu("cpu_capacity", 731, 718, 1024, 997))
    assert shown(found) == [
        (0, "0-1", {"LinuxCapacity": "718", "CPUPart": "0xd87"}),
        (1, "2-3", {"LinuxCapacity": "997", "CPUPart": "0xd85"}),
    ]
    assert ranks(kinds(ARM, models)) == [(-1, "0-1"), (-1, "2-3")], "without capacities there is no rank"
    assert kinds(ARM, per_cpu("regs/identification/midr_el1", *["0x410fd871"] * 4), clocks) == ()


def test_every_field_in_which_arm_models_differ_is_reported() -> None:
    models = per_cpu("regs/identification/midr_el1", "0x410fd871", "0x512f0a02", None, "junk")
    first, second = (dict(kind.infos) for kind in kinds(ARM, models, per_cpu("cpu_capacity", 1, 2)))
    assert first == {
        "LinuxCapacity": "1",
        "CPUImplementer": "0x41",
        "CPUVariant": "0x0",
        "CPUPart": "0xd87",
        "CPURevision": "1",
    }
    assert second["CPUImplementer"] == "0x51"
    assert second["CPUVariant"] == "0x2"
