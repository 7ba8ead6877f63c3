"""Rules about CPUs: which are shown, and how cores, clusters, dies, packages, books and caches come about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.discovery.trees import CPUS, Files, cores, per_cpu, plain
from tests.discovery.trees import hardware as read

from mooring.engine.core.bits import mask_of
from mooring.engine.core.errors import InputError


def table(name: str) -> Any:
    return yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))


def shared(name: str, groups: list[list[int]]) -> Files:
    """Return a mask file for every CPU of every group."""
    return {f"{CPUS}/cpu{cpu}/{name}": f"{mask_of(group):x}\n" for group in groups for cpu in group}


def files_of(case: dict[str, Any]) -> Files:
    files = cores(case.get("cores", 0))
    files |= {f"{CPUS}/{path}": f"{text}\n" for path, text in case.get("files", {}).items()}
    for name, groups in case.get("sets", {}).items():
        files |= shared(name, groups)
    for index, (level, groups, kind) in enumerate(case.get("caches", ())):
        files |= shared(f"cache/index{index}/shared_cpu_map", groups)
        for cpu in (cpu for group in groups for cpu in group):
            folder = f"{CPUS}/cpu{cpu}/cache/index{index}"
            files |= {f"{folder}/level": f"{level}\n", f"{folder}/type": f"{kind}\n"}
    for name, texts in case.get("each", {}).items():
        files |= {f"{CPUS}/cpu{cpu}/{name}": f"{text}\n" for cpu, text in texts.items()}
    if "online" in case:
        files[f"{CPUS}/online"] = f"{case['online']}\n"
    if case.get("arch"):
        files["proc/hwloc-nofile-info"] = f"OSName: Linux\nArchitecture: {case['arch']}\n"
    return files | ({"proc/cpuinfo": case["cpuinfo"]} if "cpuinfo" in case else {})


@pytest.mark.parametrize("case", table("cpus-in-files.yaml"), ids=lambda case: str(case["name"]))
def test_cpus_are_shown_as_their_files_tell_them(case: dict[str, Any]) -> None:
    hardware = read(files_of(case))
    for member, column in case.get("cpus", {}).items():
        assert [plain(getattr(cpu, member)) for cpu in hardware.cpus] == column, member
    for member, value in case.get("machine", {}).items():
        assert plain(getattr(hardware, member)) == value, member


@pytest.mark.parametrize(
    "files",
    [
        {f"{CPUS}/online": "0-1\n"},
        {f"{CPUS}/cpu0/topology/core_id": "0\n"},
        {f"{CPUS}/cpu1/topology/core_cpus": "2\n"},  # only CPU 0, or the first of the list, is asked
    ],
)
def test_a_tree_without_cpu_topology_is_refused(files: Files) -> None:
    with pytest.raises(InputError, match=r"reports no CPU topology.*name a folder or archive"):
        read(files)


@pytest.mark.parametrize("files", [{}, {"proc/cpuinfo": "processor : 0\n"}])
def test_a_tree_without_cpus_holds_no_machine(files: Files) -> None:
    with pytest.raises(InputError, match=r"holds no machine: sys/devices/system/cpu is missing; name a folder or arch"):
        read(files)


def test_a_tree_with_all_cpus_offline_is_refused() -> None:
    with pytest.raises(InputError, match="no CPU is online"):
        read(cores(1), per_cpu("online", 0))


CPUSETS = table("cpusets.yaml")


@pytest.mark.parametrize("kind", CPUSETS)
def test_the_cpuset_of_the_snapshot_limits_what_is_allowed(kind: str) -> None:
    hardware = read(cores(4), CPUSETS[kind])
    assert str(hardware.allowed) == "1-2"
    assert hardware.nodes_disallowed == (0,)


def test_without_a_cpuset_everything_is_allowed() -> None:
    without_controller = CPUSETS["v2"] | {"cg/cgroup.controllers": "cpu io\n"}
    not_mounted = {path: text for path, text in CPUSETS["v1"].items() if path != "proc/mounts"}
    for files in (without_controller, not_mounted, {"proc/mounts": "x\n\n#\n"}):
        hardware = read(cores(4), files)
        assert str(hardware.allowed) == "0-3"
        assert hardware.nodes_disallowed == ()
