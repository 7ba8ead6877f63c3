"""What cloud providers reserve on a node of some size, as they document it."""

from __future__ import annotations

from typing import Final

_GIB: Final = 1024**3
_MIB: Final = 1024**2

_MILLI_RANGES: Final = ((1, 600), (1, 100), (2, 50))
"""CPUs, and how many of 10,000 parts of each are reserved; of all further CPUs 25."""


def milli_by_ranges(cpus: int) -> int:
    """Return the thousandths of a CPU that GKE and EKS reserve: 6 % of the first, 1 %, twice 0.5 %, then 0.25 % each.

    Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes;
    https://github.com/awslabs/amazon-eks-ami, get_cpu_millicores_to_reserve of bootstrap.sh

    >>> [milli_by_ranges(cpus) for cpus in (1, 2, 4, 8, 96)]
    [60, 70, 80, 90, 310]
    """
    total, left = 0, cpus
    for width, parts in _MILLI_RANGES:
        total += min(width, left) * 1000 * parts // 10_000
        left -= min(width, left)
    return total + left * 1000 * 25 // 10_000


_GKE_MEMORY: Final = ((4, 25), (4, 20), (8, 10), (112, 6))
"""GiB, and the percentage of them that is reserved; of all further memory 2 %."""


def gke_memory(memory: int) -> int:
    """Return the bytes that GKE reserves of a machine's memory, without the eviction threshold.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes

    >>> [gke_memory(gib * 1024**3) // 1024**2 for gib in (4, 8, 16, 128)]
    [1024, 1843, 2662, 9543]
    """
    if memory < _GIB:
        return 255 * _MIB
    total, left = 0, memory
    for width, percent in _GKE_MEMORY:
        total += min(width * _GIB, left) * percent // 100
        left -= min(width * _GIB, left)
    return total + left * 2 // 100


_AKS_MILLI: Final = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))
"""CPUs of a node, and the thousandths of a CPU that are reserved."""


def aks_milli(cpus: int) -> int:
    """Return the thousandths of a CPU that AKS reserves; the table's step below where it has no such size.

    Source: https://learn.microsoft.com/azure/aks/node-resource-reservations

    >>> [aks_milli(cpus) for cpus in (2, 8, 20, 96)]
    [100, 180, 260, 740]
    """
    return next((milli for size, milli in reversed(_AKS_MILLI) if cpus >= size), _AKS_MILLI[0][1])
