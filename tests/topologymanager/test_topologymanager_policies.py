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


# Policies.


def test_single_numa_node_on_one_node_stores_no_mask() -> None:
    assert merged("single-numa-node", cpu(([0], True)), nodes=1) == MergeResult(None, preferred=True, admitted=True)
    assert merged("restricted", cpu(([0], True)), nodes=1) == MergeResult((0,), preferred=True, admitted=True)


# Preference.


def test_a_mask_with_nodes_that_the_machine_lacks_is_another_mask() -> None:
    result = merged("best-effort", cpu(([0], True)), cpu(([0, 5], True), resource="gpu"))
    assert result == MergeResult((0,), preferred=False, admitted=True)


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
