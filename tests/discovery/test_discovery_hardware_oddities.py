"""Whatever the files hold, a machine or an InputError comes out, and what was odd is told."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import to_builtins
from msgspec.json import encode
from tests.discovery import trees
from tests.discovery.trees import CPUS, NODES
from tests.values import not_none

from mooring.documents.machine import machine_document
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Hardware
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.loader import machine_of

INTEL = "processor : 0\nvendor_id : GenuineIntel\ncpu family : 6\nmodel : {model}\n\n"
KNIGHTS_LANDING = INTEL.format(model=87)


def machine() -> dict[str, str]:
    """Return the files of a machine with four CPUs and three nodes that has something of everything."""
    files = {
        f"{CPUS}/online": "0-3\n",
        f"{CPUS}/isolated": "\n",
        f"{NODES}/online": "0-2\n",
        "sys/devices/cpu_core/cpus": "0-1\n",
        "sys/devices/cpu_atom/cpus": "2-3\n",
        "proc/cpuinfo": INTEL.format(model=143),
        "proc/meminfo": "MemTotal: 1 kB\n",
        "proc/mounts": "cg /cg cgroup2 rw 0 0\n",
        "proc/self/cgroup": "0::/job\n",
        "proc/hwloc-nofile-info": "Architecture: x86_64\nPageSize: 4096\n",
        "proc/driver/nvidia/gpus/0000:01:00.0/numa_status": "Node: 7\n",
        "proc/cmdline": "quiet\n",
        "cg/cgroup.controllers": "cpuset\n",
        "cg/job/cpuset.cpus.effective": "0-3\n",
        "cg/job/cpuset.mems.effective": "0-2\n",
    }
    for cpu in range(4):
        folder = f"{CPUS}/cpu{cpu}"
        pair = "3\n" if cpu < 2 else "c\n"
        for name in ("core_cpus", "cluster_cpus", "die_cpus", "book_siblings"):
            files[f"{folder}/topology/{name}"] = pair if name != "core_cpus" else f"{1 << cpu:x}\n"
        files[f"{folder}/topology/package_cpus"] = "f\n"
        files[f"{folder}/topology/core_id"] = f"{cpu}\n"
        files[f"{folder}/topology/physical_package_id"] = "0\n"
        files[f"{folder}/cache/index3/shared_cpu_map"] = pair
        files[f"{folder}/cache/index3/level"] = "3\n"
        files[f"{folder}/cache/index3/type"] = "Unified\n"
        files[f"{folder}/cache/index3/size"] = "4096K\n"
        files[f"{folder}/cpufreq/base_frequency"] = "2000000\n"
        files[f"{folder}/cpufreq/cpuinfo_max_freq"] = f"{3 + cpu % 2}000000\n"
        files[f"{folder}/acpi_cppc/nominal_freq"] = "2000\n"
        files[f"{folder}/cpu_capacity"] = "1024\n"
        files[f"{folder}/regs/identification/midr_el1"] = "0x410fd870\n"
    for node, (cpus, row) in enumerate((("3", "10 20 17"), ("c", "20 10 28"), ("0", "17 28 10"))):
        folder = f"{NODES}/node{node}"
        files[f"{folder}/cpumap"] = f"{cpus}\n"
        files[f"{folder}/distance"] = f"{row}\n"
        files[f"{folder}/meminfo"] = f"Node {node} MemTotal: 100 kB\n"
        files[f"{folder}/hugepages/hugepages-2048kB/nr_hugepages"] = "0\n"
        files[f"{folder}/access0/initiators/read_bandwidth"] = "100\n"
    return files


FILES = machine()


def findings(files: dict[str, str]) -> list[tuple[str, str]]:
    """Return what is odd in the files, apart from how the kubelet sees them."""
    return [(one.severity, one.subject) for one in trees.machine(files).findings if one.code > "MOOR-470"]


def check(hardware: Hardware) -> None:
    """Assert what holds of every machine."""
    ids = [cpu.id for cpu in hardware.cpus]
    assert ids == list(hardware.online)
    assert ids == sorted(set(ids))
    assert not hardware.online & hardware.offline
    assert hardware.allowed <= hardware.online
    numbers = [node.id for node in hardware.nodes]
    assert numbers
    assert numbers == sorted(set(numbers))
    for cpu in hardware.cpus:
        firsts = (cpu.core, cpu.package_first_cpu, cpu.die, cpu.l2, cpu.l3, cpu.cluster, cpu.book, cpu.drawer)
        assert all(first is None or (first <= cpu.id and first in hardware.online) for first in firsts)
        assert cpu.numa == tuple(node.id for node in hardware.nodes if cpu.id in node.local_cpus)
    assert all(node.local_cpus <= hardware.online for node in hardware.nodes)
    if hardware.distances is not None:
        assert len(hardware.distances) == len(hardware.distance_nodes) == len(hardware.distances[0])
    kinds = [kind.cpus for kind in hardware.kinds]
    assert sum(map(len, kinds)) == len(CPUSet.from_ids(cpu for kind in kinds for cpu in kind))


def read_and_check(files: dict[str, bytes]) -> None:
    with contextlib.suppress(InputError):
        machine = machine_of(ArchiveTree("small", files))
        check(not_none(machine.hardware))
        encode(machine_document(machine))
        for finding in machine.findings:
            assert finding.severity in {"info", "warning"}
            assert finding.message.endswith(".") or "cAdvisor cannot" in finding.message


@settings(max_examples=120, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(FILES)), st.binary(max_size=80), min_size=1, max_size=6))
def test_random_bytes_in_any_files_give_a_machine_or_an_input_error(patches: dict[str, bytes]) -> None:
    read_and_check({path: text.encode() for path, text in FILES.items()} | patches)


NUMBERS = st.one_of(st.integers(-5, 9), st.integers(-(2**70), 2**70)).map(str)
MASKS = st.one_of(st.integers(0, 31).map("{:x}".format), st.integers(0, 2**70).map("{:x}".format))
LISTS = st.lists(NUMBERS, max_size=4).map(",".join)
RANGES = st.tuples(st.integers(0, 9), st.integers(0, 99999999)).map(lambda ends: f"{ends[0]}-{ends[1]}")
WORDS = st.sampled_from(
    ["x86_64", "s390x", "aarch64", "ppc64", "AuthenticAMD", "numa=fake=2", "Architecture: s390x\n", ""]
)
TEXTS = st.one_of(NUMBERS, MASKS, LISTS, RANGES, WORDS, st.sampled_from(sorted(set(FILES.values()))))


@settings(max_examples=120, deadline=None)
@given(
    st.dictionaries(st.sampled_from(sorted(FILES)), TEXTS, max_size=8),
    st.sets(st.sampled_from(sorted(FILES)), max_size=30),
    st.sampled_from(["x86_64", "s390x", "aarch64", "ppc64", ""]),
    st.sampled_from([INTEL.format(model=143), KNIGHTS_LANDING, INTEL.replace("GenuineIntel", "AuthenticAMD")]),
)
def test_plausible_but_wrong_files_give_a_machine_or_an_input_error(
    patches: dict[str, str], missing: set[str], machine_name: str, cpuinfo: str
) -> None:
    files = FILES | {"proc/hwloc-nofile-info": f"Architecture: {machine_name}\n", "proc/cpuinfo": cpuinfo} | patches
    read_and_check({path: text.encode() for path, text in files.items() if path not in missing})


@pytest.mark.parametrize("depth", range(2, 8))
@pytest.mark.parametrize("path", ["sys/devices/system/cpu/cpu1/topology/core_cpus", f"{NODES}/node1/cpumap"])
def test_a_file_in_place_of_a_folder_is_as_good_as_nothing(path: str, depth: int) -> None:
    prefix = "/".join(path.split("/")[:depth])
    files = {other: text.encode() for other, text in FILES.items() if not other.startswith(prefix)}
    read_and_check(files | {prefix: b"0\n"})


def test_a_clean_machine_gives_the_expected_findings_only() -> None:
    assert findings(FILES) == findings(FILES | {"proc/cpuinfo": KNIGHTS_LANDING}) == [("info", "node 2")]


@pytest.mark.parametrize(
    ("patch", "finding"),
    [
        ({f"{CPUS}/online": "0-2\n"}, ("info", "CPUs 3")),
        ({f"{CPUS}/online": "0-5\n"}, ("warning", "CPUs 4-5")),
        ({f"{CPUS}/cpu1/cache/index3/shared_cpu_map": "6\n"}, ("warning", "CPUs 1-2")),
        ({f"{NODES}/online": "0-3\n"}, ("warning", "nodes 3")),
        ({f"{NODES}/node1/cpumap": "e\n"}, ("warning", "nodes 1")),
        ({f"{NODES}/node1/cpulist": "2\n"}, ("warning", "node 1")),
        ({f"{NODES}/node0/hugepages/hugepages-2048kB/nr_hugepages": "9\n"}, ("warning", "node 0")),
        ({f"{NODES}/node0/distance": "10\n"}, ("warning", "distances")),
        ({f"{NODES}/node0/distance": "10 21 17\n"}, ("info", "distances")),
        ({f"{NODES}/node0/distance": "10 20 10\n"}, ("warning", "distances")),
    ],
)
def test_every_oddity_is_reported(patch: dict[str, str], finding: tuple[str, str]) -> None:
    assert finding not in findings(FILES)
    assert finding in findings(FILES | patch)


def test_the_document_names_groups() -> None:
    files = {path: text for path, text in FILES.items() if "/cache/" not in path and "/die_cpus" not in path}
    cpus = to_builtins(machine_document(trees.machine(files)))["cpus"]
    assert isinstance(cpus, list)
    assert [cpu["groups"] for cpu in cpus] == [{"Cluster": 0}, {"Cluster": 0}, {"Cluster": 2}, {"Cluster": 2}]
