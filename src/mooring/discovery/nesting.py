"""CPU sets that nest: packages hold caches, caches hold cores.

hwloc keeps one tree of all the sets that the kernel names, in the order in which it reads them. A set that overlaps an
earlier one without nesting is refused; equal sets of different kinds stand for the same CPUs, and of two equal sets of
one kind the first stays. This is the whole of hwloc's insertion by CPU set (topology.c,
hwloc___insert_object_by_cpuset), said with sets instead of pointers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class Branch:
    """One set of CPUs and everything that has exactly these CPUs."""

    mask: int
    parent: Branch | None
    """The next larger set; None for the whole machine."""
    kinds: dict[str, int | None] = field(default_factory=dict)
    """Kind (``core``, ``die``, ``package``, ``l1`` ... ``l5``) -> the kernel's id, None when it has none."""
    group: tuple[int, str] | None = None
    """Rank and name of a group (cluster, book, drawer; unnamed ones have no name): the lowest rank stays."""


class Nest:
    """All sets of one machine. ``root`` stands for the whole machine, whichever CPUs that will be.

    >>> nest = Nest()
    >>> [nest.add(mask, "l3") is not None for mask in (0b0011, 0b1100, 0b0110)]
    [True, True, False]
    >>> [bin(branch.mask) for branch in nest.around(0)]
    ['0b11']
    """

    def __init__(self) -> None:
        self.root = Branch(0, None)
        self.branches: list[Branch] = []
        """Every set, in the order in which it came."""
        self._innermost: dict[int, Branch] = {}

    def add(self, mask: int, kind: str, kernel_id: int | None = None) -> Branch | None:
        """Add a set of some kind; None when it crosses an earlier one and is refused."""
        branch = self._place(mask)
        if branch is not None and branch.kinds.get(kind) is None:
            branch.kinds[kind] = kernel_id
        return branch

    def add_group(self, mask: int, rank: int, name: str = "") -> Branch | None:
        """Add a group of CPUs; it yields to anything else with the same CPUs, and to a group of lower rank."""
        branch = self._place(mask)
        if branch is not None and (branch.group is None or rank < branch.group[0]):
            branch.group = (rank, name)
        return branch

    def around(self, cpu: int) -> Iterator[Branch]:
        """Yield the sets that hold ``cpu``, the smallest first, the whole machine left out."""
        branch = self._innermost.get(cpu)
        while branch is not None and branch is not self.root:
            yield branch
            branch = branch.parent

    def covering(self, mask: int) -> Branch:
        """Return the smallest set that holds all of ``mask``."""
        for branch in self.around((mask & -mask).bit_length() - 1):
            if mask & ~branch.mask == 0:
                return branch
        return self.root

    def _place(self, mask: int) -> Branch | None:
        """Return the branch of ``mask``, made where necessary; None when the set crosses another one."""
        inside: list[Branch] = []
        branch = self.root
        uncovered = rest = mask
        while rest:
            branch = self._innermost.get((rest & -rest).bit_length() - 1, self.root)
            below: Branch | None = None
            while branch is not self.root and branch.mask & ~mask == 0:
                below = branch
                branch = branch.parent or self.root
            if branch is not self.root and mask & ~branch.mask:
                return None
            if below is None:
                rest &= rest - 1
            elif below.mask == mask:
                return below
            else:
                inside.append(below)
                uncovered &= ~below.mask
                rest &= ~below.mask
        made = Branch(mask, branch)
        for child in inside:
            child.parent = made
        while uncovered:
            low = uncovered & -uncovered
            self._innermost[low.bit_length() - 1] = made
            uncovered ^= low
        self.branches.append(made)
        return made
