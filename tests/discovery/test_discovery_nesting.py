"""Sets of CPUs that nest, against a plain form that compares every set with every other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import members
from mooring.inputs.machines.hardware.numanodes import Nest

MASKS = st.lists(st.integers(1, 255), max_size=30)


def crosses(one: int, other: int) -> bool:
    return one & other not in {0, one, other}


def taken_in(masks: list[int]) -> list[int]:
    """Return, in order, what is left when each set that crosses an earlier one is dropped."""
    kept: list[int] = []
    for mask in masks:
        if mask not in kept and not any(crosses(mask, other) for other in kept):
            kept.append(mask)
    return kept


def nest_of(masks: list[int]) -> Nest:
    nest = Nest()
    for mask in masks:
        nest.add(mask, "l3")
    return nest


@given(MASKS)
def test_a_set_is_refused_if_and_only_if_it_crosses_an_earlier_one(masks: list[int]) -> None:
    nest = nest_of(masks)
    kept = taken_in(masks)
    assert [branch.mask for branch in nest.branches] == kept
    assert [mask for _, mask in nest.refused] == [mask for mask in masks if mask not in kept]


@given(MASKS)
def test_the_sets_around_a_cpu_are_all_that_hold_it_from_small_to_large(masks: list[int]) -> None:
    nest = nest_of(masks)
    for cpu in range(9):
        around = [branch.mask for branch in nest.around(cpu)]
        assert around == sorted((mask for mask in taken_in(masks) if mask >> cpu & 1), key=int.bit_count)


@given(MASKS, st.integers(1, 255))
def test_the_smallest_set_that_covers_another_is_found(masks: list[int], wanted: int) -> None:
    candidates = [mask for mask in taken_in(masks) if wanted & ~mask == 0]
    assert nest_of(masks).covering(wanted) == min(candidates, key=int.bit_count, default=-1)


def test_equal_sets_of_one_kind_keep_the_first_id_that_is_known() -> None:
    nest = Nest()
    for number in (None, 7, 9):
        nest.add(0b11, "package", number)
    assert nest.branches[0].kinds == {"package": 7}


def test_of_groups_with_equal_cpus_the_lowest_rank_stays() -> None:
    nest = Nest()
    for rank, name in ((222, "Cluster"), (1001, ""), (110, "Book"), (110, "Drawer")):
        nest.add_group(0b11, rank, name)
    assert nest.branches[0].group == (110, "Book")


def test_thousands_of_cpus_without_any_sets_are_no_trouble() -> None:
    nest = Nest()
    for cpu in range(4096):
        nest.add(1 << cpu, "core")
    nest.add((1 << 4096) - 1, "package")
    assert sum(1 for cpu in members((1 << 4096) - 1) for _ in nest.around(cpu)) == 2 * 4096
