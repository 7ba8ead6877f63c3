"""Go types as data: what the decoder fills in and what the dump prints.

The kubelet declares its state files as Go structures. Here each structure is one value (``structures.py``),
and decoding (``gojson.py``) and printing (``dump.py``) walk over it. Decoded values are plain Python: a
structure is a dictionary by member name, a map a dictionary, a slice a list, and nil is None.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from mooring.engine.core.gotext import INT64_MAX, INT64_MIN

UINT64_MAX = 2**64 - 1

GoValue: TypeAlias = Any
"""A decoded value. Its shape follows from its type, which only the structure's declaration knows."""


@dataclass(frozen=True, slots=True)
class GoString:
    """A string type."""

    name: str = "string"


@dataclass(frozen=True, slots=True)
class GoInteger:
    """An integer type with its range."""

    name: str = "int"
    low: int = INT64_MIN
    high: int = INT64_MAX


@dataclass(frozen=True, slots=True)
class GoMap:
    """A map type with text keys, or with integer keys."""

    name: str
    element: GoType
    integer_keys: bool = False
    key: str = "int"
    """Name of the type of integer keys."""


@dataclass(frozen=True, slots=True)
class GoSlice:
    """A slice type."""

    name: str
    element: GoType


@dataclass(frozen=True, slots=True)
class GoBytes:
    """A slice of bytes: base64 in JSON, numbers in a dump; its value is ``bytes``."""

    name: str = "[]uint8"


@dataclass(frozen=True, slots=True)
class GoPointer:
    """A pointer; as an element of a map its target prints behind ``<*>``."""

    element: GoType


@dataclass(frozen=True, slots=True)
class GoField:
    """One field of a structure."""

    member: str
    """Name of the member in JSON."""

    name: str
    """Name of the field in Go, as the dump prints it."""

    type: GoType

    embedded: str = ""
    """Name of the embedded structure that the field comes from. It appears in the paths of type errors."""

    omit_empty: bool = False
    """Go's ``omitempty``: the writer leaves the member out when it is empty."""


@dataclass(frozen=True, slots=True)
class GoStruct:
    """A structure; its full name in messages is ``<package>.<name>``."""

    name: str
    fields: tuple[GoField, ...]
    package: str = "state"


@dataclass(frozen=True, slots=True)
class GoSelfDecoding:
    """A structure with an ``UnmarshalJSON`` of its own."""

    form: GoStruct
    """What that method decodes first, in a decoding of its own."""

    read: Callable[[dict[str, GoValue]], GoValue]
    """Makes the value of the form. A MooringError from here ends the whole decoding with its text."""

    dump: Callable[[GoValue], str]
    """Prints the value in the grammar of ``dump.py``."""

    zero: GoValue
    """The value before anything was decoded."""


GoType: TypeAlias = GoString | GoInteger | GoMap | GoSlice | GoBytes | GoPointer | GoStruct | GoSelfDecoding

STRING = GoString()
INT = GoInteger()
UINT64 = GoInteger("uint64", 0, UINT64_MAX)
INTS = GoSlice("[]int", INT)


def type_name(kind: GoType) -> str:
    """Return the name that messages and dumps give to a type.

    >>> type_name(INTS)
    '[]int'
    """
    match kind:
        case GoStruct(name=name, package=package):
            return f"{package}.{name}"
        case GoPointer(element=element):
            return type_name(element)
        case GoSelfDecoding(form=form):
            return type_name(form)
        case _:
            return kind.name


def zero(kind: GoType) -> GoValue:
    """Return the value of a type before anything is stored: maps, slices and pointers are nil.

    >>> zero(GoStruct("Pair", (GoField("a", "A", STRING), GoField("b", "B", INTS))))
    {'a': '', 'b': None}
    """
    match kind:
        case GoString():
            return ""
        case GoInteger():
            return 0
        case GoStruct(fields=fields):
            return {field.member: zero(field.type) for field in fields}
        case GoSelfDecoding():
            return kind.zero
        case _:
            return None
