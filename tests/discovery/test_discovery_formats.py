"""A machine is the same from the outputs of other tools, as far as they tell it; what they leave open is listed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.discovery import tool_outputs
from tests.values import cases

from mooring.documents.machine import machine_document
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.machineinfo import MachineInfo
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import UNTOLD, load_machine, machine_in, shipped_machine

TWO_NODES = "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi hugepages-2Mi=64 distances=10,12,32"
MACHINES = {
    "snc": parse_compact(TWO_NODES),
    "adjacent": parse_compact("sockets=2 cores=8 threads=2 siblings=adjacent memory=8Gi"),
    "hbm": parse_compact("sockets=2 cores=8 cpuless=2 memory=8Gi"),
    "epyc": shipped_machine("epyc-7763-2s-nps1"),
}


def read(text: str) -> Machine:
    return machine_in(text.encode(), "given")


def cores_of(info: MachineInfo) -> list[tuple[int, tuple[int, ...]]]:
    return sorted((node.node_id, core.thread_ids) for node in info.topology for core in node.cores)


def uncore_of(info: MachineInfo) -> set[frozenset[int]]:
    """Return the CPUs that share each uncore cache."""
    shared: dict[tuple[int, int], set[int]] = {}
    for node in info.topology:
        for core in node.cores:
            for cache in core.uncore_caches:
                shared.setdefault((core.socket_id, cache.id), set()).update(core.thread_ids)
    return {frozenset(cpus) for cpus in shared.values()}


@pytest.mark.parametrize("version", ["2.0", "3.0"])
@pytest.mark.parametrize("name", MACHINES)
def test_lstopo_tells_all_that_the_kubelet_decides_by(name: str, version: str) -> None:
    machine = MACHINES[name]
    again = read(tool_outputs.lstopo(machine, version))
    assert again.info.topology == machine.info.topology
    assert again.info.hugepages == machine.info.hugepages
    assert (again.info.num_cores, again.info.num_sockets) == (machine.info.num_cores, machine.info.num_sockets)
    assert again.info.memory_capacity == machine.info.memory_capacity
    assert again.hardware is not None
    assert machine.hardware is not None
    assert again.hardware.cpus == machine.hardware.cpus
    assert (again.name, again.pci[0].class_code, again.pci[0].vendor) == ("box", "030200", "10de")
    assert again.origin.assumed == ()


@pytest.mark.parametrize("write", [tool_outputs.lscpu_json, tool_outputs.lscpu_parsable, tool_outputs.lscpu_extended])
@pytest.mark.parametrize("name", ["snc", "adjacent", "epyc"])
def test_tables_of_lscpu_tell_cores_sockets_nodes_and_sharing_of_caches(
    name: str, write: Callable[[Machine], str]
) -> None:
    machine = MACHINES[name]
    again = read(write(machine))
    assert cores_of(again.info) == cores_of(machine.info)
    assert uncore_of(again.info) == uncore_of(machine.info)
    assert again.info.num_sockets == machine.info.num_sockets
    assert "memory" in again.origin.unknown


@pytest.mark.parametrize("name", ["snc", "adjacent"])
def test_the_summary_of_lscpu_tells_cores_where_the_numbers_do(name: str) -> None:
    machine = MACHINES[name]
    again = read(tool_outputs.lscpu_summary(machine))
    assert cores_of(again.info) == cores_of(machine.info)
    assert uncore_of(again.info) == uncore_of(machine.info)
    assert "which CPUs are one core" in again.origin.unknown


@pytest.mark.parametrize("name", ["snc", "hbm"])
def test_libvirt_tells_all_but_small_caches_and_devices(name: str) -> None:
    machine = MACHINES[name]
    again = read(tool_outputs.capabilities(machine))
    assert cores_of(again.info) == cores_of(machine.info)
    assert uncore_of(again.info) == uncore_of(machine.info)
    bare = [replace(node, cores=(), caches=()) for node in machine.info.topology]
    assert [replace(node, cores=(), caches=()) for node in again.info.topology] == bare
    assert "PCI devices" in again.origin.unknown


def test_numactl_tells_nodes_memory_and_distances() -> None:
    machine = MACHINES["snc"]
    again = read(tool_outputs.numactl(machine))
    assert cores_of(again.info) == cores_of(machine.info)
    facts = [(node.node_id, node.memory, node.distances) for node in again.info.topology]
    assert facts == [(node.node_id, node.memory, node.distances) for node in machine.info.topology]
    assert "2 threads a core, as the runs of CPU numbers suggest" in again.origin.assumed
    alone = read("available: 1 nodes (0)\nnode 0 cpus: 0 1\nnode 0 size: 12 MB\nnode 0 free: 7 MB\n")
    assert [core.thread_ids for core in alone.info.topology[0].cores] == [(0,), (1,)]


TOPOLOGY = (Path(__file__).parent / "published-node.yaml").read_text(encoding="utf-8")


def test_a_node_resource_topology_tells_amounts() -> None:
    machine = read(TOPOLOGY)
    first, second = machine.info.topology
    assert (machine.name, machine.info.num_cores, first.memory, first.distances) == ("worker-1", 8, 2**33, (10, 21))
    assert [(pool.page_size, pool.num_pages) for pool in first.hugepages] == [(2**20, 2)]
    assert [core.thread_ids for core in second.cores] == [(4,), (5,), (6,), (7,)]
    assert "numbers of CPUs" in machine.origin.unknown


def test_a_machine_without_numa_nodes_stays_one() -> None:
    table = '{"cpus": [{"cpu": 0, "socket": 0, "core": 0, "online": true}, {"cpu": 1, "socket": 0, "core": 1}]}'
    machine = read(table)
    assert [(node.node_id, node.memory, len(node.cores)) for node in machine.info.topology] == [(0, 0, 2)]


def test_what_is_not_told_is_a_finding_and_a_field_of_the_document() -> None:
    machine = read(tool_outputs.numactl(MACHINES["adjacent"]))
    found = next(finding for finding in machine.findings if finding.code == UNTOLD)
    assert found.severity == "warning"
    assert found.message.startswith("numactl -H does not report cores, sockets, caches")
    origin = machine_document(machine).origin
    assert (origin.format, origin.unknown[0], origin.assumed[-1]) == (
        "numactl -H",
        "cores",
        "every NUMA node is a socket",
    )
    assert machine_document(MACHINES["snc"]).origin.unknown == []


def test_the_name_of_a_file_does_not_decide_its_format(tmp_path: Path) -> None:
    path = tmp_path / "box.tar"
    path.write_text(tool_outputs.numactl(MACHINES["snc"]))
    with pytest.raises(InputError, match="no readable tar archive"):
        load_machine(str(path))
    other = path.rename(tmp_path / "box.json")
    assert load_machine(str(other)).origin.format == "numactl -H"


XML = tool_outputs.lstopo(MACHINES["adjacent"])
NUMA = tool_outputs.numactl(MACHINES["adjacent"])
TABLE = tool_outputs.lscpu_parsable(MACHINES["adjacent"])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        *cases(__file__, "other-formats.yaml", "text", "says"),
        ("\x89PNG\r\n", "given: is not a machine in any known format"),
        (XML[:700], "given:"),
        ("<a>" * 300, "given:1:751: more than 250 levels deep"),
        (XML.replace('"0x000000ff"', '"15"', 1), "given:"),
        (XML.replace('os_index="3"', 'os_index="9000"'), "given: names CPU 9000; Linux has at most 8192 CPUs"),
        (XML.replace('local_memory="', 'local_memory="1e'), "given:6:1: object.local_memory: '1e4294967296' is not a"),
        (NUMA.replace("cpus: 0 1", "cpus: a 1"), "given:2: the CPUs are not a list of numbers"),
        (NUMA.replace("node 1 size", "node 2 size"), "given: must have CPUs and a size for every NUMA node"),
        (TABLE.replace("\n0,0,0", "\n0,x,0"), "given: line 3.core: 'x' is not a whole number"),
        (TABLE.replace("\n0,0,0", "\n1,0,0"), "given: line 4.cpu: is missing or there twice"),
        (TABLE.replace("\n0,0,0", "\n0,0,0,0,0,0,0,0"), "given:3: has 14 columns, not the 9 of the header"),
        (TOPOLOGY.replace('"4", all', '"4x", all'), "given:"),
        (TOPOLOGY.replace("name: node-1\n", "name: rack\n"), "given:"),
        (TOPOLOGY.replace("type: Node", "type: Rack"), "given:"),
    ],
)
def test_another_format_is_named_and_a_broken_one_has_its_place(text: str, line: str) -> None:
    with pytest.raises(InputError) as caught:
        read(text)
    told = str(caught.value)
    assert told.startswith(line)
    assert "\n" not in told
    assert "expression" not in told


def test_a_summary_that_does_not_tell_the_cores_is_refused() -> None:
    hybrid = tool_outputs.lscpu_summary(shipped_machine("i7-1370p"))
    with pytest.raises(InputError, match="does not say which CPUs are one core; capture every CPU: lscpu -J -e"):
        read(hybrid)
