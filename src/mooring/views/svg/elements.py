"""The vocabulary of every SVG: elements, sizes, and the style sheet for light and dark.

Everything that comes from outside passes :func:`escape`. Widths of texts are estimated, because a file cannot know
the reader's fonts: the estimate is that of DejaVu Sans, the widest of the usual ones.
Rules are written out for both, without CSS variables, because converters other than browsers do not know those.
Every rule is bound to the class of the root element, so that several pictures fit in one HTML page.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from html import escape as html_escape
from unicodedata import east_asian_width

from mooring.engine.core.errors import clean
from mooring.views.view import OWNER_COLOURS, text_on
from mooring.views.wording import shorten

GAP = 8
"""Pixels between a name and what follows it on the same line."""

CELL_PAD = 4
"""Pixels between the border of a cell and its texts."""

BOLD = 1.1
"""By how much bold text is wider than the estimate."""

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


def turned(element: str, degrees: float, x: float, y: float) -> str:
    """Return an element turned clockwise around (x, y)."""
    return f'<g transform="rotate({number(degrees)} {number(x)} {number(y)})">{element}</g>'


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
    return sum(map(_sign_width, content)) * font_size


@lru_cache(maxsize=1024)
def _sign_width(char: str) -> float:
    return 1 if east_asian_width(char) in "WF" else _WIDTHS.get(char, _USUAL_WIDTH)


def fitting(content: str, room: float, font_size: float) -> str:
    """Return ``content``, cut in the middle where it is wider than ``room``; empty when not even three signs fit."""
    if text_width(content, font_size) <= room:
        return content
    count = len(content) - 1
    while count >= 3 and text_width(shorten(content, count), font_size) > room:
        count -= 1
    return shorten(content, count) if count >= 3 else ""


def fitting_form(forms: Sequence[str], room: float, font_size: float) -> str:
    """Return the first of ``forms``, longest first, that fits into ``room``; empty when none does."""
    return next((form for form in forms if text_width(form, font_size) <= room), "")


FONT = 'system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,"DejaVu Sans",sans-serif'
MONO_FONT = 'ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono","Liberation Mono",monospace'

TITLE_SIZE = 20
SOCKET_SIZE = 14
NODE_SIZE = 13
TEXT_SIZE = 12
SMALL_SIZE = 11
"""Font sizes in pixels: machine, socket, NUMA node, running text, and everything at the cells."""


LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "ink": "#1f2328",
    "quiet": "#59636e",
    "socket": "#f6f8fa",
    "node": "#ffffff",
    "line": "#afb8c1",
    "edge": "#818b98",
    "grey": "#d8dee4",
    "stripe": "#afb8c1",
}
"""One colour scheme: less important text is quiet, lines are the borders of boxes and edges those of cells, reserved
cells are grey, and stripes are the lines and dots of patterns."""
DARK: Mapping[str, str] = {
    "page": "#0d1117",
    "ink": "#e6edf3",
    "quiet": "#9aa4af",
    "socket": "#161b22",
    "node": "#0d1117",
    "line": "#444c56",
    "edge": "#6e7681",
    "grey": "#373e47",
    "stripe": "#57606a",
}


HATCHES = {"light": "#ffffff", "dark": "#000000"}
"""Kinds of hatching -> colour of the lines, which is the one that text on the ground does not have."""


HATCH_OPACITY = 0.5


def style_sheet() -> str:
    """Return the style element: common rules, light colours, dark colours."""
    dark = colour_rules(DARK)
    return f"<style>{common_rules()}{colour_rules(LIGHT)}@media (prefers-color-scheme:dark){{{dark}}}</style>"


def common_rules() -> str:
    """Return the rules that hold on every ground: fonts, sizes, and the colours of owners with the text on them."""
    common = [
        f"text{{font-family:{FONT}}}",
        f".cpu,.mark,.device-name{{font-family:{MONO_FONT};font-size:{SMALL_SIZE}px}}",
        ".mark,.strong{font-weight:700}",
        f".name{{font-size:{TITLE_SIZE}px;font-weight:700}}",
        f".socket-title{{font-size:{SOCKET_SIZE}px;font-weight:700}}",
        f".node-title{{font-size:{NODE_SIZE}px;font-weight:700}}",
        f".plain,.quiet,.strong{{font-size:{TEXT_SIZE}px}}",
        ".quiet{font-weight:400}",
        f".small{{font-size:{SMALL_SIZE}px}}",
        ".offline,.broken{stroke-dasharray:3 2}",
        ".left-out{stroke-dasharray:1 2}",
        ".cache{fill:none}",
        ".required{fill:none;stroke-width:2.5}",
        *(f".hatch-{name}{{fill:url(#mooring-hatch-{name});stroke-dasharray:3 2}}" for name in HATCHES),
        *(
            f".hatching-{name}{{stroke:{colour};stroke-width:2.5;stroke-opacity:{HATCH_OPACITY}}}"
            for name, colour in HATCHES.items()
        ),
    ]
    for index, colour in enumerate(OWNER_COLOURS):
        common += [f".exclusive-{index}{{fill:{colour}}}", f".on-exclusive-{index}{{fill:{text_on(colour)}}}"]
    return "".join(f".mooring {rule}" for rule in _split(common))


def colour_rules(ground: Mapping[str, str]) -> str:
    """Return the rules of one colour scheme; its colours can be names of CSS variables, where only browsers read."""
    cell = f"stroke:{ground['edge']}"
    colours = {
        ".page": f"fill:{ground['page']}",
        "text": f"fill:{ground['ink']}",
        ".quiet,.small": f"fill:{ground['quiet']}",
        ".socket": f"fill:{ground['socket']};stroke:{ground['edge']}",
        ".node": f"fill:{ground['node']};stroke:{ground['line']}",
        ".cache": f"stroke:{ground['line']}",
        ".free": f"fill:{ground['page']};{cell}",
        ".offline,.left-out": f"fill:none;{cell}",
        ".shared": f"fill:url(#mooring-dots);{cell}",
        ".reserved": f"fill:url(#mooring-stripes);{cell}",
        ".broken": f"fill:url(#mooring-crosses);{cell}",
        ".contested": f"fill:{ground['ink']}",
        ".on-contested": f"fill:{ground['page']}",
        ".on-offline": f"fill:{ground['quiet']}",
        ".hatch-light,.hatch-dark": f"stroke:{ground['ink']}",
        ".required": f"stroke:{ground['ink']}",
        ".ground": f"fill:{ground['page']}",
        ".grey": f"fill:{ground['grey']}",
        ".dot": f"fill:{ground['stripe']}",
        ".stripe": f"stroke:{ground['stripe']}",
        ".used": f"fill:{ground['quiet']}",
        ".on-used": f"fill:{ground['page']}",
        ".bar": f"fill:none;stroke:{ground['edge']}",
    }
    rules = [f"{names}{{{rule}}}" for names, rule in colours.items()]
    return "".join(f".mooring {rule}" for rule in _split(rules))


def _split(rules: list[str]) -> Iterator[str]:
    """Yield the rules with the root's class in front of every selector but the first, which the caller adds."""
    for rule in rules:
        selectors, _, body = rule.partition("{")
        yield ",.mooring ".join(selectors.split(",")) + "{" + body


