"""The objects of a scenario file, one at a time."""

from __future__ import annotations

import gzip
import io
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, cast

import msgspec

from mooring.core.errors import InputError
from mooring.decoding.documents import (
    STANDARD_INPUT,
    SUFFIXES,
    load_documents,
    open_problem,
    read_standard_input,
    shown,
)

LONGEST_LINE = 32 * 1024**2
"""Bytes that one scenario may have, unpacked; the longest recorded one has a hundredth of that."""
_GZIP = b"\x1f\x8b"


def scenario_objects(path: str | os.PathLike[str]) -> Iterator[tuple[object, str]]:
    """Yield each object of a file with its place for messages.

    Files called ``.yaml``, ``.yml`` and ``.json`` are read as documents, all others as JSON lines. A repeated
    key of a JSON line is not noticed: recordings are written by programs, and read several times faster this
    way.

    Raises:
        InputError: the file cannot be read or unpacked, or a line is not JSON.
    """
    if path != "-" and Path(path).suffix in SUFFIXES:
        for document in load_documents(path):
            yield document.content, document.source
        return
    name = STANDARD_INPUT if path == "-" else shown(path)
    decoder = msgspec.json.Decoder()
    for number, line in enumerate(_lines(path, name), 1):
        if not line.isspace():
            yield _decoded(decoder, line, f"{name}:{number}"), f"{name}:{number}"


def _decoded(decoder: msgspec.json.Decoder[object], line: bytes, place: str) -> object:
    try:
        return decoder.decode(line)
    except msgspec.DecodeError as error:
        raise InputError(f"not valid JSON: {error}", source=place) from None
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", source=place) from None
    except RecursionError:
        raise InputError("nested too deeply", source=place) from None


def _lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    number = 0
    try:
        with ExitStack() as stack:
            stream = _unpacked(path, stack)
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    limit = LONGEST_LINE // 1024**2
                    raise InputError(f"a line longer than {limit} MiB", source=f"{name}:{number}")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        remedy = "copy the file again"
        raise InputError(
            "the compressed data is damaged or cut short", source=f"{name}:{number + 1}", remedy=remedy
        ) from None
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=name) from None


def _unpacked(path: str | os.PathLike[str], stack: ExitStack) -> IO[bytes]:
    packed = stack.enter_context(_opened(path))
    if packed.peek(2)[:2] == _GZIP:
        return cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=packed)))
    return packed


def _opened(path: str | os.PathLike[str]) -> io.BufferedReader:
    if path == "-":
        return cast("io.BufferedReader", io.BufferedReader(io.BytesIO(read_standard_input())))
    return Path(path).open("rb")
