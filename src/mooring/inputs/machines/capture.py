"""Reading off a computer what a node archive needs of it.

Only what :mod:`mooring.inputs.machines.capture` names is read, and links are followed as a :class:`Tree` does:
never out of it.

Which files of a computer a node archive takes, and which part of each: all that is read from it is named here.

A pattern is a path below ``/`` whose parts may hold the wildcards of a shell. Folders on the way are taken even when
nothing in them is, because their being there means something. Of some text files only a part is taken: the kernel's
command line can hold passwords of a boot loader's menu and addresses of an installation server, the mount table names
file servers, and systemd's configuration has an environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from fnmatch import filter as fnmatched
from fnmatch import fnmatchcase
from typing import Final

from mooring.inputs.machines.cadvisor_probe import read_problem
from mooring.inputs.machines.isolation import group_folders, numbered_lines, words_of
from mooring.inputs.machines.kernelfiles import cpuset_files
from mooring.inputs.machines.tree import CPUS, NODES, PCI_DEVICES, Tree, live_tree, processes
from mooring.lazy import dataclass, field

_CACHE_FILES: Final = ("id", "level", "type", "size", "shared_cpu_map", "shared_cpu_list")
PCI_FILES: Final = ("class", "vendor", "device", "numa_node", "local_cpus")
_INITIATOR_FILES: Final = ("read_bandwidth", "write_bandwidth", "read_latency", "write_latency")

MACHINE: Final = (
    *(f"{CPUS}/{name}" for name in ("online", "offline", "present", "possible", "isolated", "nohz_full", "smt/active")),
    f"{CPUS}/cpu*[0-9]/online", f"{CPUS}/cpu*[0-9]/cpu_capacity", f"{CPUS}/cpu*[0-9]/topology/*",
    *(f"{CPUS}/cpu*[0-9]/cache/index*/{name}" for name in _CACHE_FILES),
    *(f"{CPUS}/cpu*[0-9]/cpufreq/{name}" for name in ("base_frequency", "cpuinfo_max_freq")),
    f"{CPUS}/cpu*[0-9]/acpi_cppc/nominal_freq", f"{CPUS}/cpu*[0-9]/regs/identification/midr_el1",
    *(f"{NODES}/{name}" for name in ("online", "possible")),
    *(f"{NODES}/node*/{name}" for name in ("cpumap", "cpulist", "distance", "meminfo")),
    f"{NODES}/node*/hugepages/*/nr_hugepages",
    *(f"{NODES}/node*/access[01]/initiators/{name}" for name in _INITIATOR_FILES),
    "sys/kernel/mm/hugepages/*/nr_hugepages",
    *(f"sys/devices/{kind}/cpus" for kind in ("cpu_core", "cpu_atom", "cpu_lowpower")),
    *(f"{PCI_DEVICES}/*/{name}" for name in PCI_FILES),
    *(
        f"sys/devices/system/edac/mc/mc*/{kind}*/{name}"
        for kind in ("dimm", "rank")
        for name in ("dimm_mem_type", "size")
    ),
    "proc/driver/nvidia/gpus/*/numa_status",
    *(f"proc/{name}" for name in ("cpuinfo", "meminfo", "cmdline", "mounts", "self/cpuset", "self/cgroup")),
    "proc/hwloc-nofile-info",
)  # fmt: skip
"""What the machine is, for both views of it."""

NAMES: Final = (f"{NODES}/node*/hugepages/*", "sys/kernel/mm/hugepages/*", f"{PCI_DEVICES}/*")
"""Folders whose names are taken, whatever else is in them."""

INITIATORS: Final = f"{NODES}/node*/access[01]/initiators/node*"
"""Links from a NUMA node to the nodes nearest to it; their names are taken."""

CPU_LINKS: Final = f"{NODES}/node*/cpu*"
"""Links from a NUMA node to its CPUs; the kubelet's view follows them."""

ISOLATION: Final = (
    "proc/interrupts", "proc/irq/default_smp_affinity", "proc/irq/*/smp_affinity_list",
    "proc/irq/*/effective_affinity_list", "sys/devices/virtual/workqueue/cpumask", "etc/systemd/system.conf",
    "etc/systemd/system.conf.d/*.conf", "run/systemd/system.conf.d/*.conf", "run/systemd/system.conf",
    "usr/lib/systemd/system.conf", "usr/lib/systemd/system.conf.d/*.conf", "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
)  # fmt: skip
"""Who else may run on a CPU: interrupts, the kernel's workers, systemd."""

PROCESS: Final = "irqbalance"
"""The only program whose being there matters; the kernel's name for it is in ``/proc/PID/comm``."""

