"""Rules about memory nodes: which are shown, what is local to them, how fast and how far they are."""

from __future__ import annotations

import pytest
from tests.discovery import trees
from tests.discovery.trees import NODES, Files

from mooring.engine.core.bits import list_text, mask_of
from mooring.engine.core.machine import Hardware, HardwareNode, HardwarePages

SYSTEM = "sys/devices/system"
KNIGHTS_LANDING = {
    "proc/hwloc-nofile-info": "Architecture: x86_64\n",
    "proc/cpuinfo": "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : 87\nmodel name : Phi\n\n",
}


def read(*parts: Files) -> Hardware:
    return trees.hardware(trees.cores(8), *parts)


def nodes(*maps: list[int], distances: list[list[int]] | None = None) -> Files:
    files = {}
    for number, cpus in enumerate(maps):
        files[f"{NODES}/node{number}/cpumap"] = f"{mask_of(cpus):x}\n"
        files[f"{NODES}/node{number}/meminfo"] = f"Node {number} MemTotal:      {number + 1} kB\n"
        if distances is not None:
            files[f"{NODES}/node{number}/distance"] = " ".join(map(str, distances[number])) + "\n"
    return files


def links(*maps: list[int]) -> Files:
    return {f"{NODES}/node{number}/cpu{cpu}/x": "" for number, cpus in enumerate(maps) for cpu in cpus}


def level_distances(*levels: tuple[int, list[list[int]]], count: int) -> list[list[int]]:
    """Return a table: 10 on the diagonal, else the value of the first level with a group that holds both nodes."""

    def value(row: int, column: int) -> int:
        return next(value for value, groups in levels if any(row in g and column in g for g in groups))

    return [[10 if row == column else value(row, column) for column in range(count)] for row in range(count)]


def local(hardware: Hardware) -> list[str]:
    return [str(node.local_cpus) for node in hardware.nodes]


LEFT, RIGHT = [0, 1, 2, 3], [4, 5, 6, 7]
ALL = [*LEFT, *RIGHT]


def test_a_machine_without_nodes_gets_one_with_all_its_memory() -> None:
    hardware = read(
        {"proc/meminfo": "MemTotal:       12 kB\n", "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n"}
    )
    pages = (HardwarePages(2048 * 1024, 3),)
    assert hardware.nodes == (HardwareNode(0, 12 * 1024, pages, hardware.online, sysfs_cpulist=None),)
    assert hardware.distances is None


def test_nodes_are_in_the_order_of_numbers() -> None:
    hardware = read({f"{NODES}/node{number}/cpumap": f"{1 << cpu:x}\n" for cpu, number in enumerate((10, 2, 1))})
    assert [node.id for node in hardware.nodes] == [1, 2, 10]
    assert local(hardware) == ["2", "1", "0"]


def test_the_list_of_online_nodes_decides_and_unreadable_nodes_are_left_out() -> None:
    files = nodes(LEFT, RIGHT, []) | {f"{NODES}/online": "0,3\n"}
    assert [node.id for node in read(files).nodes] == [0]


def test_memory_pages_and_lists_are_those_of_the_node() -> None:
    files = nodes(LEFT, RIGHT) | {
        f"{NODES}/node1/hugepages/hugepages-1048576kB/nr_hugepages": "1\n",
        f"{NODES}/node1/hugepages/hugepages-2048kB/nr_hugepages": "5\n",
        f"{NODES}/node1/hugepages/hugepages-64kB/free_hugepages": "5\n",
        f"{NODES}/node1/cpulist": "4-7\n\0",
        "proc/hwloc-nofile-info": "PageSize: 65536\n",
    }
    first, second = read(files).nodes
    assert (first.memory_bytes, second.memory_bytes) == (1024, 2048)
    assert second.hugepages == (HardwarePages(2**21, 5), HardwarePages(2**30, 1))
    assert (first.sysfs_cpulist, second.sysfs_cpulist) == ("0-3", "4-7")
    assert first.base_page_bytes == 65536


def test_missing_and_absurd_amounts_of_memory_are_no_error() -> None:
    files = nodes(LEFT, RIGHT, [])
    del files[f"{NODES}/node0/meminfo"]
    files[f"{NODES}/node1/meminfo"] = "Node 1 MemTotal: 99999999999999999999999 kB\n"
    files[f"{NODES}/node2/meminfo"] = "Node 2 MemTotal: many\n"
    assert [node.memory_bytes for node in read(files).nodes] == [0, (2**64 - 1) * 1024 % 2**64, 0]


def test_a_node_that_claims_cpus_of_others_is_dropped() -> None:
    hardware = read(nodes(ALL, LEFT, RIGHT, distances=[[10, 20, 20]] * 3), links(ALL, LEFT, RIGHT))
    assert [node.id for node in hardware.nodes] == [0]
    assert hardware.distances is None


