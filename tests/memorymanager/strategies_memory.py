"""Machine states in the middle of their life, for laws about hints."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from mooring.engine.core.bits import NUMAMask, mask_of, members
from mooring.engine.memorymanager.state import Leftover, MemoryTable, NUMANodeState, charge

TYPES = ("memory", "hugepages-2Mi")


@dataclass(frozen=True, slots=True)
class Situation:
    """A machine, what is asked of it, and what ended init containers of the asking pod leave there."""

    nodes: dict[int, NUMANodeState]
    requests: dict[str, int]
    leftover: Leftover


@st.composite
def node_ids(draw: st.DrawFn, fewest: int, most: int) -> list[int]:
    count = draw(st.integers(fewest, most))
    if draw(st.integers(0, 3)):
        return list(range(count))
    return sorted(draw(st.sets(st.integers(0, 2 * most), min_size=count, max_size=count)))


@st.composite
def situations(
    draw: st.DrawFn, fewest: int = 1, most: int = 6, *, generous: bool = False, wrapping: bool = False
) -> Situation:
    """Draw a state that charging assignments leads to: also single nodes beside a group, as best-effort makes them.

    With ``wrapping``, some nodes have more reserved than they have: their numbers are just below 2^64.
    """
    ids = draw(node_ids(fewest, most))
    amounts = st.integers(0, 8) | st.integers(2**64 - 8, 2**64 - 1) if wrapping else st.integers(0, 8)
    nodes = {node: NUMANodeState(0, {name: _table(draw(amounts)) for name in TYPES}, (node,)) for node in ids}
    kept: dict[NUMAMask, dict[str, int]] = {}
    own: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 5))):
        mask = NUMAMask(mask_of(draw(st.sets(st.sampled_from(ids), min_size=1, max_size=3))))
        name, size = draw(st.sampled_from(TYPES)), draw(st.integers(0, 6))
        nodes = charge(nodes, tuple(members(mask)), name, size)
        if draw(st.booleans()):
            kept.setdefault(mask, {})[name] = kept.get(mask, {}).get(name, 0) + size
            own.update({node: own.get(node, 0) + 1 for node in members(mask)})
    asked = draw(st.sampled_from([TYPES[:1], TYPES[1:], TYPES]))
    requests = {name: draw(st.integers(0, 20)) for name in asked}
    return Situation(nodes, requests, Leftover(kept, own if generous else None))


def _table(allocatable: int) -> MemoryTable:
    return replace(MemoryTable(0, 0, 0, 0, 0), total=allocatable, allocatable=allocatable, free=allocatable)
