"""Every recorded machine: the hardware must be what hwloc 2.14 recorded, whatever form the snapshot has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins
from tests.planner.recordings import some
from tests.values import unpack

from mooring.engine.core.errors import InputError
from mooring.inputs.machines.hardware import hardware_findings, read_hardware
from mooring.inputs.machines.machine_document import hardware_document
from mooring.inputs.machines.tree import open_tree

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/expected-hwloc.json"))
SMALL = [name for name in NAMES if (MACHINES / name / f"{name}.tar.gz").stat().st_size < 40_000][::3]
"""Machines whose archives are unpacked: every third of the small ones."""
PLACES = ("id", "core", "package", "packageFirstCpu", "numa", "die", "l2", "l3", "efficiency", "groups")

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not NAMES, reason="the recorded machines (../shared/machines) are not here"),
]


def expected(name: str) -> dict[str, Any]:
    """Return a recording in the shape of the document."""
    recorded: dict[str, Any] = json.loads((MACHINES / name / "expected-hwloc.json").read_text())
    if "error" in recorded:
        return recorded
    summary = recorded.pop("cpus")
    places = [{key: cpu.get(key) for key in PLACES} for cpu in recorded.pop("pus")]
    lists = {key: summary[key] for key in ("online", "offline", "allowed", "disallowed")}
    return {key: value for key, value in recorded.items() if key not in {"name", "source"}} | lists | {"cpus": places}


def document(source: Path) -> dict[str, object]:
    tree = open_tree(source)
    hardware = read_hardware(tree)
    hardware_findings(tree, hardware)
    shown: dict[str, object] = to_builtins(hardware_document("", hardware))
    # The recordings have CPUs and memory; devices are compared in test_discovery_pci.
    for member in ("apiVersion", "kind", "name", "findings", "origin", "pciDevices"):
        del shown[member]
    assert shown.pop("isolated") == "", "no recorded machine has isolated CPUs"
    return shown


def check(source: Path, name: str) -> None:
    wanted = expected(name)
    if "error" in wanted:
        with pytest.raises(InputError, match=r"CPU topology|holds no machine"):
            document(source)
        return
    shown = document(source)
    assert shown.keys() == wanted.keys()
    for member, value in wanted.items():
        assert shown[member] == value, member


@pytest.mark.parametrize("name", some(NAMES, 3) or ["absent"])
def test_the_archive_of_a_machine_tells_what_hwloc_recorded(name: str) -> None:
    check(MACHINES / name / f"{name}.tar.gz", name)


@pytest.mark.parametrize("name", some(SMALL, 3) or ["absent"])
def test_the_unpacked_folder_of_a_machine_tells_the_same(name: str, tmp_path: Path) -> None:
    unpack(MACHINES / name / f"{name}.tar.gz", tmp_path)
    check(tmp_path, name)
