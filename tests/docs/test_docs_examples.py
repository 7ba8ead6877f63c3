"""Every command and every Python example of README and docs does what its page shows."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md"))
    if "```console" in page.read_text(encoding="utf-8") or "```python" in page.read_text(encoding="utf-8")
)


@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page_do_what_it_shows(documented: ModuleType, page: str) -> None:
    _, mismatches = documented.run_page(ROOT / page)
    assert not mismatches, "\n".join(map(str, mismatches))


@pytest.mark.parametrize(
    ("shown", "output", "fits"),
    [
        ("one\n", "one\n", True),
        ("one\n", "two\n", False),
        ("one ... four\n", "one two three four\n", True),
        ("one ... four\n", "one\nfour\n", False),
        ("one\n...\nfour\n", "one\ntwo\nthree\nfour\n", True),
        ("one\n...\n", "one\n", True),
        ("...\n", "", True),
        ("a.c\n", "abc\n", False),
    ],
)
def test_three_dots_stand_for_what_a_page_leaves_out(
    documented: ModuleType, shown: str, output: str, fits: bool
) -> None:
    assert documented.matches(shown, output) is fits


def test_a_wrong_output_is_found_and_the_right_one_is_written(documented: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ mooring replay no-such-file\nfine\n$ echo $?\n0\n```\n", encoding="utf-8")
    text, mismatches = documented.run_page(page)
    assert len(mismatches) == 1
    assert text.startswith("```console\n$ mooring replay no-such-file\nmooring: no-such-file: ")
    assert text.endswith("$ echo $?\n2\n```\n")


def test_a_yaml_block_with_a_file_name_becomes_that_file(documented: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```yaml\n# file: a.yaml\nkind: Pod\n```\n```console\n$ cat a.yaml\nkind: Pod\n```\n", encoding="utf-8"
    )
    _, mismatches = documented.run_page(page)
    assert mismatches == []


def test_python_blocks_of_a_page_share_a_session(documented: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> one = 1\n```\n```python\n>>> one + 1\n3\n```\n", encoding="utf-8")
    text, mismatches = documented.run_page(page)
    assert len(mismatches) == 1
    assert text.endswith(">>> one + 1\n2\n```\n")
