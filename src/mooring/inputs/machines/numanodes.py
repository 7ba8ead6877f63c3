"""Memory nodes as the kernel tells them: which there are, their CPUs, memory, huge pages and distances.

Source: kernel Documentation/ABI/stable/sysfs-devices-node, admin-guide/mm/numaperf.rst (HMAT); hwloc 2.14
(topology-linux.c, look_sysfsnode) for what happens to contradictory and missing files.

CPU sets that nest: packages hold caches, caches hold cores.

hwloc keeps one tree of all the sets that the kernel names, in the order in which it reads them. A set that overlaps an
earlier one without nesting is refused; equal sets of different kinds stand for the same CPUs, and of two equal sets of
one kind the first stays. This is the whole of hwloc's insertion by CPU set (topology.c,
hwloc___insert_object_by_cpuset), said with sets instead of pointers.

Xeon Phi x200 (Knights Landing, Knights Mill): memory on the package appears as nodes without CPUs.

The firmware of these processors tells no localities; they follow from the distances, which have a fixed pattern per
mode. Source: Intel Xeon Phi x200 software developer's guide (cluster and memory modes); hwloc 2.14,
topology-linux.c (hwloc_linux_knl_numa_quirk).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from mooring.engine.core.bits import list_text, members
from mooring.engine.core.machine import HardwarePages
from mooring.inputs.machines.kernelfiles import HIGHEST_ID, Quirks, c_number, read_list, read_mask
from mooring.inputs.machines.tree import NODES, Tree

_NODE_NAME: Final = re.compile(r"node([0-9]{1,7})")
_POOL_NAME: Final = re.compile(r"hugepages-([0-9]{1,15})")
_MEM_TOTAL: Final = re.compile(r"MemTotal: [ \t]*([0-9]*)")
_GPU_NODE: Final = re.compile(r"Node:[ \t]*([0-9]{1,7})")
_GPUS: Final = "proc/driver/nvidia/gpus"


def list_nodes(tree: Tree) -> tuple[int, ...]:
    """Return the ids of the nodes that the kernel lists, ascending, whether or not they can be read."""
    listed = read_list(tree, f"{NODES}/online")
    if listed is not None:
        return tuple(members(listed))
    found = (_NODE_NAME.match(name) for name in tree.names(NODES))
    return tuple(sorted({int(match[1]) for match in found if match and int(match[1]) <= HIGHEST_ID}))


def read_nodes(tree: Tree, ids: Sequence[int], quirks: Quirks) -> tuple[dict[int, int], dict[int, str]]:
    """Read the CPUs that the kernel calls local to each node, and of some nodes the kind of memory.

    What has no ``cpumap`` or overlaps an earlier node is left out.

    hwloc treats an overlap as a mistake of the firmware (8em64t-2s2ca2c-buggynuma: eight nodes claim all CPUs) and
    drops the later node. One that encloses all earlier nodes it overlaps, where the kernel's links from nodes to CPUs
    say the same, is no mistake but a level above them: hwloc keeps it when told so with
    HWLOC_DEBUG_ALLOW_OVERLAPPING_NODE_CPUSETS, and the recorded answer does (fakeheterocpunuma). With ``numa=fake``
    overlaps are normal.
    """
    nodes: dict[int, int] = {}
    taken = 0
    folders = set(tree.names(NODES))
    for number in ids:
        cpus = read_mask(tree, f"{NODES}/node{number}/cpumap") if f"node{number}" in folders else None
        if cpus is None:
            continue
        if cpus & taken and not quirks.has_fake_numa and not _is_level_above(tree, number, cpus, nodes):
            continue
        taken |= cpus
        nodes[number] = cpus
    # Recognise nodes that are the memory of an NVIDIA GPU; on POWER hwloc hides them. Their locality is the GPU's,
    # which only the PCI part of sysfs tells.
    kinds: dict[int, str] = {}
    for bus_id in tree.names(_GPUS):
        match = _GPU_NODE.search((tree.read(f"{_GPUS}/{bus_id}/numa_status") or "")[:255])
        number = int(match[1]) if match else -1
        if number not in nodes:
            continue
        if quirks.is_power:
            del nodes[number]
        else:
            kinds[number] = "GPUMemory"
            nodes[number] = read_mask(tree, f"sys/bus/pci/devices/{bus_id}/local_cpus") or 0
    return nodes, kinds


def _is_level_above(tree: Tree, number: int, cpus: int, earlier: Mapping[int, int]) -> bool:
    """Tell whether a node is larger than each earlier one that it overlaps and holds it whole, and links agree."""
    inside = {other: its for other, its in earlier.items() if its & cpus}
    return all(its & ~cpus == 0 and its != cpus for its in inside.values()) and all(
        {f"cpu{cpu}" for cpu in members(its)} <= set(tree.names(f"{NODES}/node{other}"))
        for other, its in {number: cpus, **inside}.items()
    )


def read_distances(tree: Tree, ids: Sequence[int]) -> tuple[tuple[int, ...], ...] | None:
    """Return the distance table in the order of ``ids``; None with fewer than two nodes or any row missing or short.

    The kernel writes one column per listed node, in ascending order of ids, without gaps for absent ones.
    """
    if len(ids) < 2:
        return None
    rows = []
    for number in ids:
        text = tree.read(f"{NODES}/node{number}/distance") or ""
        row: list[int] = []
        position = 0
        while len(row) < len(ids):
            value, end = c_number(text, position)
            if end == position:
                return None
            row.append(value % 2**32)
            position = end + 1  # one character of separation, whatever it is
        rows.append(tuple(row))
    return tuple(rows)


def read_total(tree: Tree, folder: str) -> int:
    """Return MemTotal of ``folder``'s meminfo in bytes; 0 when it is not told.

    hwloc reads one page of the file and computes in 64 bits.
    """
    match = _MEM_TOTAL.search((tree.read(f"{folder}/meminfo") or "")[:4095])
    return min(int(match[1][:30] or "0"), 2**64 - 1) * 1024 % 2**64 if match else 0


def read_pools(tree: Tree, folder: str) -> tuple[HardwarePages, ...]:
    """Return the pools of huge pages in ``folder``, smallest pages first; a pool that tells no count is left out."""
    pools = []
    for name in tree.names(folder):
        match = _POOL_NAME.match(name)
        text = tree.read(f"{folder}/{name}/nr_hugepages") if match else None
        if match is not None and text and int(match[1]):
            pools.append(HardwarePages(int(match[1]) * 1024, c_number(text)[0]))
    return tuple(sorted(pools, key=lambda pool: pool.size_bytes))


def kernel_cpulist(tree: Tree, number: int) -> str | None:
    """Return the kernel's list of the node's own CPUs; of older kernels, which have none, the map as a list."""
    text = tree.read(f"{NODES}/node{number}/cpulist")
    if text is not None:
        return text.partition("\n")[0].strip()  # snapshots of some kernels hold a NUL behind the line
    mask = read_mask(tree, f"{NODES}/node{number}/cpumap")
    return None if mask is None else list_text(mask)


_MACHINE: Final = -1
"""Every CPU that there may be, so that it lies around all sets."""


class Nest:
    """All sets of one machine, each with what has exactly these CPUs.

    >>> nest = Nest()
    >>> [nest.add(mask, "l3") for mask in (0b0011, 0b1100, 0b0110)]
    [True, True, False]
    >>> [bin(mask) for mask in nest.around(0)]
    ['0b11']
    """

    def __init__(self) -> None:
        self.kinds: dict[int, dict[str, int | None]] = {}
        """Every set, in the order in which it came -> kind (``core``, ``die``, ``package``, caches ``l1`` ... ``l5``,
        ``l1i`` ...) -> the kernel's id, if any."""
        self.groups: dict[int, tuple[int, str]] = {}
        """Set -> rank and name of a group (cluster, book, drawer; unnamed ones have no name): the lowest rank stays."""
        self.refused: list[tuple[str, int]] = []
        """What was not taken in: kind or name of the group, and CPUs."""
        self._larger: dict[int, int] = {}
        """Set -> the next larger one."""
        self._innermost: dict[int, int] = {}
        """CPU -> the smallest set that holds it."""

    def add(self, mask: int, kind: str, kernel_id: int | None = None) -> bool:
        """Add a set of some kind; False when it crosses an earlier one and is refused."""
        placed = self._place(mask)
        if not placed:
            self.refused.append((kind, mask))
        elif self.kinds[mask].get(kind) is None:
            self.kinds[mask][kind] = kernel_id
        return placed

    def add_group(self, mask: int, rank: int, name: str = "") -> bool:
        """Add a group of CPUs; it yields to anything else with the same CPUs, and to a group of lower rank."""
        placed = self._place(mask)
        if not placed:
            self.refused.append((name or "locality of a node", mask))
        elif mask not in self.groups or rank < self.groups[mask][0]:
            self.groups[mask] = (rank, name)
        return placed

    def around(self, cpu: int) -> Iterator[int]:
        """Yield the sets that hold ``cpu``, the smallest first, the whole machine left out."""
        mask = self._innermost.get(cpu, _MACHINE)
        while mask != _MACHINE:
            yield mask
            mask = self._larger[mask]

    def covering(self, mask: int) -> int:
        """Return the smallest set that holds all of ``mask``; -1, every CPU, where only the machine does."""
        first = (mask & -mask).bit_length() - 1
        return next((larger for larger in self.around(first) if mask & ~larger == 0), _MACHINE)

    def _place(self, mask: int) -> bool:
        """Take a set in, if it is not there yet; False when it crosses another one."""
        if mask in self.kinds:
            return True
        inside: list[int] = []
        around = _MACHINE
        uncovered = rest = mask
        while rest:
            below = 0
            around = self._innermost.get((rest & -rest).bit_length() - 1, _MACHINE)
            while around != _MACHINE and around & ~mask == 0:
                below, around = around, self._larger[around]
            if mask & ~around:
                return False
            if not below:
                rest &= rest - 1
            else:
                inside.append(below)
                uncovered &= ~below
                rest &= ~below
        self.kinds[mask], self._larger[mask] = {}, around
        self._larger.update(dict.fromkeys(inside, mask))
        self._innermost.update(dict.fromkeys(members(uncovered), mask))
        return True


