"""What the hints of one resource amount to when they stand alone."""

from __future__ import annotations

from collections.abc import Sequence

from mooring.topologymanager.distances import NUMAInfo
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.hints import NOT_POSSIBLE, Hints
from mooring.topologymanager.merge import SINGLE_NUMA_NODE, merge


def is_impossible(hints: AnyHints) -> bool:
    """Tell whether no set of NUMA nodes will do."""
    return isinstance(hints, Hints) and not hints


def is_indifferent(hints: AnyHints) -> bool:
    """Tell whether any set of NUMA nodes will do."""
    return isinstance(hints, Hints) and True in hints.nil


def suffices(hints: AnyHints, policy: str, numa: NUMAInfo) -> bool:
    """Tell whether the policy would admit on these hints alone."""
    return merge(policy, [hints or NOT_POSSIBLE], numa).admitted


def wanted_sets(hints: AnyHints, policy: str, numa: NUMAInfo) -> Sequence[int]:
    """Return the sets of NUMA nodes (masks) that the policy would admit; of many just the best one."""
    if isinstance(hints, Hints):
        return [mask for mask in hints.preferred if policy != SINGLE_NUMA_NODE or mask.bit_count() == 1]
    best = merge(policy, [hints], numa)
    return [best.hint.mask] if best.admitted and best.hint.mask is not None else []


def narrowest(hints: AnyHints) -> int:
    """Return the size of the smallest set that will do; 0 when none will.

    >>> narrowest(Hints(preferred=(0b11,), others=(0b111,)))
    2
    """
    if isinstance(hints, Hints):
        return min((mask.bit_count() for mask in (*hints.preferred, *hints.others)), default=0)
    return hints.narrowest()
