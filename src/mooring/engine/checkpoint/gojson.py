"""Values out of JSON as Go decodes them, with the messages of its decoder; JSON strings as Go writes them.

What Go does and others do not: member names match in any case when no member has the exact name; of several
equal names the last one wins, but maps are added to; unknown members are passed over; null empties maps,
slices and pointers and leaves all else as it was; a value of a wrong type is remembered (the first one) while
decoding continues with the rest.

Source: encoding/json of Go (decode.go, encode.go) as built into kubelet v1.37.1; spec: state-files.md sections 1 and 4.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, replace

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

# Only two characters outside ASCII have an ASCII letter as their other case: the long s and the Kelvin sign.
_FOLD = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZſ\u212a", "abcdefghijklmnopqrstuvwxyzsk")
_LONGEST_INTEGER = 20  # characters of the longest 64-bit number, sign included; JSON allows no leading zeros
_TO_ESCAPE = re.compile('[\x00-\x1f"\\\\<>&\u2028\u2029\ud800-\udfff]')
_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_BYTE = GoInteger("uint8", 0, 255)
_SHORT = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(frozen=True, slots=True)
class TypeFault:
    """A value that does not fit the type it is decoded into (Go's UnmarshalTypeError)."""

    found: str
    """What the text has: string, number, array, object, bool, or ``number -1`` for a number out of range."""

    type: str
    """Name of the Go type."""

    struct: str = ""
    """Name of the innermost structure around the value; empty outside of any."""

    path: tuple[str, ...] = ()
    """Member names from the root to the value and names of embedded structures; map keys do not count."""

    def __str__(self) -> str:
        into = f"Go struct field {'.'.join((self.struct, *self.path))}" if self.struct else "Go value"
        return f"json: cannot unmarshal {self.found} into {into} of type {self.type}"


@dataclass(frozen=True, slots=True)
class Decoded:
    """A structure's members after decoding, complete or not, and what went wrong."""

    value: dict[str, GoValue]
    fault: TypeFault | str | None
    """None, the first type fault, or the text with which a type's own method ended the decoding."""


class _AbortedError(MooringError):
    """A type's own method failed: the decoding ends at once."""

    def __init__(self, fault: TypeFault | str) -> None:
        super().__init__(str(fault))
        self.fault = fault


def decode(document: JSONValue, struct: GoStruct, start: dict[str, GoValue]) -> Decoded:
    """Decode a JSON document into a structure whose members are ``start`` (changed in place, as Go does).

    >>> from mooring.engine.checkpoint.goscan import parse
    >>> from mooring.engine.checkpoint.gotypes import INT, STRING
    >>> pair = GoStruct("Pair", (GoField("a", "A", STRING), GoField("b", "B", INT)))
    >>> read = decode(parse(b'{"a": 1, "B": 2}'), pair, zero(pair))
    >>> print(read.value, read.fault)
    {'a': '', 'b': 2} json: cannot unmarshal number into Go struct field Pair.a of type string
    """
    decoding = _Decoding()
    try:
        value = decoding.value(struct, document, start)
    except _AbortedError as error:
        return Decoded(start, error.fault)
    return Decoded(value, decoding.fault)


class _Decoding:
    """One run of the decoder: where it is, and the first fault."""

    __slots__ = ("_path", "_struct", "fault")

    def __init__(self) -> None:
        self.fault: TypeFault | str | None = None
        self._struct = ""
        self._path: tuple[str, ...] = ()

    def value(self, kind: GoType, found: JSONValue, current: GoValue) -> GoValue:
        """Return what ``current`` becomes when ``found`` is stored in it."""
        if isinstance(kind, GoSelfDecoding):
            return self._self_decoding(kind, found)
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
                return self._members(kind, found, current)
            case GoMap() if isinstance(found, JSONObject):
                return self._entries(kind, found, current)
            case GoBytes() if isinstance(found, str):
                return self._bytes(found, current)
            case GoBytes() if isinstance(found, list):
                return bytes(self._elements(_BYTE, found, list(current or b"")))
            case GoSlice(element=element) if isinstance(found, list):
                return self._elements(element, found, current or [])
            case _:
                self._refuse(_word_for(found), kind)
                return current

    def _members(self, kind: GoStruct, found: JSONObject, current: dict[str, GoValue]) -> dict[str, GoValue]:
        struct, path = self._struct, self._path
        for name, value in found.members:
            field = _field_of(kind, name)
            if field is None:
                continue
            self._struct = kind.name
            self._path = (*path, field.embedded, field.member) if field.embedded else (*path, field.member)
            current[field.member] = self.value(field.type, value, current[field.member])
            self._struct, self._path = struct, path
        return current

    def _entries(self, kind: GoMap, found: JSONObject, current: GoValue) -> GoValue:
        entries = {} if current is None else current
        for name, value in found.members:
            element = self.value(kind.element, value, zero(kind.element))
            if not kind.integer_keys:
                entries[name] = element
                continue
            try:
                entries[atoi(name)] = element
            except GoSyntaxError:
                self._refuse(f"number {name}", GoInteger(kind.key))
        return entries

    def _elements(self, kind: GoType, found: list[JSONValue], current: list[GoValue]) -> list[GoValue]:
        """Decode a slice over its former elements, which is what Go does with a member that appears twice."""
        known = len(current)
        return [
            self.value(kind, value, current[index] if index < known else zero(kind))
            for index, value in enumerate(found)
        ]

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

    def _self_decoding(self, kind: GoSelfDecoding, found: JSONValue) -> GoValue:
        inner = decode(found, kind.form, zero(kind.form))
        if isinstance(inner.fault, TypeFault):
            path = (*self._path, *inner.fault.path)
            raise _AbortedError(replace(inner.fault, struct=self._struct or inner.fault.struct, path=path))
        if inner.fault is not None:
            raise _AbortedError(inner.fault)
        try:
            return kind.read(inner.value)
        except MooringError as error:
            raise _AbortedError(str(error)) from None

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


def _word_for(found: JSONValue) -> str:
    match found:
        case bool():
            return "bool"
        case str():
            return "string"
        case JSONNumber():
            return "number"
        case list():
            return "array"
        case _:
            return "object"


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
