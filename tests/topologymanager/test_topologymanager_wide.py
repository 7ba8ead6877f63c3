"""Families of node sets give the very answers that listing them gives."""

from __future__ import annotations

from math import prod
from random import Random

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st
from tests.topologymanager.plain_merge import Distances, PlainHint, as_nodes, merged_by_states, plain_merge

from mooring.engine.core.bits import NUMAMask, mask_of
from mooring.engine.topologymanager.facts import HintsMerged
from mooring.engine.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints, NUMAInfo
from mooring.engine.topologymanager.merge import is_admitted, merge
from mooring.engine.topologymanager.wide import WIDEST, AnyHints, Demand, Family

POLICIES = ("best-effort", "restricted", "single-numa-node")
WIDTHS = st.sampled_from([2, 3, 5, 6, 7, 7, 8, 9, 10])
"""Numbers of NUMA nodes; small machines find most mistakes, wide ones are what families are for."""


def node_sets(width: int) -> st.SearchStrategy[NUMAMask]:
    return st.integers(1, (1 << width) - 1).map(NUMAMask)


@st.composite
def demands(draw: st.DrawFn, width: int) -> Demand:
    """Draw an amount and where it lies: on equal nodes, on any, or on several nodes at once as devices do."""
    kind = draw(st.sampled_from(["equal", "any", "shared", "bonus"]))
    if kind == "shared":
        sources = tuple(draw(st.lists(node_sets(width), min_size=1, max_size=5)))
        weights = tuple(sum(source >> node & 1 for source in sources) for node in range(width))
        return Demand(draw(st.integers(0, len(sources))), weights, sources)
    if kind == "equal":
        weights = (draw(st.integers(1, 4)),) * width
    else:
        weights = tuple(draw(st.lists(st.integers(0, 4), min_size=width, max_size=width)))
    if kind != "bonus":
        return Demand(draw(st.integers(-1, sum(weights) + 1)), weights)
    bonuses = draw(st.lists(st.tuples(node_sets(width), st.integers(1, 3)), min_size=1, max_size=2))
    return Demand(
        draw(st.integers(0, sum(weights) + sum(amount for _, amount in bonuses))), weights, bonuses=tuple(bonuses)
    )


@st.composite
def families(draw: st.DrawFn, width: int) -> Family:
    """Draw hints as a provider describes them.

    With listed and barred sets as the memory manager has them for groups of nodes in use, required nodes as the CPU
    manager has them for reusable CPUs, and its rule for sockets.
    """
    everything = (1 << width) - 1
    universe = draw(st.sampled_from([everything, draw(node_sets(width))]))
    half = draw(node_sets(width))
    sockets = draw(st.sampled_from([(half, ~half & everything), (), (), ()]))
    return Family(
        NUMAMask(universe),
        tuple(draw(st.lists(demands(width), min_size=1, max_size=2))),
        draw(st.integers(1, 3)),
        required=NUMAMask(draw(st.sampled_from([0, 0, universe & -universe, draw(node_sets(width)) & universe]))),
        listed=tuple(sorted(draw(st.sets(node_sets(width), max_size=2)))),
        barred=frozenset(NUMAMask(1 << node) for node in draw(st.sets(st.integers(0, width - 1), max_size=1))),
        sockets=sockets,
        span=draw(st.integers(1, 2)),
    )


@st.composite
def infos(draw: st.DrawFn, width: int) -> NUMAInfo:
    """Draw a machine, half of the time with distances to prefer; there and back may differ, as may own ones."""
    everything = (1 << width) - 1
    if draw(st.booleans()):
        return NUMAInfo(NUMAMask(everything))
    random = Random(draw(st.integers(0, 999)))  # noqa: S311 - for examples
    rows = {
        node: tuple(random.choice([10, 10, 14] if node == other else [11, 20, 21]) for other in range(width))
        for node in range(width)
    }
    return NUMAInfo(NUMAMask(everything), rows)


@st.composite
def entries(draw: st.DrawFn, width: int) -> list[AnyHints]:
    """Draw the hints of up to three providers, some with several resources.

    The memory manager has the same hints for all its types; device resources have each their own.
    """
    found: list[AnyHints] = []
    for _ in range(draw(st.integers(1, 3))):
        found += [draw(families(width))] * draw(st.sampled_from([1, 1, 2]))
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        masks = draw(st.lists(node_sets(width), max_size=4, unique=True))
        split = draw(st.integers(0, len(masks)))
        listed = Hints(tuple(masks[:split]), tuple(masks[split:]))
        found.append(draw(st.sampled_from([DONT_CARE, NOT_POSSIBLE, listed or NOT_POSSIBLE])))
    return draw(st.permutations(found))


def listed(entry: AnyHints) -> Hints:
    if isinstance(entry, Hints):
        return entry
    return entry.hints()


def as_plain(hints: Hints) -> list[PlainHint]:
    return [PlainHint(None if hint.mask is None else as_nodes(hint.mask), hint.preferred) for hint in hints]


def plain_distances(info: NUMAInfo) -> Distances | None:
    return None if info.distances is None else dict(info.distances)


@st.composite
def questions(draw: st.DrawFn, widths: st.SearchStrategy[int] = WIDTHS) -> tuple[list[AnyHints], NUMAInfo]:
    width = draw(widths)
    return draw(entries(width)), draw(infos(width))


