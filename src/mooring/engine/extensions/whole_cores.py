"""Whole cores where cores are uneven: what can be made of them, and which.

The kubelet counts by the average of the machine, which no core of a hybrid processor has
(kubernetes/kubernetes#140495). Where plugins take part, cores are counted as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

from mooring.engine.core.bits import CPUMask
from mooring.engine.core.topology import Topology


def whole_cores_in(topology: Topology, cpus: CPUMask) -> list[int]:
    """Return the masks of the cores that lie entirely within some CPUs, in the order of their ids."""
    return [core for core in topology.cores.values() if not core & ~cpus]


def common_size(cores: Iterable[int]) -> int:
    """Return the greatest number of which every sum of these cores is a multiple; 0 without any.

    >>> common_size([0b11, 0b1100]), common_size([0b11, 0b100]), common_size([])
    (2, 1, 0)
    """
    return gcd(*(core.bit_count() for core in cores))


def cores_of(cores: Sequence[int], need: int) -> int | None:
    """Return exactly ``need`` CPUs in whole cores, the earlier ones as far as possible; None when it cannot be.

    >>> bin(cores_of([0b11, 0b100, 0b1000], 3))
    '0b111'
    >>> cores_of([0b11, 0b1100], 3) is None
    True
    """
    # reached[i]: bit n is set when the cores from the i-th on can make n CPUs.
    reached = [1]
    for core in reversed(cores):
        reached.append(reached[-1] | reached[-1] << core.bit_count())
    reached.reverse()
    if need < 0 or not reached[0] >> need & 1:
        return None
    taken = 0
    for position, core in enumerate(cores):
        rest = need - core.bit_count()
        if rest >= 0 and reached[position + 1] >> rest & 1:
            taken |= core
            need = rest
    return taken
