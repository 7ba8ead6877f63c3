"""The committed pictures are what the commands draw; ``make pictures`` draws them again."""

from __future__ import annotations

import shlex
from pathlib import Path
from types import ModuleType

import pytest

from mooring.command.main import run

ROOT = Path(__file__).resolve().parents[2]


def test_committed_pictures_are_what_the_commands_draw(
    draw_pictures: ModuleType, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    different = []
    for name, command in draw_pictures.PICTURES.items():
        assert run(shlex.split(command)[1:]) in draw_pictures.ANSWERED
        if (draw_pictures.FOLDER / name).read_text(encoding="utf-8") != capsys.readouterr().out:
            different.append(name)
    assert not different, "make pictures draws them again; look at them before you keep them"


def test_every_picture_has_a_command_and_a_page(draw_pictures: ModuleType) -> None:
    committed = {picture.name for picture in draw_pictures.FOLDER.iterdir()}
    assert committed == set(draw_pictures.PICTURES)
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *ROOT.glob("docs/**/*.md")))
    assert [name for name in sorted(committed) if f"images/{name}" not in pages] == []
