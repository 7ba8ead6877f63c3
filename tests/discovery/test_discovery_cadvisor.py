"""Each way in which cAdvisor sees a machine wrongly or oddly, on a tree made for it alone; no tree makes it fail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.discovery.trees import plain
from tests.values import cases

from mooring.engine.core.machineinfo import Cache, MachineInfo
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.cadvisor import read_machine_info

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
Texts = Mapping[str, str | None]


def answer(
    cpus: Mapping[int, tuple[int | None, int | None, int | None]],
    nodes: Iterable[int] = (0,),
    texts: Texts | None = None,
    arch: str = "x86_64",
) -> tuple[MachineInfo, str, str]:
    """Return what cAdvisor says of a machine.

    Args:
        cpus: CPU -> core id, package id, NUMA node.
        nodes: NUMA nodes that there are.
        texts: further files; None takes one away.
        arch: as the note of a snapshot has it.
    """
    files: dict[str, str | None] = {
        "proc/hwloc-nofile-info": f"Architecture: {arch}\n",
        "proc/meminfo": "MemTotal: 4096 kB\nSwapTotal: 0 kB\n",
        "proc/cpuinfo": "cpu MHz : 1000.0\n",
        **{f"{NODE}/node{node}/meminfo": f"Node {node} MemTotal: 1024 kB\n" for node in nodes},
    }
    links = {}
    for cpu, (core, package, node) in cpus.items():
        files[f"{CPU}/cpu{cpu}/uevent"] = ""
        for name, value in (("core_id", core), ("physical_package_id", package)):
            files[f"{CPU}/cpu{cpu}/topology/{name}"] = None if value is None else f"{value}\n"
        if node is not None:
            links[f"{NODE}/node{node}/cpu{cpu}"] = f"../../cpu/cpu{cpu}"
    files |= texts or {}
    return read_machine_info(
        ArchiveTree("made", {path: text.encode() for path, text in files.items() if text is not None}, links)
    )


def info_of(*given: Any, **more: Any) -> MachineInfo:
    info, error, _ = answer(*given, **more)
    assert error == ""
    return info


def cores(*ids: int | None) -> dict[int, tuple[int | None, int | None, int | None]]:
    """Return CPUs 0, 1 and so on of package 0 on NUMA node 0, each on the core of its place."""
    return {cpu: (core, 0, 0) for cpu, core in enumerate(ids)}


def threads(info: MachineInfo) -> list[tuple[int, list[tuple[int, ...]]]]:
    return [(node.node_id, [core.thread_ids for core in node.cores]) for node in info.topology]


BOOKS = {f"{CPU}/cpu{cpu}/topology/{name}": f"{cpu}\n" for cpu in (0, 1) for name in ("book_id", "drawer_id")}
ONE_CORE = {0: (0, -1, None), 1: (0, -1, None)}


MACHINES = yaml.safe_load((Path(__file__).parent / "seen-by-cadvisor.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", MACHINES, ids=lambda case: str(case["name"]))
def test_nodes_and_cores(case: dict[str, Any]) -> None:
    info = info_of(**{part: case[part] for part in ("cpus", "nodes", "texts", "arch") if part in case})
    if "sees" in case:
        seen = [(node, [tuple(core) for core in cores]) for node, cores in case["sees"].items()]
        assert (threads(info), info.num_cores) == (seen, case["count"])
    for member, value in case.get("info", {}).items():
        assert plain(getattr(info, member)) == value
    for member, column in case.get("of_nodes", {}).items():
        assert [plain(getattr(node, member)) for node in info.topology] == column


def test_a_cpu_that_two_nodes_link_counts_twice() -> None:
    # The second link is a folder here: what it holds decides as well.
    second = {f"{NODE}/node1/cpu1/topology/{name}": "1\n" for name in ("core_id", "physical_package_id")}
    info = info_of(cores(0, 1), (0, 1), second)
    assert (threads(info), info.num_cores) == ([(0, [(0,), (1,)]), (1, [(1,)])], 3)


def test_a_negative_package_is_the_socket() -> None:
    assert info_of(ONE_CORE, ()).topology[0].cores[0].socket_id == -1


def test_without_any_cpu_directory_there_is_no_topology() -> None:
    info, _, error = answer({}, ())
    assert (error, info.num_cores) == ("no CPU is available, cpusPath: /sys/devices/system/cpu", 0)


@pytest.mark.parametrize(
    ("online", "seen"),
    [
        (None, [0, 1, 2]),
        ("0,2\n", [0, 2]),
        ("0-1\n", [0, 1]),
        ("", []),
        ("0,x,2\n", [0]),
        ("2-0\n", []),
        ("0-1-2\n", []),
        ("0-70000\n", []),
    ],
)
def test_the_online_list_is_read_up_to_its_first_malformed_part(online: str | None, seen: list[int]) -> None:
    assert threads(info_of(cores(0, 1, 2), texts={f"{CPU}/online": online})) == [(0, [(cpu,) for cpu in seen])]


def cache(cpu: int, index: int, level: int, number: int | None, sharers: Sequence[int]) -> dict[str, str | None]:
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    return {
        f"{folder}/size": "1024K\n",
        f"{folder}/level": f"{level}\n",
        f"{folder}/type": "Unified\n",
        f"{folder}/shared_cpu_map": f"{sum(1 << sharer for sharer in sharers):x}\n",
        f"{folder}/id": None if number is None else f"{number}\n",
    }


def one_l3(cpus: Sequence[int], number: int | None = 0) -> dict[str, str | None]:
    """Return the files of an L2 of each CPU and one L3 of all."""
    files: dict[str, str | None] = {}
    for cpu in cpus:
        files |= cache(cpu, 0, 2, None if number is None else cpu, [cpu]) | cache(cpu, 1, 3, number, cpus)
    return files


def test_one_cache_without_an_id_costs_the_node_all_caches_from_there_on() -> None:
    [node] = info_of(cores(0, 1, 2), texts=one_l3([0, 1, 2]) | {f"{CPU}/cpu1/cache/index0/id": None}).topology
    assert [bool(core.caches) for core in node.cores] == [True, False, False]
    assert len(node.caches) == 1


def test_caches_without_ids_count_on_s390x() -> None:
    [node] = info_of({0: (0, 0, None)}, (), one_l3([0], None) | BOOKS, "s390x").topology
    assert node.caches == (Cache(0, 2**20, "Unified", 3),)


@pytest.mark.parametrize(
    ("ids", "caches", "of_node", "uncore"),
    [
        ((0, 1), {5: [0, 1]}, [5], [[], []]),
        ((0, 1, 2, 3), {0: [0, 1], 1: [2, 3]}, [], [[0], [0], [1], [1]]),
        ((0, 0, 1, 2), {0: [0, 1, 2, 3]}, [], [[0], [0], [0]]),
        # CPU 4 is outside: 4 sharers equal 4 cores x 1 thread, but not 4 cores x 2 threads.
        ((0, 0, 1, 2, 3), {0: [0, 1, 2, 3], 9: [4]}, [0], [[0], [], [], [9]]),
    ],
    ids=["one is the node's", "two are uncore caches", "mixed cores share one", "mixed cores disagree"],
)
def test_an_l3_is_of_the_node_or_an_uncore_cache(
    ids: tuple[int, ...], caches: dict[int, list[int]], of_node: list[int], uncore: list[list[int]]
) -> None:
    texts = {path: text for number, cpus in caches.items() for path, text in one_l3(cpus, number).items()}
    [node] = info_of(cores(*ids), texts=texts).topology
    assert node.caches == tuple(Cache(number, 2**20, "Unified", 3) for number in of_node)
    assert [[cache.id for cache in core.uncore_caches] for core in node.cores] == uncore


def test_an_l3_of_two_nodes_is_an_uncore_cache_with_one_id_on_both() -> None:
    info = info_of({0: (0, 0, 0), 1: (1, 0, 1)}, (0, 1), one_l3([0, 1], 5))
    assert [node.cores[0].uncore_caches[0].id for node in info.topology] == [5, 5]


@pytest.mark.parametrize(("level", "numbers", "seen"), [(3, (0, 1), [0, 1]), (2, (0, 0), [])])
def test_wrong_ids_list_one_l3_several_times_and_an_l2_of_two_cores_is_dropped(
    level: int, numbers: tuple[int, int], seen: list[int]
) -> None:
    texts = cache(0, 0, level, numbers[0], [0, 1]) | cache(1, 0, level, numbers[1], [0, 1])
    [node] = info_of(cores(0, 1), texts=texts).topology
    assert [cache.id for cache in node.caches] == seen
    assert [core.caches for core in node.cores] == [(), ()]


@pytest.mark.parametrize(
    ("size", "seen"), [("512K\n", [2**19]), (" 512K", [2**19]), ("512 K", []), ("512M", []), ("-1K", []), ("x", [])]
)
def test_the_size_of_a_cache_is_a_number_and_a_k_at_once_behind_it(size: str, seen: list[int]) -> None:
    texts = cache(0, 0, 2, 0, [0]) | {f"{CPU}/cpu0/cache/index0/size": size}
    [core] = info_of(cores(0), texts=texts).topology[0].cores
    assert [cache.size for cache in core.caches] == seen


def test_cpusets_and_isolated_cpus_are_not_looked_at() -> None:
    limits = {"proc/self/cgroup": "0::/job\n", f"{CPU}/isolated": "1\n", "proc/self/status": "Cpus_allowed_list: 0\n"}
    assert info_of(cores(0, 1), texts=limits) == info_of(cores(0, 1))


@pytest.mark.parametrize(("arch", "error"), [("x86_64", True), ("ia64", True), ("aarch64", False), ("armv7l", False)])
def test_a_machine_that_tells_no_clock_fails_as_a_whole_except_on_some_architectures(arch: str, error: bool) -> None:
    expected = r'could not detect clock speed from output: "processor : 0\n"' if error else ""
    info, told, _ = answer(cores(0), texts={"proc/cpuinfo": "processor : 0\n"}, arch=arch)
    assert (info.num_cores, told) == (1, expected)


@pytest.mark.parametrize(("path", "text", "error"), cases(__file__, "topology-errors.yaml", "path", "text", "says"))
def test_what_cannot_be_read_as_a_number_costs_the_whole_topology(path: str, text: str, error: str) -> None:
    whole = {f"{NODE}/node0/distance": "10"}
    assert answer(cores(0), texts=whole)[2] == ""
    info, _, told = answer(cores(0), texts=whole | {f"sys/devices/system/{path}": text})
    assert (told, info.num_cores, info.topology) == (error, 0, ())


SMALL = {
    f"{CPU}/online": "0-1\n",
    f"{NODE}/node0/meminfo": "Node 0 MemTotal:  1024 kB\n",
    f"{NODE}/node0/distance": "10\n",
    f"{NODE}/node0/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages": "3\n",
    "proc/meminfo": "MemTotal: 2048 kB\nSwapTotal: 0 kB\n",
    "proc/cpuinfo": "vendor_id : X\ncpu MHz : 100.0\nphysical id : 0\ncore id : 0\n",
} | {
    f"sys/devices/system/{place}/topology/{name}": "0\n"
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
        parent = data.draw(st.sampled_from([CPU, NODE, f"{NODE}/node0/hugepages"]))
        name = data.draw(st.sampled_from(["cpu7", "cpux1", "cpu99999999999", "node3", "nodex1", "hugepages", "file"]))
        files[f"{parent}/{name}"] = "1"
    info, error, topology_error = read_machine_info(
        ArchiveTree("mutated", {path: text.encode("utf-8", "replace") for path, text in files.items()})
    )
    assert error or info.memory_capacity or "proc/meminfo" in changes
    assert bool(topology_error) <= (info.topology == ())