def test_a_node_around_others_is_kept_when_the_links_say_so_too() -> None:
    maps = (LEFT, [4, 5], RIGHT)
    assert local(read(nodes(*maps), links(*maps))) == ["0-3", "4-5", "4-7"]
    assert local(read(nodes(*maps))) == ["0-3", "4-5"]


def test_fake_nodes_share_their_cpus() -> None:
    hardware = read(nodes(ALL, ALL), {"proc/cmdline": "quiet numa=fake=2\n"})
    assert local(hardware) == ["0-7", "0-7"]
    assert hardware.cpus[0].numa == (0, 1)


def test_offline_cpus_are_not_local_to_anything() -> None:
    assert local(read(nodes(LEFT, RIGHT), {f"{SYSTEM}/cpu/online": "0-2,5\n"})) == ["0-2", "5"]


def test_a_locality_that_crosses_a_package_widens_to_what_is_around_it() -> None:
    packages = {f"{SYSTEM}/cpu/cpu{cpu}/topology/package_cpus": "3f\n" if cpu < 6 else "c0\n" for cpu in range(8)}
    caches = {f"{SYSTEM}/cpu/cpu{cpu}/cache/index0/shared_cpu_map": "3\n" for cpu in (0, 1)}
    caches |= {f"{SYSTEM}/cpu/cpu{cpu}/cache/index0/level": "3\n" for cpu in (0, 1)}
    hardware = read(packages, caches, nodes([1, 2], [5, 6]))
    assert local(hardware) == ["0-5", "0-7"]
    assert [str(cpus) for _, cpus in hardware.refused] == ["1-2", "5-6"]


def test_memory_without_cpus_is_local_to_its_initiators() -> None:
    files = nodes(LEFT, RIGHT, [], [], distances=level_distances((20, [[0, 2], [1, 3]]), (40, [[0, 1, 2, 3]]), count=4))
    files |= {f"{NODES}/node2/access0/initiators/node{number}/x": "" for number in (1, 2)}
    files |= {f"{NODES}/node3/access{kind}/initiators/node{kind}/x": "" for kind in (0, 1)}
    hardware = read(files)
    assert local(hardware) == ["0-3", "4-7", "4-7", "4-7"], "class 1 outweighs class 0, both outweigh distances"
    assert hardware.cpus[7].numa == (1, 2, 3)


def test_memory_without_cpus_and_initiators_is_local_to_its_nearest_nodes() -> None:
    table = level_distances((17, [[0, 2], [1, 3]]), (28, [[0, 1, 2, 3]]), count=4)
    assert local(read(nodes(LEFT, RIGHT, [], [], distances=table))) == ["0-3", "4-7", "0-3", "4-7"]


@pytest.mark.parametrize("far", [20, 10, 9])
def test_memory_as_far_from_everything_is_local_to_nothing(far: int) -> None:
    table = [[10 if row == column else far for column in range(3)] for row in range(3)]
    hardware = read(nodes(LEFT, RIGHT, [], distances=table))
    assert local(hardware) == ["0-3", "4-7", ""]
    assert hardware.cpus[0].numa == (0,)


def test_a_group_of_all_cpus_is_shown_beside_homeless_memory_only() -> None:
    cluster = {f"{SYSTEM}/cpu/cpu{cpu}/topology/cluster_cpus": "ff\n" for cpu in range(8)}
    table = [[10, 20, 20], [20, 10, 20], [20, 20, 10]]
    assert read(cluster, nodes(LEFT, RIGHT, [], distances=table)).cpus[0].cluster == 0
    assert read(cluster, nodes(LEFT, RIGHT)).cpus[0].cluster is None


def test_distances_are_kept_for_the_nodes_that_are_shown() -> None:
    table = [[10, 11, 12], [11, 10, 13], [12, 13, 10]]
    files = nodes(LEFT, RIGHT, [], distances=table)
    files[f"{NODES}/online"] = "0-2\n"
    assert read(files).distances == tuple(map(tuple, table))
    del files[f"{NODES}/node1/cpumap"]
    hardware = read(files)
    assert (hardware.distance_nodes, hardware.distances) == ((0, 2), ((10, 12), (12, 10)))


@pytest.mark.parametrize("row", ["", "\n", "10\n", "10 x\n"])
def test_one_short_row_makes_all_distances_unknown(row: str) -> None:
    files = nodes(LEFT, RIGHT, distances=[[10, 20], [20, 10]]) | {f"{NODES}/node1/distance": row}
    assert read(files).distances is None


def speed(number: int, bandwidth: int, latency: int = 50) -> Files:
    folder = f"{NODES}/node{number}/access0/initiators"
    files = {f"{folder}/{way}_bandwidth": f"{bandwidth}\n" for way in ("read", "write")}
    return files | {f"{folder}/{way}_latency": f"{latency}\n" for way in ("read", "write")}


