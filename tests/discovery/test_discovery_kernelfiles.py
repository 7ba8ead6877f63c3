"""Numbers, lists and masks of the kernel, clean and broken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values import cases

from mooring.engine.core.bits import list_text, mask_of
from mooring.inputs.machines.archive import ArchiveTree
from mooring.inputs.machines.kernelfiles import (
    HIGHEST_ID,
    c_number,
    parse_list,
    parse_mask,
    read_int,
    read_uint,
)

CPU_SETS = st.sets(st.integers(0, 4200), max_size=300).map(mask_of)


def kernel_mask(mask: int) -> str:
    """Print a mask as the kernel does."""
    digits = f"{mask:0{max(mask.bit_length() + 31, 32) // 32 * 8}x}"
    return ",".join(digits[i : i + 8] for i in range(0, len(digits), 8)) + "\n"


@given(CPU_SETS)
def test_a_mask_printed_by_the_kernel_is_read_back(mask: int) -> None:
    assert parse_mask(kernel_mask(mask)) == mask


@given(CPU_SETS.filter(bool))
def test_a_list_printed_by_the_kernel_is_read_back(mask: int) -> None:
    assert parse_list(list_text(mask) + "\n") == mask


@pytest.mark.parametrize(("cpus", "text"), cases(__file__, "masks.yaml", "cpus", "text"))
def test_a_mask_that_no_kernel_prints_is_read_as_hwloc_reads_it(cpus: str, text: str) -> None:
    mask = parse_mask(text)
    assert mask is not None
    assert list_text(mask) == cpus


@pytest.mark.parametrize(("cpus", "text"), cases(__file__, "lists.yaml", "cpus", "text"))
def test_a_list_is_read_as_hwloc_reads_it(cpus: str, text: str) -> None:
    mask = parse_list(text)
    assert mask is not None
    assert list_text(mask) == cpus


@pytest.mark.parametrize("text", ["-1", "0-99999999", f"{HIGHEST_ID + 1}", "9" * 5000, "0x" + "f" * 5000])
def test_a_list_with_impossible_ids_is_none(text: str) -> None:
    assert parse_list(text) is None


def test_a_mask_with_impossible_ids_is_none() -> None:
    assert parse_mask("00000001" + ",00000000" * (HIGHEST_ID // 32 + 1)) is None


@pytest.mark.parametrize(
    ("text", "signed", "unsigned"),
    [
        ("7\n", 7, 7),
        (" -1\n", -1, 2**32 - 1),
        ("4294967295", -1, 2**32 - 1),
        ("99999999991", 1410065407, 1410065407),  # ten characters count
        ("\n", 0, 0),
        ("none", 0, 0),
        ("12K", 12, 12),
        ("", None, None),
    ],
)
def test_a_number_is_read_as_c_reads_it(text: str, signed: int | None, unsigned: int | None) -> None:
    tree = ArchiveTree("one file", {"f": text.encode()})
    assert read_int(tree, "f") == signed
    assert read_uint(tree, "f") == unsigned
    assert read_int(tree, "missing") is None


@given(st.text(max_size=60), st.integers(0, 70))
def test_any_text_gives_a_value_or_none(text: str, position: int) -> None:
    for parse in (parse_mask, parse_list):
        mask = parse(text)
        assert mask is None or 0 <= mask < 1 << (HIGHEST_ID + 64)
    value, end = c_number(text, position)
    assert 0 <= value < 2**64
    assert end >= position
