"""The colours of the page: the palette of the pictures, as CSS variables for light and dark.

The reader's system decides which of the two is shown, until the reader does.
"""

from __future__ import annotations

from dataclasses import fields
from importlib.resources import files

from mooring.render.palette import OWNER_COLOURS, mixed, text_on
from mooring.render.svg_elements import DARK, FONT, LIGHT, MONO_FONT, Ground, colour_rules, common_rules

HEATS = 5
"""Shades of the distance matrix; the first is the ground of the page."""

_BLUE, _SKY = OWNER_COLOURS[0], OWNER_COLOURS[4]


def style_text() -> str:
    """Return everything that stands in the page's style element."""
    dark = _variables(DARK, _SKY)
    names = Ground(**{field.name: f"var(--{field.name})" for field in fields(Ground)})
    own = (files("mooring.render.html") / "assets" / "report.css").read_text(encoding="utf-8")
    return "".join(
        (
            f":root{{color-scheme:light;--font:{FONT};--mono:{MONO_FONT};{_variables(LIGHT, _BLUE)}}}\n",
            f"@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n",
            f":root[data-theme=dark]{{color-scheme:dark;{dark}}}\n",
            f"{common_rules()}\n{colour_rules(names)}\n",
            *(
                f".heat-{shade}{{background:var(--heat-{shade});color:var(--on-heat-{shade})}}"
                for shade in range(HEATS)
            ),
            f"\n{own}",
        )
    )


def _variables(ground: Ground, accent: str) -> str:
    told = [f"--{field.name}:{getattr(ground, field.name)}" for field in fields(ground)]
    told.append(f"--accent:{accent}")
    told.append(f"--on-accent:{text_on(accent)}")
    for shade in range(HEATS):
        colour = mixed(ground.page, accent, shade / (HEATS - 1) * 0.85)
        told += [f"--heat-{shade}:{colour}", f"--on-heat-{shade}:{text_on(colour)}"]
    return ";".join(told)
