"""State files read at the speed of C, where they are what a writer of today writes.

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

from functools import cache
from typing import Annotated, Any, NotRequired, TypedDict

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
)
from mooring.engine.checkpoint.structures import fresh
from mooring.engine.core.gotext import INT64_MAX


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
    return msgspec.json.Decoder(_plain(structure))


def _plain(kind: GoType) -> Any:
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
            return dict[int if integer_keys else str, _plain(element)]  # type: ignore[misc]
        case GoSlice(element=element):
            return list[_plain(element)]  # type: ignore[misc]
        case GoPointer(element=element):
            return _plain(element)
        case GoSelfDecoding(form=form):
            return _plain(form)
        case GoStruct(name=name, fields=fields):
            members = {
                field.member: NotRequired[_plain(field.type)] if field.omit_empty else _plain(field.type)
                for field in fields
            }
            return TypedDict(name, members)  # type: ignore[operator]
