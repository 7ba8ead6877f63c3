"""Average distances, and what prefer-closest-numa-nodes makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.topologymanager.plain_merge import plain_average

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.topologymanager import MergeResult
from mooring.engine.topologymanager.hints import NUMAInfo, average_distance, best_of_size, narrowest

CLOSEST = {"prefer-closest-numa-nodes": "true"}

# The diagonal decides between {0, 1} and {2, 3}: 10 + 10 + 2 * 21 against 30 + 30 + 2 * 20.
DIAGONAL = [[30, 20, 99, 99], [20, 30, 99, 99], [99, 99, 10, 21], [99, 99, 21, 10]]


def hints(*node_lists: list[int], preferred: bool = True) -> dict[str, Any]:
    return {"cpu": [{"numa": nodes, "preferred": preferred} for nodes in node_lists]}


def test_each_node_counts_with_itself() -> None:
    info = NUMAInfo(NUMAMask(0b1111), {node: tuple(row) for node, row in enumerate(DIAGONAL)})
    assert average_distance(info, 0b0011) == 25.0
    assert average_distance(info, 0b1100) == 15.5
    result = merge_hints(
        "best-effort", [hints([0, 1], [2, 3])], numa_nodes=range(4), distances=DIAGONAL, options=CLOSEST
    )
    assert result.numa == (2, 3)


def test_both_directions_count() -> None:
    rows = [[10, 10, 99, 99], [40, 10, 99, 99], [99, 99, 10, 20], [99, 99, 20, 10]]
    result = merge_hints("best-effort", [hints([0, 1], [2, 3])], numa_nodes=range(4), distances=rows, options=CLOSEST)
    assert result.numa == (2, 3)


def test_rows_are_indexed_by_node_id_and_not_by_position() -> None:
    info = NUMAInfo(NUMAMask(0b1010), {1: (0, 10, 0, 30), 3: (0, 30, 0, 10)})
    assert average_distance(info, 0b1010) == 20.0


@pytest.mark.parametrize("rows", [None, {}, {0: (10,), 2: (10, 20)}, {0: (10, 11, 12)}])
def test_a_missing_distance_is_reported_as_the_crash_it_is(rows: dict[int, tuple[int, ...]] | None) -> None:
    with pytest.raises(KubeletCrashError, match="no distance between NUMA nodes 0, 2"):
        average_distance(NUMAInfo(NUMAMask(0b101), rows), 0b101)


def test_ids_with_holes_make_the_merge_crash_as_the_kubelet_does() -> None:
    with pytest.raises(KubeletCrashError):
        merge_hints(
            "best-effort",
            [hints([0, 2], [0, 3])],
            numa_nodes=[0, 2, 3],
            distances=[[10, 20, 30], [20, 10, 30], [30, 30, 10]],
            options=CLOSEST,
        )


@given(st.data(), st.integers(1, 5))
def test_averages_equal_the_plain_mean(data: st.DataObject, count: int) -> None:
    row = st.lists(st.integers(0, 400), min_size=count, max_size=count)
    rows = {node: tuple(data.draw(row)) for node in range(count)}
    mask = data.draw(st.integers(1, (1 << count) - 1))
    nodes = frozenset(node for node in range(count) if mask >> node & 1)
    assert average_distance(NUMAInfo(NUMAMask((1 << count) - 1), rows), mask) == plain_average(rows, nodes)


def test_distances_count_only_when_they_are_asked_for() -> None:
    assert merge_hints("best-effort", [hints([0, 1], [2, 3])], numa_nodes=range(4), distances=DIAGONAL).numa == (0, 1)
    off = {"prefer-closest-numa-nodes": "false"}
    result = merge_hints("best-effort", [hints([0, 1], [2, 3])], numa_nodes=range(4), distances=DIAGONAL, options=off)
    assert result.numa == (0, 1)


def test_single_numa_node_ignores_distances() -> None:
    rows = [[20, 20], [20, 10]]
    for policy, expected in (("best-effort", (1,)), ("restricted", (1,)), ("single-numa-node", (0,))):
        result = merge_hints(policy, [hints([0], [1])], numa_nodes=range(2), distances=rows, options=CLOSEST)
        assert result == MergeResult(expected, preferred=True, admitted=True)


def test_single_numa_node_does_not_even_need_distances() -> None:
    result = merge_hints("single-numa-node", [hints([1])], numa_nodes=range(2), options=CLOSEST)
    assert result.numa == (1,)


def test_the_best_mask_is_the_narrowest_then_the_closest_then_the_lowest() -> None:
    info = NUMAInfo(NUMAMask(0b1111), {node: tuple(row) for node, row in enumerate(DIAGONAL)})
    assert narrowest(info, (0b0011, 0b1000, 0b0001)) == 0b1000
    assert best_of_size(info, (0b0011, 0b1100)) == 0b1100
    plain = NUMAInfo(NUMAMask(0b1111))
    assert narrowest(plain, (0b0011, 0b1000, 0b0001)) == 0b0001
    assert best_of_size(plain, (0b1100, 0b0011)) == 0b0011
