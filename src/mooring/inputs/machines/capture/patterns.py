"""Which files of a computer a node archive takes, and which part of each: all that is read from it is named here.

A pattern is a path below ``/`` whose parts may hold the wildcards of a shell. Folders on the way are taken even when
nothing in them is, because their being there means something. Of some text files only a part is taken: the kernel's
command line can hold passwords of a boot loader's menu and addresses of an installation server, the mount table names
file servers, and systemd's configuration has an environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final

_CPU: Final = "sys/devices/system/cpu"
_NODE: Final = "sys/devices/system/node"
_CACHE_FILES: Final = ("id", "level", "type", "size", "shared_cpu_map", "shared_cpu_list")
PCI_DEVICES: Final = "sys/bus/pci/devices"
PCI_FILES: Final = ("class", "vendor", "device", "numa_node", "local_cpus")
_INITIATOR_FILES: Final = ("read_bandwidth", "write_bandwidth", "read_latency", "write_latency")

MACHINE: Final = (
    *(f"{_CPU}/{name}" for name in ("online", "offline", "present", "possible", "isolated", "nohz_full", "smt/active")),
    f"{_CPU}/cpu*[0-9]/online",
    f"{_CPU}/cpu*[0-9]/cpu_capacity",
    f"{_CPU}/cpu*[0-9]/topology/*",
    *(f"{_CPU}/cpu*[0-9]/cache/index*/{name}" for name in _CACHE_FILES),
    f"{_CPU}/cpu*[0-9]/cpufreq/base_frequency",
    f"{_CPU}/cpu*[0-9]/cpufreq/cpuinfo_max_freq",
    f"{_CPU}/cpu*[0-9]/acpi_cppc/nominal_freq",
    f"{_CPU}/cpu*[0-9]/regs/identification/midr_el1",
    f"{_NODE}/online",
    f"{_NODE}/possible",
    f"{_NODE}/node*/cpumap",
    f"{_NODE}/node*/cpulist",
    f"{_NODE}/node*/distance",
    f"{_NODE}/node*/meminfo",
    f"{_NODE}/node*/hugepages/*/nr_hugepages",
    *(f"{_NODE}/node*/access[01]/initiators/{name}" for name in _INITIATOR_FILES),
    "sys/kernel/mm/hugepages/*/nr_hugepages",
    *(f"sys/devices/{kind}/cpus" for kind in ("cpu_core", "cpu_atom", "cpu_lowpower")),
    *(f"{PCI_DEVICES}/*/{name}" for name in PCI_FILES),
    "sys/devices/system/edac/mc/mc*/dimm*/dimm_mem_type",
    "sys/devices/system/edac/mc/mc*/dimm*/size",
    "sys/devices/system/edac/mc/mc*/rank*/dimm_mem_type",
    "sys/devices/system/edac/mc/mc*/rank*/size",
    "proc/driver/nvidia/gpus/*/numa_status",
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/cmdline",
    "proc/mounts",
    "proc/self/cpuset",
    "proc/self/cgroup",
    "proc/hwloc-nofile-info",
)
"""What the machine is, for both views of it."""

NAMES: Final = (
    f"{_NODE}/node*/hugepages/*",
    "sys/kernel/mm/hugepages/*",
    f"{PCI_DEVICES}/*",
)
"""Folders whose names are taken, whatever else is in them."""

INITIATORS: Final = f"{_NODE}/node*/access[01]/initiators/node*"
"""Links from a NUMA node to the nodes nearest to it; their names are taken."""

CPU_LINKS: Final = f"{_NODE}/node*/cpu*"
"""Links from a NUMA node to its CPUs; the kubelet's view follows them."""

ISOLATION: Final = (
    "proc/interrupts",
    "proc/irq/default_smp_affinity",
    "proc/irq/*/smp_affinity_list",
    "proc/irq/*/effective_affinity_list",
    "sys/devices/virtual/workqueue/cpumask",
    "etc/systemd/system.conf",
    "etc/systemd/system.conf.d/*.conf",
    "run/systemd/system.conf.d/*.conf",
    "run/systemd/system.conf",
    "usr/lib/systemd/system.conf",
    "usr/lib/systemd/system.conf.d/*.conf",
    "etc/default/irqbalance",
    "etc/sysconfig/irqbalance",
)
"""Who else may run on a CPU: interrupts, the kernel's workers, systemd."""

PROCESS: Final = "irqbalance"
"""The only program whose being there matters; the kernel's name for it is in ``/proc/PID/comm``."""

GROUP_FILES: Final = (
    "cgroup.controllers",
    "cgroup.procs",
    "cpuset.cpus",
    "cpuset.cpus.effective",
    "cpuset.cpus.exclusive",
    "cpuset.cpus.partition",
    "cpuset.mems",
    "cpuset.mems.effective",
    "cpuset.effective_cpus",
    "cpuset.effective_mems",
    "cpuset.cpu_exclusive",
)
"""Files of a control group, version 2 and 1; of its processes no more than whether there are any."""


