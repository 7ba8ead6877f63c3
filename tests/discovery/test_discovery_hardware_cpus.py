"""Rules about CPUs: which are shown, and how cores, clusters, dies, packages, books and caches come about."""

from __future__ import annotations

import pytest
from tests.discovery.trees import CPUS, X86, Files, cores
from tests.discovery.trees import hardware as read

from mooring.engine.core.bits import mask_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Hardware, HardwareCPU

S390 = {"proc/hwloc-nofile-info": "OSName: Linux\nArchitecture: s390x\n"}


def shared(name: str, *groups: list[int]) -> Files:
    """Return a mask file for every CPU of every group."""
    return {f"{CPUS}/cpu{cpu}/{name}": f"{mask_of(group):x}\n" for group in groups for cpu in group}


def each(name: str, **texts: str) -> Files:
    """Return one file per CPU, given as cpu0="..."."""
    return {f"{CPUS}/{cpu}/{name}": text for cpu, text in texts.items()}


def cache(index: int, level: int, *groups: list[int], kind: str = "Unified") -> Files:
    cpus = [cpu for group in groups for cpu in group]
    files = shared(f"cache/index{index}/shared_cpu_map", *groups)
    files |= {f"{CPUS}/cpu{cpu}/cache/index{index}/level": f"{level}\n" for cpu in cpus}
    return files | {f"{CPUS}/cpu{cpu}/cache/index{index}/type": f"{kind}\n" for cpu in cpus}


def column(hardware: Hardware, member: str) -> list[object]:
    return [getattr(cpu, member) for cpu in hardware.cpus]


def test_one_cpu_is_a_machine() -> None:
    hardware = read(cores(1))
    assert hardware.cpus == (HardwareCPU(id=0, core=0, package=None, package_first_cpu=None, numa=(0,)),)
    assert (hardware.num_cores, hardware.num_packages, hardware.num_l3) == (1, 0, 0)


@pytest.mark.parametrize(
    "files",
    [
        {f"{CPUS}/online": "0-1\n"},
        {f"{CPUS}/cpu0/topology/core_id": "0\n"},
        {f"{CPUS}/cpu1/topology/core_cpus": "2\n"},  # only CPU 0, or the first of the list, is asked
    ],
)
def test_a_tree_without_cpu_topology_is_refused(files: Files) -> None:
    with pytest.raises(InputError, match=r"reports no CPU topology.*name a folder or archive"):
        read(files)


@pytest.mark.parametrize("files", [{}, {"proc/cpuinfo": "processor : 0\n"}])
def test_a_tree_without_cpus_holds_no_machine(files: Files) -> None:
    with pytest.raises(InputError, match=r"holds no machine: sys/devices/system/cpu is missing; name a folder or arch"):
        read(files)


def test_a_tree_whose_first_online_cpu_has_topology_is_read() -> None:
    hardware = read({f"{CPUS}/online": "3-4\n"}, shared("topology/core_siblings", [3, 4]), each("online", cpu0="0\n"))
    assert (str(hardware.online), str(hardware.offline)) == ("3-4", "0")


def test_a_tree_with_all_cpus_offline_is_refused() -> None:
    with pytest.raises(InputError, match="no CPU is online"):
        read(cores(1), each("online", cpu0="0\n"))


def test_the_common_list_of_online_cpus_outweighs_the_files_of_the_cpus() -> None:
    hardware = read(cores(3), {f"{CPUS}/online": "0,2\n"}, each("online", cpu0="0\n", cpu1="1\n"))
    assert (str(hardware.online), str(hardware.offline)) == ("0,2", "1")


def test_a_cpu_without_topology_counts_as_offline() -> None:
    hardware = read(cores(2), each("cpufreq/x", cpu2="1\n"), {f"{CPUS}/cpufreq/boost": "1", f"{CPUS}/cpuidle/y": "1"})
    assert (str(hardware.online), str(hardware.offline)) == ("0-1", "2")


