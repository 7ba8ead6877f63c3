"""The checksums of the state files: FNV-1a with 32 bits, in the older formats over a text dump of a structure.

The grammar of the dump: a pointer at the top is ``(*state.Name){Field:(type)value Field2:(type)value}``; a text stands
raw, a number decimal; ``map[key:value key:value]`` with sorted keys, ``[value value]``, both ``<nil>`` when nil;
elements and map values carry no type; a pointer as a map value is ``<*>`` and its target; a structure as a value is
``{Field:(type)value}``.

Source: hash/fnv and the dump package (go-spew) as used by checkpointmanager/checksum of kubelet v1.37.1; spec:
state-files.md section 3.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from mooring.engine.checkpoint.gotypes import (
    GoBytes,
    GoMap,
    GoPointer,
    GoSelfDecoding,
    GoSlice,
    GoStruct,
    GoType,
    GoValue,
    type_name,
)

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
