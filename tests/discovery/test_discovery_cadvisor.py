"""The kubelet's view of recorded machines equals what cAdvisor 0.60.5 said in the same tree, member by member."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.recordings import some
from tests.values import unpack

from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.cadvisor import read_machine_info
from mooring.inputs.machines.machineinfo_json import machine_info_document
from mooring.inputs.machines.tree import open_tree

MACHINES = Path(__file__).parents[2].parent / "shared" / "machines"
SNAPSHOTS = sorted(path.parent for path in MACHINES.glob("*/expected-cadvisor.json"))
IDENTITY = {"timestamp", "machine_id", "system_uuid", "boot_id"}

needs_machines = pytest.mark.skipif(not SNAPSHOTS, reason="../shared/machines with the recorded machines is absent")


def recorded(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "expected-cadvisor.json").read_text())
    return document


@needs_machines
@pytest.mark.corpus
@pytest.mark.parametrize("folder", some(SNAPSHOTS, 3), ids=lambda path: path.name)
def test_every_snapshot_gives_the_recorded_machine_info(folder: Path) -> None:
    expected = recorded(folder)
    info, *errors = read_machine_info(open_tree(folder / f"{folder.name}.tar.gz"))
    assert errors == [expected[name] or "" for name in ("infoError", "topologyError")]
    document = machine_info_document(info, info_error=errors[0])
    assert list(document) == list(expected["machineInfo"])
    for member, value in expected["machineInfo"].items():
        if member not in IDENTITY:
            assert document[member] == value, member


@needs_machines
def test_an_unpacked_folder_reads_as_its_archive_does(tmp_path: Path) -> None:

    folder = MACHINES / "qemu-e-odd-1s12c2t-cxl"
    unpack(folder / f"{folder.name}.tar.gz", tmp_path)
    assert read_machine_info(open_tree(tmp_path)) == read_machine_info(open_tree(folder / f"{folder.name}.tar.gz"))


SYSTEM = "sys/devices/system"
SMALL = {
    f"{SYSTEM}/cpu/online": "0-1\n",
    f"{SYSTEM}/node/node0/meminfo": "Node 0 MemTotal:  1024 kB\n",
    f"{SYSTEM}/node/node0/distance": "10\n",
    f"{SYSTEM}/node/node0/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "proc/meminfo": "MemTotal: 2048 kB\nSwapTotal: 0 kB\n",
    "proc/cpuinfo": "vendor_id : X\ncpu MHz : 100.0\nphysical id : 0\ncore id : 0\n",
} | {
    f"{SYSTEM}/{place}/topology/{name}": "0\n"
    for place in ("cpu/cpu0", "cpu/cpu1", "node/node0/cpu0", "node/node0/cpu1")
    for name in ("core_id", "physical_package_id")
}


def test_the_small_tree_is_a_whole_machine() -> None:
    info, *errors = read_machine_info(ArchiveTree("small", {path: text.encode() for path, text in SMALL.items()}))
    assert (errors, info.num_cores, info.topology[0].cores[0].thread_ids) == (["", ""], 2, (0, 1))


TEXTS = st.one_of(
    st.sampled_from(["", "-1", "7", "x", "0-", "9" * 30, "1-2-3", "3-1", "0,x", "10  20", "\n", "٣", "MemTotal: 1 kB"]),
    st.text(max_size=20),
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(SMALL)), st.none() | TEXTS, max_size=6), st.data())
def test_no_content_of_any_file_makes_reading_fail(changes: dict[str, str | None], data: st.DataObject) -> None:
    files = {path: text for path, text in (SMALL | changes).items() if text is not None}
    for _ in range(data.draw(st.integers(0, 2))):
        parent = data.draw(st.sampled_from([f"{SYSTEM}/cpu", f"{SYSTEM}/node", f"{SYSTEM}/node/node0/hugepages"]))
        name = data.draw(st.sampled_from(["cpu7", "cpux1", "cpu99999999999", "node3", "nodex1", "hugepages", "file"]))
        files[f"{parent}/{name}"] = "1"
    info, error, topology_error = read_machine_info(
        ArchiveTree("mutated", {path: text.encode("utf-8", "replace") for path, text in files.items()})
    )
    assert error or info.memory_capacity or "proc/meminfo" in changes
    assert bool(topology_error) <= (info.topology == ())
