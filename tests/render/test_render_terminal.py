"""The terminal: golden pictures, no colour where none is wanted, widths kept."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from tests.render.pictured import terminal_text
from tests.render.sample_machines import SampleShape, hybrid, occupied, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.console import write
from mooring.views.terminal import picture
from mooring.views.view import NodeView

GOLDEN = Path(__file__).parent / "golden"


def troubled() -> NodeView:
    """Return a picture with every use of CPUs in it."""
    machine = hybrid("troubled")
    assert machine.hardware is not None
    hardware = replace(machine.hardware, cpus=machine.hardware.cpus[:18], offline=CPUSet.parse("18-21"))
    owners = [
        CPUOwner("ns/first/init", "u1", CPUSet.parse("4-7")),
        CPUOwner("ns/first/app", "u1", CPUSet.parse("4-9")),
        CPUOwner("ns/second", "u2", CPUSet.parse("9-11,18"), memory_nodes=(0,)),
    ]
    pools = Pools(CPUSet.parse("0-1"), CPUSet.parse("0-2,12-15"), CPUSet.parse("12-15"))
    return build_view(replace(machine, hardware=hardware), owners=owners, pools=pools)


PICTURES: dict[str, tuple[Callable[[], NodeView], int]] = {
    "hybrid-80": (lambda: occupied(hybrid()), 80),
    "memory-only-100": (lambda: occupied(regular(SampleShape(sockets=2, nodes=2, caches=2, memory_only=1))), 100),
    "memory-only-60": (lambda: occupied(regular(SampleShape(sockets=2, nodes=2, caches=2, memory_only=1))), 60),
    "marks-alone-80": (lambda: occupied(regular(SampleShape(sockets=2, caches=8, cores=16, node_memory=0))), 80),
    "troubled-90": (troubled, 90),
}


@pytest.mark.parametrize("name", PICTURES)
def test_the_picture_is_the_agreed_one(name: str) -> None:
    make, width = PICTURES[name]
    assert terminal_text(make(), width) == (GOLDEN / f"{name}.txt").read_text("utf-8")


@pytest.mark.parametrize("cpus", [8, 64, 256, 512])
@pytest.mark.parametrize("width", [60, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(cpus: int, width: int) -> None:
    shape = SampleShape(sockets=2, nodes=2, cores=cpus // 8)
    assert max(cell_len(line) for line in terminal_text(occupied(regular(shape)), width).splitlines()) <= width


def test_512_cpus_fit_on_two_screens_of_100_columns() -> None:
    lines = terminal_text(occupied(regular(SampleShape(sockets=2, caches=16, cores=8))), 100).splitlines()
    assert len([line for line in lines if line[:1] in "┏┃┗"]) <= 50


def printed(**settings: object) -> str:
    console = Console(file=StringIO(), width=100, force_terminal=True, **settings)  # type: ignore[arg-type]
    write(console, picture(occupied(hybrid()), console.width))
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_colours_are_used_where_the_terminal_has_them() -> None:
    assert "\x1b[" in printed(color_system="truecolor")


def test_no_color_means_no_escape_code_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(color_system="truecolor")
    assert "\x1b" not in text
    assert text == terminal_text(occupied(hybrid()), 100)


def test_a_file_gets_no_escape_codes() -> None:
    console = Console(file=StringIO(), width=100)
    write(console, picture(occupied(hybrid()), console.width))
    assert isinstance(console.file, StringIO)
    assert "\x1b" not in console.file.getvalue()


def test_colour_adds_nothing_that_monochrome_lacks() -> None:
    coloured = re.sub(r"\x1b\[[0-9;]*m", "", printed(color_system="truecolor"))
    assert [line.rstrip() for line in coloured.splitlines()] == terminal_text(occupied(hybrid()), 100).splitlines()


def test_an_ascii_terminal_gets_ascii() -> None:
    raw = BytesIO()
    file = TextIOWrapper(raw, "ascii", write_through=True)
    write(Console(file=file, width=80), picture(occupied(hybrid()), 80))
    assert raw.getvalue().isascii()
    assert b"?" not in raw.getvalue()


def test_names_cannot_command_the_terminal() -> None:
    view = build_view(
        regular(SampleShape(), "m\x1b]0;x\x07"),
        owners=[CPUOwner("[bold]n\x1b[2J\r", "u", CPUSet.parse("1"))],
        subtitle="\x9b31m",
    )
    text = terminal_text(view)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert "[bold]n" in text