def test_offline_siblings_do_not_count_as_first() -> None:
    hardware = read(shared("topology/core_cpus", [0, 1, 2]), {f"{CPUS}/online": "1-2\n"})
    assert column(hardware, "core") == [1, 1]


def test_new_names_of_files_win_over_old_ones() -> None:
    hardware = read(shared("topology/thread_siblings", [0, 1]), cores(2))
    assert column(hardware, "core") == [0, 1]


def test_packages_without_an_id_are_told_apart_by_their_cpus() -> None:
    hardware = read(
        cores(4),
        shared("topology/package_cpus", [0, 2], [1, 3]),
        each("topology/physical_package_id", cpu0="-1\n", cpu1="36\n"),
    )
    assert column(hardware, "package") == [None, 36, None, 36]
    assert column(hardware, "package_first_cpu") == [0, 1, 0, 1]
    assert hardware.num_packages == 2


def test_a_die_is_shown_only_where_it_is_less_than_the_package_and_more_than_a_cpu() -> None:
    whole = read(cores(2), shared("topology/package_cpus", [0, 1]), shared("topology/die_cpus", [0, 1]))
    single = read(cores(2), shared("topology/package_cpus", [0, 1]), shared("topology/die_cpus", [0], [1]))
    halves = read(cores(4), shared("topology/package_cpus", [0, 1, 2, 3]), shared("topology/die_cpus", [0, 1], [2, 3]))
    assert column(whole, "die") == column(single, "die") == [None, None]
    assert column(halves, "die") == [0, 0, 2, 2]
    assert column(halves, "package_first_cpu") == [0, 0, 0, 0]


def test_a_cluster_is_shown_only_where_nothing_else_has_its_cpus() -> None:
    clusters = shared("topology/cluster_cpus", [0, 1], [2, 3])
    package = shared("topology/package_cpus", [0, 1, 2, 3])
    assert column(read(cores(4), package, clusters), "cluster") == [0, 0, 2, 2]
    assert column(read(cores(4), package, clusters, cache(0, 2, [0, 1])), "cluster") == [None, None, 2, 2]
    assert column(read(cores(4), package, shared("topology/cluster_cpus", [0, 1, 2, 3])), "cluster") == [None] * 4
    assert column(read(cores(4), shared("topology/cluster_cpus", [0, 1, 2, 3])), "cluster") == [None] * 4


def test_books_and_drawers_exist_on_s390_only_and_need_an_id() -> None:
    files = cores(8) | shared("topology/book_siblings", [0, 1], [2, 3], [4, 5], [6, 7])
    files |= shared("topology/drawer_siblings", [0, 1, 2, 3], [4, 5, 6, 7])
    files |= each("topology/book_id", cpu0="1", cpu2="2", cpu4="3") | each("topology/drawer_id", cpu0="1", cpu4="2")
    hardware = read(files, S390)
    assert column(hardware, "book") == [0, 0, 2, 2, 4, 4, None, None]
    assert column(hardware, "drawer") == [0, 0, 0, 0, 4, 4, 4, 4]
    assert column(read(files), "book") == [None] * 8


def test_compute_units_of_amd_are_two_cores_when_their_core_ids_differ() -> None:
    cpuinfo = {"proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 21\nmodel\t\t: 1\n\n"}
    files = shared("topology/thread_siblings", [0, 1], [2, 3])
    ids = each("topology/core_id", cpu0="0", cpu1="1", cpu2="2", cpu3="3")
    threads = each("topology/core_id", cpu0="0", cpu1="0", cpu2="1", cpu3="1")
    assert column(read(files, ids, cpuinfo, X86), "core") == [0, 1, 2, 3]
    assert column(read(files, threads, cpuinfo, X86), "core") == [0, 0, 2, 2]
    assert column(read(files, ids, cpuinfo), "core") == [0, 0, 2, 2], "nobody says that this is an x86"


