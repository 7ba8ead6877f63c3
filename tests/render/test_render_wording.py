"""Words, marks and cutting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.errors import clean
from mooring.explanations.phrases import size
from mooring.views.wording import core_kind_name, owner_marks, shorten


@given(st.text())
def test_cleaned_text_is_one_printable_line_and_stays_as_it_is(text: str) -> None:
    once = clean(text)
    assert once.isprintable()
    assert clean(once) == once


@given(st.text(), st.integers(0, 30))
def test_shortened_text_fits_and_is_left_alone_when_it_fits(text: str, room: int) -> None:
    assert len(shorten(text, room)) <= max(room, 0)
    assert shorten(text, len(text)) == text


@given(st.integers(0, 5000))
def test_marks_are_unique_equally_long_and_never_look_like_figures(count: int) -> None:
    marks = owner_marks(count)
    assert len(set(marks)) == count
    assert len({len(mark) for mark in marks}) <= 1
    assert not set("".join(marks)) & set("lIOo01")


def test_sizes_are_exact_where_they_can_be() -> None:
    assert [size(count) for count in (1, 1023, 1024, 1536, 1 << 40, (1 << 30) * 94 + (1 << 29))] == [
        "1 B",
        "1023 B",
        "1 KiB",
        "1.5 KiB",
        "1 TiB",
        "94.5 GiB",
    ]


def test_three_kinds_of_cores_are_ranked() -> None:
    assert [core_kind_name(rank, [0, 1, 2]) for rank in range(3)] == [
        "core kind 0, slowest",
        "core kind 1",
        "core kind 2, fastest",
    ]
