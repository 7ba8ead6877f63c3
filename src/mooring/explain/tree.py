"""Lines that belong below one another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

PLAIN = ""
NO = "no"
YES = "yes"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a story."""

    text: str
    children: tuple[Line, ...] = ()
    mark: str = PLAIN
    """:data:`NO` where the pod was refused, :data:`YES` for what was decided; else plain."""
    detail: bool = False
    """Whether it is shown only on demand."""


def without_details(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Return the lines without details.

    >>> without_details((Line("a", (Line("b", detail=True),)), Line("c", detail=True)))
    (Line(text='a', children=(), mark='', detail=False),)
    """
    return tuple(replace(line, children=without_details(line.children)) for line in lines if not line.detail)


def walk(lines: tuple[Line, ...]) -> Iterator[Line]:
    """Yield every line, the ones below after the one above."""
    for line in lines:
        yield line
        yield from walk(line.children)
