"""Every recorded machine: hardware as hwloc 2.14, the kubelet's view as cAdvisor 0.60.5, and the differences as found.

The snapshot has any form: the archive, its unpacked folder, or what is captured of it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import to_builtins
from tests.planner.recordings import some
from tests.values import not_none, unpack

from mooring.documents.machine import hardware_document
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.archive.collect import CollectRequest, collect
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.cadvisor import read_machine_info
from mooring.inputs.machines.isolation import read_isolation
from mooring.inputs.machines.loader import load_machine, machine_of
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.inputs.machines.tree import Tree, open_tree

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
ARCHIVES = {path.parent.name: path for path in sorted(MACHINES.glob("*/*.tar.*"))}
OF_HWLOC = sorted(path.parent.name for path in MACHINES.glob("*/expected-hwloc.json"))
OF_CADVISOR = sorted(path.parent.name for path in MACHINES.glob("*/expected-cadvisor.json"))
SMALL = [name for name in OF_HWLOC if ARCHIVES[name].stat().st_size < 40_000][::3]
"""Machines whose archives are unpacked: every third of the small ones."""
PLACES = ("id", "core", "package", "packageFirstCpu", "numa", "die", "l2", "l3", "efficiency", "groups")
IDENTITY = {"timestamp", "machine_id", "system_uuid", "boot_id"}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not ARCHIVES, reason="the recorded machines (../shared/machines) are not here"),
]


def some_of(names: list[str]) -> list[str]:
    return some(names, 3) or ["absent"]


@cache
def recorded(name: str, by: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((MACHINES / name / f"expected-{by}.json").read_text())
    return document


def expected(name: str) -> dict[str, Any]:
    """Return a recording of hwloc in the shape of the document."""
    told = dict(recorded(name, "hwloc"))
    summary = told.pop("cpus")
    places = [{key: cpu.get(key) for key in PLACES} for cpu in told.pop("pus")]
    lists = {key: summary[key] for key in ("online", "offline", "allowed", "disallowed")}
    return {key: value for key, value in told.items() if key not in {"name", "source"}} | lists | {"cpus": places}


def document(source: Path) -> dict[str, object]:
    shown: dict[str, object] = to_builtins(hardware_document("", not_none(machine_of(open_tree(source)).hardware)))
    # The recordings have CPUs and memory; devices are compared in test_discovery_pci.
    for member in ("apiVersion", "kind", "name", "findings", "origin", "pciDevices"):
        del shown[member]
    assert shown.pop("isolated") == "", "no recorded machine has isolated CPUs"
    return shown


def check(source: Path, name: str) -> None:
    if "error" in recorded(name, "hwloc"):
        with pytest.raises(InputError, match=r"CPU topology|holds no machine"):
            document(source)
        return
    shown, wanted = document(source), expected(name)
    assert shown.keys() == wanted.keys()
    for member, value in wanted.items():
        assert shown[member] == value, member


@pytest.mark.parametrize("name", some_of(OF_HWLOC))
def test_the_archive_of_a_machine_tells_what_hwloc_recorded(name: str) -> None:
    check(ARCHIVES[name], name)


@pytest.mark.parametrize("name", some_of(SMALL))
def test_the_unpacked_folder_of_a_machine_tells_the_same(name: str, tmp_path: Path) -> None:
    unpack(ARCHIVES[name], tmp_path)
    check(tmp_path, name)
    assert read_machine_info(open_tree(tmp_path)) == read_machine_info(open_tree(ARCHIVES[name]))


@pytest.mark.parametrize("name", some_of(OF_CADVISOR))
def test_every_snapshot_gives_the_recorded_machine_info(name: str) -> None:
    wanted = recorded(name, "cadvisor")
    info, *errors = read_machine_info(open_tree(ARCHIVES[name]))
    assert errors == [wanted[error] or "" for error in ("infoError", "topologyError")]
    told = machine_info_document(info, info_error=errors[0])
    assert list(told) == list(wanted["machineInfo"])
    for member, value in wanted["machineInfo"].items():
        if member not in IDENTITY:
            assert told[member] == value, member


WORDINGS = yaml.safe_load((Path(__file__).parent / "wordings.yaml").read_text(encoding="utf-8"))
"""Recorded wording -> ours."""


@pytest.mark.parametrize("name", some_of([name for name in OF_CADVISOR if name != "1alpha"]))
def test_every_recorded_difference_of_a_snapshot_is_reported(name: str) -> None:
    told = " ".join(finding.message for finding in load_machine(str(ARCHIVES[name])).findings)
    for line in recorded(name, "cadvisor")["differences"]:
        ours = next((our for pattern, our in WORDINGS.items() if re.match(pattern, line)), None)
        assert ours is not None, f"no wording for: {line}"
        assert re.search(ours, told), line


def collected(tree: Tree) -> ArchiveTree:
    found = collect(tree, CollectRequest())
    return ArchiveTree("copy", found.files, found.links, found.folders)


def machine_or_problem(tree: Tree) -> Machine | str:
    try:
        return machine_of(tree, "same")
    except InputError as error:
        return error.problem


@pytest.mark.parametrize("name", [name for name in ARCHIVES if name != "1alpha"][::3])
def test_what_is_collected_of_a_machine_is_the_machine(name: str) -> None:
    tree, online = open_tree(ARCHIVES[name]), CPUSet.parse("0-63")
    once = collected(tree)
    assert machine_or_problem(once) == machine_or_problem(tree)
    assert read_isolation(once, online) == read_isolation(collected(once), online)
