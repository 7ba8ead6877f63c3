"""Values out of JSON as Go decodes them, with the messages of its decoder; JSON strings as Go writes them.

What Go does and others do not: member names match in any case when no member has the exact name; of several
equal names the last one wins, but maps are added to; unknown members are passed over; null empties maps,
slices and pointers and leaves all else as it was; a value of a wrong type is remembered (the first one) while
decoding continues with the rest.

Go 1.27 decodes the same, names places by the whole path from the document, and remembers what a type's own method
refuses like any other fault.

Source: encoding/json of Go (decode.go, encode.go) as built into kubelet v1.37.1, and encoding/json/v2 as built into
v1.38.0-beta.0; spec: state-files.md sections 1 and 4, preview.md section 13.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from mooring.engine.checkpoint.goscan import JSONNumber, JSONObject, JSONValue
from mooring.engine.checkpoint.gotypes import (
    GoBytes,
    GoField,
    GoInteger,
    GoMap,
    GoPointer,
    GoSelfDecoding,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    GoValue,
    type_name,
    zero,
)
from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import GoSyntaxError, atoi
from mooring.lazy import dataclass, replace

# Only two characters outside ASCII have an ASCII letter as their other case: the long s and the Kelvin sign.
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZſ\u212a", "abcdefghijklmnopqrstuvwxyzsk")
_LONGEST_INTEGER = 20  # characters of the longest 64-bit number, sign included; JSON allows no leading zeros
_TO_ESCAPE = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_BYTE = GoInteger("uint8", 0, 255)
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


_WORDS: Final[Mapping[type, str]] = {
    bool: "bool", str: "string", JSONNumber: "number", list: "array", JSONObject: "object",
}  # fmt: skip
"""What Go's complaints call a value that does not fit."""


@dataclass(frozen=True, slots=True)
class TypeFault:
    """A value that does not fit the type it is decoded into (Go's UnmarshalTypeError)."""

    found: str
    """What the text has: string, number, array, object, bool, or ``number -1`` for a number out of range."""

    type: str
    """Name of the Go type."""

    struct: str = ""
    """Name of the innermost structure around the value, since Go 1.27 of the outermost; empty outside of any."""

    path: tuple[str, ...] = ()
    """Member names from the root to the value and names of embedded structures; since Go 1.27 all names, keys of maps
    and places in lists."""

    def __str__(self) -> str:
        into = ".".join((self.struct, *self.path)) if self.struct else "Go value"
        last = into.rpartition(".")[2]
        if self.struct and not (last.isascii() and last.isdecimal()):  # a place in a list is no field to Go 1.27
            into = f"Go struct field {into}"
        return f"json: cannot unmarshal {self.found} into {into} of type {self.type}"


GoFault: TypeAlias = TypeFault | str
"""The first type fault, or the text with which a type's own method ended the decoding."""


