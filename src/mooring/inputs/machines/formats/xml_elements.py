"""XML to elements, safely: no entities of its own, nothing loaded, bounded depth; every element knows its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from mooring.engine.core.errors import InputError

DEEPEST: Final = 250
"""Levels of nesting; lstopo nests bridges and caches about 20 deep."""
MOST_ELEMENTS: Final = 1_000_000


@dataclass(slots=True)
class Element:
    """One element of a document."""

    tag: str
    attributes: Mapping[str, str]
    place: str
    """File, line and column, for messages."""
    children: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> Iterator[Element]:
        """Yield the children of a tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, *path: str) -> Element | None:
        """Return the first element down a path of tags."""
        element: Element | None = self
        for tag in path:
            element = next(element.all(tag), None) if element is not None else None
        return element

    def number(self, attribute: str) -> int | None:
        """Return the whole number of an attribute, which may be negative; None without the attribute.

        Raises:
            InputError: it is something else, or has more than 18 digits.
        """
        text = self.attributes.get(attribute)
        return None if text is None else self._number(text.strip(), attribute)

    def content(self) -> int:
        """Return the whole number that is the element's text.

        Raises:
            InputError: it is something else, or has more than 18 digits.
        """
        return self._number(self.text.strip(), "")

    def _number(self, text: str, attribute: str) -> int:
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
            raise self.error(f"{text!r:.60} is not a whole number", attribute)
        return int(text)

    def error(self, problem: str, attribute: str = "", remedy: str = "capture it again") -> InputError:
        """Return the error for something in this element."""
        return InputError(
            problem, source=self.place, field=f"{self.tag}.{attribute}" if attribute else self.tag, remedy=remedy
        )


def read_xml(data: bytes, source: str) -> Element:
    """Return the root element of a document.

    Raises:
        InputError: not XML, entities of its own, nested too deeply or too many elements; with line and column.
    """
    reader = _Reader(source)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        problem = expat.ErrorString(error.code)
        raise InputError(
            f"not valid XML: {problem}", source=f"{source}:{error.lineno}:{error.offset + 1}", remedy="capture it again"
        ) from None
    except (LookupError, ValueError) as error:  # of the codec that the first line names
        raise InputError(f"not valid XML: {error}", source=f"{source}:1", remedy="capture it again") from None
    return reader.root


class _Reader:
    """Builds elements from the parser's events."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.parser = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.EntityDeclHandler = self._entity
        self.root = Element("", {}, source)
        self._open = [self.root]
        self._count = 0

    def _place(self) -> str:
        return f"{self.source}:{self.parser.CurrentLineNumber}:{self.parser.CurrentColumnNumber + 1}"

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._count += 1
        if len(self._open) > DEEPEST or self._count > MOST_ELEMENTS:
            limit = f"{DEEPEST} levels deep" if len(self._open) > DEEPEST else f"{MOST_ELEMENTS} elements"
            raise InputError(f"more than {limit}", source=self._place(), remedy="no machine needs that")
        element = Element(tag, attributes, self._place())
        if self._count == 1:
            self.root = element
        self._open[-1].children.append(element)
        self._open.append(element)

    def _end(self, _tag: str) -> None:
        self._open.pop()

    def _text(self, text: str) -> None:
        self._open[-1].text += text

    def _entity(self, name: str, *_rest: object) -> None:
        raise InputError(f"declares the entity {name!r:.40}", source=self._place(), remedy="remove its DOCTYPE")
