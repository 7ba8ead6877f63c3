"""Plain values that make no sense are refused in one line, whatever their types."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.core.errors import InputError
from mooring.topologymanager import merge_hints

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


@pytest.mark.parametrize("provider", [1, {"cpu": 1}, {"cpu": [1]}, {"cpu": [{"numa": [0]}]}, {"cpu": [{"numa": 3}]}])
def test_bad_hints_are_refused_with_their_place(provider: Any) -> None:
    with pytest.raises(InputError) as caught:
        merge_hints("best-effort", [provider], numa_nodes=[0])
    assert caught.value.field.startswith("providers[0]")


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="unknown policy"):
        merge_hints("strict", [HINTS], numa_nodes=[0])