def test_caches_are_told_apart_by_sharing_not_by_id() -> None:
    hardware = read(cores(4), cache(3, 3, [0, 1], [2, 3]), each("cache/index3/id", cpu0="5", cpu1="6", cpu2="5"))
    assert column(hardware, "l3") == [0, 0, 2, 2]
    assert hardware.num_l3 == 2


def test_instruction_caches_and_unknown_levels_are_not_shown() -> None:
    hardware = read(
        cores(2), cache(0, 2, [0, 1], kind="Instruction"), cache(1, 7, [0, 1]), cache(2, 3, [0], kind="Data")
    )
    assert column(hardware, "l2") == [None, None]
    assert column(hardware, "l3") == [0, None]


def test_a_cache_shared_by_nobody_belongs_to_the_core() -> None:
    hardware = read(
        shared("topology/core_cpus", [0, 1]),
        cache(0, 2, [0, 1]),
        each("cache/index0/shared_cpu_map", cpu0="0\n", cpu1="0\n"),
    )
    assert column(hardware, "l2") == [0, 0]


def test_of_two_sets_that_cross_the_first_one_read_stays() -> None:
    hardware = read(cores(4), shared("topology/package_cpus", [0, 1], [2, 3]), cache(3, 3, [1, 2]))
    assert column(hardware, "l3") == [None] * 4
    assert [(kind, str(cpus)) for kind, cpus in hardware.refused] == [("l3", "1-2")]


def test_isolated_cpus_are_those_of_the_kernel_parameter() -> None:
    assert str(read(cores(4), {f"{CPUS}/isolated": "2-3\n"}).isolated) == "2-3"
    assert str(read(cores(4), {f"{CPUS}/isolated": "\n"}).isolated) == ""


MOUNTS = {
    "cpuset": "none /dev/cpuset cpuset rw 0 0\n",
    "noprefix": "none /dev/cpuset cgroup rw,noprefix,cpuset 0 0\n",
    "v1": "proc /proc proc rw 0 0\ncg /sys/fs/cgroup/cpu\\040set cgroup rw,cpuset 0 0\n",
    "v2": "cg /cg cgroup2 rw 0 0\n",
}
FILES_OF_GROUP = {
    "cpuset": {"proc/self/cpuset": "/job\n", "dev/cpuset/job/cpus": "1-2\n", "dev/cpuset/job/mems": "1\n"},
    "noprefix": {"proc/self/cpuset": "/job\n", "dev/cpuset/job/cpus": "1-2\n", "dev/cpuset/job/mems": "1\n"},
    "v1": {
        "proc/self/cgroup": "4:memory:/a\n3:cpuset:/job\n",
        "sys/fs/cgroup/cpu set/job/cpuset.cpus": "1-2,9\n",
        "sys/fs/cgroup/cpu set/job/cpuset.mems": "1\n",
    },
    "v2": {
        "proc/self/cgroup": "0::/job\n",
        "cg/cgroup.controllers": "cpu cpuset io\n",
        "cg/job/cpuset.cpus.effective": "1-2\n",
        "cg/job/cpuset.mems.effective": "1\n",
    },
}


@pytest.mark.parametrize("kind", MOUNTS)
def test_the_cpuset_of_the_snapshot_limits_what_is_allowed(kind: str) -> None:
    hardware = read(cores(4), {"proc/mounts": MOUNTS[kind]}, FILES_OF_GROUP[kind])
    assert str(hardware.allowed) == "1-2"
    assert hardware.nodes_disallowed == (0,)


def test_without_a_cpuset_everything_is_allowed() -> None:
    without_controller = FILES_OF_GROUP["v2"] | {"cg/cgroup.controllers": "cpu io\n"}
    for files in (
        {"proc/mounts": MOUNTS["v2"]} | without_controller,
        FILES_OF_GROUP["v1"],
        {"proc/mounts": "x\n\n#\n"},
    ):
        hardware = read(cores(4), files)
        assert str(hardware.allowed) == "0-3"
        assert hardware.nodes_disallowed == ()
