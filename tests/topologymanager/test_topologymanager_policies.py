"""The rules of merging one by one, and the face that other tools call."""

from __future__ import annotations

from typing import Any

import pytest

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import InputError
from mooring.engine.topologymanager import Hint, Hints, MergeResult
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import NUMAInfo
from mooring.engine.topologymanager.merge import merge
from mooring.engine.topologymanager.wide import merge_entries


def cpu(*hints: tuple[list[int] | None, bool], resource: str = "cpu") -> dict[str, Any]:
    return {resource: [{"numa": numa, "preferred": preferred} for numa, preferred in hints]}


def merged(policy: str, *providers: dict[str, Any] | None, nodes: int = 2) -> MergeResult:
    return merge_hints(policy, providers, numa_nodes=range(nodes))


# Filtering.


@pytest.mark.parametrize("provider", [None, {}, {"cpu": None}])
def test_nothing_said_means_any_node(provider: dict[str, Any] | None) -> None:
    assert merged("restricted", provider) == MergeResult((0, 1), preferred=True, admitted=True)


def test_an_empty_list_means_impossible() -> None:
    assert merged("restricted", {"cpu": []}) == MergeResult((0, 1), preferred=False, admitted=False)
    assert merged("best-effort", {"cpu": []}) == MergeResult((0, 1), preferred=False, admitted=True)


def test_an_impossible_resource_spoils_the_preference_of_all_and_not_their_mask() -> None:
    provider = {**cpu(([0], True)), "memory": []}
    assert merged("best-effort", provider) == MergeResult((0,), preferred=False, admitted=True)


# Policies.


def test_policy_none_merges_nothing() -> None:
    assert merged("none", cpu(([0], True))) == MergeResult(None, preferred=False, admitted=True)


def test_only_best_effort_admits_what_is_not_preferred() -> None:
    provider = cpu(([0, 1], False))
    assert merged("best-effort", provider) == MergeResult((0, 1), preferred=False, admitted=True)
    assert merged("restricted", provider) == MergeResult((0, 1), preferred=False, admitted=False)
    assert merged("single-numa-node", provider) == MergeResult(None, preferred=False, admitted=False)


def test_single_numa_node_looks_at_single_nodes_only() -> None:
    provider = cpu(([0, 1], True), ([1], True))
    assert merged("single-numa-node", provider) == MergeResult((1,), preferred=True, admitted=True)
    assert not merged("single-numa-node", cpu(([0, 1], True))).admitted
    assert not merged("single-numa-node", cpu(([0], False))).admitted
    assert not merged("single-numa-node", {"cpu": []}).admitted


def test_single_numa_node_on_one_node_stores_no_mask() -> None:
    assert merged("single-numa-node", cpu(([0], True)), nodes=1) == MergeResult(None, preferred=True, admitted=True)
    assert merged("restricted", cpu(([0], True)), nodes=1) == MergeResult((0,), preferred=True, admitted=True)


def test_single_numa_node_with_no_opinion_stores_no_mask() -> None:
    assert merged("single-numa-node", None) == MergeResult(None, preferred=True, admitted=True)


# Preference.


def test_equal_preferred_masks_are_preferred_and_different_ones_are_not() -> None:
    assert merged("restricted", cpu(([0], True)), cpu(([0], True), resource="gpu")).preferred
    result = merged("best-effort", cpu(([0], True)), cpu(([0, 1], True), resource="gpu"))
    assert result == MergeResult((0,), preferred=False, admitted=True)


def test_a_mask_with_nodes_that_the_machine_lacks_is_another_mask() -> None:
    result = merged("best-effort", cpu(([0], True)), cpu(([0, 5], True), resource="gpu"))
    assert result == MergeResult((0,), preferred=False, admitted=True)


def test_no_opinion_goes_with_every_preferred_mask() -> None:
    result = merged("restricted", cpu(([1], True)), cpu((None, True), resource="gpu"))
    assert result == MergeResult((1,), preferred=True, admitted=True)
    result = merged("best-effort", cpu(([1], True)), cpu((None, False), resource="gpu"))
    assert result == MergeResult((1,), preferred=False, admitted=True)


def test_a_preferred_result_beats_a_narrower_one() -> None:
    result = merged("best-effort", cpu(([0], False), ([0, 1], True)))
    assert result == MergeResult((0, 1), preferred=True, admitted=True)


def test_the_narrower_of_two_preferred_masks_wins_and_the_lower_of_equal_ones() -> None:
    assert merged("restricted", cpu(([0, 1], True), ([2], True)), nodes=3).numa == (2,)
    assert merged("restricted", cpu(([2], True), ([1], True)), nodes=3).numa == (1,)


# Results that nobody prefers, against the bound: the largest of the narrowest masks.


