"""Compact text gives the machine that it says, in both views alike, or one clear refusal."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine
from mooring.engine.core.topology import discover_topology
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.cadvisor import read_machine_info
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.hardware import read_hardware

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
    assert machine.hardware is not None
    assert [str(kind.cpus) for kind in machine.hardware.kinds] == ["4-7", "0-3"]
    assert [cpu.l2 for cpu in machine.hardware.cpus] == [0, 0, 2, 2, 4, 4, 4, 4]


@pytest.mark.parametrize(
    ("text", "field", "problem"),
    [
        ("soket=2", "soket", "is not a key of a machine; did you mean sockets?"),
        ("cpus=2", "cpus", "is not a key of a machine"),
        ("cores", "cores", "is not a pair"),
        ("=5", "=5", "is not a pair"),
        ("cores=4 cores=4", "cores", "is given twice"),
        ("hugepages-2Mi=1 hugepages-2048Ki=1", "hugepages-2048Ki", "is given twice"),
        ("cores=0", "cores", "must not be 0"),
        ("cores=-4", "cores", "'-4' is not a count"),
        ("cores=٤", "cores", "'٤' is not a count"),
        ("cores=9999999999999", "cores", "'9999999999999' is not a count"),
        ("cores=8193", "cores", "the machine would have 8193 CPUs; Linux has at most 8192"),
        ("cores=40000 threads=2", "cores", "the machine would have 80000 CPUs"),
        ("numa=1025 cores=1025", "numa", "the machine would have 1025 NUMA nodes"),
        ("numa=3 cores=8", "cores", "8 cannot be divided evenly by numa=3"),
        ("sockets=2 cores=3", "cores", "3 cannot be divided evenly by sockets=2"),
        ("cores=6 l3=4", "cores", "6 cannot be divided evenly by l3=4"),
        ("cores=4 numa=2 efficiency-cores=3", "efficiency-cores", "3 cannot be divided evenly by numa=2"),
        ("sockets=2 cores=6 l3=3", "l3", "3 is not a multiple of sockets=2"),
        ("sockets=2 numa=3 cores=6 l3=6", "numa", "3 is neither a multiple nor a divisor of sockets=2"),
        ("numa=2 cores=6 l3=3", "numa", "2 is neither a multiple nor a divisor of l3=3"),
        ("numa=2 cores=2 cpuless=3", "numa", "2 is neither a multiple nor a divisor of cpuless=3"),
        ("memory=1", "memory", "'1' is not a size in whole KiB"),
        ("memory=0", "memory", "'0' is not a size in whole KiB"),
        ("memory=many", "memory", "'many' is not a size in whole KiB"),
        ("memory=2Ei", "memory", "'2Ei' is more than 1Ei"),
        ("memory=0.1Gi", "memory", "'0.1Gi' is not a size in whole KiB"),
        ("memory=1Gi numa=3 cores=3", "memory", "1073741824 bytes do not make whole pages on 3 nodes"),
        ("cpuless-memory=1Gi", "cpuless-memory", "is given, but there are no CPU-less nodes"),
        ("memory=1Gi hugepages-1Gi=2", "memory", "1073741824 bytes cannot hold 2147483648 bytes of huge pages"),
        ("hugepages-2Mi=3 numa=2 cores=2", "hugepages of 2048Ki", "3 pages cannot be divided evenly by numa=2"),
        ("hugepages-3Mi=1", "hugepages-3Mi", "is not a size of a huge page"),
        ("hugepages-x=1", "hugepages-x", "'x' is not a size in whole KiB"),
        ("siblings=far", "siblings", "'far' is not a numbering"),
        ("distances=10", "distances", "'10' is not a list of two or three numbers"),
        ("distances=10,x", "distances", "'10,x' is not a list of two or three numbers"),
        ("distances=21,10", "distances", "'21,10' does not ascend from 10"),
        ("distances=9,20", "distances", "'9,20' does not ascend from 10"),
        ("cores=4 " * 1000, "", "is longer than 4096 characters"),
    ],
)
def test_what_makes_no_machine_is_refused_in_one_line(text: str, field: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_compact(text)
    assert str(caught.value).startswith(f"machine: {field}: {problem}" if field else f"machine: {problem}")
    assert "\n" not in str(caught.value)


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


def sysfs_of(machine: Machine) -> ArchiveTree:
    """Write the files that a kernel would show on the machine, from its hardware view alone."""
    hardware = machine.hardware
    assert hardware is not None
    cpus = {cpu.id: cpu for cpu in hardware.cpus}
    system = "sys/devices/system"
    files = {
        f"{system}/cpu/online": str(hardware.online),
        f"{system}/cpu/possible": str(hardware.online),
        f"{system}/cpu/present": str(hardware.online),
        f"{system}/node/online": f"0-{len(hardware.nodes) - 1}",
        "proc/cpuinfo": "flags : lm\ncpu MHz : 1000.0\n",
        "proc/meminfo": f"MemTotal: {sum(node.memory_bytes for node in hardware.nodes) // 1024} kB\nSwapTotal: 0 kB\n",
        "proc/hwloc-nofile-info": "OSName: Linux\nArchitecture: x86_64\n",
    }
    links: dict[str, str] = {}

    def mask(members: list[int]) -> str:
        digits = f"{sum(1 << member for member in members):x}"
        padded = digits.zfill(-(-len(digits) // 8) * 8)
        return ",".join(padded[start : start + 8] for start in range(0, len(padded), 8))

    core_ids: dict[int, int] = {}
    counts: dict[int | None, int] = {}
    l3_ids = {
        first: number for number, first in enumerate(sorted({cpu.l3 for cpu in cpus.values() if cpu.l3 is not None}))
    }
    for cpu, place in cpus.items():
        folder = f"{system}/cpu/cpu{cpu}"
        assert place.core is not None
        if place.core not in core_ids:
            core_ids[place.core] = counts.get(place.package, 0)
            counts[place.package] = core_ids[place.core] + 1
        groups = {
            "thread_siblings": [other for other, its in cpus.items() if its.core == place.core],
            "core_siblings": [other for other, its in cpus.items() if its.package == place.package],
        }
        files[f"{folder}/topology/core_id"] = f"{core_ids[place.core]}\n"
        files[f"{folder}/topology/physical_package_id"] = f"{place.package}\n"
        for name, members in groups.items():
            files[f"{folder}/topology/{name}"] = mask(members) + "\n"
        l2 = [other for other, its in cpus.items() if its.l2 == place.l2]
        l3 = [other for other, its in cpus.items() if its.l3 == place.l3]
        assert place.l3 is not None
        for index, level, number, size, sharers in (
            (2, 2, min(l2), "1024K", l2),
            (3, 3, l3_ids[place.l3], "32768K", l3),
        ):
            cache = f"{folder}/cache/index{index}"
            values = {
                "id": str(number),
                "level": str(level),
                "size": size,
                "type": "Unified",
                "shared_cpu_map": mask(sharers),
            }
            files |= {f"{cache}/{name}": f"{value}\n" for name, value in values.items()}
    for position, node in enumerate(hardware.nodes):
        folder = f"{system}/node/node{node.id}"
        members = list(node.local_cpus) if node.sysfs_cpulist else []
        links |= {f"{folder}/cpu{cpu}": f"../../cpu/cpu{cpu}" for cpu in members}
        files[f"{folder}/cpumap"] = mask(members) + "\n"
        files[f"{folder}/cpulist"] = f"{node.sysfs_cpulist}\n"
        files[f"{folder}/meminfo"] = f"Node {node.id} MemTotal: {node.memory_bytes // 1024} kB\n"
        row = hardware.distances[position] if hardware.distances else (10,)
        files[f"{folder}/distance"] = " ".join(str(entry) for entry in row) + "\n"
        for pool in node.hugepages:
            name = f"hugepages-{pool.size_bytes // 1024}kB/nr_hugepages"
            files[f"{folder}/hugepages/{name}"] = f"{pool.count}\n"
            total = sum(
                other.count
                for each in hardware.nodes
                for other in each.hugepages
                if other.size_bytes == pool.size_bytes
            )
            files[f"sys/kernel/mm/hugepages/{name}"] = f"{total}\n"
    return ArchiveTree("written", {path: text.encode() for path, text in files.items()}, links)


@settings(deadline=None, max_examples=60)
@given(compact_texts())
def test_both_views_are_what_the_readers_find_in_such_a_machine(text: str) -> None:
    machine = parse_compact(text)
    tree = sysfs_of(machine)
    seen_info, *errors = read_machine_info(tree)
    assert errors == ["", ""]
    assert machine.hardware is not None
    seen = [
        (node.node_id, node.memory, node.hugepages, node.distances, node.caches != (), shape_of(node.cores))
        for node in seen_info.topology
    ]
    made = [
        (node.node_id, node.memory, node.hugepages, node.distances, node.caches != (), shape_of(node.cores))
        for node in machine.info.topology
    ]
    assert seen == made
    assert (seen_info.num_cores, seen_info.num_sockets) == (machine.info.num_cores, machine.info.num_sockets)
    assert seen_info.hugepages == machine.info.hugepages
    found = read_hardware(tree)
    assert (found.num_cores, found.num_packages, found.num_l3) == (
        machine.hardware.num_cores,
        machine.hardware.num_packages,
        machine.hardware.num_l3,
    )
    for real, ours in zip(found.cpus, machine.hardware.cpus, strict=True):
        assert (real.id, real.core, real.package, real.package_first_cpu) == (
            ours.id, ours.core, ours.package, ours.package_first_cpu,
        )  # fmt: skip
        assert (real.l2, real.l3) == (ours.l2, ours.l3)
    if "cpuless" not in text:  # where those are local follows from HMAT, which these files do not have
        assert [cpu.numa for cpu in found.cpus] == [cpu.numa for cpu in machine.hardware.cpus]
        assert found.nodes == machine.hardware.nodes


def shape_of(cores: object) -> list[object]:
    assert isinstance(cores, tuple)
    return [
        (core.core_id, core.thread_ids, core.socket_id, [cache.id for cache in core.uncore_caches], len(core.caches))
        for core in cores
    ]
