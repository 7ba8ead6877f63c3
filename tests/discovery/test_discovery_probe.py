"""Numbers are read from files as cAdvisor, and so Go, reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.gotext import GoSyntaxError
from mooring.inputs.machines.cadvisor_probe import parse_uint, scan_int, scan_uint, trim


@given(st.integers(0, 2**64 - 1))
def test_every_64_bit_number_survives_its_text(number: int) -> None:
    assert parse_uint(str(number)) == number
    assert parse_uint(f"{number:x}", base=16) == number
    assert scan_uint(f" {number} rest") == number


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_signed_number_survives_its_text(number: int) -> None:
    assert scan_int(f"{number}\n") == number
    assert scan_int(f"{number:+}K") == number


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "-1", "1_0", "0x1", "٣", "1.0", "1e3"])
def test_a_strict_number_is_digits_alone(text: str) -> None:
    with pytest.raises(GoSyntaxError, match=r"^strconv.ParseUint: parsing .*: invalid syntax$"):
        parse_uint(text)


@pytest.mark.parametrize(("text", "bits"), [("65536", 16), (str(2**64), 64), ("9" * 5000, 64)])
def test_a_number_beyond_its_width_is_out_of_range(text: str, bits: int) -> None:
    with pytest.raises(GoSyntaxError, match=r": value out of range$"):
        parse_uint(text, bits=bits)


@pytest.mark.parametrize("text", ["", "\n1", "x", "- 1", "+", str(2**63), "9" * 5000])
def test_a_scan_fails_without_a_number_in_front(text: str) -> None:
    assert scan_int(text) is None


def test_a_suffix_must_follow_the_digits_at_once() -> None:
    assert scan_uint("512K", suffix="K") == 512
    assert scan_uint("512 K", suffix="K") is None
    assert scan_uint("512M", suffix="K") is None


def test_only_what_go_calls_space_is_trimmed() -> None:
    assert trim("\u00a0\x85 \v\f\r\n7\t") == "7"
    assert trim("\x1c7") == "\x1c7"
