"""Real machines: every recorded computer can be drawn, from both of its descriptions."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from rich.console import Group
from rich.padding import Padding
from rich.text import Text
from tests.cli.command import EXAMPLES, NODE, PODS, mooring
from tests.planner.recordings import some
from tests.render.pictured import terminal_text
from tests.render.sample_machines import occupied

from mooring.engine.core.errors import InputError, clean
from mooring.engine.core.machine import Machine
from mooring.inputs.machines.loader import load_machine
from mooring.views.console import Breaking, markdown, new_table
from mooring.views.svg.picture import svg_text
from mooring.views.wording import core_kind_name, owner_marks, shorten

MACHINES = Path(__file__).parents[3] / "shared" / "machines"
NAMES = sorted(path.parent.name for path in MACHINES.glob("*/*.tar.gz"))[::2] or ["none"]


def recorded(name: str) -> Machine:
    archive = MACHINES / name / f"{name}.tar.gz"
    if not archive.exists():
        pytest.skip("the recorded machines lie beside the repository, in ../shared/machines, and are not there")
    try:
        return load_machine(str(archive))
    except InputError as error:
        pytest.skip(f"not a machine: {error}")


@pytest.mark.corpus
@pytest.mark.parametrize("name", some(NAMES, 3))
def test_a_recorded_machine_is_drawn_whole_from_hardware_and_from_the_kubelets_view(name: str) -> None:
    machine = recorded(name)
    for description in (machine, replace(machine, hardware=None)):
        view = occupied(description)
        if description.hardware is not None:
            online = {cpu.cpu for box in view.boxes if not box.is_offline() for cpu in box.cpus()}
            assert online == set(description.hardware.online)
            assert {node.id for node in view.numa} >= {node.id for node in description.hardware.nodes}
        assert len({cpu.cpu for cpu in view.cpus()}) == len(list(view.cpus()))
        assert max(len(line) for line in terminal_text(view, 100).splitlines()) <= 100
        ET.fromstring(svg_text(view))  # noqa: S314 - our own text, and being well-formed is what is tested


# ``-o markdown``: what a terminal shows, for a pull request; texts of foreigners are only texts in it.


FLEET = ("--cluster", str(EXAMPLES / "fleet" / "live.yaml"), "--config", str(EXAMPLES / "fleet" / "live-kubelet.yaml"))
MARKS = ("*a*", "_a_", "`a`", "<b>a</b>", "[a](b)", "![a](b)", "http://a.b", "www.a.b", "a|b", "a\\", "# a", "> a")


def tokens(text: str) -> list[str]:
    parser = MarkdownIt("gfm-like", {"linkify": False})
    return [one.type for block in parser.parse(text) for one in (block, *(block.children or ()))]


@pytest.mark.parametrize("text", [*MARKS, "~~a~~", "@a", "a@b.c", "&lt;"])
def test_a_foreign_text_is_only_text(text: str) -> None:
    table = new_table("name", "more")
    table.add_row(Breaking(text), text)
    found = markdown(Group(Text(text), Padding(table, 1)))
    inside = set(tokens(found)) - {"paragraph_open", "paragraph_close", "inline", "text", "text_special", "html_inline"}
    assert all(one.startswith(("table", "thead", "tbody", "tr", "th", "td")) for one in inside), inside
    comments = found.count("@<!-- -->")
    assert (found.count("@"), tokens(found).count("html_inline")) == (comments, comments)
    assert "://" not in found
    assert len([line for line in found.splitlines() if line.startswith("|")]) == 3


def test_what_is_drawn_is_a_block_that_its_own_signs_do_not_end() -> None:
    assert markdown(Text("a ``` b\nc")) == "````\na ``` b\nc\n````"


@pytest.mark.parametrize(
    ("command", "headings"),
    [
        (("plan", *PODS, *NODE), ["pod", "NUMA"]),
        (("compare", *PODS, *NODE, "--vary", "topology-policy"), [""]),
        (("upgrade", "1.37", "--kubelet-version", "1.33", *PODS, *NODE), ["pod"]),
        (("fleet", "drain", "worker-1", *FLEET), ["pod"]),
        (("fleet", "upgrade", "1.37", *FLEET), ["turn"]),
    ],
)
def test_tables_are_tables(command: tuple[str, ...], headings: list[str], tmp_path: Path) -> None:
    answered = mooring(*command, "-o", "markdown")
    rows = [line for line in answered.out.splitlines() if line.startswith("|")]
    heads = [rows[place - 1] for place, row in enumerate(rows) if set(row) <= set("|-: ")]
    assert [head.split("|")[1].strip() for head in heads][: len(headings)] == headings
    assert mooring(*command, "-o", "markdown", "--to", tmp_path / "a.md", columns=40).code == answered.code
    assert (tmp_path / "a.md").read_text("utf-8") == answered.out


# Words, marks and cutting.


@given(st.text())
def test_cleaned_text_is_one_printable_line_and_stays_as_it_is(text: str) -> None:
    once = clean(text)
    assert once.isprintable()
    assert clean(once) == once


@given(st.text(), st.integers(0, 30))
def test_shortened_text_fits_and_is_left_alone_when_it_fits(text: str, room: int) -> None:
    assert len(shorten(text, room)) <= max(room, 0)
    assert shorten(text, len(text)) == text


@given(st.integers(0, 5000))
def test_marks_are_unique_equally_long_and_never_look_like_figures(count: int) -> None:
    marks = owner_marks(count)
    assert len(set(marks)) == count
    assert len({len(mark) for mark in marks}) <= 1
    assert not set("".join(marks)) & set("lIOo01")


def test_three_kinds_of_cores_are_ranked() -> None:
    names = ["core kind 0, slowest", "core kind 1", "core kind 2, fastest"]
    assert [core_kind_name(rank, [0, 1, 2]) for rank in range(3)] == names
