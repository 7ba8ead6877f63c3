"""Machines of which a text tells counts and CPU lists only; where the threads of a core are follows from the numbers.

Linux numbers the first thread of every core before the second threads on x86 servers, so that the CPUs of a node are as
many runs of numbers as a core has threads; virtual machines, POWER and s390x number the threads of a core one after
another.

Text of ``numactl --hardware``: NUMA nodes with their CPUs, memory and distances. Source: numactl 2.0.18, numactl(8).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.inputs.configuration.devices import matrix_rows
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.description import DescribedCPU, Description, assumed_nodes, origin_of
from mooring.lazy import replace

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
    if runs not in description.ASSUMED_THREADS:
        return 1
    is_even = all(len(cpus) % runs == 0 and len(cpus) > runs for cpus in cpus_of_node.values() if cpus)
    equal = is_even and all(
        runs_of(cpus[start : start + len(cpus) // runs]) == 1
        for cpus in cpus_of_node.values()
        if cpus
        for start in range(0, len(cpus), len(cpus) // runs)
    )
    return runs if equal else 1


def described_lists(
    form: str,
    cpus: Mapping[int, Sequence[int]],
    unknown: Sequence[str | bool],
    *,
    sizes: Mapping[int, int] | None = None,
    rows: Mapping[int, Sequence[int]] | None = None,
) -> Description:
    """Return the machine of CPU lists: every NUMA node a socket, threads by the numbers.

    Args:
        form: the format's name.
        cpus: NUMA node -> its CPUs, ascending.
        unknown: what the format leaves open besides.
        sizes: NUMA node -> bytes of memory, where the text has them.
        rows: NUMA node -> distances in the order of the nodes, where the text has them.
    """
    threads = threads_of(cpus)
    nodes = assumed_nodes({node: len(listed) for node, listed in cpus.items()})
    if sizes is not None:
        nodes = tuple(replace(node, size=sizes[node.id]) for node in nodes)
    if rows is not None:
        nodes = tuple(replace(node, distances=tuple(rows[node.id])) for node in nodes)
    assumed = (
        description.ASSUMED_THREADS[threads],
        description.ASSUMED_SOCKETS,
        rows is None and len(nodes) > 1 and description.ASSUMED_DISTANCES,
        sizes is None and description.ASSUMED_MEMORY,
    )
    places = places_of(cpus, sockets=sum(bool(listed) for listed in cpus.values()), threads=threads)
    return Description(origin_of(form, unknown, assumed), places, nodes)


NUMACTL_CAPTURE: Final = "numactl -H > FILE"
_CPUS: Final = re.compile(r"node ([0-9]{1,5}) cpus:(.*)", re.ASCII)
_MEMORY_SIZE: Final = re.compile(r"node ([0-9]{1,5}) size: ([0-9]{1,12}) MB", re.ASCII)
_ROW: Final = re.compile(r"([0-9]{1,5}):([0-9 ]+)", re.ASCII)
_NUMBERS: Final = re.compile(r"[0-9]{1,6}(?: +[0-9]{1,6})*", re.ASCII)


def read_numactl(text: str, source: str) -> Description:
    """Return the machine of the text, whose long lines may be wrapped, and which may be cut off before the memory.

    Raises:
        InputError: a line cannot be understood, or a node lacks one.
    """
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    rows: dict[int, list[int]] = {}
    last: list[int] = []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        words = line
        if match := _CPUS.fullmatch(line):
            if int(match[1]) in cpus:
                raise _problem(f"node {match[1]} is there twice", f"{source}:{number}")
            last, words = cpus.setdefault(int(match[1]), []), match[2].strip()
            if words and not _NUMBERS.fullmatch(words):
                raise _problem("the CPUs are not a list of numbers", f"{source}:{number}")
        elif match := _MEMORY_SIZE.fullmatch(line):
            sizes[int(match[1])] = int(match[2]) * 2**20
        elif match := _ROW.fullmatch(line):
            last, words = rows.setdefault(int(match[1]), []), match[2].strip()
        if _NUMBERS.fullmatch(words):
            last += map(int, words.split())
        elif words is line:
            last = []
    everyone = [cpu for listed in cpus.values() for cpu in listed]
    if not everyone or (sizes and cpus.keys() != sizes.keys()) or len(set(everyone)) != len(everyone):
        raise _problem("must have CPUs and a size for every NUMA node, and no CPU on two of them", source)
    is_complete = all(len(rows.get(node, ())) == len(cpus) for node in cpus)
    unknown = ("cores", "sockets", "caches", not sizes and "memory", not is_complete and "distances")
    return described_lists(
        "numactl -H",
        {node: sorted(listed) for node, listed in cpus.items()},
        (*unknown, "offline CPUs", "huge pages", "PCI devices"),
        sizes=sizes or None,
        rows=rows if is_complete else None,
    )


def _problem(problem: str, source: str) -> InputError:
    return InputError(problem, source=source, remedy=f"capture it again: {NUMACTL_CAPTURE}")


def read_matrix(text: str, source: str) -> Description:
    """Return the machine as far as the GPUs' columns tell it: NUMA nodes without a GPU are missing.

    Raises:
        InputError: no GPU is on a known NUMA node, or a row cannot be understood.
    """
    rows = list(matrix_rows(text, source))
    lists = {nodes[0]: sorted(cpus) for _, cpus, nodes in rows if nodes is not None and len(nodes) == 1 and cpus}
    if not lists:
        remedy = "give it with --config, and a machine such as lscpu -J -e"
        raise InputError("no GPU has the CPUs of one NUMA node", source=source, remedy=remedy)
    unknown = ("NUMA nodes without a GPU", "cores", "sockets", "caches", "memory", "distances")
    return described_lists("nvidia-smi topo -m", lists, (*unknown, "huge pages", "PCI devices"))
