"""Shipped machines have the figures of the processors whose names they bear."""

from __future__ import annotations

import pytest

from mooring.engine.core.errors import InputError
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.compact import SHIPPED, parse_shape, shipped_machine, shipped_names
from mooring.inputs.machines.shape import Shape

MIB = 2**20
GIB = 2**30


@pytest.mark.parametrize(
    ("name", "cpus", "cores", "sockets", "nodes", "uncores"),
    [
        ("epyc-7763-2s-nps1", 256, 128, 2, 2, 16),
        ("epyc-7763-2s-nps4", 256, 128, 2, 8, 16),
        ("grace-1s", 72, 72, 1, 1, 1),
        ("i7-1370p", 20, 14, 1, 1, 1),
        ("kunpeng-920-2s", 128, 128, 2, 4, 2),
        ("small-1s8", 8, 4, 1, 1, 1),
        ("xeon-6230-2s-snc2", 80, 40, 2, 4, 2),
        ("xeon-6338n-1s", 64, 32, 1, 1, 1),
        ("xeon-8480-2s", 224, 112, 2, 2, 2),
        ("xeonmax-9460-2s-snc4-flat", 160, 80, 2, 8, 2),
    ],
)
def test_counts_are_those_of_the_real_machine(
    name: str, cpus: int, cores: int, sockets: int, nodes: int, uncores: int
) -> None:
    machine = shipped_machine(name)
    topology = discover_topology(machine.info)
    assert machine.name == name
    assert (topology.num_cpus, topology.num_cores, topology.num_sockets) == (cpus, cores, sockets)
    assert (topology.num_numa_nodes, topology.num_uncores) == (nodes, uncores)
    assert machine.hardware is not None
    assert len(machine.hardware.cpus) == cpus


def test_every_name_is_covered_above_and_listed_in_order() -> None:
    assert list(shipped_names()) == sorted(SHIPPED)
    assert len(SHIPPED) == 10


@pytest.mark.parametrize("name", shipped_names())
def test_a_description_is_one_line(name: str) -> None:
    assert "\n" not in SHIPPED[name].description
    assert isinstance(parse_shape(SHIPPED[name].text), Shape)


def test_the_big_epyc_has_its_details() -> None:
    machine = shipped_machine("epyc-7763-2s-nps4")
    core = machine.info.topology[0].cores[0]
    assert core.thread_ids == (0, 128)
    assert core.uncore_caches[0].size == 32 * MIB
    assert machine.info.memory_capacity == 512 * GIB
    assert machine.info.topology[0].distances == (10, 12, 12, 12, 32, 32, 32, 32)
    assert machine.hardware is not None
    assert {
        sum(cpu.l3 == first for cpu in machine.hardware.cpus) for first in {cpu.l3 for cpu in machine.hardware.cpus}
    } == {16}


def test_the_xeon_max_has_eight_nodes_without_cpus() -> None:
    nodes = sorted(shipped_machine("xeonmax-9460-2s-snc4-flat").info.topology, key=lambda node: node.node_id)
    assert [bool(node.cores) for node in nodes] == [True] * 8 + [False] * 8
    assert {node.memory for node in nodes[8:]} == {16 * GIB}


def test_the_laptop_is_hybrid() -> None:
    hardware = shipped_machine("i7-1370p").hardware
    assert hardware is not None
    assert [str(kind.cpus) for kind in hardware.kinds] == ["12-19", "0-11"]


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"^nosuch: is not a shipped machine; shipped are: epyc-7763-2s-nps1, "):
        shipped_machine("nosuch")
