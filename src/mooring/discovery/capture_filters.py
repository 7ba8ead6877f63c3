"""What of a text file a node archive takes, where not all of it is anybody's business.

The kernel's command line can hold passwords of a boot loader's menu and addresses of an installation server, the mount
table names file servers, and systemd's configuration has an environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Final

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


def processor_lines(text: str) -> str:
    """Return ``/proc/cpuinfo`` without serial numbers, which ARM boards and mainframes print."""
    return _IDENTIFICATION.sub(r"\g<1>0", _SERIAL.sub("", text))


def cpuset_mounts(text: str) -> str:
    """Return the lines of a mount table that are about control groups and cpusets."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if len(fields := line.split()) > 2 and fields[2] in _CPUSET_MOUNTS)


def cpuset_groups(text: str) -> str:
    """Return the lines of ``/proc/self/cgroup`` that say which cpuset a process is in."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if line.partition(":")[2].partition(":")[0] in ("cpuset", ""))


def affinity_lines(text: str) -> str:
    r"""Return the section headings and ``CPUAffinity`` of a systemd configuration.

    >>> affinity_lines("[Manager]\nDefaultEnvironment=TOKEN=x\nCPUAffinity=0 1\n")
    '[Manager]\nCPUAffinity=0 1\n'
    """
    return "".join(line for line in text.splitlines(keepends=True) if _SYSTEMD_LINE.match(line))


def interrupt_names(text: str) -> str:
    r"""Return the numbered lines of ``/proc/interrupts`` without the counts of each CPU, under an empty heading.

    >>> interrupt_names("      CPU0  CPU1\n 24:   17   0  PCI-MSI  nvme0q1\nNMI:   0   0  Non-maskable\n")
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


def banned_lines(text: str) -> str:
    """Return the lines of irqbalance's configuration that name CPUs."""
    return "".join(line for line in text.splitlines(keepends=True) if _BANNED.match(line))


def any_process(text: str) -> str:
    """Return one line where there are process ids, and nothing where there are none."""
    return "0\n" if text.strip() else ""


_FILTERS: Final[Mapping[str, Callable[[str], str]]] = {
    "proc/cmdline": kernel_words,
    "proc/cpuinfo": processor_lines,
    "proc/mounts": cpuset_mounts,
    "proc/self/cgroup": cpuset_groups,
    "proc/interrupts": interrupt_names,
    "*/cgroup.procs": any_process,
    "etc/default/irqbalance": banned_lines,
    "etc/sysconfig/irqbalance": banned_lines,
    "*/systemd/system.conf": affinity_lines,
    "*/systemd/system.conf.d/*": affinity_lines,
}
"""Pattern of paths -> what is kept of the text; all of any other file."""


def kept(path: str, data: bytes) -> bytes:
    """Return what of the file at ``path`` goes into an archive."""
    for pattern, filtered in _FILTERS.items():
        if fnmatchcase(path, pattern):
            return filtered(data.decode("utf-8", "replace")).encode()
    return data