@settings(max_examples=60)
@given(questions(), st.sampled_from(POLICIES))
def test_families_merge_as_the_product_of_their_lists(asked: tuple[list[AnyHints], NUMAInfo], policy: str) -> None:
    found, info = asked
    plain = [as_plain(listed(entry)) for entry in found]
    # A provider never answers with an empty family: it says "impossible" or nothing.
    assume(all(plain))
    nodes = as_nodes(info.nodes)
    hint, admitted = merged_by_states(policy, plain, nodes, plain_distances(info))
    event(f"{policy}, {len(nodes)} nodes: {'preferred' if hint.preferred else 'not preferred'}")
    merged = merge(policy, found, info)
    assert (merged.mask, merged.preferred, is_admitted(policy, merged)) == (
        None if hint.nodes is None else sum(1 << node for node in hint.nodes),
        hint.preferred,
        admitted,
    )
    assert merge(policy, [listed(entry) for entry in found], info) == merged


@given(questions(st.integers(1, 6)), st.sampled_from(POLICIES))
def test_partial_results_counted_once_are_the_plain_fold(asked: tuple[list[AnyHints], NUMAInfo], policy: str) -> None:
    found, info = asked
    plain = [as_plain(listed(entry)) for entry in found]
    assume(all(plain) and prod(map(len, plain)) <= 3000)
    providers = [{"resource": hints} for hints in plain]
    nodes, distances = as_nodes(info.nodes), plain_distances(info)
    assert merged_by_states(policy, plain, nodes, distances) == plain_merge(policy, providers, nodes, distances)


@given(st.sampled_from(POLICIES), st.data())
def test_an_entry_without_hints_leaves_nothing_to_choose_from(policy: str, data: st.DataObject) -> None:
    family = data.draw(families(4))
    assume(listed(family))
    facts: list[object] = []
    info = NUMAInfo(NUMAMask(0b1111))
    merged = merge(policy, [family, Hints()], info, facts.append)
    assert merged == merge(policy, [listed(family), Hints()], info)
    admitted = policy == "best-effort"
    assert is_admitted(policy, merged) == admitted
    assert facts == [HintsMerged(policy, (family, Hints()), merged, admitted, "filtered", 0)]


@st.composite
def lists_beyond_bit_sets(draw: st.DrawFn) -> tuple[list[AnyHints], NUMAInfo]:
    """Draw short lists of hints on a machine with more nodes than families are kept for as bit sets."""
    width = draw(st.integers(WIDEST + 1, WIDEST + 4))
    near = draw(st.lists(st.integers(0, width - 1), min_size=2, max_size=5, unique=True))
    sets = st.sets(st.sampled_from(near), min_size=1).map(lambda nodes: NUMAMask(mask_of(nodes)))
    found: list[AnyHints] = []
    for _ in range(draw(st.integers(1, 4))):
        masks = draw(st.lists(sets, min_size=1, max_size=6, unique=True))
        split = draw(st.integers(0, len(masks)))
        found.append(Hints(tuple(masks[:split]), tuple(masks[split:])))
    return found, draw(infos(width))


@settings(max_examples=50)
@given(lists_beyond_bit_sets(), st.sampled_from(POLICIES))
def test_lists_merge_as_their_product_beyond_bit_sets(asked: tuple[list[AnyHints], NUMAInfo], policy: str) -> None:
    found, info = asked
    nodes = as_nodes(info.nodes)
    plain = [as_plain(listed(entry)) for entry in found]
    hint, admitted = merged_by_states(policy, plain, nodes, plain_distances(info))
    merged = merge(policy, found, info)
    assert (merged.preferred, is_admitted(policy, merged)) == (hint.preferred, admitted)
    assert merged.mask == (None if hint.nodes is None else sum(1 << node for node in hint.nodes))


@st.composite
def members_around(draw: st.DrawFn) -> tuple[Family, int]:
    width = draw(WIDTHS)
    return draw(families(width)), draw(node_sets(width) | st.just(0))


@given(members_around())
def test_the_best_member_around_some_nodes_is_that_of_the_list(drawn: tuple[Family, int]) -> None:
    family, around = drawn
    # align-by-socket is the CPU manager's; only the memory manager asks for the best member.
    assume(not family.sockets)
    candidates = [(not hint.preferred, hint.mask.bit_count(), hint.mask) for hint in family.hints() if hint.mask]
    fitting = [key for key in candidates if key[2] & around == around]
    assert family.best_around(around) == (min(fitting)[2] if fitting else None)


@given(members_around())
def test_the_narrowest_member_is_that_of_the_list(drawn: tuple[Family, int]) -> None:
    family, _ = drawn
    sizes = [hint.mask.bit_count() for hint in family.hints() if hint.mask is not None]
    assert family.narrowest() == min(sizes, default=0)


@pytest.mark.parametrize("nodes", [17, 34, 64])
def test_many_nodes_are_merged_without_listing_anything(nodes: int) -> None:
    equal = (4,) * nodes
    everything = (1 << nodes) - 1
    cpus = Family(NUMAMask(everything), (Demand(10, equal),), 3)
    memory = Family(NUMAMask(everything), (Demand(17, equal),), 5)
    info = NUMAInfo(NUMAMask(everything))
    merged = merge("best-effort", [cpus, memory], info)
    assert merged.numa == (0, 1, 2, 3, 4)
    assert not merged.preferred
    assert merge("restricted", [cpus, cpus], info).numa == (0, 1, 2)
