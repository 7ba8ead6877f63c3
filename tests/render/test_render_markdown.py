"""``-o markdown``: what a terminal shows, for a pull request; texts of foreigners are only texts in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from rich.console import Group
from rich.padding import Padding
from rich.text import Text
from tests.cli.command import EXAMPLES, NODE, PODS, mooring

from mooring.views.console import Breaking, markdown, new_table

FLEET = ("--cluster", str(EXAMPLES / "fleet" / "live.yaml"), "--config", str(EXAMPLES / "fleet" / "live-kubelet.yaml"))
MARKS = (
    "*a*",
    "_a_",
    "`a`",
    "<b>a</b>",
    "[a](b)",
    "![a](b)",
    "http://a.b",
    "www.a.b",
    "a|b",
    "a\\",
    "# a",
    "> a",
    "~~a~~",
)


def tokens(text: str) -> list[str]:
    parser = MarkdownIt("gfm-like", {"linkify": False})
    return [one.type for block in parser.parse(text) for one in (block, *(block.children or ()))]


@pytest.mark.parametrize("text", [*MARKS, "@a", "a@b.c", "&lt;"])
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
