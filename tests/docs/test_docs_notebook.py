"""The notebook of the library's page: run cell by cell, with what the page shows and the pictures."""

from __future__ import annotations

import doctest
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


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