_CLUSTER_RANK: Final = 100
_DDR_BANDWIDTH: Final = 90_000
_MCDRAM_BANDWIDTH: Final = 360_000
"""MiB/s of a whole processor: published figures, which hwloc divides by the number of clusters."""

_Table = Sequence[Sequence[int]]


Layout: TypeAlias = tuple[tuple[tuple[int, int | None], ...], bool]
"""How the nodes of one processor belong together: each node of ordinary memory with its on-package memory (MCDRAM),
where that is a node; and whether the MCDRAM serves as a cache of the ordinary memory: hwloc shows an L3 then, which the
cores do not have."""


def find_layout(local: Mapping[int, int], count: int, distances: _Table | None) -> Layout | None:
    """Work out the mode from the nodes; None when they fit none, and every node is then taken as it is.

    ``count`` is how many nodes the kernel lists: a node that could not be read spoils the pattern.
    """
    nodes = list(local)
    if len(nodes) != count:
        return None
    if count == 1:
        return ((nodes[0], None),), True
    # A table that can be believed is symmetric, 10 on the diagonal and larger elsewhere.
    is_plausible = distances is not None and all(
        value == distances[column][row] and (value == 10 if row == column else value > 10)
        for row, values in enumerate(distances)
        for column, value in enumerate(values)
    )
    if distances is None or count not in {2, 4, 8} or not is_plausible:
        return None
    kinds = len(_occurrences(distances))
    if count == 2 and kinds == 2:
        cache = bool(local[nodes[1]])
        return ((nodes[0], None), (nodes[1], None)) if cache else ((nodes[0], nodes[1]),), cache
    if count == 4 and kinds == 2:
        return tuple((node, None) for node in nodes), True
    # Occurrences of each distance above the diagonal, the diagonal itself included, rarest first.
    pattern, near, far = ([1, 2, 3, 4], 1, 0) if count == 4 else ([4, 6, 8, 18], 0, 1)
    occurrences = _occurrences(distances)
    if [times for _, times in occurrences] != pattern:
        return None
    # Each ordinary node goes with the MCDRAM at its own distance; node 0 is always ordinary memory.
    to_ddr, to_mcdram = occurrences[far][0], occurrences[near][0]
    ddr = [0, *(column for column, value in enumerate(distances[0]) if value == to_ddr)][: count // 2]
    mcdram = [
        next((column for column, other in enumerate(distances[row]) if other == to_mcdram and column), 0) for row in ddr
    ]
    if len(ddr) != count // 2 or not all(mcdram):
        return None
    return tuple((nodes[row], nodes[column]) for row, column in zip(ddr, mcdram, strict=True)), False


def place_layout(layout: Layout, local: dict[int, int], kinds: dict[int, str], nest: Nest) -> dict[int, int]:
    """Give MCDRAM its kind and the locality of its node, enter clusters and memory caches, and return bandwidths.

    Localities, kinds of memory and bandwidths are by node.
    """
    bandwidths: dict[int, int] = {}
    pairs, has_memory_cache = layout
    for ddr, mcdram in pairs:
        cpus = local[ddr]
        if mcdram is not None:
            kinds[mcdram] = "MCDRAM"
            local[mcdram] = cpus
            if cpus:
                nest.add_group(cpus, _CLUSTER_RANK, "Cluster")
            bandwidths[ddr] = _DDR_BANDWIDTH // len(pairs)
            bandwidths[mcdram] = _MCDRAM_BANDWIDTH // len(pairs)
        if has_memory_cache and cpus:
            nest.add(cpus, "l3")
    return bandwidths


def _occurrences(distances: _Table) -> list[tuple[int, int]]:
    """Count the distances on and above the diagonal, rarest first."""
    counts = Counter(value for row, values in enumerate(distances) for value in values[row:])
    return sorted(counts.items(), key=lambda item: item[1])
