"""Machines that come with Mooring, by name: shapes of real computers, as lines of compact text.

Only facts are in here: counts of cores and threads, sharing of caches, memory, distances. Where the real machine is
irregular (core ids, memory sizes a little apart) the shape is the regular one next to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Machine, MachineOrigin
from mooring.inputs.machines.compact import parse_compact


@dataclass(frozen=True, slots=True)
class ShippedMachine:
    """A named line of compact text."""

    description: str
    """What it is, in one line."""
    text: str
    """The shape (:mod:`mooring.inputs.machines.compact`)."""


SHIPPED: Final[Mapping[str, ShippedMachine]] = MappingProxyType(
    {
        "epyc-7763-2s-nps1": ShippedMachine(
            "2 x AMD EPYC 7763 (Milan), one NUMA node per socket, 8 L3 groups of 8 cores in each",
            "sockets=2 numa=2 cores=128 threads=2 l3=16 l2-size=512Ki l3-size=32Mi memory=512Gi distances=10,32",
        ),
        "epyc-7763-2s-nps4": ShippedMachine(
            "2 x AMD EPYC 7763 (Milan), four NUMA nodes per socket, 2 L3 groups of 8 cores in each",
            "sockets=2 numa=8 cores=128 threads=2 l3=16 l2-size=512Ki l3-size=32Mi memory=512Gi distances=10,12,32",
        ),
        "grace-1s": ShippedMachine(
            "NVIDIA Grace CPU: 72 Arm cores without SMT, one NUMA node",
            "sockets=1 cores=72 l2-size=1Mi l3-size=114Mi memory=480Gi",
        ),
        "i7-1370p": ShippedMachine(
            "Intel Core i7-1370P (Raptor Lake) laptop: 6 performance cores with SMT, 8 efficiency cores, one L3",
            "cores=6 threads=2 siblings=adjacent efficiency-cores=8 l2-size=1280Ki l3-size=24Mi memory=32Gi",
        ),
        "kunpeng-920-2s": ShippedMachine(
            "2 x HiSilicon Kunpeng 920: 64 Arm cores without SMT and two NUMA nodes per socket",
            "sockets=2 numa=4 cores=128 l2-size=512Ki l3-size=32Mi memory=512Gi distances=10,16,32",
        ),
        "small-1s8": ShippedMachine(
            "a small server or virtual machine: 4 cores with 2 threads, 16 GiB",
            "cores=4 threads=2 l3-size=16Mi memory=16Gi",
        ),
        "xeon-6230-2s-snc2": ShippedMachine(
            "2 x Intel Xeon Gold 6230 (Cascade Lake), sub-NUMA clustering: the L3 of a socket spans its two nodes",
            "sockets=2 numa=4 cores=40 threads=2 l3=2 l3-size=28160Ki memory=384Gi distances=10,11,21",
        ),
        "xeon-6338n-1s": ShippedMachine(
            "Intel Xeon Gold 6338N (Ice Lake), one socket, as in telecommunication edge servers",
            "cores=32 threads=2 l2-size=1280Ki l3-size=48Mi memory=256Gi",
        ),
        "xeon-8480-2s": ShippedMachine(
            "2 x Intel Xeon Platinum 8480+ (Sapphire Rapids), one NUMA node per socket",
            "sockets=2 cores=112 threads=2 l2-size=2Mi l3-size=105Mi memory=512Gi distances=10,21",
        ),
        "xeonmax-9460-2s-snc4-flat": ShippedMachine(
            "2 x Intel Xeon Max 9460, SNC4 and HBM in flat mode: 8 nodes with CPUs, 8 HBM nodes without",
            "sockets=2 numa=8 cores=80 threads=2 l3=2 l2-size=2Mi l3-size=99840Ki memory=512Gi "
            "cpuless=8 cpuless-memory=128Gi distances=10,12,21",
        ),
    }
)
"""Name -> machine, in text order."""


def shipped_names() -> tuple[str, ...]:
    """Return the names of all shipped machines in text order."""
    return tuple(SHIPPED)


def shipped_machine(name: str) -> Machine:
    """Return a shipped machine.

    Raises:
        InputError: there is none of that name.

    >>> shipped_machine("epyc-7763-2s-nps4").info.num_cores
    256
    """
    try:
        entry = SHIPPED[name]
    except KeyError:
        raise InputError("is not a shipped machine", source=name, remedy=f"shipped are: {', '.join(SHIPPED)}") from None
    return replace(parse_compact(entry.text), name=name, origin=MachineOrigin("shipped machine"))
