"""Hints: what a provider of resources says about NUMA nodes.

Source: kubelet v1.37.1, pkg/kubelet/cm/topologymanager; spec: topology-manager.md section 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mooring.engine.core.bits import NUMAMask, members


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
