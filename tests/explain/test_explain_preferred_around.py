"""A preferred set around a NUMA node is sought among the sizes that can be preferred only."""

from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import NUMAMask
from mooring.engine.topologymanager.wide import Demand, Family, SocketRule
from mooring.explanations import opinions


@given(st.data(), st.integers(2, 7))
def test_no_larger_set_is_preferred(data: st.DataObject, count: int) -> None:
    nodes = st.integers(1, (1 << count) - 1)
    sockets = tuple(data.draw(st.lists(nodes, min_size=1, max_size=3)))
    weights = tuple(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)))
    family = Family(
        NUMAMask((1 << count) - 1),
        (Demand(data.draw(st.integers(1, 9)), weights),),
        data.draw(st.integers(1, count)),
        sockets=SocketRule(sockets, data.draw(st.integers(1, 3))),
    )
    for node in range(count):
        every = [
            mask
            for size in range(1, count + 1)
            for mask in islice(family.of_size(size, 1 << node), opinions.MOST_TRIED)
            if family.prefers(mask)
        ]
        assert list(opinions.preferred_around(family, 1 << node)) == every