@pytest.mark.parametrize(
    ("speeds", "kinds"),
    [
        ([speed(0, 100), speed(1, 100), speed(2, 201), speed(3, 201)], ["DRAM", "DRAM", "HBM", "HBM"]),
        ([speed(0, 100), speed(1, 100), speed(2, 200), speed(3, 200)], [None] * 4),  # not more than twice as fast
        ([speed(0, 100), speed(1, 105), speed(2, 250), speed(3, 240)], ["DRAM", "DRAM", "HBM", "HBM"]),
        ([speed(0, 100), speed(1, 120), speed(2, 400), speed(3, 400)], [None] * 4),  # three tiers
        ([speed(0, 100), speed(1, 100, 90), speed(2, 400), speed(3, 400)], [None] * 4),  # latencies differ, too
        ([speed(2, 150), speed(3, 100)], ["DRAM", "DRAM", "HBM", "DRAM"]),  # unknown counts as slow
        ([], [None] * 4),
    ],
)
def test_memory_twice_as_fast_is_hbm(speeds: list[Files], kinds: list[str | None]) -> None:
    table = level_distances((17, [[0, 2], [1, 3]]), (28, [[0, 1, 2, 3]]), count=4)
    hardware = read(nodes(LEFT, RIGHT, [], [], distances=table), *speeds)
    assert [node.subtype for node in hardware.nodes] == kinds


def test_memory_of_a_gpu_is_kept_with_the_gpu_s_locality_except_on_power() -> None:
    gpu = {
        "proc/driver/nvidia/gpus/0004:04:00.0/numa_status": "Node: 1\nStatus: online\n",
        "sys/bus/pci/devices/0004:04:00.0/local_cpus": "f0\n",
    }
    files = nodes(ALL, [], distances=[[10, 80], [80, 10]]) | gpu
    hardware = read(files)
    assert (local(hardware), hardware.nodes[1].subtype) == (["0-7", "4-7"], "GPUMemory")
    assert [node.id for node in read(files, {"proc/hwloc-nofile-info": "Architecture: ppc64le\n"}).nodes] == [0]


QUARTERS = [[0, 1], [2, 3], [4, 5], [6, 7]]
SNC4 = level_distances(
    (31, [[number, number + 4] for number in range(4)]), (21, [[0, 1, 2, 3]]), (41, [list(range(8))]), count=8
)
SNC2 = level_distances((31, [[0, 2], [1, 3]]), (21, [[0, 1]]), (41, [[0, 1, 2, 3]]), count=4)


@pytest.mark.parametrize(
    ("maps", "table", "places"),
    [
        ([*QUARTERS, [], [], [], []], SNC4, [*QUARTERS, *QUARTERS]),
        ([LEFT, RIGHT, [], []], SNC2, [LEFT, RIGHT, LEFT, RIGHT]),
        ([ALL, []], [[10, 31], [31, 10]], [ALL, ALL]),
    ],
)
def test_knights_landing_has_its_fast_memory_beside_the_slow(
    maps: list[list[int]], table: list[list[int]], places: list[list[int]]
) -> None:
    hardware = read(nodes(*maps, distances=table), KNIGHTS_LANDING)
    assert local(hardware) == [list_text(mask_of(place)) for place in places]
    half = len(maps) // 2
    assert [node.subtype for node in hardware.nodes] == ["DRAM"] * half + ["MCDRAM"] * half
    assert hardware.distances is None
    assert hardware.num_l3 == 0
    clusters = [cpu.cluster for cpu in hardware.cpus]
    assert clusters == ([None] * 8 if half == 1 else [min(place) for place in places[:half] for _ in place])


@pytest.mark.parametrize("maps", [[ALL], [LEFT, RIGHT], QUARTERS])
def test_knights_landing_with_its_fast_memory_as_cache_shows_an_l3(maps: list[list[int]]) -> None:
    count = len(maps)
    table = [[10 if row == column else 21 for column in range(count)] for row in range(count)]
    hardware = read(nodes(*maps, distances=table), KNIGHTS_LANDING)
    assert [cpu.l3 for cpu in hardware.cpus] == [min(cpus) for cpus in maps for _ in cpus]
    assert hardware.num_l3 == count


@pytest.mark.parametrize(
    ("maps", "table"),
    [
        ([LEFT, RIGHT, []], [[10, 21, 31], [21, 10, 31], [31, 31, 10]]),
        ([LEFT, RIGHT, [], []], [[10, 21, 31, 41], [21, 10, 41, 31], [31, 41, 10, 51], [41, 31, 51, 10]]),
        ([LEFT, RIGHT], [[10, 21], [22, 10]]),
        ([LEFT, RIGHT, [], []], None),
    ],
)
def test_knights_landing_in_no_known_mode_is_taken_as_it_is(
    maps: list[list[int]], table: list[list[int]] | None
) -> None:
    hardware = read(nodes(*maps, distances=table), KNIGHTS_LANDING)
    assert local(hardware) == [list_text(mask_of(cpus)) for cpus in maps]
    assert hardware.distances is None
    assert hardware.num_l3 == 0
