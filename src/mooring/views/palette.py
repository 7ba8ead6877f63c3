"""Colours and names of styles, readable for everyone.

Owners get the colours of Okabe and Ito (Color Universal Design, 2008), which people with any common colour vision
deficiency can tell apart, and after those the same hues lightened. Colour is never alone: every owner has a letter
and every other use a sign and, in the SVG, a pattern. Text on a colour is black or white, whichever has the higher
contrast (WCAG 2 relative _luminance).
"""

from __future__ import annotations

from collections.abc import Sequence

from mooring.views.devices import DeviceView
from mooring.views.view import CPUUse, CPUView, OwnerView

_OKABE_ITO = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442")


def _luminance(colour: str) -> float:
    """Return the relative _luminance of a ``#rrggbb`` colour, 0 to 1 (WCAG 2.2, definition of relative _luminance)."""
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2, definition of contrast ratio).

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def text_on(colour: str) -> str:
    """Return black or white, whichever reads better on ``colour``.

    >>> text_on("#f0e442"), text_on("#0072b2")
    ('#000000', '#ffffff')
    """
    return max("#000000", "#ffffff", key=lambda text: contrast(text, colour))


def mixed(colour: str, other: str, share: float) -> str:
    """Return ``colour`` with ``share`` (0 to 1) of ``other`` mixed in.

    >>> mixed("#000000", "#ffffff", 0.5)
    '#808080'
    """
    pairs = [(int(colour[start : start + 2], 16), int(other[start : start + 2], 16)) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(one + (two - one) * share):02x}" for one, two in pairs)


OWNER_COLOURS = _OKABE_ITO + tuple(mixed(colour, "#ffffff", 0.55) for colour in _OKABE_ITO)
"""Fill colours of owners; an owner's colour index counts round them."""

RESERVED_FILL = "#6e7781"
"""Fill of reserved CPUs in terminals: a grey that no owner has, on light and dark ground alike."""


SIXTEEN: Sequence[tuple[str, str]] = (
    ("bright_white", "blue"),
    ("black", "green"),
    ("bright_white", "magenta"),
    ("black", "cyan"),
    ("bright_white", "red"),
    ("black", "bright_yellow"),
    ("black", "bright_cyan"),
)
"""Text and fill of owners on a terminal of 16 colours, by its names of colours; an owner's colour index counts round
them. They are readable with the colours of xterm, VGA and Windows; fills that one of these makes too dark or too light
are left out."""

SIXTEEN_RESERVED = ("black", "white")
"""Text and fill of reserved CPUs there."""


def owner_style(owner: OwnerView) -> str:
    """Return the style name of an owner, ``exclusive-n``."""
    return f"exclusive-{owner.colour % len(OWNER_COLOURS)}"


def cpu_style(cpu: CPUView, owners: tuple[OwnerView, ...]) -> str:
    """Return the style name of a CPU: ``exclusive-n`` or the name of its use."""
    if cpu.owner is not None and cpu.use is CPUUse.EXCLUSIVE:
        return owner_style(owners[cpu.owner])
    return use_style(cpu.use)


def device_style(device: DeviceView, owners: Sequence[OwnerView]) -> str:
    """Return the style name of a device: that of its owner, or the use of CPUs that its state is most like."""
    if not device.offered:
        return use_style(CPUUse.LEFT_OUT)
    if not device.owner:
        return use_style(CPUUse.FREE if device.healthy else CPUUse.OFFLINE)
    own = next((owner_style(owner) for owner in owners if owner.label == device.owner), use_style(CPUUse.SHARED))
    return own if device.healthy else use_style(CPUUse.BROKEN)


def use_style(use: CPUUse) -> str:
    """Return the style name of a use: ``reserved``, ``shared``, ``free``, ``left-out``, ``offline``, ``contested``."""
    return use.value.replace(" ", "-")
