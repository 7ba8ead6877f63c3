"""Every test that a page names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = re.compile(r"`(test_[a-z0-9_]+)`")
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if NAMED.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_tests_that_a_page_names_exist(page: Path) -> None:
    defined = {
        name
        for file in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)\(", file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert set(NAMED.findall(page.read_text(encoding="utf-8"))) - defined == set()


def test_every_line_of_the_threat_model_names_a_test() -> None:
    page = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
    text = page.partition("## Damaged input")[0]
    rows = [line for line in text.splitlines() if line.startswith("* ")]
    assert rows
    assert [row for row in rows if not NAMED.search(row)] == []
