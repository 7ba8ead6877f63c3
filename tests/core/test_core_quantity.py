"""Quantities as Kubernetes' own library (v0.37.1) has them; numbers, words and texts as Go reads and prints them."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mooring.engine.core.gotext import INT64_MAX, INT64_MIN, GoSyntaxError, atoi, duration_text, parse_bool, quote
from mooring.engine.core.quantity import (
    FORMAT_WRONG,
    LONGEST_TEXT,
    NUMBER_WRONG,
    SUFFIX_WRONG,
    Quantity,
    QuantityFormat,
    QuantitySyntaxError,
)

# text, Value(), MilliValue() (both overflow as they do in Go), AsInt64() or None, canonical text, format
READ: list[tuple[str, int, int, int | None, str, str]] = [
    ("0", 0, 0, 0, "0", "DecimalSI"),
    ("-0", 0, 0, 0, "0", "DecimalSI"),
    ("00", 0, 0, 0, "0", "DecimalSI"),
    ("-", 0, 0, 0, "0", "DecimalSI"),
    ("+", 0, 0, 0, "0", "DecimalSI"),
    (".", 0, 0, 0, "0", "DecimalSI"),
    ("-.", 0, 0, 0, "0", "DecimalSI"),
    ("Ki", 0, 0, 0, "0", "BinarySI"),
    ("m", 0, 0, None, "0", "DecimalSI"),
    ("5", 5, 5000, 5, "5", "DecimalSI"),
    ("+5", 5, 5000, 5, "5", "DecimalSI"),
    ("007", 7, 7000, 7, "7", "DecimalSI"),
    ("-5", -5, -5000, -5, "-5", "DecimalSI"),
    ("1.5", 2, 1500, None, "1500m", "DecimalSI"),
    (".5", 1, 500, None, "500m", "DecimalSI"),
    ("1.", 1, 1000, 1, "1", "DecimalSI"),
    ("0.1", 1, 100, None, "100m", "DecimalSI"),
    ("0.0001m", 1, 1, None, "100n", "DecimalSI"),
    ("1n", 1, 1, None, "1n", "DecimalSI"),
    ("999999999n", 1, 1000, None, "999999999n", "DecimalSI"),
    ("1.0000000001", 2, 1001, None, "1000000001n", "DecimalSI"),
    ("1000m", 1, 1000, None, "1", "DecimalSI"),
    ("1500m", 2, 1500, None, "1500m", "DecimalSI"),
    ("1000u", 1, 1, None, "1m", "DecimalSI"),
    ("2k", 2000, 2000000, 2000, "2k", "DecimalSI"),
    ("1500k", 1500000, 1500000000, 1500000, "1500k", "DecimalSI"),
    ("1E", 1000000000000000000, 0, 1000000000000000000, "1E", "DecimalSI"),
    ("1000E", 0, 0, None, "1", "DecimalSI"),
    ("1Ki", 1024, 1024000, 1024, "1Ki", "BinarySI"),
    ("1023Ki", 1047552, 1047552000, 1047552, "1023Ki", "BinarySI"),
    ("1024Ki", 1048576, 1048576000, 1048576, "1Mi", "BinarySI"),
    ("1.5Gi", 1610612736, 1610612736000, None, "1536Mi", "BinarySI"),
    ("0.5Gi", 536870912, 536870912000, None, "512Mi", "BinarySI"),
    ("0.0001Ki", 1, 103, None, "102400u", "DecimalSI"),
    ("0.5Ki", 512, 512000, None, "512", "BinarySI"),
    ("1.0000001Ki", 1025, 1024001, None, "1024000102400n", "BinarySI"),
    ("7Ei", 8070450532247928832, -9223372036854775808, None, "7Ei", "BinarySI"),
    ("8Ei", 9223372036854775807, -1000, None, "9223372036854775807", "BinarySI"),
    ("9Ei", 9223372036854775807, -1000, None, "9223372036854775807", "BinarySI"),
    ("-9Ei", -9223372036854775807, 1000, None, "-9223372036854775807", "BinarySI"),
    ("512Pi", 576460752303423488, 4611686018427387904, None, "512Pi", "BinarySI"),
    ("99999999999Ki", 102399999998976, 102399999998976000, 102399999998976, "99999999999Ki", "BinarySI"),
    ("100000000000Ki", 102400000000000, 102400000000000000, None, "97656250Mi", "BinarySI"),
    ("1e3", 1000, 1000000, 1000, "1e3", "DecimalExponent"),
    ("1E3", 1000, 1000000, 1000, "1e3", "DecimalExponent"),
    ("12e6", 12000000, 12000000000, 12000000, "12e6", "DecimalExponent"),
    ("1e-3", 1, 1, None, "1e-3", "DecimalExponent"),
    ("1e-9", 1, 1, None, "1e-9", "DecimalExponent"),
    ("1e-10", 1, 1, None, "1e-9", "DecimalExponent"),
    ("1e+2", 100, 100000, 100, "100", "DecimalExponent"),
    ("1e0", 1, 1000, 1, "1", "DecimalExponent"),
    ("1e30", 0, 0, None, "1e30", "DecimalExponent"),
    ("1e4294967297", 10, 10000, 10, "10", "DecimalExponent"),
    ("9223372036854775807", 9223372036854775807, -1000, None, "9223372036854775807", "DecimalSI"),
    ("9223372036854775808", -9223372036854775808, 0, None, "9223372036854775808", "DecimalSI"),
    (
        "999999999999999999",
        999999999999999999,
        3875820019684211736,
        999999999999999999,
        "999999999999999999",
        "DecimalSI",
    ),
    ("1000000000000000000", 1000000000000000000, 3875820019684212736, None, "1E", "DecimalSI"),
    ("123456789012345678901", -5670419503621182411, -7269072992350064888, None, "123456789012345678901", "DecimalSI"),
    ("100000000000000000k", 7766279631452241920, 200376420520689664, None, "100E", "DecimalSI"),
    ("0.000000000000000000001", 1, 1, None, "1n", "DecimalSI"),
    ("1.23456789012345678901", 2, 1235, None, "1234567891n", "DecimalSI"),
    ("-1.5", -2, -1500, None, "-1500m", "DecimalSI"),
    ("e5", 0, 0, 0, "0", "DecimalExponent"),
    ("n", 0, 0, None, "0", "DecimalSI"),
]

REFUSED = [
    ("", FORMAT_WRONG),
    (" 1", FORMAT_WRONG),
    ("1 ", FORMAT_WRONG),
    ("K", SUFFIX_WRONG),
    ("5K", SUFFIX_WRONG),
    ("1Gib", FORMAT_WRONG),
    ("1.1.1", FORMAT_WRONG),
    ("5i", SUFFIX_WRONG),
    ("abc", FORMAT_WRONG),
    ("e", SUFFIX_WRONG),
    ("-Ei", NUMBER_WRONG),
    ("Ei", NUMBER_WRONG),
    ("Pi", NUMBER_WRONG),
    ("e-10", NUMBER_WRONG),
    ("1e99999999999999999999", SUFFIX_WRONG),
    ("1e9223372036854775808", SUFFIX_WRONG),
    ("1e+", SUFFIX_WRONG),
    ("１", FORMAT_WRONG),
    ("0x10", FORMAT_WRONG),
    ("1_000", FORMAT_WRONG),
    ("Infinity", FORMAT_WRONG),
    ("nan", FORMAT_WRONG),
    ("1,5", FORMAT_WRONG),
    ("5%", FORMAT_WRONG),
    ("1\n", FORMAT_WRONG),
]

# left, right, text of the sum, AsInt64() of the sum
SUMS: list[tuple[str, str, str, int | None]] = [
    ("1", "1000m", "2", None),
    ("1000m", "1", "2", None),
    ("1Gi", "1", "1073741825", 1073741825),
    ("1", "1Gi", "1073741825", 1073741825),
    ("0", "1Gi", "1Gi", 1073741824),
    ("1Gi", "0", "1Gi", 1073741824),
    ("0.5Gi", "0.5Gi", "1Gi", None),
    ("1e3", "1k", "2e3", 2000),
    ("1500m", "500m", "2", None),
    ("8Ei", "8Ei", "18446744073709551614", None),
    ("9223372036854775807", "1", "9223372036854775808", None),
    ("1n", "1E", "1000000000000000000000000001n", None),
    ("0", "0.5Gi", "512Mi", None),
    ("0m", "1", "1", 1),
    ("1", "0m", "1", 1),
    ("999999999999999999k", "1", "999999999999999999001", None),
]

POWERS = {
    **{letter: Fraction(10) ** power for letter, power in zip("num", (-9, -6, -3), strict=True)},
    **{letter: Fraction(1000) ** rank for rank, letter in enumerate(("", *"kMGTPE"))},
    **{f"{letter}i": Fraction(1024) ** rank for rank, letter in enumerate("KMGTPE", 1)},
    **{f"{letter}{power}": Fraction(10) ** power for letter, power in product("eE", range(-12, 13))},
}

digits = st.text("0123456789", max_size=24)
numbers = st.builds(
    lambda sign, whole, fraction: f"{sign}{whole}" + (f".{fraction}" if fraction else ""),
    st.sampled_from(["", "+", "-"]),
    st.text("0123456789", min_size=1, max_size=24),
    digits,
)
texts = st.builds(lambda number, suffix: number + suffix, numbers, st.sampled_from(sorted(POWERS)))


def model(text: str) -> Fraction:
    """Return the amount that the grammar promises, before rounding and capping."""
    suffix = max((name for name in POWERS if text.endswith(name)), key=len)
    return Fraction(text.removesuffix(suffix).lstrip("+")) * POWERS[suffix]


def rounded(amount: Fraction, parts: int) -> int:
    size = -(-abs(amount) * parts // 1)
    return int(-size if amount < 0 else size)


@pytest.mark.parametrize(("text", "value", "milli", "exact", "canonical", "form"), READ)
def test_reads_like_kubernetes(text: str, value: int, milli: int, exact: int | None, canonical: str, form: str) -> None:
    quantity = Quantity.parse(text)
    assert (quantity.units, quantity.milli, quantity.as_int64()) == (value, milli, exact)
    assert (str(quantity), quantity.format.value) == (canonical, form)


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_refuses_with_the_text_of_kubernetes(text: str, message: str) -> None:
    with pytest.raises(QuantitySyntaxError) as error:
        Quantity.parse(text)
    assert str(error.value) == message


@pytest.mark.parametrize(("left", "right", "canonical", "exact"), SUMS)
def test_adds_like_kubernetes(left: str, right: str, canonical: str, exact: int | None) -> None:
    total = Quantity.parse(left) + Quantity.parse(right)
    assert (str(total), total.as_int64()) == (canonical, exact)


@given(texts)
@example("9223372036854775807Ki")
@example("0.0000000000000000000001Ei")
def test_amount_is_that_of_the_fraction_model(text: str) -> None:
    amount = model(text)
    if text.endswith("i"):
        amount = max(min(amount, Fraction(INT64_MAX)), Fraction(-INT64_MAX))
    quantity = Quantity.parse(text)
    assert quantity.nano == rounded(amount, 10**9)
    for value, parts in ((quantity.units, 1), (quantity.milli, 1000)):
        # Rounding happens twice: to billionths when the text is read, then to what is asked for.
        whole = rounded(Fraction(quantity.nano, 10**9), parts)
        assert value == whole or abs(whole) > INT64_MAX


@given(texts)
def test_quick_answer_is_exact_whenever_there_is_one(text: str) -> None:
    exact = Quantity.parse(text).as_int64()
    assert exact is None or exact == model(text)


@given(texts)
def test_canonical_text_reads_back_to_the_same_amount_and_text(text: str) -> None:
    quantity = Quantity.parse(text)
    again = Quantity.parse(str(quantity))
    if abs(quantity.nano) < 10**30:  # from 10^21 units on Kubernetes has no suffix to print
        assert again == quantity
        assert str(again) == str(quantity)
        assert "." not in str(quantity)


@given(texts, texts, texts)
def test_sums_are_associative_and_have_zero(left: str, middle: str, right: str) -> None:
    a, b, c = (Quantity.parse(text) for text in (left, middle, right))
    assert (a + b) + c == a + (b + c)
    assert a + b == b + a
    assert a + Quantity.parse("0") == a
    assert (a + b).nano == a.nano + b.nano


@given(texts, texts)
def test_comparison_is_by_amount(left: str, right: str) -> None:
    a, b = Quantity.parse(left), Quantity.parse(right)
    assert (a < b, a <= b, a > b, a >= b) == (a.nano < b.nano, a.nano <= b.nano, a.nano > b.nano, a.nano >= b.nano)
    assert (a == b) == (a.nano == b.nano)
    assert a != b or hash(a) == hash(b)
    assert a.is_zero == (a == Quantity.parse("0"))


@given(st.text("0123456789.+-eEinumkKMGTP ", max_size=12) | st.text(max_size=8))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        quantity = Quantity.parse(text)
    except QuantitySyntaxError:
        return
    assert Quantity.parse(str(quantity)).format in QuantityFormat


@pytest.mark.parametrize(
    "text",
    [
        "9" * 100_000,
        "0" * 100_000,
        "0." + "0" * 100_000 + "1",
        "1e" + "9" * 100_000,
        "9" * 100_000 + "x",
        "." * 100_000,
    ],
)
def test_endless_texts_are_refused_at_once(text: str) -> None:
    with pytest.raises(QuantitySyntaxError, match="characters is too long"):
        Quantity.parse(text)


@pytest.mark.parametrize("suffix", ["", "m", "Ki", "Ei", "e9", "e-2000000000", "e2000000000"])
@pytest.mark.parametrize("number", ["9" * 4000, "0" * 4000 + "1", "0." + "0" * 4000 + "1", "-" + "7" * 4000])
def test_longest_texts_are_read_without_building_endless_numbers(number: str, suffix: str) -> None:
    quantity = Quantity.parse(number + suffix)
    assert len(number + suffix) <= LONGEST_TEXT
    assert len(str(quantity)) < 120
    assert quantity.is_zero is False


def test_made_quantities_print_like_written_ones() -> None:
    assert str(Quantity.of_milli(1500)) == "1500m"
    assert str(Quantity.of_bytes(1536 * 1024**2)) == "1536Mi"
    assert Quantity.of_milli(2000).as_int64() is None
    assert Quantity.of_bytes(5).as_int64() == 5


def test_quantity_is_not_a_number() -> None:
    assert Quantity.parse("5") != 5


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
