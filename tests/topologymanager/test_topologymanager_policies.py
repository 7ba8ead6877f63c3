"""Policies of the topology manager rule by rule, the choices that a merge reports, and what is refused."""

from __future__ import annotations

from dataclasses import astuple
from itertools import product
from typing import Any

import pytest

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import InputError
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hint, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE, merge
from mooring.engine.topologymanager.wide import Family, merge_entries


def cpu(*hints: tuple[list[int] | None, bool], resource: str = "cpu") -> dict[str, Any]:
    return {resource: [{"numa": numa, "preferred": preferred} for numa, preferred in hints]}


def merged(policy: str, *providers: dict[str, Any] | None, nodes: int = 2) -> tuple[Any, ...]:
    return astuple(merge_hints(policy, providers, numa_nodes=range(nodes)))


# Policies.


# Preference.


# The face.


def test_own_values_merge_like_plain_ones() -> None:
    plain = cpu(([1], True), ([0, 1], False), (None, False))
    own = {"cpu": Hints((NUMAMask(0b10),), (NUMAMask(0b11),), (False,))}
    mixed = {"cpu": [Hint(NUMAMask(0b10), True), Hint(NUMAMask(0b11), False), Hint(None, False)]}
    for policy in ("best-effort", "restricted", "single-numa-node"):
        assert merged(policy, plain) == merged(policy, own) == merged(policy, mixed)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"policy": "strict"}, 'policy: unknown policy: "strict"'),
        ({"numa_nodes": []}, "numa_nodes: a machine has at least one NUMA node"),
        ({"numa_nodes": [64]}, "NUMA node 64: bit number must be in range 0-63"),
        ({"numa_nodes": [-1]}, "NUMA node -1: bit number must be in range 0-63"),
        ({"options": {"x": ""}}, 'options: unknown Topology Manager Policy option: "x"'),
        ({"options": {"prefer-closest-numa-nodes": "1"}}, "distances: prefer-closest-numa-nodes needs one row"),
        ({"options": {"prefer-closest-numa-nodes": "1"}, "distances": 5}, "distances: prefer-closest-numa-nodes needs"),
        (
            {"options": {"prefer-closest-numa-nodes": "1"}, "distances": [["x"]] * 2},
            "distances: a row of distances is a",
        ),
        ({"numa_nodes": ["a"]}, "NUMA node 'a': bit number must be in range 0-63"),
        ({"numa_nodes": [[1]]}, "numa_nodes: NUMA nodes are a list of numbers"),
        ({"numa_nodes": 5}, "numa_nodes: NUMA nodes are a list of numbers"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: dict[str, Any], text: str) -> None:
    call: dict[str, Any] = {"policy": "best-effort", "numa_nodes": [0, 1], **arguments}
    with pytest.raises(InputError) as error:
        merge_hints(call.pop("policy"), [None], **call)
    assert str(error.value).startswith(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((number, "") for number in ("8", "+9", str(2**63 - 1), "0" * 5000 + "8")),
        *((number, 'the minimum value of "max-allowable-numa-nodes" should') for number in ("7", "-0", str(-(2**63)))),
        *(
            (number, "invalid syntax")
            for number in ("", "+", "-", " 1", "1 ", "1_0", "0x1", "1e3", "--1", "+-1", "²", "１")
        ),
        *((number, "out of range") for number in (str(2**63), str(-(2**63) - 1), "1" + "0" * 19, "9" * 5000)),
    ],
)
def test_numbers_of_options_are_read_as_go_reads_them(number: str, text: str) -> None:
    options = {"max-allowable-numa-nodes": number}
    if not text:
        assert merge_hints("best-effort", [None], numa_nodes=[0], options=options).admitted
        return
    with pytest.raises(InputError, match=text):
        merge_hints("best-effort", [None], numa_nodes=[0], options=options)


def with_node(node: Any) -> dict[str, Any]:
    return cpu(([0], True), ([0, node], False))


NO_LIST = "providers[0].cpu: hints are null or a list"


@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
@pytest.mark.parametrize(
    ("provider", "text"),
    [
        (3, "providers[0]: a provider is null or a mapping"),
        ({"cpu": 3}, NO_LIST),
        ({"cpu": [3]}, NO_LIST),
        ({"cpu": [{"numa": [0]}]}, NO_LIST),
        ({"cpu": [{"numa": 3}]}, NO_LIST),
        ({"cpu": [{"numa": [0], "preferred": 1}]}, NO_LIST),
        ({"cpu": [{"numa": None, "preferred": "true"}]}, NO_LIST),
        *((with_node(node), f"NUMA node {node!r}: bit number must be in range 0-63") for node in (64, -1, "a", 0.5)),
    ],
)
def test_bad_hints_are_refused_with_their_place(policy: str, provider: Any, text: str) -> None:
    with pytest.raises(InputError) as error:
        merge_hints(policy, [provider], numa_nodes=[0])
    assert str(error.value).startswith(text)


def test_an_observer_receives_the_rule_and_the_bound() -> None:
    def heard(policy: str, *providers: dict[str, Hints]) -> tuple[str, int]:
        facts: list[object] = []
        merge(policy, merge_entries(providers), NUMAInfo(NUMAMask(0b11)), facts.append)
        (fact,) = facts
        assert isinstance(fact, HintsMerged)
        return fact.rule, fact.bound

    assert heard("restricted", {"cpu": Hints((NUMAMask(0b1),))}) == ("preferred", 0)
    assert heard("restricted", {"cpu": Hints((), (NUMAMask(0b11),))}) == ("narrowest", 2)
    assert heard("best-effort", {"cpu": Hints((NUMAMask(0b1),))}, {"gpu": Hints((NUMAMask(0b10),))}) == ("nothing", 1)
    assert heard("single-numa-node", {"cpu": Hints((NUMAMask(0b11),))}) == ("filtered", 0)


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
