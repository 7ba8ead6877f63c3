"""Machines as people paste them: parts of what a tool prints, in other languages, with what a terminal adds."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.values import cases

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import machine_in

FOLDER = Path(__file__).parent / "pasted"
"""Each file tells the same machine: NUMA nodes 0 and 1 with cores (0, 4), (1, 5) and (2, 6), (3, 7)."""


def pasted(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


FRAGMENT, WRAPPED = pasted("lines-of-numa-nodes-alone"), pasted("numactl-wrapped")
MATRIX = pasted("nvidia-smi").partition("\n")[2]
"""Without the command in its first line."""
PASTED = {file.stem: pasted(file.stem) for file in sorted(FOLDER.iterdir())} | {
    "Windows": WRAPPED.replace("\n", "\r\n"),
    "colours": FRAGMENT.replace("NUMA", "\x1b[01;31mNUMA\x1b[0m"),
}


def read(text: str) -> Machine:
    return machine_in(text.encode(), "given")


@pytest.mark.parametrize("name", PASTED)
def test_nodes_and_cores_are_read_or_follow_from_the_numbers(name: str) -> None:
    machine = read(PASTED[name])
    cores = [
        [sorted(core.thread_ids) for core in node.cores]
        for node in sorted(machine.info.topology, key=lambda node: node.node_id)
    ]
    assert [sorted(node) for node in cores] == [[[0, 4], [1, 5]], [[2, 6], [3, 7]]]
    assert machine.info.num_sockets == 2


@pytest.mark.parametrize(("assumed", "name"), cases(__file__, "assumed-of-pasted.yaml", "assumed", "name"))
def test_what_is_assumed_is_listed(assumed: list[str], name: str) -> None:
    assert list(read(PASTED[name]).origin.assumed) == assumed


def test_clusters_of_an_arm_machine_without_sockets_are_its_sockets() -> None:
    text = (
        "Architecture: aarch64\nCPU(s): 8\nThread(s) per core: 1\nCore(s) per cluster: 4\nSocket(s): -\nCluster(s): 2\n"
        + "".join(f"NUMA node{node} CPU(s): {2 * node}-{2 * node + 1}\n" for node in range(4))
    )
    machine = read(text)
    assert (machine.info.num_sockets, len(machine.info.topology)) == (2, 4)
    assert "every NUMA node is a socket" not in machine.origin.assumed


def test_lstopo_tells_memory_and_shared_caches() -> None:
    for name in ("lstopo-of-hwloc-1", "lstopo-of-hwloc-2"):
        nodes = read(PASTED[name]).info.topology
        assert [node.memory // 2**20 for node in nodes] == [4095, 4096]
        assert [[cache.level for cache in node.caches] for node in nodes] == [[3], [3]]


def test_topology_objects_of_schedulers_tell_policies() -> None:
    published = [read(PASTED[name]).published for name in ("koordinator", "volcano")]
    assert [dict(one.fields) for one in published if one] == [
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0,4"},
        {"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted"},
    ]


def test_a_guest_of_libvirt_is_the_machine_of_its_cells() -> None:
    domain = (
        "<domain><name>worker</name><cpu><topology sockets='2' dies='1' cores='2' threads='2'/><numa>"
        "<cell id='0' cpus='0-3' memory='8' unit='GiB'/><cell id='1' cpus='4-7' memory='8' unit='GiB'/>"
        "</numa></cpu></domain>"
    )
    machine = read(domain)
    assert (machine.name, machine.info.num_sockets, machine.info.memory_capacity) == ("worker", 2, 16 * 2**30)
    assert [core.thread_ids for node in machine.info.topology for core in node.cores] == [
        (0, 1), (2, 3), (4, 5), (6, 7),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (MATRIX.replace("0-1,4-5", "0-x"), "given:2: GPU0: "),
        (
            MATRIX.replace("\t0\t", "\tN/A\t").replace("\t1\t", "\tN/A\t"),
            "no GPU has the CPUs of one NUMA node",
        ),
        (f"> {WRAPPED.splitlines()[2]}\n> node 0 cpus: 1\n", "node 0 is there twice"),
        (PASTED["koordinator"].replace('{\\"detail', '[{\\"detail'), "cpu-topology: is not valid JSON"),
        (PASTED["volcano"].replace('"1": {', '"x": {'), "spec.cpuDetail.x.cpu: 'x' is not a whole number"),
        (PASTED["lstopo-of-hwloc-2"].replace("PU L#", "XU L#"), "has no PU"),
        (PASTED["cells-of-libvirt"].replace("id='4'", "id='0'"), "CPU 0 is there twice"),
        ("```\nhello\n```\n", "is not a machine in any known format"),
    ],
)
def test_what_cannot_be_used_is_one_line(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read(text)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
