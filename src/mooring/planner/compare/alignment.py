"""How well CPUs keep to the parts of a machine.

A container is aligned at a level when its CPUs touch as few elements of the level as this machine allows for their
number, whatever else ran there; at the level of cores, when its cores are its own with all their threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from mooring.core.bits import CPUMask
from mooring.core.topology import Topology


@dataclass(frozen=True, slots=True)
class Alignment:
    """How many containers are aligned at each level."""

    numa: int = 0
    socket: int = 0
    l3: int = 0
    """By the kubelet's uncore caches; the socket where it knows of none."""
    core: int = 0


def fewest(elements: Collection[int], count: int, left_out: int = 0) -> int:
    """Return how many of the elements hold ``count`` CPUs at least; 0 when all together do not.

    Args:
        elements: masks of CPUs.
        count: of CPUs.
        left_out: mask of CPUs that nobody gets, the reserved ones.

    >>> fewest([0b1111, 0b11110000], 4), fewest([0b1111, 0b11110000], 4, left_out=0b1), fewest([0b1111], 5)
    (1, 1, 0)
    >>> fewest([0b1111, 0b11110000], 5, left_out=0b1)
    2
    """
    total = 0
    for number, size in enumerate(sorted(((mask & ~left_out).bit_count() for mask in elements), reverse=True), 1):
        total += size
        if total >= count:
            return number
    return 0


def touched(elements: Collection[int], cpus: int) -> int:
    """Return how many of the elements have one of the CPUs."""
    return sum(1 for mask in elements if mask & cpus)


def alignment(topology: Topology, reserved: int, holders: Iterable[int]) -> Alignment:
    """Count the aligned containers.

    Args:
        topology: of the machine, as the kubelet sees it.
        reserved: mask of the CPUs that nobody gets.
        holders: the CPUs of each container as a mask.
    """
    levels = (topology.numa.values(), topology.sockets.values(), topology.uncores.values())
    counts = [0, 0, 0]
    cores = 0
    for cpus in holders:
        for position, elements in enumerate(levels):
            counts[position] += touched(elements, cpus) == fewest(elements, cpus.bit_count(), reserved)
        cores += topology.core_siblings(CPUMask(cpus)) == cpus
    numa, socket, l3 = counts
    return Alignment(numa, socket, l3, cores)
