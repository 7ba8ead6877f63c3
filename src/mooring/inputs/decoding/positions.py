"""Where fields stand in a text. Values carry no positions, so that the text is read once more for an error."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

DEEPEST: Final = 100
"""Levels of nesting that a document may have; a pod needs about twelve."""

Place: TypeAlias = tuple[int, int]
"""Line and column, counted from 1."""

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*+"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]")
_LONGEST_NUMBER: Final = 4300
"""Digits that Python converts."""
_OPENING: Final = {"{": "mapping", "[": "sequence"}
_CONSTANTS: Final = ("NaN", "Infinity", "-Infinity")
_INDEX: Final = re.compile(r"\[(\d+)\]")


def field_places(text: str, index: int, fields: Sequence[str]) -> list[Place | None]:
    """Return the places of the keys of fields.

    Args:
        text: of a file, YAML or JSON.
        index: number of the document in it, counted from 1.
        fields: names and indices from the top, as errors name them: ``plugins[0].weight``. Of a field that is not there
            the place of what contains it is returned.

    Returns:
        A place for each field; None when no part of the field is in the document.
    """
    found: list[Place | None] = [None] * len(fields)
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        top = next(islice(_json_documents(text), index - 1, None), None)
        found = [_place(top, name, text) for name in fields]
    if any(found) or not any(fields):
        return found
    import yaml  # noqa: PLC0415 - loading it takes longer than reading most JSON files

    documents = yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    with suppress(yaml.YAMLError):
        node = next(islice(documents, index - 1, None), None)
        return [_place(node, name, text) for name in fields]
    return found


def offset_place(text: str, offset: int) -> Place:
    r"""Return line and column of a character.

    >>> offset_place("ab\ncd", 4)
    (2, 2)
    """
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def shown_place(source: str, text: str, offset: int) -> str:
    """Return file, line and column of a character, for messages."""
    line, column = offset_place(text, offset)
    return f"{source}:{line}:{column}"


def json_fault(text: str, start: int = 0) -> int:
    """Return the offset of the first thing in JSON that the grammar allows and that cannot be used.

    A key that its object has already, a number that is none or too large, and nesting that is too deep; the offset of
    the end without any.
    """
    reader = _JSONReader(text)
    for _ in reader.documents(start):
        if reader.fault is not None:
            break
    return len(text) if reader.fault is None else reader.fault


@dataclass(slots=True)
class _Node:
    """A value of JSON, as PyYAML's nodes are."""

    id: str
    start_mark: int
    """Offset in the text."""
    value: Any
    keys: set[str] = field(default_factory=set)
    key: _Node | None = None
    """In a mapping: the key whose value follows."""


class _JSONReader:
    """Builds nodes from tokens; what is no JSON is read as well as it can be."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.fault: int | None = None

    def documents(self, start: int = 0) -> Iterator[_Node]:
        """Yield the values of the text."""
        stack: list[_Node] = []
        for match in _TOKEN.finditer(self.text, start):
            word, offset = match.group(), match.start()
            if word in (",", ":"):
                continue
            if word in ("}", "]"):
                done = stack.pop() if stack else None
                if done is not None and not stack:
                    yield done
                continue
            node = self._node(word, offset)
            self._enter(stack, node, word)
            if word in _OPENING:
                stack.append(node)
                if len(stack) > DEEPEST:
                    self._note(offset)
                    break
            elif not stack:
                yield node
        if stack:
            yield stack[0]

    def _node(self, word: str, offset: int) -> _Node:
        if word in _OPENING:
            return _Node(_OPENING[word], offset, [])
        if word[0] != '"' and (word in _CONSTANTS or _is_too_large(word)):
            self._note(offset)
        return _Node("scalar", offset, word.strip('"'))

    def _enter(self, stack: list[_Node], node: _Node, word: str) -> None:
        if not stack:
            return
        parent = stack[-1]
        if parent.id == "sequence":
            parent.value.append(node)
        elif parent.key is None:
            if word in parent.keys:
                self._note(node.start_mark)
            parent.keys.add(word)
            parent.key = node
        else:
            parent.value.append((parent.key, node))
            parent.key = None

    def _note(self, offset: int) -> None:
        if self.fault is None:
            self.fault = offset


def _is_too_large(word: str) -> bool:
    if not _NUMBER.match(word):
        return False
    if word.lstrip("-").isdigit():
        return len(word) > _LONGEST_NUMBER
    with suppress(ValueError):
        return float(word) in (float("inf"), float("-inf"))
    return False


def _json_documents(text: str) -> Iterable[_Node]:
    return _JSONReader(text).documents()


def _place(node: Any, name: str, text: str) -> Place | None:
    place = None
    while name:
        step = _step(node, name)
        if step is None:
            break
        at, node, name = step
        mark = at.start_mark
        place = offset_place(text, mark) if isinstance(mark, int) else (mark.line + 1, mark.column + 1)
    return place


def _step(node: Any, name: str) -> tuple[Any, Any, str] | None:
    """Return the key or item that a field begins with, its value, and the rest of the field."""
    index = _INDEX.match(name)
    if node is not None and node.id == "sequence" and index is not None and int(index[1][:9]) < len(node.value):
        item = node.value[int(index[1])]
        return item, item, name[index.end() :].removeprefix(".")
    if node is not None and node.id == "mapping":
        # Names may have dots, so the longest one that fits is meant.
        fitting = [(key, value) for key, value in node.value if _begins(name, key.value)]
        if fitting:
            key, value = max(fitting, key=lambda pair: len(pair[0].value))
            return key, value, name[len(key.value) :].removeprefix(".")
    return None


def _begins(name: str, key: object) -> bool:
    return isinstance(key, str) and bool(key) and (name == key or name.startswith((f"{key}.", f"{key}[")))
