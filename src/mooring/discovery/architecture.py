"""Which processor architecture a tree was taken from.

cAdvisor behaves differently on s390x (books and drawers, caches without ids) and needs no clock speed on ARM, MIPS,
RISC-V and s390x. A kubelet knows its architecture from its own binary and from ``uname``; a snapshot has to tell it by
its files.
"""

from __future__ import annotations

import os
import re
from typing import Final

from mooring.discovery.tree import LiveTree, Tree

_DECLARED: Final = re.compile(r"^Architecture:[ \t]*(\S+)", re.MULTILINE)
_CPUINFO_SIGNS: Final = (
    ("s390x", re.compile(r"^vendor_id\s*:\s*IBM/S390", re.MULTILINE)),
    ("ia64", re.compile(r"^arch\s*:\s*IA-64", re.MULTILINE)),
    ("x86_64", re.compile(r"^flags\s*:.*\blm\b", re.MULTILINE)),
    ("i686", re.compile(r"^(?:flags\s*:|fdiv_bug\s*:)", re.MULTILINE)),
    ("riscv64", re.compile(r"^isa\s*:\s*rv64", re.MULTILINE)),
    ("loongarch64", re.compile(r"^(?:ISA|CPU Family)\s*:\s*[Ll]oong", re.MULTILINE)),
    ("mips64", re.compile(r"^cpu model\s*:\s*(?:MIPS|Loongson|ICT|Cavium)", re.MULTILINE)),
    ("aarch64", re.compile(r"^CPU architecture\s*:\s*(?:8|9|AArch64)", re.MULTILINE)),
    ("arm", re.compile(r"^CPU (?:architecture|implementer)\s*:|^Processor\s*:\s*ARM", re.MULTILINE)),
    ("ppc64", re.compile(r"^revision\s*:.*\bpvr\b", re.MULTILINE)),
)
"""Lines that only one architecture's /proc/cpuinfo has (kernel sources, arch/*/kernel: show_cpuinfo), surest first."""


def architecture(tree: Tree) -> str:
    """Return what ``uname -m`` says on the tree's machine (such as ``x86_64``), or "" when nothing tells.

    The running machine is asked itself. A snapshot is searched in this order: the note that hwloc-gather-topology
    leaves in ``proc/hwloc-nofile-info``, lines of ``proc/cpuinfo`` that only one architecture prints, and a sysfs
    attribute that exists on s390x alone.
    """
    if isinstance(tree, LiveTree):
        return os.uname().machine
    declared = _DECLARED.search(tree.read("proc/hwloc-nofile-info") or "")
    if declared:
        return declared[1]
    cpuinfo = tree.read("proc/cpuinfo") or ""
    for name, sign in _CPUINFO_SIGNS:
        if sign.search(cpuinfo):
            return name
    return "s390x" if tree.exists("sys/devices/system/cpu/cpu0/topology/book_id") else ""
