"""Plain values of a document, and reading typed fields out of them, with errors that name the field.

Kubernetes decodes strictly by type: a number where a text belongs is an error, not a text. So it is here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field as dataclass_field
from difflib import get_close_matches
from enum import Enum
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding, SourcePlace
from mooring.lazy import dataclass

INT32_MAX = 2**31 - 1
"""Largest number that most Kubernetes fields take."""

_LONGEST_NAME = 200
"""Characters of a name that can be a misspelt one."""

Choice = TypeVar("Choice", bound=Enum)
Read = TypeVar("Read")


def inside(error: InputError, prefix: str) -> InputError:
    """Return ``error`` with its field placed inside ``prefix``.

    >>> print(inside(InputError("must not be empty", field="name"), "spec.containers[0]"))
    spec.containers[0].name: must not be empty
    """
    field = error.field if not error.field or error.field.startswith("[") else f".{error.field}"
    return InputError(error.problem, source=error.source, field=prefix + field, remedy=error.remedy)


class within:  # noqa: N801 - as contextlib.suppress: read as a word of the sentence that it begins
    """Names the field, the file, or both for errors of a block of code; an empty field or a known file changes nothing.

    >>> with within("spec", source="pod.yaml"):
    ...     raise InputError("must not be empty", field="containers")
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: pod.yaml: spec.containers: must not be empty
    """

    __slots__ = ("field", "source")

    def __init__(self, field: str = "", *, source: str = "") -> None:
        self.field = field
        self.source = source

    def __enter__(self) -> None:
        """Nothing is done before there is an error."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, InputError):
            raise (inside(error, self.field) if self.field else error).at(self.source) from None


def caused_in(error: InputError, field: str) -> InputError:
    """Return an error about what the text of a field means, such as a machine, as an error of the field.

    >>> print(caused_in(InputError("no such file", source="m.json", remedy="name another"), "machine"))
    machine: m.json: no such file; name another
    """
    parts = (error.source if error.source != field.lstrip("-") else "", error.field, error.problem)
    return InputError(": ".join(part for part in parts if part), field=field, remedy=error.remedy)


def kind_of(value: object) -> str:
    """Return in words what a value is.

    >>> kind_of(True), kind_of({})
    ('true or false', 'a mapping')
    """
    names: tuple[tuple[type, str], ...] = (
        (bool, "true or false"),
        (str, "a string"),
        (int, "a number"),
        (float, "a number"),
        (list, "a list"),
        (dict, "a mapping"),
    )
    return next((name for kind, name in names if isinstance(value, kind)), "nothing")


def wrong_kind(value: object, wanted: str, field: str) -> InputError:
    """Return the error for a value that is not what its field takes."""
    remedy = ""
    if wanted == "a string" and isinstance(value, bool):
        remedy = "put it in quotes (YAML reads on, off, yes, no, y and n as true or false)"
    elif wanted == "a string" and isinstance(value, int | float):
        remedy = "put it in quotes"
    return InputError(f"must be {wanted}, not {kind_of(value)}", field=field, remedy=remedy)


def as_mapping(value: object) -> dict[str, Any]:
    """Return a value that must be a mapping.

    Raises:
        InputError: it is something else.
    """
    if not isinstance(value, dict):
        raise wrong_kind(value, "a mapping", "")
    return value


def _typed_at(parent: Mapping[str, Any], field: str, kind: type[Read], wanted: str, default: Read) -> Read:
    value = parent.get(field)
    if value is None:
        return default
    if not isinstance(value, kind):
        raise wrong_kind(value, wanted, field)
    return value


def mapping_at(parent: Mapping[str, Any], field: str) -> dict[str, Any]:
    """Return the mapping in ``field``; absent and null are empty.

    Raises:
        InputError: it holds something else.
    """
    return _typed_at(parent, field, dict, "a mapping", {})


def part_at(content: object, field: str) -> Mapping[str, Any]:
    """Return the mapping in ``field``; anything else there, or around it, is taken for an empty one."""
    value = content.get(field) if isinstance(content, dict) else None
    return value if isinstance(value, dict) else {}


