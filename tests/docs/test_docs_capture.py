"""The commands that capture a node give the machine that the node is."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from mooring.command.main import run
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.engine.releases.rules import RULES
from mooring.inputs.machines.loader import load_machine

PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "ask-what-a-node-will-do.md"
MOST_LOOKS = 20


@pytest.mark.skipif(not Path("/sys/devices/system/cpu").is_dir(), reason="this computer has no sysfs to capture")
def test_the_documented_capture_of_this_computer_is_this_computer(tmp_path: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"^## Capture the machine$.*?^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    live: list[object] = []
    # The memory of a virtual machine may change at any moment: what counts is a capture between two equal looks.
    while len(live) < 2 or live[-1] != live[-2]:
        assert len(live) < MOST_LOOKS, "this computer changes all the time"
        live.append(described("live"))
        subprocess.run(block[1], shell=True, cwd=tmp_path, check=True)  # noqa: S602 - the page's own commands
        live.append(described("live"))
    assert described(str(tmp_path / "node.tar.gz")) == live[-1]


def described(machine: str) -> object:
    found = load_machine(machine)
    return found.info.topology, found.info.memory_capacity, found.hardware


# The committed pictures are what the commands draw; ``make pictures`` draws them again.


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


# The page of the kubelet's releases is the data by which the engine decides (docs/reference/kubelet-releases.md).


def test_every_rule_and_every_release_is_on_the_page(releases_page: ModuleType) -> None:
    page = releases_page.PAGE.read_text(encoding="utf-8")
    for rule in RULES:
        _, _, of_span = page.partition(f"\n**{rule.span}**\n")
        assert f"* `{rule.name}`: " in of_span.partition("\n**")[0], rule.name
    assert all(release in page for release in RELEASE_NAMES)


def test_the_tables_of_the_page_are_those_of_the_data_and_change_with_it(
    releases_page: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = releases_page.PAGE.read_text(encoding="utf-8")
    assert releases_page.with_tables(page) == page
    monkeypatch.setattr(releases_page, "RULES", (replace(RULES[0], says="does something else"), *RULES[1:]))
    assert releases_page.with_tables(page) != page


def test_a_page_without_a_place_for_a_table_is_refused(releases_page: ModuleType) -> None:
    with pytest.raises(SystemExit, match="no place for patches"):
        releases_page.with_tables("# Other releases\n")
