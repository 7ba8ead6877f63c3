"""Text of ``numactl --hardware``: NUMA nodes with their CPUs, memory and distances.

Source: numactl 2.0.18, numactl(8).
"""

from __future__ import annotations

import re
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import MachineOrigin
from mooring.inputs.machines.formats.counted import places_of, threads_of
from mooring.inputs.machines.formats.description import (
    ASSUMED_CORES,
    ASSUMED_DISTANCES,
    ASSUMED_SOCKETS,
    DescribedNode,
    Description,
    row_of,
)

CAPTURE: Final = "numactl -H > FILE"
_CPUS: Final = re.compile(r"node ([0-9]{1,5}) cpus:((?: [0-9]{1,6})*) *", re.ASCII)
_SIZE: Final = re.compile(r"node ([0-9]{1,5}) size: ([0-9]{1,12}) MB *", re.ASCII)
_ROW: Final = re.compile(r" *([0-9]{1,5}): +([0-9 ]+)", re.ASCII)


def read_numactl(text: str, source: str) -> Description:
    """Return the machine of the text.

    Raises:
        InputError: a line cannot be understood, or a node lacks one.
    """
    cpus: dict[int, list[int]] = {}
    sizes: dict[int, int] = {}
    rows: dict[int, list[int]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _CPUS.fullmatch(line):
            if int(match[1]) in cpus:
                raise _problem(f"node {match[1]} is there twice", f"{source}:{number}")
            cpus[int(match[1])] = sorted(int(cpu) for cpu in match[2].split())
        elif match := _SIZE.fullmatch(line):
            sizes[int(match[1])] = int(match[2]) * 2**20
        elif match := _ROW.fullmatch(line):
            rows[int(match[1])] = [int(value[:9]) for value in match[2].split()]
        elif re.match(r"node [0-9]+ cpus:", line):
            raise _problem("the CPUs are not a list of numbers", f"{source}:{number}")
    everyone = [cpu for listed in cpus.values() for cpu in listed]
    if not everyone or cpus.keys() != sizes.keys() or len(set(everyone)) != len(everyone):
        raise _problem("must have CPUs and a size for every NUMA node, and no CPU on two of them", source)
    nodes = sorted(cpus)
    is_complete = all(len(rows.get(node, ())) == len(nodes) for node in nodes)
    threads = threads_of(cpus)
    return Description(
        origin=MachineOrigin(
            "numactl -H",
            (
                "cores",
                "sockets",
                "caches",
                *([] if is_complete else ["distances"]),
                "offline CPUs",
                "huge pages",
                "PCI devices",
            ),
            (
                ASSUMED_CORES if threads == 1 else f"{threads} threads a core, as the runs of CPU numbers suggest",
                ASSUMED_SOCKETS,
                *([] if is_complete else [ASSUMED_DISTANCES]),
            ),
        ),
        cpus=places_of(cpus, sockets=sum(bool(listed) for listed in cpus.values()), threads=threads),
        nodes=tuple(
            DescribedNode(
                node,
                sizes[node],
                distances=row_of(dict(zip(nodes, rows.get(node, ()), strict=is_complete)), node, nodes),
            )
            for node in nodes
        ),
    )


def _problem(problem: str, source: str) -> InputError:
    return InputError(problem, source=source, remedy=f"capture it again: {CAPTURE}")
