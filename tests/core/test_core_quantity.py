"""Quantities as Kubernetes' own library (v0.37.1) has them."""

from __future__ import annotations

import json
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mooring.engine.core.quantity import LONGEST_TEXT, Quantity, QuantityFormat, QuantitySyntaxError

INT64_MAX = 2**63 - 1

VECTORS = [
    json.loads(line)
    for line in Path(__file__).with_name("quantity_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
"""What the library says: Value(), MilliValue() (both overflow as they do in Go), AsInt64() or null, the canonical text
and the format of a text; why it refuses one; the canonical text and AsInt64() of a sum."""


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


@pytest.mark.parametrize("vector", VECTORS, ids=repr)
def test_texts_are_read_refused_and_added_like_kubernetes(vector: dict[str, Any]) -> None:
    if "refused" in vector:
        with pytest.raises(QuantitySyntaxError) as error:
            Quantity.parse(vector["text"])
        assert str(error.value) == vector["refused"]
        return
    if "left" in vector:
        quantity = Quantity.parse(vector["left"]) + Quantity.parse(vector["right"])
    else:
        quantity = Quantity.parse(vector["text"])
        assert (quantity.units, quantity.milli) == (vector["value"], vector["milli"])
        assert quantity.format.value == vector["format"]
    assert (str(quantity), quantity.as_int64()) == (vector["canonical"], vector["exact"])


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
