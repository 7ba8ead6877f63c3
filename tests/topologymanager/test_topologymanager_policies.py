"""Policies of the topology manager rule by rule, the choices that a merge reports, and what is refused."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product
from typing import Any

import pytest
from tests.values import cases

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import InputError
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hint, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import BEST_EFFORT, MOST_CHOICES, RESTRICTED, SINGLE_NUMA_NODE, merge
from mooring.engine.topologymanager.wide import WIDEST, Family


def cpu(*hints: tuple[list[int] | None, bool], resource: str = "cpu") -> dict[str, Any]:
    return {resource: [{"numa": numa, "preferred": preferred} for numa, preferred in hints]}


def merged(policy: str, *providers: dict[str, Any] | None, nodes: int = 2) -> tuple[Any, ...]:
    return astuple(merge_hints(policy, providers, numa_nodes=range(nodes)))


# Policies.


# Preference.


def test_a_mask_with_nodes_that_the_machine_lacks_is_another_mask() -> None:
    found = merged("best-effort", cpu(([0], True)), cpu(([0, 5], True), resource="gpu"))
    assert found == ((0,), False, True)


# The face.


def test_hints_are_listed_by_size_and_then_lexicographically() -> None:
    hints = Hints((NUMAMask(0b100), NUMAMask(0b1)), (NUMAMask(0b110), NUMAMask(0b11), NUMAMask(0b1001)), (True,))
    assert [hint.numa for hint in hints] == [None, (0,), (2,), (0, 1), (0, 3), (1, 2)]
    assert len(hints) == 6


def test_own_values_merge_like_plain_ones() -> None:
    plain = cpu(([1], True), ([0, 1], False), (None, False))
    own = {"cpu": Hints((NUMAMask(0b10),), (NUMAMask(0b11),), (False,))}
    mixed = {"cpu": [Hint(NUMAMask(0b10), True), Hint(NUMAMask(0b11), False), Hint(None, False)]}
    for policy in ("best-effort", "restricted", "single-numa-node"):
        assert merged(policy, plain) == merged(policy, own) == merged(policy, mixed)


@pytest.mark.parametrize(("arguments", "text"), cases(__file__, "merges-refused.yaml", "arguments", "text"))
def test_nonsense_is_refused_in_one_line(arguments: dict[str, Any], text: str) -> None:
    call: dict[str, Any] = {"policy": "best-effort", "providers": [None], "numa_nodes": [0, 1], **arguments}
    with pytest.raises(InputError) as error:
        merge_hints(**call)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize("number", ["8", "+9", str(2**63 - 1), "0" * 5000 + "8"])
def test_numbers_of_options_are_read_as_go_reads_them(number: str) -> None:
    assert merge_hints("restricted", [None], numa_nodes=[0], options={"max-allowable-numa-nodes": number}).admitted


INFO = NUMAInfo(NUMAMask(0b111))
CHOICE_ENTRIES = (
    (Hints((NUMAMask(0b001), NUMAMask(0b010)), (NUMAMask(0b011),)), Hints((NUMAMask(0b010),), (NUMAMask(0b110),))),
    (Hints((NUMAMask(0b001),)), Hints((NUMAMask(0b010),))),
    (Hints((NUMAMask(0b011),), (NUMAMask(0b111),)), Hints((NUMAMask(0b110),), (NUMAMask(0b111),)), DONT_CARE),
    (DONT_CARE, DONT_CARE),
    (Hints((NUMAMask(0b001),)), NOT_POSSIBLE),
)


def merged_fact(policy: str, entries: tuple[Hints | Family, ...], info: NUMAInfo = INFO) -> HintsMerged:
    facts: list[object] = []
    merge(policy, entries, info, facts.append)
    [fact] = facts
    assert isinstance(fact, HintsMerged)
    return fact


@pytest.mark.parametrize(
    ("policy", "entries", "rule", "bound"),
    [
        (RESTRICTED, (Hints((NUMAMask(0b1),)),), "preferred", 0),
        (RESTRICTED, (Hints((), (NUMAMask(0b11),)),), "narrowest", 2),
        (BEST_EFFORT, (Hints((NUMAMask(0b1),)), Hints((NUMAMask(0b10),))), "nothing", 1),
        (SINGLE_NUMA_NODE, (Hints((NUMAMask(0b11),)),), "filtered", 0),
    ],
)
def test_an_observer_receives_the_rule_and_the_bound(
    policy: str, entries: tuple[Hints, ...], rule: str, bound: int
) -> None:
    fact = merged_fact(policy, entries)
    assert (fact.rule, fact.bound) == (rule, bound)


@pytest.mark.parametrize("width", [MOST_CHOICES.bit_length(), WIDEST + 1])
def test_sets_that_are_too_many_are_not_listed(width: int) -> None:
    every = tuple(NUMAMask(mask) for mask in range(1, 2 * MOST_CHOICES))
    fact = merged_fact(RESTRICTED, (Hints(others=every), Hints(others=every)), NUMAInfo(NUMAMask((1 << width) - 1)))
    assert (fact.rule, fact.choices) == ("narrowest", None)


def masks(hints: Hints) -> set[int]:
    return {*hints.preferred, *hints.others, *([INFO.nodes] if hints.nil else [])}


@pytest.mark.parametrize("policy", [BEST_EFFORT, RESTRICTED])
@pytest.mark.parametrize("entries", CHOICE_ENTRIES)
def test_choices_are_what_the_product_of_all_hints_comes_to(policy: str, entries: tuple[Hints, ...]) -> None:
    fact = merged_fact(policy, entries)
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


@pytest.mark.parametrize("entries", CHOICE_ENTRIES)
def test_single_numa_node_chooses_among_single_nodes(entries: tuple[Hints, ...]) -> None:
    fact = merged_fact(SINGLE_NUMA_NODE, entries)
    if fact.rule == "preferred":
        assert (INFO.nodes if fact.result.mask is None else fact.result.mask) in (fact.choices or ())


@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
@pytest.mark.parametrize("wrong", [64, "a", None])
def test_a_list_of_every_set_but_one_is_checked(policy: str, wrong: Any) -> None:
    sets: list[Any] = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    hints = [{"numa": numa, "preferred": len(numa) == 1} for numa in sets]
    assert merge_hints(policy, [{"cpu": hints}], numa_nodes=range(3)).numa == (0,)
    sets[-1][1] = wrong
    with pytest.raises(InputError):
        merge_hints(policy, [{"cpu": hints}], numa_nodes=range(3))
