"""Compact text gives the machine that it says, in both views alike, or one clear refusal."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.discovery import tool_outputs
from tests.values import cases, refusal

from mooring.engine.core.machine import Machine
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.loader import machine_in

GIB = 2**30
EXAMPLE = "sockets=2 numa=4 cores=16 threads=2 l3=8 memory=64Gi"


def thread_groups(machine: Machine) -> list[tuple[int, ...]]:
    return sorted(tuple(sorted(core.thread_ids)) for node in machine.info.topology for core in node.cores)


def test_the_example_is_what_it_says() -> None:
    machine = parse_compact(EXAMPLE)
    topology = discover_topology(machine.info)
    assert (topology.num_cpus, topology.num_cores, topology.num_sockets) == (32, 16, 2)
    assert (topology.num_numa_nodes, topology.num_uncores) == (4, 8)
    assert [node.memory for node in machine.info.topology] == [16 * GIB] * 4
    assert machine.info.memory_capacity == 64 * GIB
    assert machine.name == EXAMPLE
    # Numbered within the socket, as kernels do; in text order of their CPUs, as in cAdvisor.
    ids = [[core.core_id for core in node.cores] for node in machine.info.topology]
    assert ids == [[0, 1, 2, 3], [4, 5, 6, 7], [2, 3, 0, 1], [4, 5, 6, 7]]


def test_siblings_are_a_whole_round_of_cores_apart_unless_adjacent() -> None:
    assert thread_groups(parse_compact("cores=3 threads=2")) == [(0, 3), (1, 4), (2, 5)]
    assert thread_groups(parse_compact("cores=2 threads=4 siblings=adjacent")) == [(0, 1, 2, 3), (4, 5, 6, 7)]


def test_every_key_has_a_default() -> None:
    machine = parse_compact("")
    assert (machine.info.num_cores, machine.info.num_sockets, machine.info.memory_capacity) == (4, 1, 4 * GIB)
    two = parse_compact("sockets=2")
    assert [node.memory for node in two.info.topology] == [4 * GIB] * 2
    assert [node.distances for node in two.info.topology] == [(10, 32), (32, 10)]


@pytest.mark.parametrize(
    ("text", "uncores"),
    [
        ("numa=2 cores=8 l3=2", [()] * 8),
        ("numa=2 cores=8 l3=4", [(0,), (0,), (1,), (1,), (2,), (2,), (3,), (3,)]),
        ("numa=2 cores=8 l3=1", [(0,)] * 8),
        ("sockets=2 numa=1 cores=8", [(0,)] * 4 + [(1,)] * 4),
    ],
)
def test_an_l3_is_an_uncore_cache_unless_it_is_that_of_one_whole_node(
    text: str, uncores: list[tuple[int, ...]]
) -> None:
    cores = [core for node in parse_compact(text).info.topology for core in node.cores]
    assert [tuple(cache.id for cache in core.uncore_caches) for core in cores] == uncores


def test_distances_grow_from_node_to_socket_to_machine() -> None:
    machine = parse_compact("sockets=2 numa=4 cores=4 distances=10,11,21")
    assert machine.info.topology[1].distances == (11, 10, 21, 21)
    assert parse_compact("sockets=2 numa=4 cores=4 distances=10,21").info.topology[1].distances == (21, 10, 21, 21)


def test_nodes_without_cpus_come_after_the_others_and_are_near_their_own() -> None:
    machine = parse_compact("sockets=2 numa=2 cores=2 cpuless=2 cpuless-memory=2Gi distances=10,12,32")
    assert [(node.node_id, len(node.cores), node.memory) for node in machine.info.topology] == [
        (0, 1, 4 * GIB), (1, 1, 4 * GIB), (2, 0, GIB), (3, 0, GIB),
    ]  # fmt: skip
    assert machine.info.topology[0].distances == (10, 32, 13, 35)
    assert machine.info.topology[2].distances == (13, 35, 10, 34)
    assert machine.hardware is not None
    assert [cpu.numa for cpu in machine.hardware.cpus] == [(0, 2), (1, 3)]


def test_huge_pages_are_totals_spread_over_the_nodes_with_cpus() -> None:
    machine = parse_compact("numa=2 cores=4 cpuless=1 hugepages-2Mi=8 hugepages-1Gi=2")
    assert [(pool.page_size, pool.num_pages) for pool in machine.info.hugepages] == [(1048576, 2), (2048, 8)]
    per_node = [[pool.num_pages for pool in node.hugepages] for node in machine.info.topology]
    assert per_node == [[1, 4], [1, 4], [0, 0]]


def test_efficiency_cores_follow_with_one_thread_each_and_are_a_kind_of_their_own() -> None:
    machine = parse_compact("cores=2 threads=2 siblings=adjacent efficiency-cores=4")
    assert thread_groups(machine) == [(0, 1), (2, 3), (4,), (5,), (6,), (7,)]
    assert [core.core_id for core in machine.info.topology[0].cores] == [0, 1, 2, 3, 4, 5]
    assert machine.hardware is not None
    assert [str(kind.cpus) for kind in machine.hardware.kinds] == ["4-7", "0-3"]
    assert [cpu.l2 for cpu in machine.hardware.cpus] == [0, 0, 2, 2, 4, 4, 4, 4]
    assert [cpu.efficiency for cpu in machine.hardware.cpus] == [1] * 4 + [0] * 4


@pytest.mark.parametrize(("text", "message"), cases(__file__, "refused-machines.yaml", "machine", "says"))
def test_what_makes_no_machine_is_refused_in_one_line(text: str, message: str) -> None:
    said = refusal(parse_compact, text)
    assert said.startswith(f"machine: {message}")
    assert "\n" not in said


def test_a_line_has_an_end() -> None:
    assert refusal(parse_compact, "cores=4 " * 1000).startswith("machine: is longer than 4096 characters")


@st.composite
def compact_texts(draw: st.DrawFn) -> str:
    sockets = draw(st.integers(1, 3))
    numa = sockets * draw(st.integers(1, 4)) if draw(st.booleans()) else draw(st.sampled_from([1, sockets]))
    l3 = max(numa, sockets) * draw(st.integers(1, 2)) if draw(st.booleans()) else sockets
    cores = max(numa, l3) * draw(st.integers(1, 3))
    pairs = {"sockets": sockets, "numa": numa, "l3": l3, "cores": cores, "threads": draw(st.sampled_from([1, 2, 4]))}
    if draw(st.booleans()):
        pairs["cpuless"] = numa * draw(st.integers(1, 2))
    if draw(st.booleans()):
        pairs["hugepages-2Mi"] = numa * draw(st.integers(1, 5))
    siblings = draw(st.sampled_from(["split", "adjacent"]))
    efficiency = "" if draw(st.booleans()) else f" efficiency-cores={cores}"
    return " ".join(f"{key}={value}" for key, value in pairs.items()) + f" siblings={siblings}{efficiency}"


@settings(deadline=None, max_examples=60)
@given(compact_texts())
def test_both_views_are_what_the_readers_find_in_such_a_machine(text: str) -> None:
    made = parse_compact(text)
    found = machine_in(tool_outputs.lstopo(made).encode(), "written")
    assert found.info_error == ""
    members = ("num_cores", "num_sockets", "memory_capacity", "hugepages", "topology")
    assert [getattr(found.info, name) for name in members] == [getattr(made.info, name) for name in members]
    assert found.hardware is not None
    assert made.hardware is not None
    counts = ("num_cores", "num_packages", "num_l3", "distances", "online")
    assert [getattr(found.hardware, name) for name in counts] == [getattr(made.hardware, name) for name in counts]
    for real, ours in zip(found.hardware.cpus, made.hardware.cpus, strict=True):
        # Which kind a core is follows from clocks, which such text does not have.
        assert real == replace(ours, efficiency=None)
