"""Numbers, words and texts as Go reads and prints them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.gotext import INT64_MAX, INT64_MIN, GoSyntaxError, atoi, duration_text, parse_bool, quote


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ("", '""'),
        ("plain", '"plain"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1f\x7f", '"\\x00\\x1f\\x7f"'),
        ("ä€😀", '"ä€😀"'),
        ("\u00a0\u200b\ufeff", '"\\u00a0\\u200b\\ufeff"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_quoted_texts(text: str, quoted: str) -> None:
    assert quote(text) == quoted


@given(st.integers(INT64_MIN, INT64_MAX))
def test_every_64_bit_number_is_read(number: int) -> None:
    assert atoi(str(number)) == number


@pytest.mark.parametrize("text", ["", "+", "-", " 1", "1 ", "1_0", "0x1", "1e3", "--1", "+-1", "²", "１"])
def test_other_texts_are_no_numbers(text: str) -> None:
    with pytest.raises(GoSyntaxError, match="invalid syntax"):
        atoi(text)


@pytest.mark.parametrize("text", [str(INT64_MAX + 1), str(INT64_MIN - 1), "1" + "0" * 19, "9" * 5000])
def test_numbers_beyond_64_bits_are_out_of_range(text: str) -> None:
    with pytest.raises(GoSyntaxError, match="value out of range"):
        atoi(text)


def test_leading_zeros_do_not_count() -> None:
    assert atoi("0" * 5000 + "7") == 7
    assert atoi("-" + "0" * 50) == 0


TRUE = ("1", "t", "T", "TRUE", "true", "True")
FALSE = ("0", "f", "F", "FALSE", "false", "False")


def test_twelve_words_are_boolean() -> None:
    assert all(parse_bool(word) for word in TRUE)
    assert not any(parse_bool(word) for word in FALSE)


@given(st.text(max_size=6).filter(lambda text: text not in (*TRUE, *FALSE)))
def test_other_words_are_refused(text: str) -> None:
    with pytest.raises(GoSyntaxError) as error:
        parse_bool(text)
    assert str(error.value) == f"strconv.ParseBool: parsing {quote(text)}: invalid syntax"


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [
        (0, "0s"),
        (1, "1ns"),
        (1_100, "1.1µs"),
        (2_200_000, "2.2ms"),
        (100_000_000, "100ms"),
        (3_300_000_000, "3.3s"),
        (60_000_000_000, "1m0s"),
        (245_000_000_000, "4m5s"),
        (18_367_001_000_000, "5h6m7.001s"),
        (3_600_000_000_000, "1h0m0s"),
        (480_000_000_001, "8m0.000000001s"),
        (999_999_999, "999.999999ms"),
        (-1_500_000_000, "-1.5s"),
    ],
)
def test_durations(nanoseconds: int, text: str) -> None:
    assert duration_text(nanoseconds) == text
