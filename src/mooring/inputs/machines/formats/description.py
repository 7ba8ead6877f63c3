"""What a file says about a machine, and the sysfs files that a machine of that description has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from mooring.engine.core.bits import list_text, mask_of, members
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin, PCIDevice, PublishedNode
from mooring.engine.core.machineinfo import HugePages
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.kernelfiles import mask_text
from mooring.inputs.machines.tree import CPUS, NODES, PCI_DEVICES
from mooring.lazy import dataclass, field

MAX_CPUS: Final = 8192
"""CPUs that a described machine may have; Linux has no more (NR_CPUS)."""
MAX_NODES: Final = 1024
"""NUMA nodes that it may have; Linux has no more (NODES_SHIFT 10)."""
MAX_BYTES: Final = 2**60
"""Memory that it may have (1Ei); the managers count in 64 bits."""
MAX_DEVICES: Final = 4096
"""Devices of a resource that a NUMA node may have."""
OF_MEMORY: Final = "memory"
"""What a format may leave open, and the key for it."""
CACHE_KINDS: Final = {"d": "Data", "i": "Instruction", "": "Unified"}
"""Letter behind the level in the name of a cache, such as ``L1d`` -> what it holds."""
LOCAL_DISTANCE: Final = 10
REMOTE_DISTANCE: Final = 20
"""Distances where the firmware has no table. Source: Linux, include/linux/topology.h."""
MEMORY_OF_A_CPU: Final = 4 * 2**30
"""Assumed where a file does not tell the memory: general-purpose servers have about 4 GiB for each CPU."""
ASSUMED_MEMORY: Final = "4Gi of memory for each CPU"
ASSUMED_NODE_MEMORY: Final = "4Gi of memory for each NUMA node"
ASSUMED_DISTANCES: Final = f"distances {LOCAL_DISTANCE} and {REMOTE_DISTANCE}"
ASSUMED_CORES: Final = "every CPU is a core"
OF_DISTANCES: Final = "distances"
ASSUMED_SOCKETS: Final = "every NUMA node is a socket"
ASSUMED_NODES: Final = "every socket is a NUMA node"
ASSUMED_ONE_NODE: Final = "one NUMA node"
ASSUMED_THREADS: Final = {1: ASSUMED_CORES} | {
    threads: f"{threads} threads a core, as the runs of CPU numbers suggest" for threads in range(2, 9)
}
"""Threads of a core -> how they are listed as an assumption."""
OF_PART: Final = {
    ASSUMED_MEMORY: OF_MEMORY,
    ASSUMED_NODE_MEMORY: OF_MEMORY,
    ASSUMED_DISTANCES: OF_DISTANCES,
    ASSUMED_SOCKETS: "sockets",
    ASSUMED_NODES: "NUMA nodes",
    ASSUMED_ONE_NODE: "NUMA nodes",
} | dict.fromkeys(ASSUMED_THREADS.values(), "cores")
"""What was assumed -> what the format leaves open."""


@dataclass(frozen=True, slots=True)
class DescribedCPU:
    """Where an online CPU is."""

    core: int
    """Equal for the threads of a core, and for no other CPU of the machine."""
    core_id: int
    """The kernel's number of the core."""
    package: int
    """Equal for the CPUs of a package."""
    package_id: int
    """The kernel's number of the package; -1 unknown."""
    node: int | None = None
    """None on a machine without NUMA nodes."""
    die: int | None = None
    """Number in its package."""
    cluster: int | None = None
    """Number on the machine."""
    book: int | None = None
    drawer: int | None = None


@dataclass(frozen=True, slots=True)
class DescribedCache:
    """A cache and the CPUs that share it."""

    level: int
    cpus: int
    """Mask."""
    kind: str = "Unified"
    size: int = 0
    """Bytes; 0 unknown."""
    id: int | None = None
    """The kernel's number of it; without one cAdvisor reads no cache."""


@dataclass(frozen=True, slots=True)
class DescribedNode:
    """A NUMA node."""

    id: int
    size: int
    """Bytes."""
    pools: tuple[HugePages, ...] = ()
    distances: tuple[int, ...] = ()
    """To the nodes by ascending id; empty if unknown."""
    near: tuple[int, ...] = ()
    """Of a node without CPUs: the nodes whose CPUs are nearest; empty if unknown."""


