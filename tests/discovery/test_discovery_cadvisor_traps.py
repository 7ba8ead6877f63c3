"""Each way in which cAdvisor sees a machine wrongly or oddly, on a tree made for it alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mooring.engine.core.machineinfo import Cache, MachineInfo
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.cadvisor import read_machine_info

CPU = "sys/devices/system/cpu"
NODE = "sys/devices/system/node"
X86 = "Architecture: x86_64\n"


class Files:
    """The files of a machine, written piece by piece."""

    def __init__(self, *, online: str | None = None, arch: str = X86) -> None:
        self.texts = {
            "proc/hwloc-nofile-info": arch,
            "proc/meminfo": "MemTotal: 4096 kB\nSwapTotal: 0 kB\n",
            "proc/cpuinfo": "cpu MHz : 1000.0\n",
        }
        self.links: dict[str, str] = {}
        if online is not None:
            self.texts[f"{CPU}/online"] = online

    def cpu(self, cpu: int, *, core: int | None, package: int | None = 0, node: int | None = None) -> None:
        topology = f"{CPU}/cpu{cpu}/topology"
        self.texts[f"{CPU}/cpu{cpu}/uevent"] = ""
        for name, value in (("core_id", core), ("physical_package_id", package)):
            if value is not None:
                self.texts[f"{topology}/{name}"] = f"{value}\n"
        if node is not None:
            self.links[f"{NODE}/node{node}/cpu{cpu}"] = f"../../cpu/cpu{cpu}"

    def node(self, node: int, *, distance: str | None = None, meminfo: str = "MemTotal: 1024 kB") -> None:
        self.texts[f"{NODE}/node{node}/meminfo"] = f"Node {node} {meminfo}\n"
        if distance is not None:
            self.texts[f"{NODE}/node{node}/distance"] = f"{distance}\n"

    def cache(self, cpu: int, index: int, *, level: int, number: int | None, sharers: Sequence[int]) -> None:
        folder = f"{CPU}/cpu{cpu}/cache/index{index}"
        self.texts |= {
            f"{folder}/size": "1024K\n",
            f"{folder}/level": f"{level}\n",
            f"{folder}/type": "Unified\n",
            f"{folder}/shared_cpu_map": f"{sum(1 << sharer for sharer in sharers):x}\n",
        }
        if number is not None:
            self.texts[f"{folder}/id"] = f"{number}\n"

    def answer(self) -> tuple[MachineInfo, str, str]:
        return read_machine_info(ArchiveTree("made", {k: v.encode() for k, v in self.texts.items()}, self.links))

    def info(self) -> MachineInfo:
        info, error, _ = self.answer()
        assert error == ""
        return info


def one_node(*cores: int, **more: str | None) -> Files:
    """Return the files of NUMA node 0 with CPUs 0, 1 and so on, each on the core of its place."""
    files = Files(**more)  # type: ignore[arg-type]  # arguments of Files
    files.node(0)
    for cpu, core in enumerate(cores):
        files.cpu(cpu, core=core, node=0)
    return files


def node_ids(info: MachineInfo) -> list[int]:
    return [node.node_id for node in info.topology]


def threads(info: MachineInfo) -> list[tuple[int, ...]]:
    return [core.thread_ids for node in info.topology for core in node.cores]


def test_nodes_come_in_text_order_and_keep_their_distance_rows_as_they_are() -> None:
    files = Files()
    for node in (0, 2, 10):
        files.node(node, distance="10 20 30")
        files.cpu(node, core=node, node=node)
    info = files.info()
    assert node_ids(info) == [0, 10, 2]
    assert {node.distances for node in info.topology} == {(10, 20, 30)}


def test_threads_and_cores_come_in_text_order_of_their_cpus() -> None:
    files = Files()
    files.node(0)
    for cpu, core in ((1, 0), (2, 5), (9, 0), (10, 5)):
        files.cpu(cpu, core=core, node=0)
    assert threads(files.info()) == [(1, 9), (10, 2)]


def test_nodes_without_cpus_and_nodes_without_memory_stay() -> None:
    files = Files()
    files.node(0, meminfo="MemTotal: 0 kB")
    files.cpu(0, core=0, node=0)
    files.node(1)
    info = files.info()
    assert [(node.memory, bool(node.cores)) for node in info.topology] == [(0, True), (1024 * 1024, False)]


def test_links_alone_decide_which_cpus_a_node_has() -> None:
    files = Files()
    for node in (0, 1):
        files.node(node)
        files.texts[f"{NODE}/node{node}/cpulist"] = "0-2\n"
    files.cpu(0, core=0, node=0)
    files.cpu(1, core=1, node=0)
    files.cpu(1, core=1, node=1)
    files.cpu(2, core=2)
    info = files.info()
    assert threads(info) == [(0,), (1,), (1,)]
    assert info.num_cores == 3


def test_packages_become_nodes_where_the_kernel_has_none_and_offline_cpus_count() -> None:
    files = Files(online="0-2\n")
    for cpu, package in ((0, 7), (1, 3), (2, 7), (3, 3)):
        files.cpu(cpu, core=cpu, package=package)
    info = files.info()
    assert node_ids(info) == [3, 7]
    assert threads(info) == [(1,), (0,), (2,)]
    assert info.num_cores == 4
    assert all((node.memory, node.distances, node.hugepages) == (0, None, ()) for node in info.topology)


def test_without_any_package_id_the_count_is_all_there_is() -> None:
    files = Files()
    files.cpu(0, core=0, package=None)
    files.cpu(1, core=1, package=None)
    info = files.info()
    assert (info.num_cores, info.topology) == (2, ())


def test_without_any_cpu_directory_there_is_no_topology() -> None:
    info, _, error = Files().answer()
    assert (error, info.num_cores) == ("no CPU is available, cpusPath: /sys/devices/system/cpu", 0)


@pytest.mark.parametrize("missing", ["core_id", "physical_package_id"])
def test_a_cpu_without_one_of_its_ids_is_dropped_in_silence(missing: str) -> None:
    files = one_node(0, 1)
    del files.texts[f"{CPU}/cpu1/topology/{missing}"]
    assert threads(files.info()) == [(0,)]


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
    files = one_node(0, 1, 2, online=online)
    assert [cpu for group in threads(files.info()) for cpu in group] == seen


def test_equal_core_and_package_ids_make_one_core_whatever_the_siblings_say() -> None:
    files = Files()
    files.node(0)
    files.node(1)
    for cpu, node in ((0, 0), (1, 0), (2, 1)):
        files.cpu(cpu, core=0, package=-1, node=node)
        files.texts[f"{CPU}/cpu{cpu}/topology/thread_siblings"] = f"{1 << cpu:x}\n"
    info = files.info()
    assert threads(info) == [(0, 1), (2,)]
    assert {core.socket_id for node in info.topology for core in node.cores} == {-1}


def test_books_and_drawers_tell_cores_apart_on_s390x_only() -> None:
    for arch, groups in ((X86, [(0, 1)]), ("Architecture: s390x\n", [(0,), (1,)])):
        files = Files(arch=arch)
        for cpu in (0, 1):
            files.cpu(cpu, core=0, package=-1)
            files.texts[f"{CPU}/cpu{cpu}/topology/book_id"] = f"{cpu}\n"
            files.texts[f"{CPU}/cpu{cpu}/topology/drawer_id"] = "0\n"
        assert threads(files.info()) == groups


def test_physical_cores_are_distinct_core_ids_of_the_whole_machine() -> None:
    files = Files()
    files.node(0)
    files.texts["proc/cpuinfo"] += "physical id : 0\ncore id : 0\nphysical id : 1\ncore id : 0\n"
    for cpu in (0, 1):
        files.cpu(cpu, core=0, package=cpu, node=0)
    info = files.info()
    assert (info.num_physical_cores, info.num_sockets) == (1, 2)


def test_sockets_come_from_sysfs_where_cpuinfo_has_none_and_online_cpus_alone_count() -> None:
    files = Files(online="0-1\n")
    files.node(0)
    for cpu, package in ((0, 4), (1, None), (2, 9)):
        files.cpu(cpu, core=cpu, package=package, node=0)
    assert files.info().num_sockets == 2  # 4, and 0 for the CPU without the file


def one_l3(files: Files, cpus: Sequence[int], *, number: int | None = 0) -> None:
    for cpu in cpus:
        files.cache(cpu, 0, level=2, number=cpu if number is not None else None, sharers=[cpu])
        files.cache(cpu, 1, level=3, number=number, sharers=cpus)


def test_one_cache_without_an_id_costs_the_node_all_caches_from_there_on() -> None:
    files = one_node(0, 1, 2)
    one_l3(files, [0, 1, 2])
    del files.texts[f"{CPU}/cpu1/cache/index0/id"]
    node = files.info().topology[0]
    assert [bool(core.caches) for core in node.cores] == [True, False, False]
    assert len(node.caches) == 1


def test_caches_without_ids_count_on_s390x() -> None:
    files = Files(arch="Architecture: s390x\n")
    files.cpu(0, core=0)
    for name in ("book_id", "drawer_id"):
        files.texts[f"{CPU}/cpu0/topology/{name}"] = "0\n"
    one_l3(files, [0], number=None)
    assert files.info().topology[0].caches == (Cache(0, 2**20, "Unified", 3),)


@pytest.mark.parametrize(
    ("cores", "caches", "of_node", "uncore"),
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
    cores: tuple[int, ...], caches: dict[int, list[int]], of_node: list[int], uncore: list[list[int]]
) -> None:
    files = one_node(*cores)
    for number, cpus in caches.items():
        one_l3(files, cpus, number=number)
    node = files.info().topology[0]
    assert node.caches == tuple(Cache(number, 2**20, "Unified", 3) for number in of_node)
    assert [[cache.id for cache in core.uncore_caches] for core in node.cores] == uncore


def test_an_l3_of_two_nodes_is_an_uncore_cache_with_one_id_on_both() -> None:
    files = Files()
    for cpu in range(2):
        files.node(cpu)
        files.cpu(cpu, core=cpu, node=cpu)
    one_l3(files, [0, 1], number=5)
    assert [node.cores[0].uncore_caches[0].id for node in files.info().topology] == [5, 5]


@pytest.mark.parametrize(("level", "numbers", "seen"), [(3, (0, 1), [0, 1]), (2, (0, 0), [])])
def test_wrong_ids_list_one_l3_several_times_and_an_l2_of_two_cores_is_dropped(
    level: int, numbers: tuple[int, ...], seen: list[int]
) -> None:
    files = one_node(0, 1)
    for cpu, number in enumerate(numbers):
        files.cache(cpu, 0, level=level, number=number, sharers=[0, 1])
    node = files.info().topology[0]
    assert [cache.id for cache in node.caches] == seen
    assert [core.caches for core in node.cores] == [(), ()]


def test_cpusets_and_isolated_cpus_are_not_looked_at() -> None:
    files = one_node(0, 1)
    plain = files.info()
    files.texts |= {
        "proc/self/cgroup": "0::/job\n",
        f"{CPU}/isolated": "1\n",
        "proc/self/status": "Cpus_allowed_list: 0\n",
    }
    assert files.info() == plain


@pytest.mark.parametrize(("arch", "error"), [("x86_64", True), ("ia64", True), ("aarch64", False), ("armv7l", False)])
def test_a_machine_that_tells_no_clock_fails_as_a_whole_except_on_some_architectures(arch: str, error: bool) -> None:
    files = one_node(0, arch=f"Architecture: {arch}\n")
    files.texts["proc/cpuinfo"] = "processor : 0\n"
    expected = r'could not detect clock speed from output: "processor : 0\n"' if error else ""
    info, told, _ = files.answer()
    assert (info.num_cores, told) == (1, expected)


def test_cpufreq_goes_before_cpuinfo() -> None:
    files = Files()
    files.node(0)
    files.texts[f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq"] = "2400000\n"
    assert files.info().cpu_frequency_khz == 2_400_000


@pytest.mark.parametrize(
    ("path", "text", "error"),
    [
        (f"{NODE}/node0/distance", "10  20\n", "cannot convert  to int"),
        (f"{NODE}/node0/distance", "", "cannot convert  to int"),
        (f"{NODE}/node0/distance", "10 +1\n", "cannot convert +1 to int"),
        (f"{NODE}/node0/distance", "10 1_0\n", "cannot convert 1_0 to int"),
        (f"{NODE}/node0/distance", f"10 {2**64}\n", f"cannot convert {2**64} to int"),
        (f"{NODE}/node0/meminfo", "none", 'failed to match regexp in output: "none"'),
        (f"{NODE}/node0/hugepages/hugepages-x/nr_hugepages", "1", 'strconv.ParseUint: parsing "x": invalid syntax'),
        (f"{CPU}/cpu0/topology/core_id", "x\n", 'strconv.Atoi: parsing "x": invalid syntax'),
    ],
)
def test_what_cannot_be_read_as_a_number_costs_the_whole_topology(path: str, text: str, error: str) -> None:
    files = Files()
    files.node(0, distance="10")
    files.cpu(0, core=0, node=0)
    assert files.answer()[2] == ""
    files.texts[path] = text
    info, _, told = files.answer()
    assert (told, info.num_cores, info.topology) == (error, 0, ())


@pytest.mark.parametrize(
    ("size", "seen"), [("512K\n", [2**19]), (" 512K", [2**19]), ("512 K", []), ("512M", []), ("-1K", []), ("x", [])]
)
def test_the_size_of_a_cache_is_a_number_and_a_k_at_once_behind_it(size: str, seen: list[int]) -> None:
    files = one_node(0)
    files.cache(0, 0, level=2, number=0, sharers=[0])
    files.texts[f"{CPU}/cpu0/cache/index0/size"] = size
    [core] = files.info().topology[0].cores
    assert [cache.size for cache in core.caches] == seen


def test_only_what_go_calls_space_is_trimmed() -> None:
    files = Files()
    files.node(0, distance="\u00a0\x85 \v\f\r\n7\t")
    files.cpu(0, core=0, node=0)
    assert files.info().topology[0].distances == (7,)
    files.node(0, distance="\x1c7")
    assert files.answer()[2] == "cannot convert \x1c7 to int"


def test_pools_come_in_text_order_with_their_reserved_pages() -> None:
    files = Files()
    for size, pages in (("2048", "7\n"), ("1048576", "2\n")):
        files.texts[f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages"] = pages
        files.texts[f"sys/kernel/mm/hugepages/hugepages-{size}kB/free_hugepages"] = "0\n"
    assert [(pool.page_size, pool.num_pages) for pool in files.info().hugepages] == [(1048576, 2), (2048, 7)]


def test_memory_modules_are_summed_by_type() -> None:
    files = Files()
    for name, size in (("mc0/dimm0", 1024), ("mc0/dimm1", 2048), ("mc1/dimm0", 512)):
        files.texts[f"sys/devices/system/edac/mc/{name}/dimm_mem_type"] = "Registered-DDR4\n"
        files.texts[f"sys/devices/system/edac/mc/{name}/size"] = f"{size}\n"
    (modules,) = files.info().memory_by_type
    assert (modules.type, modules.capacity, modules.dimm_count) == ("Registered-DDR4", 3584 * 2**20, 3)
