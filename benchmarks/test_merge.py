"""Merging hints: every provider gives all 2^N - 1 node sets (docs/explanation/performance.md, table 1)."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.topologymanager import Hints


def providers(nodes: int, count: int, *, common: bool) -> list[dict[str, Any]]:
    """Return plain hints: one-node sets preferred by all, or by provider p only node p."""
    sets = [nodes_ for size in range(1, nodes + 1) for nodes_ in combinations(range(nodes), size)]
    return [
        {"resource": [{"numa": list(one), "preferred": len(one) == 1 and (common or one == (p,))} for one in sets]}
        for p in range(count)
    ]


def compiled(plain: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the same hints as Mooring's own values."""
    return [
        {
            "resource": Hints(
                tuple(NUMAMask(mask_of(hint["numa"])) for hint in provider["resource"] if hint["preferred"]),
                tuple(NUMAMask(mask_of(hint["numa"])) for hint in provider["resource"] if not hint["preferred"]),
            )
        }
        for provider in plain
    ]


@pytest.mark.parametrize("common", [True, False], ids=["common-preferred", "no-common-preferred"])
@pytest.mark.parametrize("form", ["plain", "own"])
@pytest.mark.parametrize(("count", "nodes"), [(2, 2), (4, 2), (2, 4), (4, 4), (2, 8), (3, 8), (4, 8)])
@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_merge(benchmark: BenchmarkFixture, policy: str, count: int, nodes: int, form: str, common: bool) -> None:
    if not common and count > nodes:
        pytest.skip("more providers than nodes: some would prefer nothing")
    plain = providers(nodes, count, common=common)
    asked = plain if form == "plain" else compiled(plain)
    result = benchmark(merge_hints, policy, asked, numa_nodes=range(nodes))
    assert result.preferred is common
