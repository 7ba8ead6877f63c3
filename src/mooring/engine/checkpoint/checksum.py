"""The checksums of the state files: FNV-1a with 32 bits, in the older formats over a text dump of a structure.

The grammar of the dump: a pointer at the top is ``(*state.Name){Field:(type)value Field2:(type)value}``; a text stands
raw, a number decimal; ``map[key:value key:value]`` with sorted keys, ``[value value]``, both ``<nil>`` when nil;
elements and map values carry no type; a pointer as a map value is ``<*>`` and its target; a structure as a value is
``{Field:(type)value}``.

Source: hash/fnv and the dump package (go-spew) as used by checkpointmanager/checksum of kubelet v1.37.1; spec:
state-files.md section 3.

State files read at the speed of C, where they are what a writer of today writes.

Nearly every file that is read was written by a kubelet of the same release or by Mooring, letter for letter as the
writers of ``cpu_file.py`` and ``memory_file.py`` write the same state. So a text is taken apart here without any of
Go's rules, by the same structures. The loaders make a state of what was found and write it again. Only when that gives
the same text, checksums included, they return the state.

Why that is the state which the strict readers return: they read back what the writers write (a law of the tests), for
every state whose numbers Go's types can hold. The text is the writer's text of the state that was found, so the strict
readers read it as that state. For all other texts the strict readers decide and complain.

Source: the formats of spec: state-files.md section 2.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

import msgspec

from mooring.engine.checkpoint.gotypes import (
    GoBytes,
    GoInteger,
    GoMap,
    GoPointer,
    GoSelfDecoding,
    GoSlice,
    GoString,
    GoStruct,
    GoType,
    GoValue,
    fresh,
    type_name,
)
from mooring.engine.core.gotext import INT64_MAX

OFFSET_BASIS = 0x811C9DC5
"""Hash of the empty text."""

PRIME = 0x01000193


def fnv1a_32(data: bytes) -> int:
    """Return the hash of ``data``.

    The C form of the package ``fnv-hash-fast`` is used where the package has wheels; it is about fifty times as fast.

    >>> hex(fnv1a_32(b""))
    '0x811c9dc5'
    >>> fnv1a_32(b'(string){"policyName":"none","defaultCPUSet":"4-6"}')
    657950972
    """
    return _fastest()(data)


def plain_fnv1a_32(data: bytes) -> int:
    """Return the hash of ``data``, computed in Python.

    >>> plain_fnv1a_32(b"mooring") == fnv1a_32(b"mooring")
    True
    """
    value = OFFSET_BASIS
    for byte in data:
        value = ((value ^ byte) * PRIME) & 0xFFFFFFFF
    return value


@cache
def _fastest() -> Callable[[bytes], int]:
    """Return the C form where it is installed, else the one in Python."""
    try:
        from fnv_hash_fast import fnv1a_32 as accelerated  # noqa: PLC0415 - not before a write
    except ImportError:
        return plain_fnv1a_32
    # Without its compiled part that package is built of another Python form, a slower one than ours.
    return accelerated if type(accelerated) is type(len) else plain_fnv1a_32


class Piece(NamedTuple):
    """A part of a state file in the two forms that are written and hashed."""

    json: str
    dump: str


def dump(struct: GoStruct, value: dict[str, GoValue], name: str) -> str:
    """Return the dump of a pointer to a structure under the given name.

    >>> from mooring.engine.checkpoint.gotypes import INTS, GoField
    >>> dump(GoStruct("Cells", (GoField("cells", "Cells", INTS),)), {"cells": [0, 1]}, "Group")
    '(*state.Group){Cells:([]int)[0 1]}'
    """
    return f"(*state.{name}){_plain(struct, value)}"


def value_checksum(struct: GoStruct, value: dict[str, GoValue]) -> int:
    """Return the checksum of a structure that is hashed as it is, not by a pointer."""
    return fnv1a_32(f"({type_name(struct)}){_plain(struct, value)}".encode(errors="surrogatepass"))


def legacy_checksum(struct: GoStruct, value: dict[str, GoValue], name: str) -> int:
    """Return the checksum of a structure of the older formats: over its dump with the checksum itself 0."""
    return fnv1a_32(dump(struct, {**value, "checksum": 0}, name).encode(errors="surrogatepass"))


def data_checksum(data: str) -> int:
    """Return the checksum of the text in a ``data`` member: a dump of a text is the text behind its type.

    >>> data_checksum('{"policyName":"none","defaultCpuSet":""}')
    3028111495
    """
    return fnv1a_32(f"(string){data}".encode())


def with_data(old: str, checksum: int, data: str) -> str:
    r"""Return the text of a file in a newest format: the members of an older one, and all again as a text.

    Args:
        old: the members of the older format, without braces.
        checksum: the older format's own.
        data: the members of the newest format, without braces.

    >>> print(with_data('"a":"b"', 7, '"a":"b"'))
    {"a":"b","checksum":7,"data":"{\"a\":\"b\"}","dataChecksum":2442963094}
    """
    data = f"{{{data}}}"
    # All special characters were escaped in the data already: only its quotes and backslashes are left to escape again.
    escaped = _JSON.encode(data).decode()
    return f'{{{old},"checksum":{checksum},"data":{escaped},"dataChecksum":{data_checksum(data)}}}'


_JSON = msgspec.json.Encoder()


def _plain(kind: GoType, value: GoValue) -> str:
    if isinstance(kind, GoSelfDecoding):
        return kind.dump(value)
    if value is None:
        return "<nil>"
    match kind:
        case GoMap(element=element):
            # Text keys sort by code point, which is the order of their UTF-8 bytes; integer keys sort as numbers.
            return f"map[{' '.join(f'{key}:{_plain(element, value[key])}' for key in sorted(value))}]"
        case GoBytes():
            return f"[{' '.join(map(str, value))}]"
        case GoSlice(element=element):
            return f"[{' '.join(_plain(element, item) for item in value)}]"
        case GoPointer(element=element):
            return f"<*>{_plain(element, value)}"
        case GoStruct(fields=fields):
            printed = (f"{f.name}:({type_name(f.type)}){_plain(f.type, value[f.member])}" for f in fields)
            return f"{{{' '.join(printed)}}}"
        case _:
            return str(value)


class _Outer(msgspec.Struct):
    """All that is read outside of ``data``, which holds everything that the newest formats say."""

    data: str


def canonical_data(text: str, structure: GoStruct) -> dict[str, GoValue] | None:
    """Return what the member ``data`` of a file holds; None when it is not of this structure.

    A type with a decoder of its own is left in the form that this decoder reads.
    """
    try:
        found: dict[str, GoValue] = _decoder(structure).decode(_OUTER.decode(text).data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return {**fresh(structure), **found}


def canonical_members(text: str, structure: GoStruct) -> dict[str, GoValue] | None:
    """Return what a file of a format without data holds; None when it is not of this structure."""
    try:
        found: dict[str, GoValue] = _decoder(structure).decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return {**fresh(structure), **found}


_OUTER = msgspec.json.Decoder(_Outer)


@cache
def _decoder(structure: GoStruct) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(_plain_json(structure))


def _plain_json(kind: GoType) -> Any:
    """Return the Python type of what a writer writes for a Go type."""
    match kind:
        case GoString():
            return str
        case GoBytes():
            return bytes
        case GoInteger(low=low, high=high):
            # Go's unsigned type holds twice as much; texts with such sizes are left to the strict readers.
            return Annotated[int, msgspec.Meta(ge=low, le=min(high, INT64_MAX))]
        case GoMap(element=element, integer_keys=integer_keys):
            return dict[int if integer_keys else str, _plain_json(element)]  # type: ignore[misc]
        case GoSlice(element=element):
            return list[_plain_json(element)]  # type: ignore[misc]
        case GoPointer(element=element):
            return _plain_json(element)
        case GoSelfDecoding(form=form):
            return _plain_json(form)
        case GoStruct(name=name, fields=fields):
            members = {
                field.member: NotRequired[_plain_json(field.type)] if field.omit_empty else _plain_json(field.type)
                for field in fields
            }
            return TypedDict(name, members)  # type: ignore[operator]
