"""The files in which the kubelet reads a machine, written for any machine that Mooring can describe.

:func:`write_machine` makes them from Mooring's two views of a machine, :func:`unpack_machine` from a recorded snapshot.
The kubelet is started with them mounted over its own (:data:`MOUNTED`).
"""

from __future__ import annotations

import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from mooring.engine.core.bits import mask_of
from mooring.engine.core.machine import Hardware, HardwareCPU, Machine
from mooring.engine.core.machineinfo import Cache, HugePages, MachineInfo

MOUNTED = (
    "sys/devices/system/node",
    "sys/devices/system/cpu",
    "sys/kernel/mm/hugepages",
    "proc/meminfo",
    "proc/cpuinfo",
)
SNAPSHOTS = Path(__file__).resolve().parents[4] / "shared" / "machines"
_SYSTEM = "sys/devices/system"
_UNKNOWN_CACHE = Cache(0, 2**20, "Unified", 2)
"""For caches that the kubelet's view leaves out: those that cores share below level 3."""


def write_machine(folder: Path, machine: Machine) -> None:
    """Write the files of a regular machine; raises AssertionError when its hardware is not known."""
    assert machine.hardware is not None
    for path, text in _files(machine.info, machine.hardware):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(f"{text}\n", encoding="utf-8")
    for node in machine.info.topology:
        place = folder / _SYSTEM / f"node/node{node.node_id}"
        for cpu in sorted(cpu for core in node.cores for cpu in core.thread_ids):
            (place / f"cpu{cpu}").symlink_to(f"../../cpu/cpu{cpu}")


def unpack_machine(folder: Path, name: str) -> None:
    """Unpack a recorded machine."""
    with tarfile.open(SNAPSHOTS / name / f"{name}.tar.gz") as archive:
        archive.extractall(folder, filter="data")


def _files(info: MachineInfo, hardware: Hardware) -> Iterator[tuple[str, str]]:
    yield "proc/hwloc-nofile-info", "Architecture: x86_64"
    yield "proc/meminfo", _memory(info.memory_capacity, "") + "\nSwapTotal: 0 kB"
    yield from _pools("sys/kernel/mm/hugepages", info.hugepages)
    yield f"{_SYSTEM}/cpu/online", str(hardware.online)
    yield f"{_SYSTEM}/cpu/possible", str(hardware.online)
    yield f"{_SYSTEM}/cpu/present", str(hardware.online)
    yield f"{_SYSTEM}/node/online", ",".join(str(node.node_id) for node in info.topology)
    for node in info.topology:
        place = f"{_SYSTEM}/node/node{node.node_id}"
        yield f"{place}/meminfo", _memory(node.memory, f"Node {node.node_id} ")
        yield f"{place}/distance", " ".join(map(str, node.distances or (10,)))
        cpus = [cpu for core in node.cores for cpu in core.thread_ids]
        yield f"{place}/cpumap", f"{mask_of(cpus):x}"
        yield f"{place}/cpulist", ",".join(map(str, sorted(cpus)))
        yield from _pools(f"{place}/hugepages", node.hugepages)
    yield "proc/cpuinfo", _cpuinfo(info)
    yield from _cpu_files(info, hardware)


def _memory(size: int, prefix: str) -> str:
    return f"{prefix}MemTotal: {size // 1024} kB\n{prefix}MemFree: {size // 1024} kB"


def _pools(folder: str, pools: tuple[HugePages, ...]) -> Iterator[tuple[str, str]]:
    # A machine without pools has the folder too, so that there is something to mount.
    for pool in pools or (HugePages(2048, 0),):
        yield f"{folder}/hugepages-{pool.page_size}kB/nr_hugepages", str(pool.num_pages)


def _cpuinfo(info: MachineInfo) -> str:
    lines = {
        cpu: f"processor : {cpu}\nvendor_id : E2E\ncpu MHz : 2000.000\n"
        f"physical id : {core.socket_id}\ncore id : {core.core_id}\n"
        for node in info.topology
        for core in node.cores
        for cpu in core.thread_ids
    }
    return "\n".join(text for _, text in sorted(lines.items()))


def _cpu_files(info: MachineInfo, hardware: Hardware) -> Iterator[tuple[str, str]]:
    sharers = _sharers(hardware)
    levels = {cpu.id: {2: cpu.l2, 3: cpu.l3} for cpu in hardware.cpus}
    for node in info.topology:
        for core in node.cores:
            known = {cache.level: cache for cache in (*core.caches, *node.caches, *core.uncore_caches)}
            for cpu in core.thread_ids:
                place = f"{_SYSTEM}/cpu/cpu{cpu}"
                yield f"{place}/topology/core_id", str(core.core_id)
                yield f"{place}/topology/physical_package_id", str(core.socket_id)
                yield f"{place}/topology/core_cpus", f"{mask_of(core.thread_ids):x}"
                yield f"{place}/topology/thread_siblings_list", ",".join(map(str, sorted(core.thread_ids)))
                for level, first in levels[cpu].items():
                    if first is not None:
                        cache = known.get(level, _UNKNOWN_CACHE)
                        yield from _cache_files(f"{place}/cache/index{level}", cache, sharers[level, first])


def _cache_files(folder: str, cache: Cache, mask: int) -> Iterator[tuple[str, str]]:
    yield f"{folder}/id", str(cache.id)
    yield f"{folder}/size", f"{cache.size // 1024}K"
    yield f"{folder}/type", cache.type
    yield f"{folder}/level", str(cache.level)
    yield f"{folder}/shared_cpu_map", _words(mask)


def _sharers(hardware: Hardware) -> Mapping[tuple[int, int], int]:
    """Return the CPUs of every cache as a mask, by level and first CPU."""
    found: dict[tuple[int, int], list[HardwareCPU]] = defaultdict(list)
    for cpu in hardware.cpus:
        for level, first in ((2, cpu.l2), (3, cpu.l3)):
            if first is not None:
                found[level, first].append(cpu)
    return {key: mask_of(cpu.id for cpu in cpus) for key, cpus in found.items()}


def _words(mask: int) -> str:
    """Return a mask as the kernel writes it: words of 32 bits, the highest first."""
    words: list[str] = []
    while mask or not words:
        words.append(f"{mask & 0xFFFFFFFF:08x}")
        mask >>= 32
    return ",".join(reversed(words))
