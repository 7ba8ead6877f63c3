"""Machines of which a text tells counts and CPU lists only; where the threads of a core are follows from the numbers.

Linux numbers the first thread of every core before the second threads on x86 servers, so that the CPUs of a node are as
many runs of numbers as a core has threads; virtual machines, POWER and s390x number the threads of a core one after
another.

Text of ``numactl --hardware``: NUMA nodes with their CPUs, memory and distances. Source: numactl 2.0.18, numactl(8).

Text of ``lstopo``: objects by indentation, several on a line with ``+`` between them. Memory nodes have CPUs in them
(hwloc 1) or beside them (hwloc 2). Source: hwloc 2.14, lstopo(1), "Text output".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mooring.engine.core.bits import mask_of
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin
from mooring.inputs.configuration.devices import matrix_rows
from mooring.inputs.machines.formats import description
from mooring.inputs.machines.formats.description import DescribedCache, DescribedCPU, DescribedNode, Description, row_of
from mooring.lazy import dataclass, field

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
    unknown: Sequence[str],
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
    nodes = sorted(cpus)
    table = rows or {}
    is_measured = all(len(table.get(node, ())) == len(nodes) for node in nodes)
    threads = threads_of(cpus)
    of_memory = {node: description.MEMORY_OF_A_CPU * len(cpus[node]) for node in nodes} if sizes is None else sizes
    missing = ((description.ASSUMED_DISTANCES,) if not is_measured and len(nodes) > 1 else ()) + (
        (description.ASSUMED_MEMORY,) if sizes is None else ()
    )
    return Description(
        MachineOrigin(
            form, tuple(unknown), (description.ASSUMED_THREADS[threads], description.ASSUMED_SOCKETS, *missing)
        ),
        places_of(cpus, sockets=sum(bool(listed) for listed in cpus.values()), threads=threads),
        tuple(
            DescribedNode(
                node,
                of_memory[node],
                distances=row_of(
                    dict(zip(nodes, table.get(node, ()), strict=is_measured and bool(table))), node, nodes
                ),
            )
            for node in nodes
        ),
    )


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
    unknown = ["cores", "sockets", "caches", *([] if sizes else ["memory"]), *([] if is_complete else ["distances"])]
    return described_lists(
        "numactl -H",
        {node: sorted(listed) for node, listed in cpus.items()},
        (*unknown, "offline CPUs", "huge pages", "PCI devices"),
        sizes=sizes or None,
        rows=rows if is_complete else None,
    )


def _problem(problem: str, source: str) -> InputError:
    return InputError(problem, source=source, remedy=f"capture it again: {NUMACTL_CAPTURE}")


_OBJECT: Final = re.compile(
    r"(Package|Socket|NUMANode|L[1-5][di]?|Core|PU|[A-Z]\w*)\b(?:.*?L#(\d{1,6}))?(?:.*?P#(\d{1,6}))?"
)
_CACHE: Final = re.compile(r"L([1-5])([di]?)")
_SIZE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]+)?) ?([KMGT]?)i?B\b")
_UNITS: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_KINDS: Final = {"d": "Data", "i": "Instruction", "": "Unified"}


@dataclass(slots=True)
class _Object:
    """An object of the text, in the order of the lines."""

    type: str
    logical: int
    physical: int
    size: int
    above: _Object | None
    cpus: list[int] = field(default_factory=list)


def read_lstopo_text(text: str, source: str) -> Description:
    """Return the machine of the text.

    Raises:
        InputError: it has no PU.
    """
    # Terminals and mail programs break long lines behind the sign that joins objects.
    objects = list(_objects(re.sub(r"\+[ \t]*\n[ \t]*", "+ ", text)))
    for one in objects:
        above = one if one.type == "PU" else None
        while above is not None:
            above.cpus.append(one.physical)
            above = above.above
    nodes = [one for one in objects if one.type == "NUMANode"]
    taken: set[int] = set()
    node_of: dict[int, int] = {}
    for one in nodes:
        near = one.cpus or (one.above.cpus if one.above else [])
        node_of |= {cpu: one.physical for cpu in near if cpu not in taken}
        taken.update(near)
    places: dict[int, DescribedCPU] = {}
    for pu in (one for one in objects if one.type == "PU"):
        cpu, of_type, above = pu.physical, dict[str, _Object](), pu.above
        while above is not None:
            of_type.setdefault(above.type, above)
            above = above.above
        core, package = of_type.get("Core"), of_type.get("Package", of_type.get("Socket"))
        number = package.logical if package else 0
        places[cpu] = DescribedCPU(
            min(core.cpus) if core else cpu, core.logical if core else cpu, number, number, node_of.get(cpu)
        )
    if not places:
        raise InputError("has no PU, so no CPUs", source=source, remedy="write it without --no-io: lstopo FILE.xml")
    ids = sorted(one.physical for one in nodes)
    several = len(ids) > 1
    return Description(
        MachineOrigin(
            "lstopo",
            (*(["distances"] if several else []), "offline CPUs", "huge pages", "PCI devices"),
            (description.ASSUMED_DISTANCES,) if several else (),
        ),
        places,
        tuple(
            DescribedNode(one.physical, one.size, distances=row_of({}, one.physical, ids))
            for one in sorted(nodes, key=lambda one: one.physical)
        ),
        caches=tuple(
            DescribedCache(int(cache[1]), mask_of(one.cpus), _KINDS[cache[2]], one.size, number)
            for number, one in enumerate(objects)
            if (cache := _CACHE.fullmatch(one.type)) and one.cpus
        ),
        memory=0 if ids else next((one.size for one in objects if one.type == "Machine"), 0),
    )


def _objects(text: str) -> Iterator[_Object]:
    """Yield the objects; one is above those that follow on its line, or on lines that are further in."""
    open_lines: list[tuple[int, _Object]] = []
    for line in text.splitlines():
        depth = len(line) - len(line.lstrip())
        while open_lines and open_lines[-1][0] >= depth:
            open_lines.pop()
        above = open_lines[-1][1] if open_lines else None
        for part in line.strip().split(" + "):
            if not (match := _OBJECT.match(part)):
                break
            logical = int(match[2] or match[3] or 0)
            size = _SIZE.search(part)
            amount = int(float(size[1]) * _UNITS[size[2]]) if size else 0
            above = _Object(match[1], logical, int(match[3] or logical), amount, above)
            yield above
        if above is not None:
            open_lines.append((depth, above))


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