@dataclass(frozen=True, slots=True)
class Description:
    """A machine as far as a file tells it."""

    origin: MachineOrigin
    cpus: Mapping[int, DescribedCPU]
    """Online CPUs."""
    nodes: tuple[DescribedNode, ...]
    """By ascending id; empty on a machine without NUMA nodes."""
    offline: int = 0
    """Mask."""
    allowed: int | None = None
    """Mask of what the control group of the process that wrote the file may use; None is everything."""
    caches: tuple[DescribedCache, ...] = ()
    architecture: str = ""
    """As ``uname -m`` prints it; empty if unknown."""
    vendor: str = ""
    memory: int = 0
    """Bytes, of a machine without NUMA nodes."""
    page_size: int = 4096
    clocks: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    """CPU -> file below its folder -> value, of what tells kinds of cores apart."""
    core_types: Mapping[str, int] = field(default_factory=dict)
    """Name of Intel's performance counter (``cpu_core``, ``cpu_atom``) -> mask of its CPUs."""
    pci: tuple[PCIDevice, ...] = ()
    name: str = ""
    """The computer's name, where the file tells it."""
    published: PublishedNode | None = None


def row_of(distances: Mapping[int, int], node: int, nodes: Iterable[int]) -> tuple[int, ...]:
    """Return a row of the distance table in which unknown entries have Linux's defaults.

    >>> row_of({1: 21}, 0, (0, 1, 2))
    (10, 21, 20)
    """
    return tuple(distances.get(other, LOCAL_DISTANCE if other == node else REMOTE_DISTANCE) for other in sorted(nodes))


def assumed_nodes(cpus: Mapping[int, int]) -> tuple[DescribedNode, ...]:
    """Return the NUMA nodes of which only the number of CPUs is known."""
    return tuple(
        DescribedNode(node, MEMORY_OF_A_CPU * count, distances=row_of({}, node, cpus))
        for node, count in sorted(cpus.items())
    )


def origin_of(form: str, unknown: Iterable[str | bool], assumed: Iterable[str | bool]) -> MachineOrigin:
    """Return where a machine is from; what is False in a list, because its condition does not hold, is left out.

    >>> origin_of("x", ("caches", False), ()).unknown
    ('caches',)
    """
    told = (tuple(text for text in some if isinstance(text, str)) for some in (unknown, assumed))
    return MachineOrigin(form, *told)


def tree_of(description: Description, name: str) -> ArchiveTree:
    """Return the files that the kernel of such a machine has, in which both readers find it again.

    Raises:
        InputError: the description has a number that no Linux machine has.
    """
    _check_numbers(description, name)
    online = mask_of(description.cpus)
    texts = {
        f"{CPUS}/online": list_text(online),
        f"{CPUS}/present": list_text(online | description.offline),
        "proc/hwloc-nofile-info": f"Architecture: {description.architecture}\nPageSize: {description.page_size}",
        "proc/cpuinfo": "\n\n".join(_processors(description)),
        **{f"sys/devices/{counter}/cpus": list_text(mask) for counter, mask in description.core_types.items()},
    }
    if description.allowed is not None:
        texts |= {
            "proc/mounts": "none /sys/fs/cgroup cgroup2 rw 0 0",
            "proc/self/cpuset": "/",
            "sys/fs/cgroup/cgroup.controllers": "cpuset",
            "sys/fs/cgroup/cpuset.cpus.effective": list_text(description.allowed),
        }
    for cpu, clocks in description.clocks.items():
        texts |= {f"{CPUS}/cpu{cpu}/{file}": str(value) for file, value in clocks.items()}
    texts.update(_cpu_files(description.cpus, description.caches))
    texts.update(_memory(description))
    links = {
        f"{NODES}/node{place.node}/cpu{cpu}": f"../../cpu/cpu{cpu}"
        for cpu, place in description.cpus.items()
        if place.node is not None
    }
    for node in description.nodes:
        folder = f"{NODES}/node{node.id}/access0/initiators"
        links |= {f"{folder}/node{near}": f"../../../node{near}" for near in node.near}
    for device in description.pci:
        folder = f"{PCI_DEVICES}/{device.address}"
        if device.root:
            links[folder] = f"../../../devices/{device.root}/{device.address}"
            folder = f"sys/devices/{device.root}/{device.address}"
        texts |= {
            f"{folder}/class": f"0x{device.class_code}",
            f"{folder}/vendor": f"0x{device.vendor}",
            f"{folder}/device": f"0x{device.device}",
            f"{folder}/numa_node": str(-1 if device.numa is None else device.numa),
        }
    files = {path: f"{text}\n".encode() for path, text in texts.items()}
    return ArchiveTree(name, files, links, [f"{CPUS}/cpu{cpu}" for cpu in members(description.offline)])


