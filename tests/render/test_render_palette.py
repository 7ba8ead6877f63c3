"""Colours that everybody can tell apart and read on."""

from __future__ import annotations

from io import StringIO
from itertools import combinations

import pytest
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.style import Style
from rich.text import Text
from tests.render.sample_machines import SampleShape, regular

from mooring.engine.core.cpuset import CPUSet
from mooring.views.build import CPUOwner, Pools, build_view
from mooring.views.console import STYLES, write
from mooring.views.svg.elements import DARK, HATCH_OPACITY, HATCHES, LIGHT, Ground
from mooring.views.terminal import picture
from mooring.views.view import OWNER_COLOURS, RESERVED_FILL, SIXTEEN, SIXTEEN_RESERVED, CPUUse, contrast, mixed, text_on

# Full loss of one cone class, as matrices on linear RGB: Machado, Oliveira and Fernandes, 2009, severity 1.0.
DEFICIENCIES = {
    "none": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deuteranopia": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.01182, 0.04294, 0.968881)),
    "tritanopia": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.3039)),
}


def seen(colour: str, matrix: tuple[tuple[float, float, float], ...]) -> tuple[float, ...]:
    """Return the CIE Lab coordinates of a colour as someone with the deficiency sees it."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    red, green, blue = (
        min(1.0, max(0.0, sum(weight * part for weight, part in zip(row, linear, strict=True)))) for row in matrix
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    y = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    fx, fy, fz = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return (116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz))


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
def test_the_first_seven_owners_differ_for_everybody(deficiency: str) -> None:
    matrix = DEFICIENCIES[deficiency]
    for one, two in combinations(OWNER_COLOURS[:7], 2):
        distance = sum((a - b) ** 2 for a, b in zip(seen(one, matrix), seen(two, matrix), strict=True)) ** 0.5
        assert distance > 8, (one, two, distance)


@pytest.mark.parametrize("colour", [*OWNER_COLOURS, RESERVED_FILL])
def test_text_on_every_fill_is_readable(colour: str) -> None:
    assert contrast(text_on(colour), colour) >= 4.5


@pytest.mark.parametrize("colour", OWNER_COLOURS)
def test_text_stays_readable_on_hatching(colour: str) -> None:
    kind = "dark" if text_on(colour) == "#ffffff" else "light"
    assert contrast(text_on(colour), mixed(colour, HATCHES[kind], HATCH_OPACITY)) >= 4.5


@pytest.mark.parametrize("ground", [LIGHT, DARK], ids=["light", "dark"])
def test_text_of_the_svg_is_readable_on_every_ground_it_stands_on(ground: Ground) -> None:
    for paper in (ground.page, ground.socket, ground.node):
        assert contrast(ground.ink, paper) >= 7
        assert contrast(ground.quiet, paper) >= 4.5
    for paper in (ground.grey, ground.stripe):
        assert contrast(ground.ink, paper) >= 4.5


@pytest.mark.parametrize("ground", [LIGHT, DARK], ids=["light", "dark"])
def test_borders_of_cells_can_be_seen(ground: Ground) -> None:
    for paper in (ground.page, ground.socket, ground.node):
        assert contrast(ground.edge, paper) >= 3


def test_every_use_has_a_style_in_the_terminal() -> None:
    assert {use.value.replace(" ", "-") for use in CPUUse} - {"exclusive"} <= STYLES.keys()


# The 16 colours by their usual numbers: of xterm (its defaults), of VGA and the Linux console, and of Windows' console.
TERMINALS = {
    "xterm": "000 cd0000 00cd00 cdcd00 0000ee cd00cd 00cdcd e5e5e5 7f7f7f f00 0f0 ff0 5c5cff f0f 0ff fff",
    "VGA": "000 a00 0a0 a50 00a a0a 0aa aaa 555 f55 5f5 ff5 55f f5f 5ff fff",
    "Windows": "0c0c0c c50f1f 13a10e c19c00 0037da 881798 3a96dd ccc "
    "767676 e74856 16c60c f9f1a5 3b78ff b4009e 61d6d6 f2f2f2",
}


@pytest.mark.parametrize("terminal", TERMINALS)
def test_sixteen_colours_are_readable_on_every_terminal(terminal: str) -> None:
    doubled = (one if len(one) == 6 else "".join(sign * 2 for sign in one) for one in TERMINALS[terminal].split())
    colours = [f"#{colour}" for colour in doubled]
    pairs = [*SIXTEEN, SIXTEEN_RESERVED]
    assert len(set(pairs)) == len(pairs)
    for text, fill in pairs:
        numbers = [Color.parse(name).number or 0 for name in (text, fill)]
        assert contrast(*(colours[number] for number in numbers)) >= 4.5, (text, fill)


def test_a_terminal_of_sixteen_colours_gets_these_and_every_owner_its_own_letter() -> None:
    held = [CPUOwner(f"ns/pod-{number}/c", f"u{number}", CPUSet.from_ids([number])) for number in range(1, 24)]
    view = build_view(regular(SampleShape(cores=16)), owners=held, pools=Pools(CPUSet.parse("0,16")))
    console = Console(
        file=StringIO(), width=100, force_terminal=True, color_system="standard", legacy_windows=False, no_color=False
    )
    with console.capture() as capture:
        write(console, picture(view, 100))
    shown = Text.from_ansi(capture.get())
    allowed = {tuple(Color.parse(name).number for name in pair) for pair in (*SIXTEEN, SIXTEEN_RESERVED)}
    pairs = {
        (style.color.number, style.bgcolor.number)
        for span in shown.spans
        if isinstance(style := span.style, Style) and style.color is not None and style.bgcolor is not None
    }
    assert pairs == allowed
    assert len({owner.mark for owner in view.owners}) == 23
    assert all(f" {owner.mark} " in shown.plain for owner in view.owners)


@pytest.mark.parametrize("colour", [*OWNER_COLOURS, RESERVED_FILL])
def test_256_colours_are_readable_too(colour: str) -> None:
    few = [Color.parse(name).downgrade(ColorSystem.EIGHT_BIT) for name in (text_on(colour), colour)]
    assert contrast(*(one.get_truecolor().hex for one in few)) >= 4.5
