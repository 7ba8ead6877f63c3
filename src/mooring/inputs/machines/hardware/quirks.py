"""What must be known about a machine besides sysfs to see it as hwloc does.

hwloc knows the architecture of a snapshot only from the note that hwloc-gather-topology leaves in it
(``proc/hwloc-nofile-info``), and works around three processors that it recognises in ``proc/cpuinfo``, on x86 only.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final

from mooring.inputs.machines.files import LiveTree
from mooring.inputs.machines.tree import Tree

_DEFAULT_PAGE_BYTES: Final = 4096
"""hwloc's assumption about a snapshot that does not tell (topology-linux.c, hwloc_gather_system_info)."""
_BLOCK_CHARS: Final = 65536
"""More than cpuinfo ever says of one processor."""


@dataclass(frozen=True, slots=True)
class Quirks:
    """Facts that change how files are understood."""

    is_x86: bool = False
    is_arm: bool = False
    is_power: bool = False
    is_s390: bool = False
    is_knights_landing: bool = False
    """Xeon Phi x200 (Knights Landing, Knights Mill): CPU-less nodes are on-package memory of their neighbours."""
    has_compute_units: bool = False
    """AMD families 15h and 16h: the kernel lists two cores of one compute unit as siblings of one core."""
    has_one_kind: bool = False
    """Other AMD processors before Zen 5: never hybrid, and reading their clocks is slow, so hwloc does not."""
    has_fake_numa: bool = False
    """Booted with ``numa=fake``: nodes share their CPUs, and HMAT still describes the real ones."""
    page_bytes: int = _DEFAULT_PAGE_BYTES


def read_quirks(tree: Tree) -> Quirks:
    """Find out what hwloc would find out before it looks at any CPU."""
    machine, page_bytes = _system(tree)
    is_x86 = machine in {"x86_64", "k1om"} or (machine[:1] == "i" and machine[2:] == "86")
    vendor, family, model = _first_processor(tree) if is_x86 else ("", "", "")
    is_amd = vendor == "AuthenticAMD" and family.isascii() and family.isdigit()
    has_compute_units = is_amd and family in {"21", "22"}
    return Quirks(
        is_x86=is_x86,
        is_arm=machine == "aarch64" or machine.startswith("arm"),
        is_power=machine.startswith(("ppc", "power")),
        is_s390=machine.startswith("s390"),
        is_knights_landing=vendor == "GenuineIntel" and family == "6" and model in {"87", "133"},
        has_compute_units=has_compute_units,
        has_one_kind=is_amd and not has_compute_units and int(family[:9]) < 0x1A,
        has_fake_numa="numa=fake=" in (tree.read("proc/cmdline") or "")[:4096].partition("\n")[0],
        page_bytes=page_bytes,
    )


def _system(tree: Tree) -> tuple[str, int]:
    """Return the machine as uname gives it ("" when unknown) and the size of a page in bytes."""
    if isinstance(tree, LiveTree):
        return os.uname().machine, os.sysconf("SC_PAGE_SIZE")
    machine, page_bytes = "", 0
    for line in (tree.read("proc/hwloc-nofile-info") or "").splitlines():
        key, colon, value = line.partition(": ")
        if colon and key == "Architecture":
            machine = value
        elif colon and key == "PageSize" and value.isascii() and value.isdigit() and len(value) < 20:
            page_bytes = int(value)
    return machine, page_bytes or _DEFAULT_PAGE_BYTES


def _first_processor(tree: Tree) -> tuple[str, str, str]:
    """Return vendor, family and model of the first processor in cpuinfo; "" for what is not told."""
    text = tree.read("proc/cpuinfo") or ""
    start = 0 if text.startswith("processor") else text.find("\nprocessor") + 1
    if not text.startswith("processor", start):
        return "", "", ""
    found = {"vendor_id": "", "cpu family": "", "model": ""}
    block = text[start : start + _BLOCK_CHARS].partition("\n\n")[0]
    for index, line in enumerate(block.split("\n")):
        key, colon, value = line[:127].partition(":")
        key = key.rstrip(" \t")
        if key == "processor" and index:
            break
        if colon and key in found:
            found[key] = value.lstrip(" \t")
    return found["vendor_id"], found["cpu family"], found["model"]
