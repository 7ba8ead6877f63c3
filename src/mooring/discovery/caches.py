"""Caches and the CPUs that share them.

Source: kernel Documentation/ABI/testing/sysfs-devices-system-cpu (cache/index*); hwloc 2.14 for what counts.
"""

from __future__ import annotations

from typing import Final

from mooring.discovery.cores import CPUS, CPUs
from mooring.discovery.kernelfiles import read_mask, read_uint
from mooring.discovery.nesting import Nest
from mooring.discovery.quirks import Quirks
from mooring.discovery.tree import Tree

_INDEXES: Final = frozenset(f"index{index}" for index in range(10))
"""hwloc looks no further; real machines have four or five."""
_LEVELS: Final = range(1, 6)
_INSTRUCTION_LEVELS: Final = range(1, 4)


def place_caches(tree: Tree, quirks: Quirks, cpus: CPUs, cpu: int, nest: Nest) -> None:
    """Put the caches into ``nest`` of which ``cpu`` is the smallest member.

    The ``id`` file is not asked: firmware gets it wrong (some virtual machines give every CPU its own), and older
    kernels, ARM and POWER have none. Sharing alone tells caches apart.
    """
    folder = f"{CPUS}/cpu{cpu}/cache"
    for index in tree.names(folder):
        if index not in _INDEXES:
            continue
        shared = read_mask(tree, f"{folder}/{index}/shared_cpu_map")
        if shared == 0:
            # ia64 kernels leave it empty for caches of one core.
            shared = read_mask(tree, f"{CPUS}/cpu{cpu}/topology/{cpus.core_file}")
        shared = (shared or 0) & cpus.online
        if shared & -shared != 1 << cpu:
            continue
        level = read_uint(tree, f"{folder}/{index}/level")
        # Knights Landing tells of an L3 without size that does not exist.
        if level == 3 and quirks.is_knights_landing and not read_uint(tree, f"{folder}/{index}/size"):
            continue
        is_instruction = (tree.read(f"{folder}/{index}/type") or "").startswith("Instruction")
        if is_instruction and level in _INSTRUCTION_LEVELS:
            nest.add(shared, f"l{level}i")
        elif not is_instruction and level in _LEVELS:
            nest.add(shared, f"l{level}")
