"""Merging equals the plain product of all hints; distances."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.topologymanager.plain_merge import Nodes, PlainHint, Provider, plain_average, plain_merge

from mooring import merge_hints
from mooring.engine.core.bits import NUMAMask
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.topologymanager.hints import NUMAInfo, average_distance

POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
IDS = tuple(range(8))
CLOSEST = {"prefer-closest-numa-nodes": "true"}
FLAGS = st.booleans()

node_sets = st.sets(st.sampled_from(IDS), min_size=1, max_size=5).map(frozenset)


@st.composite
def any_lists(draw: st.DrawFn, nodes: Nodes) -> list[PlainHint]:
    """Hints of every kind: without a mask, empty, with nodes that the machine does not have."""
    inside = st.sets(st.sampled_from(sorted(nodes))).map(frozenset)
    anywhere = st.sets(st.sampled_from(IDS), max_size=4).map(frozenset)
    masks = st.none() | inside | inside | anywhere
    return draw(st.lists(st.builds(PlainHint, masks, FLAGS), max_size=5))


@st.composite
def capacity_lists(draw: st.DrawFn, nodes: Nodes) -> list[PlainHint]:
    """Every set of nodes with enough capacity, as the CPU manager and the memory manager make them."""
    free = {node: draw(st.integers(0, 3)) for node in sorted(nodes)}
    need = draw(st.integers(1, 5))
    smallest = draw(st.integers(1, 3))
    sets = [chosen for chosen in subsets(nodes) if sum(free[node] for node in chosen) >= need]
    return [PlainHint(chosen, len(chosen) == smallest) for chosen in sets]


def subsets(nodes: Nodes) -> list[Nodes]:
    ordered = sorted(nodes)
    chosen = [
        frozenset(node for index, node in enumerate(ordered) if pattern >> index & 1)
        for pattern in range(1, 1 << len(ordered))
    ]
    return sorted(chosen, key=lambda one: (len(one), sorted(one)))


def provider_lists(lists: st.SearchStrategy[list[PlainHint]]) -> st.SearchStrategy[Provider]:
    filled = st.dictionaries(st.sampled_from(["cpu", "memory", "x/a", "x/b"]), st.none() | lists | lists, max_size=2)
    return st.none() | filled | filled


def distance_rows(nodes: Nodes) -> st.SearchStrategy[dict[int, list[int]] | None]:
    """Rows indexed by node id, neither symmetric nor alike on the diagonal; or none."""
    row = st.lists(st.integers(10, 13), min_size=len(IDS), max_size=len(IDS))
    return st.none() | st.fixed_dictionaries(dict.fromkeys(sorted(nodes), row))


def own(provider: Provider) -> dict[str, Any] | None:
    if provider is None:
        return None
    return {
        resource: None
        if hints is None
        else [
            {"numa": None if hint.nodes is None else sorted(hint.nodes), "preferred": hint.preferred} for hint in hints
        ]
        for resource, hints in provider.items()
    }


Answer = tuple[tuple[int, ...] | None, bool, bool]
"""Nodes, whether they are preferred, and whether the policy admits them."""


def merged(
    policy: str, providers: Sequence[Provider], nodes: Nodes, distances: dict[int, list[int]] | None = None
) -> Answer:
    found = merge_hints(
        policy,
        [own(provider) for provider in providers],
        numa_nodes=sorted(nodes),
        distances=None if distances is None else [distances[node] for node in sorted(nodes)],
        options=None if distances is None else CLOSEST,
    )
    return found.numa, found.preferred, found.admitted


def expected(
    policy: str, providers: Sequence[Provider], nodes: Nodes, distances: dict[int, list[int]] | None = None
) -> Answer:
    hint, admitted = plain_merge(policy, providers, nodes, distances)
    return None if hint.nodes is None else tuple(sorted(hint.nodes)), hint.preferred, admitted


def product_size(providers: Sequence[Provider]) -> int:
    size = 1
    for provider in providers:
        for hints in (provider or {}).values():
            size *= max(1, len(hints or ()))
    return size


@settings(max_examples=100)
@given(st.data(), node_sets, st.sampled_from(POLICIES))
def test_any_hints_merge_as_the_product_does(data: st.DataObject, nodes: Nodes, policy: str) -> None:
    providers = data.draw(st.lists(provider_lists(any_lists(nodes)), max_size=3))
    distances = data.draw(distance_rows(nodes))
    result = merged(policy, providers, nodes, distances)
    event(f"preferred={result[1]}")
    assert result == expected(policy, providers, nodes, distances)


@settings(max_examples=40)
@given(st.data(), node_sets, st.sampled_from(POLICIES[1:]))
def test_capacities_merge_as_the_product_does(data: st.DataObject, nodes: Nodes, policy: str) -> None:
    lists = capacity_lists(nodes) | capacity_lists(nodes) | any_lists(nodes)
    providers = data.draw(
        st.lists(provider_lists(lists), max_size=3).filter(lambda given: product_size(given) <= 31 * 31 * 5)
    )
    distances = data.draw(distance_rows(nodes))
    assert merged(policy, providers, nodes, distances) == expected(policy, providers, nodes, distances)


@settings(max_examples=40)
@given(st.data(), st.integers(2, 6))
def test_the_order_of_providers_and_resources_does_not_matter(data: st.DataObject, count: int) -> None:
    nodes = frozenset(range(count))
    providers = data.draw(st.lists(provider_lists(any_lists(nodes)), min_size=2, max_size=4))
    shuffled = data.draw(st.permutations(providers))
    reversed_resources = [
        dict(reversed([*provider.items()])) if provider is not None else None for provider in shuffled
    ]
    for policy in POLICIES:
        assert merged(policy, providers, nodes) == merged(policy, reversed_resources, nodes)


def test_machines_too_wide_for_families_merge_as_the_product_does() -> None:
    nodes = frozenset(range(20, 40))
    hints = [PlainHint(frozenset({20, 21, node}), node == 30) for node in range(22, 40)]
    others = [PlainHint(frozenset({21, node, node + 1}), False) for node in range(22, 39)]
    providers: list[Provider] = [{"cpu": hints}, {"memory": others}]
    for policy in POLICIES:
        assert merged(policy, providers, nodes) == expected(policy, providers, nodes)
    distances = {node: [10 + (node * other) % 7 for other in range(40)] for node in nodes}
    assert merged("restricted", providers, nodes, distances) == expected("restricted", providers, nodes, distances)


def test_full_lists_of_sixteen_nodes_end() -> None:
    nodes = range(16)
    full = list(range(1, 1 << 16))
    lists = [
        [{"numa": [node for node in nodes if mask >> node & 1], "preferred": mask in wanted} for mask in full]
        for wanted in ({0b1}, {0b10})
    ]
    result = merge_hints("best-effort", [{"cpu": lists[0]}, {"memory": lists[1]}], numa_nodes=nodes)
    assert (result.numa, result.preferred, result.admitted) == ((0,), False, True)


# The diagonal decides between {0, 1} and {2, 3}: 10 + 10 + 2 * 21 against 30 + 30 + 2 * 20.


def hints(*node_lists: list[int], preferred: bool = True) -> dict[str, Any]:
    return {"cpu": [{"numa": nodes, "preferred": preferred} for nodes in node_lists]}


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


def test_single_numa_node_does_not_even_need_distances() -> None:
    result = merge_hints("single-numa-node", [hints([1])], numa_nodes=range(2), options=CLOSEST)
    assert result.numa == (1,)
