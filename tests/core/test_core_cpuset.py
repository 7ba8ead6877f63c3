"""CPU sets and masks: values with the text form and the parse errors of the kubelet (topology.md section 6)."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values import cases

from mooring.engine.core.bits import CPUMask, list_text, lowest, mask_of, members
from mooring.engine.core.cpuset import HIGHEST_CPU, CPUSet, CPUSetSyntaxError

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


number_sets = st.frozensets(st.integers(0, 130), max_size=30)


@given(number_sets)
def test_texts_read_back(numbers: frozenset[int]) -> None:
    cpus = CPUSet.from_ids(numbers)
    assert CPUSet.parse(str(cpus)) == cpus
    assert set(cpus) == numbers
    assert (len(cpus), bool(cpus)) == (len(numbers), bool(numbers))


@given(number_sets, number_sets)
def test_operations_are_those_of_sets(left: frozenset[int], right: frozenset[int]) -> None:
    one, other = CPUSet.from_ids(left), CPUSet.from_ids(right)
    assert set(one | other) == left | right
    assert set(one & other) == left & right
    assert set(one - other) == left - right
    assert (one <= other) == (left <= right)
    assert (one == other) == (left == right)
    assert all((number in one) == (number in left) for number in range(-2, 135))


@pytest.mark.parametrize(("cpus", "text"), cases(__file__, "cpu-lists.yaml", "cpus", "text"))
def test_lists_are_read_and_refused_as_the_kubelet_does(cpus: list[int] | str, text: str) -> None:
    if not isinstance(cpus, str):
        assert CPUSet.parse(text) == CPUSet.of(*cpus)
        return
    with pytest.raises(CPUSetSyntaxError) as error:
        CPUSet.parse(text)
    assert str(error.value) == cpus


def test_ids_that_would_exhaust_the_memory_are_refused() -> None:
    assert HIGHEST_CPU in CPUSet.parse(str(HIGHEST_CPU))
    with pytest.raises(CPUSetSyntaxError, match="CPU ids must be between"):
        CPUSet.parse(f"0-{HIGHEST_CPU + 1}")


@given(st.text(max_size=12) | st.text(alphabet="0123456789-,+", max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        cpus = CPUSet.parse(text)
    except CPUSetSyntaxError:
        return
    assert CPUSet.parse(str(cpus)) == cpus


def test_values_cannot_change() -> None:
    cpus = CPUSet.of(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        cpus.mask = CPUMask(2)  # type: ignore[misc]
    assert {cpus: 1}[CPUSet.parse("1")] == 1
    assert repr(CPUSet.of(1, 2)) == "CPUSet('1-2')"
