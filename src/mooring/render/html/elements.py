"""HTML elements as text. Everything that comes from outside passes ``escape``."""

from __future__ import annotations

from mooring.render.svg_elements import escape

VOID = frozenset({"input", "meta"})
"""Elements without an end tag."""


Value = str | int | bool
"""What an attribute can have."""


def element(name: str, *content: str, **attributes: Value) -> str:
    """Return an element around ``content``, which is HTML already; attributes are escaped.

    An underscore in an attribute's name stands for a hyphen and one at its end for nothing; True is an attribute
    without a value, False is none.

    >>> element("p", "one", class_="a", data_cpu=3, hidden=True)
    '<p class="a" data-cpu="3" hidden>one</p>'
    """
    told = "".join(_attribute(key, value) for key, value in attributes.items())
    return f"<{name}{told}>" if name in VOID else f"<{name}{told}>{''.join(content)}</{name}>"


def _attribute(key: str, value: Value) -> str:
    name = key.removesuffix("_").replace("_", "-")
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(str(value))}"'


def text_element(name: str, content: str, **attributes: Value) -> str:
    """Return an element that holds a text.

    >>> text_element("td", "a < b")
    '<td>a &lt; b</td>'
    """
    return element(name, escape(content), **attributes)
