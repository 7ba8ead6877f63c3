"""Kinds of cores: what makes one, and which is faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.discovery.trees import Files, cores, hardware, per_cpu

CASES = yaml.safe_load((Path(__file__).parent / "kinds-of-cores.yaml").read_text(encoding="utf-8"))
FIGURES = {
    "highest": ("cpufreq/cpuinfo_max_freq", 1000),
    "base": ("cpufreq/base_frequency", 1000),
    "nominal": ("acpi_cppc/nominal_freq", 1),
    "capacity": ("cpu_capacity", 1),
}


def files_of(case: dict[str, Any]) -> Files:
    files = per_cpu("regs/identification/midr_el1", *case.get("models", ()))
    for name, (file, unit) in FIGURES.items():
        files |= per_cpu(file, *(None if value is None else value * unit for value in case.get(name, ())))
    files |= {f"sys/devices/cpu_{kind}/cpus": f"{cpus}\n" for kind, cpus in case.get("types", {}).items()}
    if "arch" in case:
        files["proc/hwloc-nofile-info"] = f"Architecture: {case['arch']}\n"
    if "amd" in case:
        files["proc/cpuinfo"] = f"processor : 0\nvendor_id : AuthenticAMD\ncpu family : {case['amd']}\n\n"
    return files


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_kinds_of_cores_are_told_and_ranked(case: dict[str, Any]) -> None:
    found = hardware(cores(4), files_of(case)).kinds
    assert [(kind.efficiency, str(kind.cpus)) for kind in found] == [(rank, cpus) for rank, cpus, *_ in case["kinds"]]
    for kind, (_, _, *infos) in zip(found, case["kinds"], strict=True):
        assert infos in ([], [dict(kind.infos)])
