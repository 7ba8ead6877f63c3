"""Machines of which a file tells counts and CPU lists only; where the threads of a core are follows from the numbers.

Linux numbers the first thread of every core before the second threads on x86 servers, so that the CPUs of a node are as
many runs of numbers as a core has threads; virtual machines, POWER and s390x number the threads of a core one after
another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mooring.inputs.machines.formats.description import DescribedCPU

ADJACENT: Final = ("ppc", "s390")
"""Beginnings of the architectures that number the threads of a core one after another."""


def places_of(
    cpus_of_node: Mapping[int, Sequence[int]],
    *,
    sockets: int,
    threads: int,
    architecture: str = "",
    is_numa: bool = True,
) -> dict[int, DescribedCPU]:
    """Return the place of every CPU.

    Args:
        cpus_of_node: NUMA node -> its CPUs, ascending; their count is a multiple of ``threads``.
        sockets: of the machine, a multiple or a divisor of the nodes with CPUs.
        threads: of each core.
        architecture: as ``uname -m`` prints it.
        is_numa: whether the kernel has NUMA nodes.

    >>> [place.core for place in places_of({0: [0, 1, 4, 5]}, sockets=1, threads=2).values()]
    [0, 1, 0, 1]
    """
    filled = [node for node in sorted(cpus_of_node) if cpus_of_node[node]]
    is_split = not architecture.startswith(ADJACENT) and (
        len(filled) == 1 or any(runs_of(cpus_of_node[node]) > 1 for node in filled)
    )
    per_node = max(sockets // len(filled), 1)
    places: dict[int, DescribedCPU] = {}
    for position, node in enumerate(filled):
        cpus = cpus_of_node[node]
        cores = len(cpus) // threads
        for index, cpu in enumerate(cpus):
            core = index % cores if is_split else index // threads
            first = cpus[core] if is_split else cpus[core * threads]
            socket = position * sockets // len(filled) + core * per_node // cores
            places[cpu] = DescribedCPU(first, first, socket, socket, node if is_numa else None)
    return places


def runs_of(cpus: Sequence[int]) -> int:
    """Return how many runs of consecutive numbers a list has.

    >>> runs_of([0, 1, 2, 8, 9, 10])
    2
    """
    return sum(index == 0 or cpu != cpus[index - 1] + 1 for index, cpu in enumerate(cpus))


def threads_of(cpus_of_node: Mapping[int, Sequence[int]]) -> int:
    """Return how many threads a core seems to have: the runs of every node's CPUs, where all are of one length.

    >>> threads_of({0: [0, 1, 4, 5], 1: [2, 3, 6, 7]}), threads_of({0: [0, 2, 4], 1: [1, 3, 5]})
    (2, 1)
    """
    counts = {runs_of(cpus) for cpus in cpus_of_node.values() if cpus}
    runs = counts.pop() if len(counts) == 1 else 1
    is_even = all(len(cpus) % runs == 0 and len(cpus) > runs for cpus in cpus_of_node.values() if cpus)
    equal = is_even and all(
        runs_of(cpus[start : start + len(cpus) // runs]) == 1
        for cpus in cpus_of_node.values()
        if cpus
        for start in range(0, len(cpus), len(cpus) // runs)
    )
    return runs if equal else 1