def document(title: str, width: int, height: int, elements: Iterable[str]) -> str:
    """Return a self-contained picture: elements on a page of this size, with styles, patterns and a tooltip."""
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="mooring" role="img" {size}>',
        tooltip(title),
        style_sheet(),
        PATTERNS,
        rect(0, 0, width, height, "page", round_=8),
        *elements,
        "</svg>",
    )
    return "".join(f"{line}\n" for line in lines)


def hatched(x: float, y: float, width: float, height: float, style: str, *, round_: float = 0) -> str:
    """Return the hatching of a rectangle filled with a colour of owners, lighter or darker so that text stays readable.

    Args:
        x: as of the rectangle.
        y: as of the rectangle.
        width: as of the rectangle.
        height: as of the rectangle.
        style: of the rectangle, ``exclusive-n``.
        round_: as of the rectangle.
    """
    name = "dark" if text_on(OWNER_COLOURS[int(style.rpartition("-")[2])]) == "#ffffff" else "light"
    return rect(x, y, width, height, f"hatch-{name}", round_=round_)


PATTERNS = (
    '<defs><pattern id="mooring-stripes" width="6" height="6" patternUnits="userSpaceOnUse">'
    '<rect class="grey" width="6" height="6"/>'
    '<path class="stripe" d="M-1 1l2-2M0 6l6-6M5 7l2-2" fill="none"/></pattern>'
    '<pattern id="mooring-dots" width="5" height="5" patternUnits="userSpaceOnUse">'
    '<rect class="ground" width="5" height="5"/><circle class="dot" cx="2.5" cy="2.5" r="0.7"/></pattern>'
    '<pattern id="mooring-crosses" width="12" height="12" patternUnits="userSpaceOnUse">'
    '<rect class="ground" width="12" height="12"/>'
    '<path class="stripe" d="M0 0l12 12M12 0l-12 12" fill="none"/></pattern>'
    + "".join(
        f'<pattern id="mooring-hatch-{name}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<path class="hatching-{name}" d="M-2 2l4-4M0 8l8-8M6 10l4-4" fill="none"/></pattern>'
        for name in HATCHES
    )
    + "</defs>"
)
"""Fills that tell uses apart without colour."""