GROUP_FILES: Final = (
    "cgroup.controllers", "cgroup.procs", "cpuset.cpus", "cpuset.cpus.effective", "cpuset.cpus.exclusive",
    "cpuset.cpus.partition", "cpuset.mems", "cpuset.mems.effective", "cpuset.effective_cpus",
    "cpuset.effective_mems", "cpuset.cpu_exclusive",
)  # fmt: skip
"""Files of a control group, version 2 and 1; of its processes no more than whether there are any."""


_KERNEL_WORDS: Final = frozenset({
    "cgroup_disable", "default_hugepagesz", "hugepages", "hugepagesz", "irqaffinity", "isolcpus", "kthread_cpus",
    "maxcpus", "nohz", "nohz_full", "nosmt", "nr_cpus", "numa", "numa_balancing", "possible_cpus", "rcu_nocb_poll",
    "rcu_nocbs", "skew_tick", "systemd.cpu_affinity", "systemd.unified_cgroup_hierarchy", "tuned.non_isolcpus",
})  # fmt: skip
_SERIAL: Final = re.compile(r"^Serial[ \t]*:.*\n?", re.MULTILINE | re.IGNORECASE)
_IDENTIFICATION: Final = re.compile(r"(\bidentification = )[0-9A-Fa-f]+")
_LINES: Final[Mapping[str, str]] = {
    "proc/mounts": r"\s*\S+\s+\S+\s+(?:cgroup2?|cpuset)(?:\s|\Z)",
    "proc/self/cgroup": r"[^:]*(?::(?:cpuset)?(?::|\Z)|\Z)",
    "etc/*/irqbalance": r"\s*(?:export\s+)?IRQBALANCE_BANNED_(?:CPULIST|CPUS)=",
    "*/systemd/system.conf": r"\s*(?:\[.*\]|CPUAffinity\s*=.*)",
    "*/systemd/system.conf.d/*": r"\s*(?:\[.*\]|CPUAffinity\s*=.*)",
}
"""Pattern of paths -> how the lines begin that are kept: mounts of control groups and cpusets, the cpuset of a process,
CPUs that irqbalance leaves alone, sections and CPUAffinity of systemd."""


def kernel_words(text: str) -> str:
    r"""Return the words of a kernel command line that are about CPUs, NUMA and huge pages.

    >>> kernel_words("BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=2-7 quiet\n")
    'isolcpus=2-7\n'
    """
    return f"{' '.join(word for word in words_of(text) if word.partition('=')[0] in _KERNEL_WORDS)}\n"


_FILTERS: Final[Mapping[str, Callable[[str], str]]] = {
    "proc/cmdline": kernel_words,
    # Serial numbers are what ARM boards and mainframes print.
    "proc/cpuinfo": lambda text: _IDENTIFICATION.sub(r"\g<1>0", _SERIAL.sub("", text)),
    # The numbered lines without the counts of each CPU, under an empty heading.
    "proc/interrupts": lambda text: "".join(
        ("\n", *(f"{number}: {' '.join(words)}\n" for number, words in numbered_lines(text)))
    ),
    "*/cgroup.procs": lambda text: "0\n" if text.strip() else "",
}
"""Pattern of paths -> what is kept of the text; all of any other file."""


def kept(path: str, data: bytes) -> bytes:
    r"""Return what of the file at ``path`` goes into an archive.

    >>> kept("etc/systemd/system.conf", b"[Manager]\nDefaultEnvironment=TOKEN=x\nCPUAffinity=0 1\n")
    b'[Manager]\nCPUAffinity=0 1\n'
    >>> kept("proc/interrupts", b"      CPU0  CPU1\n 24:   17   0  PCI-MSI  nvme0q1\nNMI:   0   0  Non-maskable\n")
    b'\n24: PCI-MSI nvme0q1\n'
    """
    for pattern, filtered in _FILTERS.items():
        if fnmatchcase(path, pattern):
            return filtered(data.decode("utf-8", "replace")).encode()
    for pattern, begins in _LINES.items():
        if fnmatchcase(path, pattern):
            lines = data.decode("utf-8", "replace").splitlines(keepends=True)
            return "".join(line for line in lines if re.match(begins, line)).encode()
    return data


NOTE: Final = "proc/hwloc-nofile-info"
"""The note about a snapshot's architecture, as hwloc-gather-topology writes it."""
LARGEST_FILE: Final = 16 * 2**20
"""Larger files are no files of a kernel; ``/proc/cpuinfo`` of 4096 CPUs has about 6 MiB."""
_BOOT: Final = "proc/sys/kernel/random/boot_id"
_POD_GROUPS: Final = ("kubepods", "kubepods.slice", "kubelet", "kubelet.slice")
_WILD: Final = frozenset("*?[")


