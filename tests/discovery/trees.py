"""Machines made of the few files that a rule is about."""

from __future__ import annotations

from tests.values import not_none

from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.machine import Hardware, HardwarePages, Machine
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.loader import machine_of

CPUS = "sys/devices/system/cpu"
NODES = "sys/devices/system/node"
X86 = {"proc/hwloc-nofile-info": "Architecture: x86_64\n"}
Files = dict[str, str]


def machine(*parts: Files) -> Machine:
    """Return the machine of some files; later ones replace earlier ones."""
    files = {path: text.encode() for part in parts for path, text in part.items()}
    return machine_of(ArchiveTree("small", files))


def hardware(*parts: Files) -> Hardware:
    return not_none(machine(*parts).hardware)


def per_cpu(name: str, *values: int | str | None) -> Files:
    """Return one file for each CPU; None leaves it out."""
    return {f"{CPUS}/cpu{cpu}/{name}": f"{value}\n" for cpu, value in enumerate(values) if value is not None}


def cores(count: int) -> Files:
    """Return the files of cores with one thread."""
    return per_cpu("topology/core_cpus", *(f"{1 << cpu:x}" for cpu in range(count)))


def plain(value: object) -> object:
    """Return a value as a table writes it."""
    if isinstance(value, HardwarePages):
        return [value.size_bytes, value.count]
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    return str(value) if isinstance(value, CPUSet) else value
