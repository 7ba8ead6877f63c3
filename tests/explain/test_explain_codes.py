"""Codes: each that is used has its page, and each page is about something that is used."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.explanations.codes import all_codes, is_code, page

SOURCE = Path(__file__).resolve().parents[2] / "src" / "mooring"
CODE = re.compile(r'"(MOOR-\d{3})"')


def used() -> set[str]:
    return {code for file in SOURCE.rglob("*.py") for code in CODE.findall(file.read_text(encoding="utf-8"))}


def test_every_code_in_use_has_a_page_and_every_page_is_in_use() -> None:
    assert used() == set(all_codes())


@pytest.mark.parametrize("code", all_codes())
def test_a_page_names_its_code_and_says_what_it_means_what_to_do_and_from_where(code: str) -> None:
    found = page(code)
    assert found.title
    assert found.text.startswith(f"# {code}: {found.title}\n\n")
    for section in ("## What it means\n", "## What to do\n", "## Source\n"):
        assert section in found.text
    assert found.text.endswith(".\n")
    named = set(re.findall(r"MOOR-\d{3}", found.text))
    assert named <= set(all_codes())


def test_codes_are_found_in_either_case() -> None:
    assert page("moor-261") == page("MOOR-261")


def test_an_unknown_code_is_bad_input_that_names_a_near_one() -> None:
    with pytest.raises(InputError, match=r"MOOR-26[0-9]"):
        page("MOOR-269")


@given(st.text(max_size=12))
def test_no_other_text_is_a_code(text: str) -> None:
    assert is_code(text) == (re.fullmatch(r"(?i)moor-[0-9]{3}", text) is not None)


def test_a_finding_without_a_code_is_still_a_finding() -> None:
    assert Finding("info", "a", "b").code == ""
