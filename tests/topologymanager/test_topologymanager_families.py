"""Families as bit sets do what sets of sets do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import members
from mooring.engine.topologymanager.wide import (
    families_by_size,
    family_of,
    intersections,
    minimal_members,
    project,
    upward_closure,
)

Sets = frozenset[int]


@st.composite
def sets_of_masks(draw: st.DrawFn) -> tuple[int, Sets, Sets]:
    """Return a width and two sets of masks below it, often closed upwards."""
    width = draw(st.integers(1, 5))
    return width, draw(some_masks(width)), draw(some_masks(width))


@st.composite
def some_masks(draw: st.DrawFn, width: int) -> Sets:
    masks: Sets = draw(st.frozensets(st.integers(0, (1 << width) - 1), max_size=12))
    close: bool = draw(st.booleans())
    if masks and close:
        universe = draw(st.integers(0, (1 << width) - 1))
        return closed({mask & universe for mask in masks}, universe)
    return masks


def closed(masks: set[int], universe: int) -> Sets:
    return frozenset(
        mask for mask in range(universe + 1) if not mask & ~universe and any(below & mask == below for below in masks)
    )


def as_set(family: int) -> Sets:
    return frozenset(members(family))


@given(sets_of_masks())
def test_a_family_holds_the_masks_it_was_made_of(drawn: tuple[int, Sets, Sets]) -> None:
    width, masks, _ = drawn
    assert as_set(family_of(masks, width)) == masks


@given(sets_of_masks(), st.integers(0, 31))
def test_projecting_intersects_each_member(drawn: tuple[int, Sets, Sets], onto: int) -> None:
    width, masks, _ = drawn
    assert as_set(project(family_of(masks, width), onto, width)) == {mask & onto for mask in masks}


@given(sets_of_masks(), st.integers(0, 31))
def test_closing_adds_every_larger_set_of_the_universe(drawn: tuple[int, Sets, Sets], universe: int) -> None:
    width, masks, _ = drawn
    universe &= (1 << width) - 1
    inside = {mask & universe for mask in masks}
    assert as_set(upward_closure(family_of(inside, width), universe, width)) == closed(inside, universe)


@given(sets_of_masks(), st.integers(0, 31))
def test_minimal_members_contain_no_other_member(drawn: tuple[int, Sets, Sets], universe: int) -> None:
    width, masks, _ = drawn
    universe &= (1 << width) - 1
    family = closed({mask & universe for mask in masks}, universe)
    minimal = {mask for mask in family if not any(other != mask and other & mask == other for other in family)}
    assert as_set(minimal_members(family_of(family, width), width)) == minimal


@given(sets_of_masks())
def test_intersections_are_those_of_all_pairs(drawn: tuple[int, Sets, Sets]) -> None:
    width, left, right = drawn
    found = intersections(family_of(left, width), family_of(right, width), width)
    assert as_set(found) == {one & other for one in left for other in right}


@given(st.integers(1, 8))
def test_sizes_divide_all_sets(width: int) -> None:
    by_size = families_by_size(width)
    assert len(by_size) == width + 1
    for size, family in enumerate(by_size):
        assert as_set(family) == {mask for mask in range(1 << width) if mask.bit_count() == size}
