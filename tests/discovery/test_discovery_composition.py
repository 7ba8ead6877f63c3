"""A machine from several sources: amounts beside a machine of any form, and files that complete each other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.values import cases

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import SHIPPED, UNTOLD, load_machine

TABLE = "# CPU,Core,Socket,Node,,L1d,L1i,L2,L3\n" + "".join(
    f"{cpu},{cpu},{cpu // 2},{cpu // 2},,,,,\n" for cpu in range(4)
)
NUMACTL = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1
node 0 size: 2048 MB
node 1 cpus: 2 3
node 1 size: 4096 MB
node distances:
node   0   1
  0:  10  31
  1:  31  10
"""


@pytest.fixture
def lscpu(tmp_path: Path) -> str:
    file = tmp_path / "lscpu.txt"
    file.write_text(TABLE, "utf-8")
    return str(file)


@pytest.fixture
def numactl(tmp_path: Path) -> str:
    file = tmp_path / "a numactl.txt"
    file.write_text(NUMACTL, "utf-8")
    return str(file)


def sizes(machine: Machine) -> list[int]:
    return [node.memory >> 20 for node in machine.info.topology]


def pages(machine: Machine) -> list[dict[int, int]]:
    return [{pool.page_size: pool.num_pages for pool in node.hugepages} for node in machine.info.topology]


def test_both_views_and_the_whole_machine_have_the_amounts(lscpu: str) -> None:
    machine = load_machine(f"{lscpu} memory=8Gi node1.memory=6Gi hugepages-2Mi=512")
    assert machine.hardware is not None
    assert sizes(machine) == [4096, 6144] == [node.memory_bytes >> 20 for node in machine.hardware.nodes]
    assert pages(machine) == [{2048: 256}, {2048: 256}]
    assert [[(pool.size_bytes, pool.count) for pool in node.hugepages] for node in machine.hardware.nodes] == [
        [(2097152, 256)],
        [(2097152, 256)],
    ]
    assert machine.info.memory_capacity >> 20 == 10240
    assert [(pool.page_size, pool.num_pages) for pool in machine.info.hugepages] == [(2048, 512)]


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_machine_takes_amounts(name: str) -> None:
    plain = load_machine(name)
    filled = [node.node_id for node in plain.info.topology if node.cores]
    no_others = "".join(f"hugepages-{pool.page_size}Ki=0 " for pool in plain.info.hugepages)
    machine = load_machine(f"{name} hugepages-2Mi={len(filled)} {no_others}memory={len(filled)}Gi")
    assert {node.node_id: node.memory for node in machine.info.topology if node.cores} == dict.fromkeys(filled, 2**30)
    assert {pool.page_size: pool.num_pages for pool in machine.info.hugepages}[2048] == len(filled)
    assert [node.cores for node in machine.info.topology] == [node.cores for node in plain.info.topology]


def test_a_machine_info_takes_amounts(tmp_path: Path) -> None:
    info = {
        "num_cores": 1,
        "memory_capacity": 4096,
        "topology": [{"node_id": 0, "memory": 4096, "cores": [{"core_id": 0, "thread_ids": [0]}]}],
    }
    file = tmp_path / "info.json"
    file.write_text(json.dumps(info), "utf-8")
    assert sizes(load_machine(f"{file}\nmemory=2Gi")) == [2048]


def test_compact_text_takes_amounts_of_one_node() -> None:
    machine = load_machine("sockets=2 cores=4 memory=8Gi node1.memory=2Gi node0.hugepages-1Gi=1")
    assert sizes(machine) == [4096, 2048]
    assert pages(machine) == [{1048576: 1}, {1048576: 0}]


@pytest.mark.parametrize("turned", [False, True])
def test_lscpu_and_numactl_are_one_machine_in_either_order(lscpu: str, numactl: str, turned: bool) -> None:
    machine = load_machine("\n".join((numactl, lscpu) if turned else (lscpu, numactl)))
    assert sizes(machine) == [2048, 4096]
    assert [node.distances for node in machine.info.topology] == [(10, 31), (31, 10)]
    assert len({core.socket_id for node in machine.info.topology for core in node.cores}) == 2
    assert not {"memory", "distances"} & set(machine.origin.unknown)
    assert not machine.origin.assumed
    assert [finding.code for finding in machine.findings].count(UNTOLD) == 1


def test_amounts_of_some_nodes_leave_the_others_assumed(lscpu: str) -> None:
    assert "memory" in load_machine(f"{lscpu} node0.memory=1Gi").origin.unknown
    assert "memory" not in load_machine(f"{lscpu} node0.memory=1Gi node1.memory=1Gi").origin.unknown


@pytest.mark.parametrize(("text", "problem"), cases(__file__, "refused-amounts.yaml", "machine", "says"))
def test_what_fits_nowhere_is_named(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        load_machine(text)
    assert problem in str(error.value)


def test_files_of_two_machines_are_refused_with_the_difference(lscpu: str, tmp_path: Path) -> None:
    other = tmp_path / "other.txt"
    other.write_text(NUMACTL.replace("cpus: 0 1", "cpus: 0 2").replace("cpus: 2 3", "cpus: 1 3"), "utf-8")
    with pytest.raises(InputError, match="NUMA node 0 has CPUs 0-1 in one and 0,2 in the other"):
        load_machine(f"{lscpu}\n{other}")
