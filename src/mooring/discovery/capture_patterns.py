"""Which files of a computer a node archive takes: everything that is read from it is named here.

A pattern is a path below ``/`` whose parts may hold the wildcards of a shell. Folders on the way are taken even when
nothing in them is, because their being there means something.
"""

from __future__ import annotations

from typing import Final

_CPU: Final = "sys/devices/system/cpu"
_NODE: Final = "sys/devices/system/node"
_CACHE_FILES: Final = ("id", "level", "type", "size", "shared_cpu_map", "shared_cpu_list")
_PCI_FILES: Final = ("class", "vendor", "device", "numa_node", "local_cpus")
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
    *(f"sys/bus/pci/devices/*/{name}" for name in _PCI_FILES),
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
    "sys/bus/pci/devices/*",
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
