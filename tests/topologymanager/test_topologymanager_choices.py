"""A merge reports the sets of NUMA nodes among which its rule chose."""

from __future__ import annotations

from itertools import product

import pytest

from mooring.engine.core.bits import NUMAMask
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import BEST_EFFORT, MOST_CHOICES, RESTRICTED, SINGLE_NUMA_NODE, merge
from mooring.engine.topologymanager.wide import Family

INFO = NUMAInfo(NUMAMask(0b111))
ENTRIES = (
    (Hints((NUMAMask(0b001), NUMAMask(0b010)), (NUMAMask(0b011),)), Hints((NUMAMask(0b010),), (NUMAMask(0b110),))),
    (Hints((NUMAMask(0b001),)), Hints((NUMAMask(0b010),))),
    (Hints((NUMAMask(0b011),), (NUMAMask(0b111),)), Hints((NUMAMask(0b110),), (NUMAMask(0b111),)), DONT_CARE),
    (DONT_CARE, DONT_CARE),
    (Hints((NUMAMask(0b001),)), NOT_POSSIBLE),
)


def merged(policy: str, entries: tuple[Hints | Family, ...], info: NUMAInfo = INFO) -> HintsMerged:
    facts: list[object] = []
    merge(policy, entries, info, facts.append)
    [fact] = facts
    assert isinstance(fact, HintsMerged)
    return fact


def masks(hints: Hints) -> set[int]:
    return {*hints.preferred, *hints.others, *([INFO.nodes] if hints.nil else [])}


@pytest.mark.parametrize("policy", [BEST_EFFORT, RESTRICTED])
@pytest.mark.parametrize("entries", ENTRIES)
def test_choices_are_what_the_product_of_all_hints_comes_to(policy: str, entries: tuple[Hints, ...]) -> None:
    fact = merged(policy, entries)
    meetings = set()
    for choice in product(*map(masks, entries)):
        meeting = INFO.nodes
        for mask in choice:
            meeting &= mask
        meetings.add(meeting)
    if fact.rule == "narrowest":
        assert fact.choices == tuple(sorted(meetings - {0}))
    if fact.rule == "preferred":
        assert fact.choices is not None
        assert set(fact.choices) <= meetings
    if fact.rule in ("preferred", "narrowest"):
        assert fact.result.mask in (fact.choices or ())
    else:
        assert fact.choices is None


@pytest.mark.parametrize("entries", ENTRIES)
def test_single_numa_node_chooses_among_single_nodes(entries: tuple[Hints, ...]) -> None:
    fact = merged(SINGLE_NUMA_NODE, entries)
    if fact.rule == "preferred":
        assert (INFO.nodes if fact.result.mask is None else fact.result.mask) in (fact.choices or ())


def test_sets_that_are_too_many_are_not_listed() -> None:
    assert merged(RESTRICTED, (Family(NUMAMask(0b111), (), 1), DONT_CARE)).choices is None
    width = MOST_CHOICES.bit_length()
    every = tuple(NUMAMask(mask) for mask in range(1, 1 << width))
    ones = tuple(mask for mask in every if mask.bit_count() == 1)
    fact = merged(RESTRICTED, (Hints(preferred=ones), Hints(others=every)), NUMAInfo(NUMAMask((1 << width) - 1)))
    assert (fact.rule, len(fact.choices or ())) == ("narrowest", width)
    fact = merged(RESTRICTED, (Hints(others=every), Hints(others=every)), NUMAInfo(NUMAMask((1 << width) - 1)))
    assert (fact.rule, fact.choices) == ("narrowest", None)
