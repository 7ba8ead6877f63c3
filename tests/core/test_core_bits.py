"""Masks behave as sets of numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.bits import CPUMask, list_text, lowest, mask_of, members

sets = st.frozensets(st.integers(0, 200), max_size=40)
runs = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 70)), max_size=5).map(
    lambda drawn: frozenset(number for first, length in drawn for number in range(first, first + length + 1))
)


@given(sets | runs)
def test_a_mask_holds_its_members_in_order(numbers: frozenset[int]) -> None:
    assert list(members(mask_of(numbers))) == sorted(numbers)


@given(st.lists(st.sampled_from((0, 5, 1023, 1024, 4097, 65_535)), unique=True), st.integers(900, 3000))
def test_a_large_mask_holds_its_members_too(further: list[int], count: int) -> None:
    numbers = {*range(7, 7 + 3 * count, 3), *further}
    mask = mask_of(numbers)
    assert mask == sum(1 << number for number in numbers)
    assert list(members(mask)) == sorted(numbers)


def test_a_large_mask_has_no_negative_member() -> None:
    with pytest.raises(ValueError, match="negative"):
        mask_of([*range(3000), -1])


@given(sets | runs)
def test_the_text_is_the_shortest_list_of_runs(numbers: frozenset[int]) -> None:
    parts = []
    for number in sorted(numbers):
        if number - 1 not in numbers:
            last = number
            while last + 1 in numbers:
                last += 1
            parts.append(str(number) if last == number else f"{number}-{last}")
    assert list_text(mask_of(numbers)) == ",".join(parts)


@given(sets | runs, st.data())
def test_the_lowest_members_are_taken(numbers: frozenset[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(0, len(numbers)))
    assert list(members(lowest(CPUMask(mask_of(numbers)), count))) == sorted(numbers)[:count]


def test_more_members_than_there_are_give_all() -> None:
    assert lowest(CPUMask(0b101), 9) == 0b101


@pytest.mark.parametrize(("mask", "text"), [(0, ""), (1, "0"), (0b11, "0-1"), (0b101, "0,2"), (0b110111, "0-2,4-5")])
def test_texts(mask: int, text: str) -> None:
    assert list_text(mask) == text