class _AbortedError(MooringError):
    """A type's own method failed: the decoding ends at once."""

    def __init__(self, fault: GoFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def decode(
    document: JSONValue, struct: GoStruct, start: dict[str, GoValue], *, json_v2: bool = False
) -> tuple[dict[str, GoValue], GoFault | None]:
    """Decode a JSON document into a structure whose members are ``start`` (changed in place, as Go does).

    Returns:
        The members, complete or not, and what went wrong.

    Args:
        document: what was parsed.
        struct: its type.
        start: the members before.
        json_v2: whether the complaints are those of Go 1.27.

    >>> from mooring.engine.checkpoint.goscan import parse
    >>> from mooring.engine.checkpoint.gotypes import INT, STRING
    >>> pair = GoStruct("Pair", (GoField("a", "A", STRING), GoField("b", "B", INT)))
    >>> print(*decode(parse(b'{"a": 1, "B": 2}'), pair, zero(pair)))
    {'a': '', 'b': 2} json: cannot unmarshal number into Go struct field Pair.a of type string
    """
    decoding = _Decoding(json_v2=json_v2)
    try:
        value = decoding.value(struct, document, start)
    except _AbortedError as error:
        return start, error.fault
    return value, decoding.fault


class _Decoding:
    """One run of the decoder: where it is, and the first fault."""

    __slots__ = ("_json_v2", "_path", "_struct", "fault")

    def __init__(self, *, json_v2: bool) -> None:
        self._json_v2 = json_v2
        self.fault: GoFault | None = None
        self._struct = ""
        self._path: tuple[str, ...] = ()

    def value(self, kind: GoType, found: JSONValue, current: GoValue) -> GoValue:
        """Return what ``current`` becomes when ``found`` is stored in it."""
        if isinstance(kind, GoSelfDecoding):
            form, fault = decode(found, kind.form, zero(kind.form), json_v2=self._json_v2)
            if self._json_v2 and fault is not None:
                self.fault = self.fault or fault
                return kind.zero
            if isinstance(fault, TypeFault):
                path = (*self._path, *fault.path)
                raise _AbortedError(replace(fault, struct=self._struct or fault.struct, path=path))
            if fault is not None:
                raise _AbortedError(fault)
            try:
                return kind.read(form)
            except MooringError as error:
                if self._json_v2:
                    self.fault = self.fault or str(error)
                    return kind.zero
                raise _AbortedError(str(error)) from None
        if found is None:
            return None if isinstance(kind, GoMap | GoSlice | GoBytes | GoPointer) else current
        if isinstance(kind, GoPointer):
            return self.value(kind.element, found, zero(kind.element) if current is None else current)
        return self._plain(kind, found, current)

    def _plain(self, kind: GoType, found: JSONValue, current: GoValue) -> GoValue:
        """Store a value that is not null in a type that is no pointer; what does not fit changes nothing."""
        match kind:
            case GoString() if isinstance(found, str):
                return found
            case GoInteger() if isinstance(found, JSONNumber):
                return self._integer(kind, found.text, current)
            case GoStruct() if isinstance(found, JSONObject):
                struct, path = self._struct, self._path
                for name, value in found.members:
                    field = _field_of(kind, name)
                    if field is None:
                        continue
                    if self._json_v2:
                        self._struct, self._path = struct or kind.name, (*path, _as_pointer(name))
                    else:
                        self._struct = kind.name
                        self._path = (*path, field.embedded, field.member) if field.embedded else (*path, field.member)
                    current[field.member] = self.value(field.type, value, current[field.member])
                    self._struct, self._path = struct, path
                return current
            case GoMap() if isinstance(found, JSONObject):
                return self._entries(kind, found, current)
            case GoBytes() if isinstance(found, str):
                return self._bytes(found, current)
            case GoBytes() if isinstance(found, list):
                return bytes(self._elements(_BYTE, found, list(current or b"")))
            case GoSlice(element=element) if isinstance(found, list):
                return self._elements(element, found, current or [])
            case _:
                self._refuse(_WORDS[type(found)], kind)
                return current

    def _entries(self, kind: GoMap, found: JSONObject, current: GoValue) -> GoValue:
        entries = {} if current is None else current
        path = self._path
        for name, value in found.members:
            if self._json_v2:
                self._path = (*path, _as_pointer(name))
            try:
                key = atoi(name) if kind.integer_keys else name
            except GoSyntaxError:
                key = None
            # Go 1.27 passes over the value of a wrong key, older ones decode it first.
            element = None if self._json_v2 and key is None else self.value(kind.element, value, zero(kind.element))
            if key is None:
                self._refuse(f"number {name}", GoInteger(kind.key))
            else:
                entries[key] = element
        self._path = path
        return entries

    def _elements(self, kind: GoType, found: list[JSONValue], current: list[GoValue]) -> list[GoValue]:
        """Decode a slice over its former elements, which is what Go does with a member that appears twice."""
        path, elements = self._path, []
        for index, value in enumerate(found):
            if self._json_v2:
                self._path = (*path, str(index))
            elements.append(self.value(kind, value, current[index] if index < len(current) else zero(kind)))
        self._path = path
        return elements

    def _bytes(self, found: str, current: GoValue) -> GoValue:
        # Go passes over the ends of lines in base64, and nothing else.
        text = found.replace("\n", "").replace("\r", "")
        try:
            return base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            wrong = next((place for place, char in enumerate(text) if char not in _BASE64), len(text))
            self.fault = self.fault or f"illegal base64 data at input byte {wrong}"
            return current

    def _integer(self, kind: GoInteger, text: str, current: GoValue) -> GoValue:
        digits = text.removeprefix("-") if kind.low < 0 else text  # unsigned types take no sign, not even that of -0
        if digits.isdigit() and len(text) <= _LONGEST_INTEGER and kind.low <= int(text) <= kind.high:
            return int(text)
        self._refuse(f"number {text}", kind)
        return current

    def _refuse(self, found: str, kind: GoType) -> None:
        if self.fault is None:
            self.fault = TypeFault(found, type_name(kind), self._struct, self._path)


def _field_of(struct: GoStruct, name: str) -> GoField | None:
    """Return the field that a member name means: the exact name first, then any case."""
    for field in struct.fields:
        if field.member == name:
            return field
    folded = name.translate(_FOLD)
    return next((field for field in struct.fields if field.member.translate(_FOLD) == folded), None)


def _as_pointer(name: str) -> str:
    """Return a name as JSON pointers write it."""
    return name.replace("~", "~0").replace("/", "~1")


@lru_cache(maxsize=1024)
def quoted(text: str) -> str:
    r"""Return ``text`` as a JSON string as Go writes it: what HTML or JavaScript might trip over is escaped.

    >>> print(quoted('a<b "c"'))
    "a\u003cb \"c\""
    """
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    char = match.group()
    if "\ud800" <= char <= "\udfff":
        return "\\ufffd"  # no character at all: Go writes the replacement for what is not UTF-8
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
