"""The order in which the kubelet tries the formats of a state file, and which error it reports.

The newest format is tried first. A file that shows any sign of it (data, or a checksum of data) is never taken for an
older one; any other is tried as the older formats in turn, and the complaint of the last one is the one reported.

Source: kubelet v1.37.1, state_checkpoint.go of both managers and checkpointmanager; spec: state-files.md section 4.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from mooring.checkpoint.dump import data_checksum
from mooring.checkpoint.gojson import decode
from mooring.checkpoint.goscan import JSONSyntaxError, JSONValue, parse
from mooring.checkpoint.gotypes import GoStruct, GoValue
from mooring.checkpoint.structures import fresh

CORRUPTED = "checkpoint is corrupted"
"""The kubelet's text for a checksum that does not match."""

_NO_BYTE = re.compile("[\ud800-\udc7f\udd00-\udfff]")


@dataclass(frozen=True, slots=True)
class OlderFormat:
    """A format without data, and which checksums it may have."""

    structure: GoStruct

    accepts: Callable[[dict[str, GoValue]], bool]
    """Tells whether the decoded structure carries a checksum that the kubelet accepts."""


@dataclass(frozen=True, slots=True)
class Family:
    """All formats of one manager's state file that kubelet v1.37.1 reads."""

    noun: str
    """``cpu manager`` or ``memory manager``, as the messages say it."""

    label: str
    """Version of the newest format: ``v4`` or ``v3``."""

    newest: GoStruct
    data: GoStruct
    older: tuple[OlderFormat, ...]
    """The older formats, newest first."""


def read_checkpoint(text: str, family: Family) -> dict[str, GoValue] | str:
    """Return the members of the first format that fits, or the kubelet's error text.

    Args:
        text: The file; bytes that are not UTF-8 are lone surrogates, as ``surrogateescape`` makes them.
        family: The formats to try.
    """
    try:
        document = parse(bytes_of(text))
    except JSONSyntaxError as error:
        # Every format fails on it in the same way. Nothing was decoded, so no data is seen and the last format reports.
        return str(error)
    outer = decode(document, family.newest, fresh(family.newest))
    if outer.fault is not None:
        problem = f"failed to deserialize {family.noun} checkpoint: {outer.fault}"
    else:
        data = _read_data(outer.value, family)
        if isinstance(data, dict):
            return data
        problem = data
    if outer.value["data"] or outer.value["dataChecksum"]:
        return f"could not load {family.label} checkpoint: {problem}"
    return _read_older(document, family)


def _read_data(outer: dict[str, GoValue], family: Family) -> dict[str, GoValue] | str:
    """Return the decoded data of the newest format. Decoding comes before the comparison of checksums."""
    try:
        document = parse(outer["data"].encode())
    except JSONSyntaxError as error:
        return f"failed to deserialize {family.noun} checkpoint data: {error}"
    data = decode(document, family.data, fresh(family.data))
    if data.fault is not None:
        return f"failed to deserialize {family.noun} checkpoint data: {data.fault}"
    return data.value if data_checksum(outer["data"]) == outer["dataChecksum"] else CORRUPTED


def _read_older(document: JSONValue, family: Family) -> dict[str, GoValue] | str:
    problem = CORRUPTED
    for older in family.older:
        read = decode(document, older.structure, fresh(older.structure))
        if read.fault is None and older.accepts(read.value):
            return read.value
        problem = CORRUPTED if read.fault is None else str(read.fault)
    return problem


def bytes_of(text: str) -> bytes:
    """Return the bytes of a file's text; a surrogate that stands for no byte counts as a wrong character."""
    return _NO_BYTE.sub("\ufffd", text).encode(errors="surrogateescape")
