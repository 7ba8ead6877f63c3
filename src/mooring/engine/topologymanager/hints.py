"""Hints: what a provider of resources says about NUMA nodes.

Source: kubelet v1.37.1, pkg/kubelet/cm/topologymanager; spec: topology-manager.md section 2.

Comparing masks: the narrower one, then the closer one where that is requested, then the smaller number.

Source: kubelet v1.37.1, topologymanager numa_info.go and policy.go; spec: topology-manager.md section 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mooring.engine.core.bits import NUMAMask, members
from mooring.engine.core.errors import KubeletCrashError
from mooring.lazy import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """One hint: a set of NUMA nodes, or no opinion about them, and whether it is as narrow as the machine allows."""

    mask: NUMAMask | None
    """Bit *i* stands for NUMA node id *i*; None means "any node"."""
    preferred: bool

    @property
    def numa(self) -> tuple[int, ...] | None:
        """The NUMA node ids, ascending; None when there is no mask."""
        return None if self.mask is None else tuple(members(self.mask))


@dataclass(frozen=True, slots=True)
class Hints:
    """All hints of one resource, kept by what merging requests instead of one object a hint.

    A list without any hint means "impossible". The order of the kubelet's list is by size and then lexicographic;
    iteration restores it.
    """

    preferred: tuple[NUMAMask, ...] = ()
    """Masks of the preferred hints."""
    others: tuple[NUMAMask, ...] = ()
    """Masks of the hints that are not preferred."""
    nil: tuple[bool, ...] = ()
    """For each hint without a mask, whether it is preferred."""

    def __bool__(self) -> bool:
        return bool(self.preferred or self.others or self.nil)

    def __len__(self) -> int:
        return len(self.preferred) + len(self.others) + len(self.nil)

    def __iter__(self) -> Iterator[Hint]:
        for flag in self.nil:
            yield Hint(None, flag)
        hints = [Hint(mask, True) for mask in self.preferred] + [Hint(mask, False) for mask in self.others]
        yield from sorted(hints, key=lambda hint: (len(hint.numa or ()), hint.numa or ()))


IMPOSSIBLE = Hints()
"""No combination of NUMA nodes will do."""

DONT_CARE = Hints(nil=(True,))
"""Every node will do: how an absent provider, an absent list and an absent opinion are read."""

NOT_POSSIBLE = Hints(nil=(False,))
"""How an empty list is read for merging: a hint without a mask that is not preferred."""


@dataclass(frozen=True, slots=True)
class NUMAInfo:
    """The NUMA nodes of the machine and, where they were requested, their distances."""

    nodes: NUMAMask
    """Mask of all nodes of the description, CPU-less ones too: the default mask."""
    distances: Mapping[int, tuple[int, ...]] | None = None
    """Node id -> its row, indexed by node *id* (not position); None without prefer-closest-numa-nodes."""


def average_distance(info: NUMAInfo, mask: int) -> float:
    """Return the mean distance over all ordered pairs of nodes of ``mask``, each node with itself included.

    Raises:
        KubeletCrashError: a row is missing or too short. Rows are indexed by node id, so that node ids with holes run
            over the end;
            the kubelet crashes there (v1.37.1, numa_info.go).

    >>> average_distance(NUMAInfo(0b11, {0: (10, 11), 1: (11, 10)}), 0b11)
    10.5
    """
    if not mask:
        return 0.0
    nodes = tuple(members(mask))
    total = 0.0
    try:
        rows = info.distances or {}
        for row_node in nodes:
            row = rows[row_node]
            for node in nodes:
                total += row[node]
    except (KeyError, IndexError):
        raise no_distance(nodes) from None
    return total / (len(nodes) * len(nodes))


def no_distance(nodes: Iterable[int]) -> KubeletCrashError:
    """Return what happens where a distance is needed that the machine does not give."""
    listed = ", ".join(map(str, nodes))
    return KubeletCrashError(f"the machine gives no distance between NUMA nodes {listed}: the kubelet crashes here")


def best_of_size(info: NUMAInfo, masks: tuple[int, ...]) -> int:
    """Return the best of several masks of one size: the closest where distances count, then the smallest number."""
    if info.distances is None or len(masks) == 1:
        return min(masks)
    return min(masks, key=lambda mask: (average_distance(info, mask), mask))


def narrowest(info: NUMAInfo, masks: tuple[int, ...]) -> int:
    """Return the best of several masks: the fewest nodes first, then as :func:`best_of_size`."""
    if len(masks) == 1:
        return masks[0]
    size = min(mask.bit_count() for mask in masks)
    return best_of_size(info, tuple(mask for mask in masks if mask.bit_count() == size))
