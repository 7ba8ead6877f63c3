"""YAML text to plain values, safely: no constructors, no cycles, no bombs, no silent loss of a repeated key.

The parser's events are turned into values directly. Nothing recurses, so no text can exhaust the stack; every
node is counted, so an alias cannot multiply what a small file says; positions of problems are known to the
line and column.

What a plain word means in Kubernetes' YAML, and documents as YAML text.

Source: sigs.k8s.io/yaml 1.6 on go.yaml.in/yaml v2, which kubelet and API server v1.37.1 use: YAML 1.1 words
(``on`` is a boolean, ``010`` is eight) without its base-60 numbers, and with dates left as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import yaml

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import Document, Value, kind_of
from mooring.inputs.decoding.files import DEEPEST
from mooring.lazy import dataclass, field, lazily

with lazily():
    import msgspec


Scalar = str | int | float | bool | None
"""What a word can stand for."""

_TRUE = ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")
_FALSE = ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")
_NULL = ("", "~", "null", "Null", "NULL")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(_TRUE, True),
    **dict.fromkeys(_FALSE, False),
    **dict.fromkeys(_NULL, None),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
}
_FIRST_OF_A_WORD = frozenset("yYnNtTfFoO~")
_FIRST_OF_A_NUMBER = frozenset("+-.0123456789")
_INTEGER = re.compile(r"([+-]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_LONGEST_NUMBER = 400
_UINT64_MAX = 2**64 - 1
_INT64_MIN = -(2**63)


def word_value(word: str) -> Scalar:
    """Return what the unquoted ``word`` stands for.

    >>> [word_value(word) for word in ("on", "010", "1e3", "1:30", "2024-01-01", "100m")]
    [True, 8, 1000.0, '1:30', '2024-01-01', '100m']
    """
    first = word[:1]
    if first in _FIRST_OF_A_NUMBER:
        return _number_or_text(word)
    if not first or first in _FIRST_OF_A_WORD:
        return _WORDS.get(word, word)
    return word


@lru_cache(maxsize=4096)
def _number_or_text(word: str) -> Scalar:
    if word in _WORDS:
        return _WORDS[word]
    if len(word) > _LONGEST_NUMBER:
        return word
    plain = word if word[0] == "." else word.replace("_", "")
    if integer := _INTEGER.fullmatch(plain):
        sign, *forms = integer.groups()
        value = next(int(sign + digits, base) for digits, base in zip(forms, (16, 2, 8, 10), strict=True) if digits)
        if _INT64_MIN <= value <= _UINT64_MAX:
            return value
    if not _FLOAT.fullmatch(plain):
        return word
    number = float(plain)
    # Out of range is no number for Go, so the word stays a word.
    return word if math.isinf(number) else number


def yaml_text(document: object) -> str:
    """Return a document as YAML, members in their order.

    >>> print(yaml_text({"kind": "Plan", "pods": []}), end="")
    kind: Plan
    pods: []
    """
    text: str = yaml.safe_dump(
        msgspec.to_builtins(document), sort_keys=False, allow_unicode=True, default_flow_style=False
    )
    return text


MOST_ALIASED_NODES = 100_000
"""Nodes that aliases may repeat, in all, before a document counts as a bomb."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STANDARD = "tag:yaml.org,2002:"
_SCALAR_TAGS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (float, int),
    "bool": (bool,),
    "null": (type(None),),
}
_NO_KEY = object()
_MERGE = object()


def read_yaml(text: str, source: str) -> Iterator[Document]:
    """Yield every document of ``text`` that is not empty.

    Raises:
        InputError: for anything that is not YAML, or not what JSON could hold, with line and column.
    """
    reader = _Reader(source, text)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            done = reader.take(event)
            if done is not None and done.content is not None:
                yield done
    except yaml.MarkedYAMLError as error:
        problem = error.problem or error.context or "it cannot be understood"
        place = _place(source, error.problem_mark or error.context_mark)
        remedy = "indent with spaces, not tabs" if "cannot start any token" in problem else ""
        raise InputError(f"not valid YAML: {problem}", source=place, remedy=remedy) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}", source=source) from None


def _place(source: str, mark: Any) -> str:
    return f"{source}:{mark.line + 1}:{mark.column + 1}" if mark is not None else source


