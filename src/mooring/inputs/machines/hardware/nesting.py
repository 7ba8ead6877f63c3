"""CPU sets that nest: packages hold caches, caches hold cores.

hwloc keeps one tree of all the sets that the kernel names, in the order in which it reads them. A set that overlaps an
earlier one without nesting is refused; equal sets of different kinds stand for the same CPUs, and of two equal sets of
one kind the first stays. This is the whole of hwloc's insertion by CPU set (topology.c,
hwloc___insert_object_by_cpuset), said with sets instead of pointers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from mooring.engine.core.bits import members


@dataclass(slots=True)
class Branch:
    """One set of CPUs and everything that has exactly these CPUs."""

    mask: int
    parent: Branch | None
    """The next larger set; None for the whole machine."""
    kinds: dict[str, int | None] = field(default_factory=dict)
    """Kind (``core``, ``die``, ``package``, caches ``l1`` ... ``l5``, ``l1i`` ...) -> the kernel's id, if any."""
    group: tuple[int, str] | None = None
    """Rank and name of a group (cluster, book, drawer; unnamed ones have no name): the lowest rank stays."""


class Nest:
    """All sets of one machine.

    >>> nest = Nest()
    >>> [nest.add(mask, "l3") is not None for mask in (0b0011, 0b1100, 0b0110)]
    [True, True, False]
    >>> [bin(branch.mask) for branch in nest.around(0)]
    ['0b11']
    """

    def __init__(self) -> None:
        self.branches: list[Branch] = []
        """Every set, in the order in which it came."""
        self.refused: list[tuple[str, int]] = []
        """What was not taken in: kind or name of the group, and CPUs."""
        # Holds every CPU that there may be, so that it lies around all sets.
        self._root = Branch(-1, None)
        self._innermost: dict[int, Branch] = {}

    def add(self, mask: int, kind: str, kernel_id: int | None = None) -> Branch | None:
        """Add a set of some kind; None when it crosses an earlier one and is refused."""
        branch = self._place(mask)
        if branch is None:
            self.refused.append((kind, mask))
        elif branch.kinds.get(kind) is None:
            branch.kinds[kind] = kernel_id
        return branch

    def add_group(self, mask: int, rank: int, name: str = "") -> Branch | None:
        """Add a group of CPUs; it yields to anything else with the same CPUs, and to a group of lower rank."""
        branch = self._place(mask)
        if branch is None:
            self.refused.append((name or "locality of a node", mask))
        elif branch.group is None or rank < branch.group[0]:
            branch.group = (rank, name)
        return branch

    def around(self, cpu: int) -> Iterator[Branch]:
        """Yield the sets that hold ``cpu``, the smallest first, the whole machine left out."""
        branch = self._innermost.get(cpu, self._root)
        while branch.parent is not None:
            yield branch
            branch = branch.parent

    def covering(self, mask: int) -> int:
        """Return the smallest set that holds all of ``mask``; -1, every CPU, where only the machine does."""
        first = (mask & -mask).bit_length() - 1
        return next((branch.mask for branch in self.around(first) if mask & ~branch.mask == 0), -1)

    def _place(self, mask: int) -> Branch | None:
        """Return the branch of ``mask``, made where necessary; None when the set crosses another one."""
        inside: list[Branch] = []
        around = self._root
        uncovered = rest = mask
        while rest:
            below: Branch | None = None
            around = self._innermost.get((rest & -rest).bit_length() - 1, self._root)
            while around.parent is not None and around.mask & ~mask == 0:
                below, around = around, around.parent
            if mask & ~around.mask:
                return None
            if below is None:
                rest &= rest - 1
            elif below.mask == mask:
                return below
            else:
                inside.append(below)
                uncovered &= ~below.mask
                rest &= ~below.mask
        made = Branch(mask, around)
        for branch in inside:
            branch.parent = made
        for cpu in members(uncovered):
            self._innermost[cpu] = made
        self.branches.append(made)
        return made