def _check_numbers(description: Description, source: str) -> None:
    highest = max((*description.cpus, description.offline.bit_length() - 1), default=-1)
    node = max((node.id for node in description.nodes), default=0)
    lowest = min((*description.cpus, *(node.id for node in description.nodes)), default=0)
    largest = max((*(node.size for node in description.nodes), description.memory))
    for is_wrong, problem in (
        (not description.cpus, "has no online CPU"),
        (highest >= MAX_CPUS, f"names CPU {highest}; Linux has at most {MAX_CPUS} CPUs"),
        (node >= MAX_NODES, f"names NUMA node {node}; Linux has at most {MAX_NODES} nodes"),
        (lowest < 0, f"has the negative number {lowest} as a CPU or NUMA node"),
        (largest > MAX_BYTES, f"has {largest} bytes of memory; at most 1Ei is possible"),
    ):
        if is_wrong:
            raise InputError(problem, source=source, remedy="capture it again")


def _processors(description: Description) -> Iterator[str]:
    """Yield the blocks of ``/proc/cpuinfo``; a kubelet on x86 does not start without a clock."""
    for cpu, place in sorted(description.cpus.items()):
        lines = [f"processor\t: {cpu}", *([f"vendor_id\t: {description.vendor}"] if description.vendor else ())]
        lines.append("cpu MHz\t\t: 0.000")
        if description.architecture in ("x86_64", "i686"):
            lines += [f"physical id\t: {place.package_id}", f"core id\t\t: {place.core_id}", "flags\t\t: lm"]
        yield "\n".join(lines)


_SETS: Final[tuple[tuple[str, Callable[[DescribedCPU], object]], ...]] = (
    ("core_cpus", lambda place: place.core),
    ("package_cpus", lambda place: place.package),
    ("die_cpus", lambda place: None if place.die is None else (place.package, place.die)),
    ("cluster_cpus", lambda place: place.cluster),
    ("book_siblings", lambda place: None if place.book is None else (place.drawer, place.book)),
    ("drawer_siblings", lambda place: place.drawer),
)
"""File -> what is equal for the CPUs in it."""


def _cpu_files(cpus: Mapping[int, DescribedCPU], caches: Iterable[DescribedCache]) -> Iterator[tuple[str, str]]:
    for file, shared in _SETS:
        sharers: dict[object, list[int]] = defaultdict(list)
        for cpu, place in cpus.items():
            sharers[shared(place)].append(cpu)
        for key, group in sharers.items():
            if key is not None:
                text = mask_text(mask_of(group))
                yield from ((f"{CPUS}/cpu{cpu}/topology/{file}", text) for cpu in group)
    for cpu, place in cpus.items():
        numbers = {
            "core_id": place.core_id,
            "physical_package_id": place.package_id,
            "die_id": place.die,
            "book_id": place.book,
            "drawer_id": place.drawer,
        }
        for file, number in numbers.items():
            if number is not None:
                yield f"{CPUS}/cpu{cpu}/topology/{file}", str(number)
    indexes: dict[int, int] = defaultdict(int)
    for cache in sorted(caches, key=lambda cache: (cache.level, cache.kind)):
        text = mask_text(cache.cpus)
        for cpu in members(cache.cpus):
            folder = f"{CPUS}/cpu{cpu}/cache/index{indexes[cpu]}"
            indexes[cpu] += 1
            yield f"{folder}/level", str(cache.level)
            yield f"{folder}/type", cache.kind
            yield f"{folder}/size", f"{cache.size // 1024}K"
            yield f"{folder}/shared_cpu_map", text
            if cache.id is not None:
                yield f"{folder}/id", str(cache.id)


def _memory(description: Description) -> Iterator[tuple[str, str]]:
    cpus: dict[int | None, list[int]] = defaultdict(list)
    for cpu, place in description.cpus.items():
        cpus[place.node].append(cpu)
    if description.nodes:
        yield f"{NODES}/online", list_text(mask_of(node.id for node in description.nodes))
    pools: dict[int, int] = defaultdict(int)
    for node in description.nodes:
        folder, mask = f"{NODES}/node{node.id}", mask_of(cpus[node.id])
        yield f"{folder}/cpumap", mask_text(mask)
        yield f"{folder}/cpulist", list_text(mask)
        yield f"{folder}/meminfo", f"Node {node.id} MemTotal: {node.size // 1024} kB"
        if len(description.nodes) == 1:
            yield f"{folder}/distance", str(LOCAL_DISTANCE)
        elif node.distances:
            yield f"{folder}/distance", " ".join(map(str, node.distances))
        for pool in node.pools:
            pools[pool.page_size] += pool.num_pages
            yield f"{folder}/hugepages/hugepages-{pool.page_size}kB/nr_hugepages", str(pool.num_pages)
    for size, pages in pools.items():
        yield f"sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages", str(pages)
    total = sum(node.size for node in description.nodes) or description.memory
    yield "proc/meminfo", f"MemTotal: {total // 1024} kB\nSwapTotal: 0 kB"