_KERNEL_WORDS: Final = frozenset(
    {
        "cgroup_disable",
        "default_hugepagesz",
        "hugepages",
        "hugepagesz",
        "irqaffinity",
        "isolcpus",
        "kthread_cpus",
        "maxcpus",
        "nohz",
        "nohz_full",
        "nosmt",
        "nr_cpus",
        "numa",
        "numa_balancing",
        "possible_cpus",
        "rcu_nocb_poll",
        "rcu_nocbs",
        "skew_tick",
        "systemd.cpu_affinity",
        "systemd.unified_cgroup_hierarchy",
        "tuned.non_isolcpus",
    }
)
_SERIAL: Final = re.compile(r"^Serial[ \t]*:.*\n?", re.MULTILINE | re.IGNORECASE)
_IDENTIFICATION: Final = re.compile(r"(\bidentification = )[0-9A-Fa-f]+")
_BANNED: Final = re.compile(r"\s*(?:export\s+)?IRQBALANCE_BANNED_(?:CPULIST|CPUS)=")
_CPUSET_MOUNTS: Final = frozenset({"cgroup", "cgroup2", "cpuset"})
_SYSTEMD_LINE: Final = re.compile(r"\s*(?:\[.*\]|CPUAffinity\s*=.*)")


def kernel_words(text: str) -> str:
    r"""Return the words of a kernel command line that are about CPUs, NUMA and huge pages.

    >>> kernel_words("BOOT_IMAGE=/vmlinuz root=/dev/sda1 isolcpus=2-7 quiet\n")
    'isolcpus=2-7\n'
    """
    words = text.split()
    if "--" in words:
        # What follows is for the first program, not for the kernel.
        words = words[: words.index("--")]
    return f"{' '.join(word for word in words if word.partition('=')[0] in _KERNEL_WORDS)}\n"


def _processor_lines(text: str) -> str:
    """Return ``/proc/cpuinfo`` without serial numbers, which ARM boards and mainframes print."""
    return _IDENTIFICATION.sub(r"\g<1>0", _SERIAL.sub("", text))


def _cpuset_mounts(text: str) -> str:
    """Return the lines of a mount table that are about control groups and cpusets."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if len(fields := line.split()) > 2 and fields[2] in _CPUSET_MOUNTS)


def _cpuset_groups(text: str) -> str:
    """Return the lines of ``/proc/self/cgroup`` that say which cpuset a process is in."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(":")[2].partition(":")[0] in ("cpuset", ""))


def _affinity_lines(text: str) -> str:
    r"""Return the section headings and ``CPUAffinity`` of a systemd configuration.

    >>> _affinity_lines("[Manager]\nDefaultEnvironment=TOKEN=x\nCPUAffinity=0 1\n")
    '[Manager]\nCPUAffinity=0 1\n'
    """
    return "".join(line for line in text.splitlines(keepends=True) if _SYSTEMD_LINE.match(line))


def _interrupt_names(text: str) -> str:
    r"""Return the numbered lines of ``/proc/interrupts`` without the counts of each CPU, under an empty heading.

    >>> _interrupt_names("      CPU0  CPU1\n 24:   17   0  PCI-MSI  nvme0q1\nNMI:   0   0  Non-maskable\n")
    '\n24: PCI-MSI nvme0q1\n'
    """
    heading, _, rest = text.partition("\n")
    columns = len(heading.split())
    lines = ["\n"]
    for line in rest.splitlines():
        number, _, told = line.partition(":")
        if number.strip().isdecimal():
            lines.append(f"{number.strip()}: {' '.join(told.split()[columns:])}\n")
    return "".join(lines)


def _banned_lines(text: str) -> str:
    """Return the lines of irqbalance's configuration that name CPUs."""
    return "".join(line for line in text.splitlines(keepends=True) if _BANNED.match(line))


def _any_process(text: str) -> str:
    """Return one line where there are process ids, and nothing where there are none."""
    return "0\n" if text.strip() else ""


_FILTERS: Final[Mapping[str, Callable[[str], str]]] = {
    "proc/cmdline": kernel_words,
    "proc/cpuinfo": _processor_lines,
    "proc/mounts": _cpuset_mounts,
    "proc/self/cgroup": _cpuset_groups,
    "proc/interrupts": _interrupt_names,
    "*/cgroup.procs": _any_process,
    "etc/default/irqbalance": _banned_lines,
    "etc/sysconfig/irqbalance": _banned_lines,
    "*/systemd/system.conf": _affinity_lines,
    "*/systemd/system.conf.d/*": _affinity_lines,
}
"""Pattern of paths -> what is kept of the text; all of any other file."""


def kept(path: str, data: bytes) -> bytes:
    """Return what of the file at ``path`` goes into an archive."""
    for pattern, filtered in _FILTERS.items():
        if fnmatchcase(path, pattern):
            return filtered(data.decode("utf-8", "replace")).encode()
    return data
