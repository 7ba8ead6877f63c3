"""Numbers are read from files as cAdvisor, and so Go, reads them."""

from __future__ import annotations

from mooring.inputs.machines.cadvisor_probe import scan_uint, trim


def test_a_suffix_must_follow_the_digits_at_once() -> None:
    assert scan_uint("512K", suffix="K") == 512
    assert scan_uint("512 K", suffix="K") is None
    assert scan_uint("512M", suffix="K") is None


def test_only_what_go_calls_space_is_trimmed() -> None:
    assert trim("\u00a0\x85 \v\f\r\n7\t") == "7"
    assert trim("\x1c7") == "\x1c7"