def bounded(bound: list[int], *others: list[int]) -> MergeResult:
    """Merge hints of one resource with those of one that allows everything and sets the bound."""
    wide = [(nodes, False) for nodes in (bound, [0, 1, 2, 3])]
    return merged("best-effort", cpu(*wide), cpu(*((nodes, False) for nodes in others), resource="gpu"), nodes=4)


def test_the_size_of_the_bound_is_best() -> None:
    assert bounded([0, 1], [0, 1], [0]).numa == (0, 1)
    assert bounded([0, 1], [2], [2, 3], [0, 2, 3]).numa == (2, 3)


def test_below_the_bound_the_larger_wins() -> None:
    result = merged(
        "best-effort",
        cpu(([0, 1, 2], False)),
        cpu(([0, 3], False), ([1, 2, 3], False), ([0, 1, 3], False), resource="gpu"),
        nodes=4,
    )
    assert result.numa == (0, 1)


def test_above_the_bound_the_narrower_wins() -> None:
    result = merged("best-effort", cpu(([4], False), ([0, 1, 2], False)), cpu(([0, 1], False), resource="gpu"), nodes=4)
    assert result.numa == (0, 1)


def test_below_the_bound_beats_above_it() -> None:
    providers = (cpu(([0, 1], False), ([0, 1, 2], False)), cpu(([0, 2, 3], False), ([0, 1, 2, 3], False), resource="g"))
    # Reachable: {0}, {0, 1}, {0, 2}, {0, 1, 2}; the bound is 3.
    assert merged("best-effort", *providers, nodes=4).numa == (0, 1, 2)
    narrow = (cpu(([0, 1], False), ([1, 2, 3], False)), cpu(([1], False), ([1, 2, 3], False), resource="g"))
    # Reachable: {1}, {1, 2, 3}; the bound is 2.
    assert merged("best-effort", *narrow, nodes=4).numa == (1,)


def test_nothing_in_common_leaves_all_nodes() -> None:
    result = merged("best-effort", cpu(([0], True)), cpu(([1], True), resource="gpu"))
    assert result == MergeResult((0, 1), preferred=False, admitted=True)


def test_masks_outside_the_machine_leave_all_nodes() -> None:
    assert merged("best-effort", cpu(([7], True))) == MergeResult((0, 1), preferred=False, admitted=True)


# The face.


def test_own_values_merge_like_plain_ones() -> None:
    plain = cpu(([1], True), ([0, 1], False), (None, False))
    own = {"cpu": Hints((NUMAMask(0b10),), (NUMAMask(0b11),), (False,))}
    mixed = {"cpu": [Hint(NUMAMask(0b10), True), Hint(NUMAMask(0b11), False), Hint(None, False)]}
    for policy in ("best-effort", "restricted", "single-numa-node"):
        assert merged(policy, plain) == merged(policy, own) == merged(policy, mixed)


def test_hints_are_listed_by_size_and_then_lexicographically() -> None:
    hints = Hints(
        preferred=(NUMAMask(0b100), NUMAMask(0b1)),
        others=(NUMAMask(0b110), NUMAMask(0b11), NUMAMask(0b1001)),
        nil=(True,),
    )
    assert [hint.numa for hint in hints] == [None, (0,), (2,), (0, 1), (0, 3), (1, 2)]
    assert len(hints) == 6


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"policy": "strict"}, 'policy: unknown policy: "strict"'),
        ({"numa_nodes": []}, "numa_nodes: a machine has at least one NUMA node"),
        ({"numa_nodes": [64]}, "NUMA node 64: bit number must be in range 0-63"),
        ({"numa_nodes": [-1]}, "NUMA node -1: bit number must be in range 0-63"),
        ({"options": {"x": ""}}, 'options: unknown Topology Manager Policy option: "x"'),
        ({"options": {"prefer-closest-numa-nodes": "1"}}, "distances: prefer-closest-numa-nodes needs one row"),
        ({"providers": [3]}, "providers[0]: a provider is null or a mapping"),
        ({"providers": [{"cpu": 3}]}, "providers[0].cpu: hints are null or a list"),
        ({"providers": [{"cpu": [3]}]}, "providers[0].cpu: hints are null or a list"),
        ({"providers": [{"cpu": [{"numa": [0]}]}]}, "providers[0].cpu: hints are null or a list"),
        ({"providers": [{"cpu": [{"numa": [0], "preferred": 1}]}]}, "providers[0].cpu: hints are null or a list"),
        ({"providers": [{"cpu": [{"numa": [64], "preferred": True}]}]}, "NUMA node 64: bit number"),
    ],
)
def test_nonsense_is_refused_in_one_line(arguments: dict[str, Any], text: str) -> None:
    call: dict[str, Any] = {"policy": "best-effort", "providers": [None], "numa_nodes": [0, 1], **arguments}
    with pytest.raises(InputError) as error:
        merge_hints(call.pop("policy"), call.pop("providers"), **call)
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