def only(content: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return the fields with these names that hold something, in the order of the names."""
    return {name: content[name] for name in names if content.get(name) is not None}


def each_at(parent: Mapping[str, Any], field: str, read: Callable[[dict[str, Any]], Read]) -> list[Read]:
    """Return what is read of each mapping of a list; absent and null are empty. Errors name the item.

    Raises:
        InputError: it is no list of mappings, or as ``read`` raises.

    >>> each_at({"costs": [{"value": 1}, {"value": "x"}]}, "costs", lambda cost: count_at(cost, "value", 0))
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: costs[1].value: must be a whole number, not a string
    """
    found = []
    for index, item in enumerate(list_at(parent, field)):
        with within(f"{field}[{index}]"):
            found.append(read(as_mapping(item)))
    return found


def list_at(parent: Mapping[str, Any], field: str) -> list[Any]:
    """Return the list in ``field``; absent and null are empty.

    Raises:
        InputError: it holds something else.
    """
    return _typed_at(parent, field, list, "a list", [])


def text_at(parent: Mapping[str, Any], field: str, default: str = "") -> str:
    """Return the text in ``field``; absent and null give the default.

    Raises:
        InputError: it holds something else.
    """
    return _typed_at(parent, field, str, "a string", default)


def name_at(parent: Mapping[str, Any], field: str) -> str:
    """Return the text in ``field``, which must be there and not empty.

    Raises:
        InputError: it is missing, empty, or no text.
    """
    value = text_at(parent, field)
    if not value:
        raise InputError("must not be empty", field=field)
    return value


def flag_at(parent: Mapping[str, Any], field: str, *, default: bool) -> bool:
    """Return true or false as ``field`` says; absent and null give the default.

    Raises:
        InputError: it holds something else.
    """
    return _typed_at(parent, field, bool, "true or false", default)


def count_at(parent: Mapping[str, Any], field: str, default: int, *, least: int = -INT32_MAX - 1) -> int:
    """Return the whole number in ``field``, at most 32 bits wide; absent and null give the default.

    Raises:
        InputError: it holds something else, or less than ``least``.

    >>> count_at({"replicas": -1}, "replicas", 1, least=0)
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: replicas: must not be negative, but is -1; write 0 or more
    """
    value = parent.get(field)
    if value is None:
        return default
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise wrong_kind(value, "a whole number", field)
    if not -INT32_MAX - 1 <= value <= INT32_MAX:
        raise InputError("the number is too large", field=field)
    if value < least:
        problem = f"must be at least {least}" if least else "must not be negative"
        raise InputError(f"{problem}, but is {value}", field=field, remedy=f"write {least} or more")
    return value


def number_at(parent: Mapping[str, Any], field: str) -> float:
    """Return the number in ``field``, whole or not.

    Raises:
        InputError: it holds something else.
    """
    value = parent[field]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong_kind(value, "a number", field)
    return float(value)


def flags_at(parent: Mapping[str, Any], field: str) -> dict[str, bool]:
    """Return the mapping of flags in ``field``; absent and null are empty.

    Raises:
        InputError: it is no mapping, or one of its values is neither true nor false.
    """
    flags = mapping_at(parent, field)
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise wrong_kind(value, "true or false", f"{field}.{name}")
    return flags


def texts_at(parent: Mapping[str, Any], field: str) -> dict[str, str]:
    """Return the mapping of texts in ``field``; absent and null are empty.

    Raises:
        InputError: it is no mapping, or one of its values is no text.
    """
    texts = mapping_at(parent, field)
    for name, value in texts.items():
        if not isinstance(value, str):
            raise wrong_kind(value, "a string", f"{field}.{name}")
    return texts


def number_text(value: float) -> str:
    """Return a number as Kubernetes writes it when YAML becomes JSON: without exponent below 10^21.

    >>> number_text(0.5), number_text(1e6), number_text(2)
    ('0.5', '1000000', '2')
    """
    if isinstance(value, int):
        return str(value)
    if value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    if not math.isfinite(value) or not 1e-6 <= abs(value) < 1e21:
        return repr(value)
    text = repr(value)
    return text if "e" not in text else f"{value:.17f}".rstrip("0")


def nearest(name: str, known: Mapping[str, object] | frozenset[str]) -> str:
    """Return the known name that looks most like ``name``, or an empty text."""
    return "" if len(name) > _LONGEST_NAME else _nearest(name, frozenset(known))


def _words(name: str) -> list[str]:
    """Return the words of a name, ``topology`` and ``option`` of ``TopologyOptions``: small, singular."""
    return [word.lower().removesuffix("s") for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


@lru_cache(maxsize=1024)
def _nearest(name: str, known: frozenset[str]) -> str:
    close = get_close_matches(name, sorted(known), n=1)
    words = set(_words(name))
    # The words of a name count for more than its letters: of names that look alike the one without other words wins.
    shared = {one: len(words & set(_words(one))) for one in known}
    best = max(shared, key=lambda one: (shared[one], -len(_words(one)), one), default="")
    if shared.get(best, 0) > max(1, shared.get(close[0], 0) if close else 1) or (not close and shared.get(best, 0) > 1):
        return best
    if close:
        return close[0]
    same = [candidate for candidate in sorted(known) if candidate.lower() == name.lower()]
    return same[0] if same else ""


def check_version(content: Mapping[str, Any], wanted: str, *, required: bool = False) -> None:
    """Check that a document is of the version that is read; without one it is, unless one is required.

    Raises:
        InputError: it is of another.
    """
    version = text_at(content, "apiVersion", "" if required else wanted)
    if version != wanted:
        raise InputError(f"{version!r:.60} is not supported", field="apiVersion", remedy=f"write {wanted}")


def check_names(content: Mapping[str, Any], known: Collection[str], *, beside: Collection[str] = ()) -> None:
    """Check that a mapping has only fields that are read.

    Args:
        content: of a document of Mooring's own.
        known: fields that can be meant.
        beside: fields that may stand there and are not worth naming.

    Raises:
        InputError: it has one.

    >>> check_names({"lisen": "x"}, ("listen", "tls"))
    Traceback (most recent call last):
        ...
    mooring.engine.core.errors.InputError: lisen: is not known; did you mean listen?
    """
    for field in content:
        if field not in known and field not in beside:
            close = nearest(field, frozenset({*known, *beside}))
            remedy = f"did you mean {close}?" if close else f"known are {', '.join(sorted(known))}"
            raise InputError("is not known", field=f"{field:.60}", remedy=remedy)


def choice_at(content: Mapping[str, Any], field: str, default: Choice) -> Choice:
    """Return which of an enum's values a field names.

    Raises:
        InputError: none.
    """
    text = text_at(content, field, str(default.value))
    known = {str(choice.value): choice for choice in type(default)}
    if text not in known:
        close = nearest(text, known)
        remedy = f"did you mean {close}?" if close else f"known are {', '.join(known)}"
        raise InputError(f"{text!r:.60} is not known", field=field, remedy=remedy)
    return known[text]


Value: TypeAlias = "dict[str, Value] | list[Value] | str | int | float | bool | None"
"""What JSON can hold."""


@dataclass(frozen=True, slots=True)
class Document:
    """One YAML or JSON document and where it stood."""

    content: Value
    file: str
    """Name of the file as the person gave it; ``standard input`` for ``-``."""
    index: int
    """Number within the file, counted from 1; empty documents count too."""
    line: int
    """Line on which it begins, counted from 1."""
    text: str | bytes = dataclass_field(default="", repr=False, compare=False)
    """Of the whole file, or of the document alone; it names the places of fields."""
    is_alone: bool = dataclass_field(default=False, repr=False, compare=False)
    """Whether the text is that of the document alone, and so begins on its line."""

    @property
    def source(self) -> str:
        """The place for messages.

        >>> Document({}, "pods.yaml", 2, 14).source
        'pods.yaml:14'
        """
        return str(self.place)

    @property
    def place(self) -> SourcePlace:
        """Where it begins; of the first in a file without a line."""
        return SourcePlace(self.file, 0 if self.line == 1 and not self.is_alone else self.line)


Report: TypeAlias = Callable[[Finding], object]
"""Receives findings one by one, such as ``list.append``."""


def ignore(_finding: Finding) -> None:
    """Take a finding and do nothing with it."""
