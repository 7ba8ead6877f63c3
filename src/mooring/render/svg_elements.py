"""The few SVG elements that the pictures are made of, as text.

Everything that comes from outside passes :func:`escape`. Widths of texts are estimated, because a file cannot know
the reader's fonts: the estimate is that of DejaVu Sans, the widest of the usual ones.
"""

from __future__ import annotations

from html import escape as html_escape
from unicodedata import east_asian_width

from mooring.render.wording import clean, shorten

GAP = 8
"""Pixels between a name and what follows it on the same line."""

MONO = 0.61
"""Width of a character of the monospaced fonts, in units of the font size."""


def escape(text: str) -> str:
    """Return ``text`` for use in content and in attributes; what XML 1.0 forbids is replaced.

    >>> escape('<a & "b">')
    '&lt;a &amp; &quot;b&quot;&gt;'
    """
    return html_escape(clean(text), quote=True)


def tooltip(text: str) -> str:
    """Return the element that browsers show when the pointer rests on its parent."""
    return f"<title>{escape(text)}</title>"


def text(x: float, y: float, content: str, style: str, *, anchor: str = "", more: str = "") -> str:
    """Return a line of text whose baseline starts at (x, y), or ends or is centred there by ``anchor``.

    ``more`` follows after :data:`GAP` in the style ``quiet``.
    """
    where = f' text-anchor="{anchor}"' if anchor else ""
    rest = f'<tspan class="quiet" dx="{GAP}">{escape(more)}</tspan>' if more else ""
    return f'<text class="{style}" x="{number(x)}" y="{number(y)}"{where}>{escape(content)}{rest}</text>'


def rect(x: float, y: float, width: float, height: float, style: str, *, round_: float = 0) -> str:
    """Return a rectangle, with corners of radius ``round_``."""
    corner = f' rx="{number(round_)}"' if round_ else ""
    size = f'width="{number(width)}" height="{number(height)}"'
    return f'<rect class="{style}" x="{number(x)}" y="{number(y)}" {size}{corner}/>'


def group(*elements: str, title: str = "") -> str:
    """Return elements that belong together, with a tooltip."""
    return f"<g>{tooltip(title) if title else ''}{''.join(elements)}</g>"


def number(value: float) -> str:
    """Return a coordinate without needless digits.

    >>> number(3.0), number(2.5)
    ('3', '2.5')
    """
    return f"{value:.1f}".removesuffix(".0")


_WIDTHS = {
    **dict.fromkeys("ijl|'.,:;·", 0.32),
    **dict.fromkeys("ft()[]/ -r!", 0.4),
    **dict.fromkeys("mwMW…@", 0.98),
    **dict.fromkeys("ABCDEFGHKNOPQRSTUVXYZ&–", 0.75),
}
_USUAL_WIDTH = 0.64


def text_width(content: str, font_size: float) -> float:
    """Return the estimated width of a line of sans-serif text, rather too much than too little."""
    widths = (1 if east_asian_width(char) in "WF" else _WIDTHS.get(char, _USUAL_WIDTH) for char in content)
    return sum(widths) * font_size


def fitting(content: str, room: float, font_size: float) -> str:
    """Return ``content``, cut in the middle where it is wider than ``room``; empty when not even three signs fit."""
    if text_width(content, font_size) <= room:
        return content
    count = len(content) - 1
    while count >= 3 and text_width(shorten(content, count), font_size) > room:
        count -= 1
    return shorten(content, count) if count >= 3 else ""
