"""Families of node sets give the very answers that listing them gives."""

from __future__ import annotations

from hypothesis import event, given
from hypothesis import strategies as st

from mooring.topologymanager.distances import NUMAInfo
from mooring.topologymanager.entries import AnyHints
from mooring.topologymanager.hints import DONT_CARE, NOT_POSSIBLE, Hints
from mooring.topologymanager.merge import merge
from mooring.topologymanager.wide import Demand, Family, SocketRule

WIDTH = 7


@st.composite
def nodes(draw: st.DrawFn) -> int:
    return draw(st.integers(1, (1 << WIDTH) - 1))


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    if draw(st.booleans()):
        weights = tuple(draw(st.lists(st.integers(0, 4), min_size=WIDTH, max_size=WIDTH)))
        return Demand(draw(st.integers(-1, sum(weights) + 1)), weights)
    sources = tuple(draw(st.lists(st.integers(1, (1 << WIDTH) - 1), min_size=1, max_size=5)))
    weights = tuple(sum(source >> node & 1 for source in sources) for node in range(WIDTH))
    return Demand(draw(st.integers(0, len(sources))), weights, sources)


@st.composite
def families(draw: st.DrawFn) -> Family:
    universe = draw(nodes())
    sockets = None
    if draw(st.integers(0, 3)) == 0:
        half = draw(nodes())
        sockets = SocketRule((half, ~half & ((1 << WIDTH) - 1)), draw(st.integers(1, 2)))
    return Family(
        universe,
        tuple(draw(st.lists(demands(), min_size=1, max_size=2))),
        draw(st.integers(1, 3)),
        required=draw(st.sampled_from([0, 0, universe & -universe, draw(nodes()) & universe])),
        listed=tuple(sorted(draw(st.sets(nodes(), max_size=2)))),
        barred=frozenset(1 << node for node in draw(st.sets(st.integers(0, WIDTH - 1), max_size=1))),
        sockets=sockets,
    )


@st.composite
def infos(draw: st.DrawFn) -> NUMAInfo:
    everything = (1 << WIDTH) - 1
    if draw(st.booleans()):
        return NUMAInfo(everything)
    rows = {
        node: tuple(10 if node == other else draw(st.sampled_from([11, 20, 21])) for other in range(WIDTH))
        for node in range(WIDTH)
    }
    return NUMAInfo(everything, rows)


@st.composite
def entries(draw: st.DrawFn) -> list[AnyHints]:
    found: list[AnyHints] = [draw(families()) for _ in range(draw(st.integers(1, 3)))]
    for _ in range(draw(st.integers(0, 1))):
        masks = draw(st.lists(nodes(), max_size=4, unique=True))
        split = draw(st.integers(0, len(masks)))
        listed = Hints(tuple(masks[:split]), tuple(masks[split:]))
        found.append(draw(st.sampled_from([DONT_CARE, NOT_POSSIBLE, listed or NOT_POSSIBLE])))
    return draw(st.permutations(found))


def listed(entry: AnyHints) -> Hints:
    if isinstance(entry, Hints):
        return entry
    return entry.hints()


@given(entries(), infos(), st.sampled_from(["best-effort", "restricted", "single-numa-node"]))
def test_families_merge_as_their_lists_do(asked: list[AnyHints], info: NUMAInfo, policy: str) -> None:
    # A provider never answers with an empty family: it says "impossible" or nothing.
    plain = [listed(entry) for entry in asked]
    if not all(plain):
        event("an empty family")
        return
    expected = merge(policy, plain, info)
    event(f"{policy}: {'preferred' if expected.hint.preferred else 'not preferred'}")
    assert merge(policy, asked, info) == expected


@given(families(), nodes())
def test_the_best_member_around_some_nodes_is_that_of_the_list(family: Family, around: int) -> None:
    hints = family.hints()
    candidates = [(not hint.preferred, hint.mask.bit_count(), hint.mask) for hint in hints if hint.mask is not None]
    if family.sockets is not None:
        # align-by-socket is the CPU manager's; only the memory manager asks for the best member.
        return
    fitting = [key for key in candidates if key[2] & around == around]
    assert family.best_around(around) == (min(fitting)[2] if fitting else None)


@given(families())
def test_the_narrowest_member_is_that_of_the_list(family: Family) -> None:
    sizes = [hint.mask.bit_count() for hint in family.hints() if hint.mask is not None]
    assert family.narrowest() == min(sizes, default=0)


def test_sixty_four_nodes_are_merged_without_listing_anything() -> None:
    equal = tuple([4] * 64)
    cpus = Family((1 << 64) - 1, (Demand(10, equal),), 3)
    memory = Family((1 << 64) - 1, (Demand(17, equal),), 5)
    info = NUMAInfo((1 << 64) - 1)
    merged = merge("best-effort", [cpus, memory], info)
    assert merged.hint.numa == (0, 1, 2, 3, 4)
    assert not merged.hint.preferred
    assert merge("restricted", [cpus, cpus], info).hint.numa == (0, 1, 2)
