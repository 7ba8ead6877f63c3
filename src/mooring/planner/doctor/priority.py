"""Which of two entries that exclude each other is kept."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mooring.extensions.hidden import pod_of
from mooring.planner.doctor.problem import Holder


def in_order(wanted: Mapping[Holder, int], active: Collection[str]) -> list[Holder]:
    """Return the entries in the order in which they are kept, as far as they go together.

    Entries of active pods come first, because stale ones are dropped by the kubelet anyway. Then those that stand
    against fewer entries of other pods, so that fewer are lost; then larger ones; then the order of uids and names.

    Args:
        wanted: CPUs of each entry.
        active: uids of running pods, where they are known.

    >>> one, two, both = Holder("a", "c"), Holder("b", "c"), Holder("c", "c")
    >>> [holder.uid for holder in in_order({one: 0b001, two: 0b100, both: 0b111}, ())]
    ['a', 'b', 'c']
    """

    def against(holder: Holder) -> int:
        mask = wanted[holder]
        return sum(1 for other, cpus in wanted.items() if cpus & mask and pod_of(other.uid) != pod_of(holder.uid))

    return sorted(
        wanted,
        key=lambda holder: (pod_of(holder.uid) not in active, against(holder), -wanted[holder].bit_count(), holder),
    )
