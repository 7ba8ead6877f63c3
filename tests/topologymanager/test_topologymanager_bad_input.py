"""Plain values that make no sense are refused in one line, whatever their types."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.engine.core.errors import InputError
from mooring.engine.topologymanager import merge_hints

HINTS = {"cpu": [{"numa": [0], "preferred": True}]}
CLOSEST = {"prefer-closest-numa-nodes": "true"}


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"numa_nodes": ["a"]}, "NUMA node 'a'"),
        ({"numa_nodes": [[1]]}, "numa_nodes"),
        ({"numa_nodes": 5}, "numa_nodes"),
        ({"numa_nodes": []}, "numa_nodes"),
        ({"numa_nodes": [64]}, "NUMA node 64"),
        ({"numa_nodes": [0], "options": CLOSEST}, "distances"),
        ({"numa_nodes": [0], "options": CLOSEST, "distances": 5}, "distances"),
        ({"numa_nodes": [0], "options": CLOSEST, "distances": [["x"]]}, "distances"),
        ({"numa_nodes": [0], "options": {"nearest": "true"}}, "options"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as caught:
        merge_hints("best-effort", [HINTS], **arguments)
    assert caught.value.field == field


@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
@pytest.mark.parametrize(
    "provider",
    [
        1,
        {"cpu": 1},
        {"cpu": [1]},
        {"cpu": [{"numa": [0]}]},
        {"cpu": [{"numa": 3}]},
        {"cpu": [{"numa": [0], "preferred": 1}]},
        {"cpu": [{"numa": None, "preferred": "true"}]},
    ],
)
def test_bad_hints_are_refused_with_their_place(provider: Any, policy: str) -> None:
    with pytest.raises(InputError) as caught:
        merge_hints(policy, [provider], numa_nodes=[0])
    assert caught.value.field.startswith("providers[0]")


@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
@pytest.mark.parametrize("node", [64, -1, "a", 0.5])
def test_a_node_that_no_mask_holds_is_refused_by_name(node: Any, policy: str) -> None:
    hints = [{"numa": [0], "preferred": True}, {"numa": [0, node], "preferred": False}]
    with pytest.raises(InputError) as caught:
        merge_hints(policy, [{"cpu": hints}], numa_nodes=[0])
    assert caught.value.field == f"NUMA node {node!r}"


@pytest.mark.parametrize("policy", ["best-effort", "single-numa-node"])
@pytest.mark.parametrize("wrong", [64, "a", None])
def test_a_list_of_every_set_but_one_is_checked(policy: str, wrong: Any) -> None:
    sets: list[Any] = [[0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2]]
    hints = [{"numa": numa, "preferred": len(numa) == 1} for numa in sets]
    assert merge_hints(policy, [{"cpu": hints}], numa_nodes=range(3)).numa == (0,)
    sets[-1][1] = wrong
    with pytest.raises(InputError):
        merge_hints(policy, [{"cpu": hints}], numa_nodes=range(3))


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="unknown policy"):
        merge_hints("strict", [HINTS], numa_nodes=[0])
