"""Texts for people, as agreed.

The golden files are written anew by ``MOORING_GOLDEN=write pytest tests/cli/test_cli_golden.py``; look at the
difference before it is committed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rich.cells import cell_len
from tests.cli.command import GOLDEN, NODE, PODS, ROOT, mooring, typed
from tests.values import cases


@pytest.mark.parametrize(
    ("asked", "columns", "code", "name"), cases(__file__, "agreed-texts.yaml", "asked", "columns", "code", "name")
)
def test_the_text_is_the_agreed_one(
    asked: str, columns: int, code: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Printed commands repeat the paths as they were typed.
    monkeypatch.chdir(ROOT)
    answered = mooring(*(word.removeprefix(f"{ROOT}/") for word in typed(asked)), columns=columns)
    file = GOLDEN / f"{name}.txt"
    told = answered.out + "".join(f"[standard error] {line}\n" for line in answered.err.splitlines())
    if os.environ.get("MOORING_GOLDEN") == "write":
        file.write_text(told, "utf-8")
    assert told == file.read_text("utf-8")
    assert answered.code == code


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize(("least", "asked"), cases(__file__, "narrowest.yaml", "columns", "asked"))
def test_no_line_is_wider_than_the_terminal(least: int, asked: str, columns: int) -> None:
    lines = mooring(*typed(asked), columns=columns).out.splitlines()
    # The options of printed commands are not broken.
    told = (line for line in lines if not line.lstrip().startswith("-"))
    assert max(cell_len(line) for line in told) <= max(columns, least)


def test_a_file_has_room_whatever_the_terminal(tmp_path: Path) -> None:
    assert mooring("plan", *PODS, *NODE, "--to", tmp_path / "plan.txt", columns=40).out == ""
    assert (tmp_path / "plan.txt").read_text("utf-8") == mooring("plan", *PODS, *NODE, columns=100).out
