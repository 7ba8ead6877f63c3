"""Every command and every Python example of README and docs does what its page shows."""

from __future__ import annotations

import doctest
import runpy
from pathlib import Path
from types import ModuleType
from typing import Any

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
def test_three_dots_stand_for_what_is_left_out(documented: ModuleType, shown: str, output: str, fits: bool) -> None:
    assert documented.matches(shown, output) is fits


def test_a_wrong_output_is_found_and_the_right_one_is_written(documented: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ mooring replay no-such-file\nfine\n$ echo $?\n0\n```\n", encoding="utf-8")
    text, mismatches = documented.run_page(page)
    assert len(mismatches) == 1
    assert text.startswith("```console\n$ mooring replay no-such-file\nmooring: no-such-file: ")
    assert text.endswith("$ echo $?\n2\n```\n")


def test_a_yaml_block_with_a_file_name_becomes_that_file(documented: ModuleType, tmp_path: Path) -> None:
    page, file = tmp_path / "page.md", "```yaml\n# file: a.yaml\nkind: Pod\n```\n"
    page.write_text(f"{file}```console\n$ cat a.yaml\nkind: Pod\n```\n", encoding="utf-8")
    assert documented.run_page(page)[1] == []


def test_python_blocks_of_a_page_share_a_session(documented: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```python\n>>> one = 1\n```\n```python\n>>> one + 1\n3\n```\n", encoding="utf-8")
    text, mismatches = documented.run_page(page)
    assert len(mismatches) == 1
    assert text.endswith(">>> one + 1\n2\n```\n")


# The notebook of the library's page: run cell by cell, with what the page shows and the pictures.


@pytest.fixture(scope="module")
def cells() -> list[dict[str, Any]]:
    script = runpy.run_path(str(ROOT / "scripts" / "build_notebook.py"))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(ROOT)
        found: list[dict[str, Any]] = script["notebook"](script["PAGE"])["cells"]
    return found


def test_the_cells_return_what_the_page_shows(cells: list[dict[str, Any]]) -> None:
    page = (ROOT / "docs" / "how-to" / "use-the-library.md").read_text(encoding="utf-8")
    wanted = [one for one in doctest.DocTestParser().get_examples(page.replace("```\n", "\n")) if one.want]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    shown = [output["data"]["text/plain"] if "data" in output else output["evalue"] for output in outputs]
    texts = [one.exc_msg.partition(": ")[2] if one.exc_msg else one.want for one in wanted]
    assert [one.strip() for one in shown] == [one.strip() for one in texts]


def test_plan_and_node_are_pictures(cells: list[dict[str, Any]]) -> None:
    pictures = {
        cell["source"].splitlines()[-1]: output["data"]["image/svg+xml"]
        for cell in cells
        for output in cell.get("outputs", ())
        if "image/svg+xml" in output.get("data", ())
    }
    assert set(pictures) == {"planned", "of_node.kubelet.node"}
    assert all(picture.startswith("<svg") for picture in pictures.values())


def test_every_cell_has_its_own_id_and_a_count_of_its_run(cells: list[dict[str, Any]]) -> None:
    assert len({cell["id"] for cell in cells}) == len(cells)
    counts = [cell["execution_count"] for cell in cells if cell["cell_type"] == "code"]
    assert counts == list(range(1, len(counts) + 1))