@dataclass(slots=True)
class _Open:
    """A mapping or list that is not closed yet."""

    value: dict[str, Value] | list[Value]
    anchor: str | None
    first_node: int
    height: int = 1
    """Levels of nesting in it, itself included."""
    key: object = _NO_KEY
    merged: list[Value] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    """Builds one document after the other from parser events."""

    source: str
    text: str
    index: int = 0
    line: int = 1
    root: Value = None
    nodes: int = 0
    aliased: int = 0
    open: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Value, int, int] | None] = field(default_factory=dict)
    """Anchor -> value that aliases can repeat, its nodes and its height; None while the value is still open."""

    def take(self, event: Any) -> Document | None:
        """Take one event; return the document that it ends, if it ends one."""
        match event:
            case yaml.ScalarEvent():
                self._count(event)
                value = self._scalar_value(event)
                if event.anchor is not None:
                    self.anchors[event.anchor] = value, 1, 0
                self._put(value, event, 0, plain=event.implicit[0])
            case yaml.MappingStartEvent():
                self._start(event, {}, "map")
            case yaml.SequenceStartEvent():
                self._start(event, [], "seq")
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                closed = self.open.pop()
                if isinstance(closed.value, dict):
                    for merged in closed.merged:
                        self._merge(event, closed.value, merged)
                if closed.anchor is not None:
                    nodes = self.nodes - closed.first_node + 1
                    self.anchors[closed.anchor] = closed.value, nodes, closed.height
                self._put(closed.value, event, closed.height)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self.root = None
                self.anchors.clear()
            case yaml.DocumentEndEvent():
                self.index += 1
                return Document(self.root, self.source, self.index, self.line, self.text)
        return None

    def _scalar_value(self, event: Any) -> Scalar:
        text: str = event.value
        if event.tag is None or event.tag == "!":
            value = word_value(text) if event.implicit[0] else text
        elif event.tag == f"{_STANDARD}str":
            return text
        else:
            value = word_value(text)
            kind = event.tag.removeprefix(_STANDARD)
            if type(value) not in _SCALAR_TAGS.get(kind, ()):
                raise self._error(
                    event, f"the tag {event.tag} does not fit the value {text!r:.60}", "leave the tag out"
                )
        if isinstance(value, float) and not math.isfinite(value):
            raise self._error(event, f"{text} is not a number that JSON knows", "put it in quotes if it is a text")
        return value

    def _start(self, event: Any, value: dict[str, Value] | list[Value], kind: str) -> None:
        if event.tag not in (None, "!", f"{_STANDARD}{kind}"):
            raise self._error(event, f"the tag {event.tag} is not supported", "leave the tag out")
        if len(self.open) >= DEEPEST:
            raise self._too_deep(event)
        if self.open and isinstance(self.open[-1].value, dict) and self.open[-1].key is _NO_KEY:
            raise self._error(event, "a mapping or list cannot be a key", "write a text as the key")
        self._count(event)
        self.open.append(_Open(value, event.anchor, self.nodes))
        if event.anchor is not None:
            self.anchors[event.anchor] = None

    def _count(self, event: Any) -> None:
        if not self.open:
            self.line = event.start_mark.line + 1
        self.nodes += 1

    def _merge(self, event: Any, into: dict[str, Value], merged: Value) -> None:
        """Fill ``into`` from the value of ``<<``: keys written out win, then the first mapping that has a key."""
        for part in merged if isinstance(merged, list) else [merged]:
            if not isinstance(part, dict):
                raise self._error(event, "the value of << is not a mapping", "refer to a mapping, as in <<: *name")
            for key, value in part.items():
                into.setdefault(key, value)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self.anchors:
            raise self._error(event, f"the alias *{event.anchor} has no anchor", f"define &{event.anchor} before it")
        known = self.anchors[event.anchor]
        if known is None:
            raise self._error(event, f"the alias *{event.anchor} refers to a value that contains it")
        value, nodes, height = known
        self.nodes += nodes
        self.aliased += nodes
        if self.aliased > MOST_ALIASED_NODES:
            raise self._error(event, f"aliases repeat more than {MOST_ALIASED_NODES} nodes", "write the values out")
        if len(self.open) + height > DEEPEST:
            raise self._too_deep(event)
        self._put(value, event, height)

    def _put(self, value: Value, event: Any, height: int, *, plain: bool = False) -> None:
        if not self.open:
            self.root = value
            return
        place = self.open[-1]
        place.height = max(place.height, height + 1)
        if isinstance(place.value, list):
            place.value.append(value)
        elif place.key is _NO_KEY:
            place.key = _MERGE if plain and value == "<<" else self._key(value, event)
            if isinstance(place.key, str) and place.key in place.value:
                raise self._error(event, f"the key {place.key!r:.80} appears twice", "keep one of them")
        else:
            if place.key is _MERGE:
                place.merged.append(value)
            elif isinstance(place.key, str):
                place.value[place.key] = value
            place.key = _NO_KEY

    def _key(self, value: Value, event: Any) -> str:
        # Kubernetes turns numbers and booleans into texts where a key is needed: the label "on" becomes
        # "true".
        if isinstance(value, str):
            return value
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, int | float):
            return str(value) if isinstance(value, int) else f"{value:g}"
        raise self._error(event, f"{kind_of(value)} cannot be a key", "write a text as the key")

    def _too_deep(self, event: Any) -> InputError:
        return self._error(event, f"nested deeper than {DEEPEST} levels")

    def _error(self, event: Any, problem: str, remedy: str = "") -> InputError:
        return InputError(problem, source=_place(self.source, event.start_mark), remedy=remedy)