@dataclass(slots=True)
class Capture:
    """Files, links and folders by path, and what could not be read."""

    files: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    """Path -> why it could not be read, though it is there."""


def capture_machine(tree: Tree) -> Capture:
    """Capture what :func:`mooring.inputs.machines.loader.machine_of` reads: of the copy it makes the same machine."""
    capture = Capture()
    for pattern in MACHINE:
        _take(tree, pattern, capture)
    for pattern in NAMES:
        capture.folders.update(path for path in _matches(tree, pattern) if tree.is_dir(path))
    capture.folders.update(_matches(tree, INITIATORS))
    # Files of PCI devices go where the kernel has them: the path of a device names its PCIe root.
    for folder in _matches(tree, f"{PCI_DEVICES}/*"):
        place = tree.place(folder)
        if place is None or not place.startswith("sys/devices/"):
            continue
        capture.links[folder] = f"../../../{place.removeprefix('sys/')}"
        capture.folders.discard(folder)
        capture.folders.add(place)
        for name in PCI_FILES:
            data = capture.files.pop(f"{folder}/{name}", None)
            if data is not None:
                capture.files[f"{place}/{name}"] = data
    for path in _matches(tree, CPU_LINKS):
        # Whatever the link says there: the kernel links nothing else under these names.
        capture.links[path] = f"../../cpu/{path.rpartition('/')[2]}"
    for path in cpuset_files(tree):
        _take_file(tree, "/".join(part for part in path.split("/") if part), capture)
    # Whether the tree is the computer that runs this, seen directly or at another place (``/host``).
    boot = tree.read(_BOOT)
    is_here = tree.is_live or (boot is not None and boot == live_tree().read(_BOOT))
    if NOTE not in capture.files and is_here:
        system = f"Architecture: {os.uname().machine}\nPageSize: {os.sysconf('SC_PAGE_SIZE')}\n"
        capture.files[NOTE] = system.encode()
    return capture


def capture_isolation(tree: Tree, *, service_names: bool = True) -> Capture:
    """Capture what else may run on exclusive CPUs.

    Args:
        tree: the computer.
        service_names: with the control groups of single services; else only those of pods and of whole slices.
    """
    capture = Capture()
    for pattern in ISOLATION:
        _take(tree, pattern, capture)
    for number, _ in processes(tree, (PROCESS,)):
        _take_file(tree, f"proc/{number}/comm", capture)
    # Without the names of services: of the groups at the top only those of pods are looked into.
    for group in group_folders(tree, lambda path: service_names or path.partition("/")[0] in ("", *_POD_GROUPS)):
        capture.folders.add(group)
        for name in GROUP_FILES:
            _take_file(tree, f"{group}/{name}", capture)
    return capture


def _take(tree: Tree, pattern: str, capture: Capture) -> None:
    """Take the files that a pattern names, and the folders on the way to them."""
    folder, _, name = pattern.rpartition("/")
    for place in _matches(tree, folder):
        if not tree.is_dir(place):
            continue
        capture.folders.add(place)
        names = fnmatched(tree.names(place), name) if _WILD & set(name) else (name,)
        for found in names:
            _take_file(tree, f"{place}/{found}", capture)
    # A folder above one that is missing means something too: a CPU without topology is there, and offline.
    while _WILD & set(folder):
        folder = folder.rpartition("/")[0]
        capture.folders.update(place for place in _matches(tree, folder) if tree.is_dir(place))


def _take_file(tree: Tree, path: str, capture: Capture) -> None:
    data = tree.data(path)
    if data is not None and len(data) > LARGEST_FILE:
        capture.unread[path] = f"larger than {LARGEST_FILE} bytes"
    elif data is not None:
        capture.files[path] = kept(path, data)
    elif tree.is_dir(path):
        capture.folders.add(path)
    elif tree.exists(path):
        capture.unread[path] = read_problem(tree, path).rpartition(": ")[2]


def _matches(tree: Tree, pattern: str) -> Iterator[str]:
    """Yield the paths that a pattern names and whose folder is there, in text order."""
    parts = pattern.split("/")
    found = [""]
    for index, part in enumerate(parts):
        if _WILD & set(part):
            found = [f"{place}/{name}".lstrip("/") for place in found for name in fnmatched(tree.names(place), part)]
        else:
            found = [f"{place}/{part}".lstrip("/") for place in found]
            if index == len(parts) - 1 or _WILD & set(parts[index + 1]):
                found = [place for place in found if tree.is_dir(place)]
    return iter(found)
