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

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.documents import SUFFIXES, load_documents
from mooring.inputs.decoding.fields import Document, Value
from mooring.inputs.decoding.files import STANDARD_INPUT, check_regular, open_problem, read_standard_input, shown
from mooring.inputs.decoding.json_reader import json_error

LONGEST_LINE = 32 * 1024**2
"""Bytes that one scenario may have, unpacked; the longest recorded one has a hundredth of that."""
_GZIP = b"\x1f\x8b"


def scenario_documents(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Yield the objects of a file.

    Files called ``.yaml``, ``.yml`` and ``.json`` are read as documents, all others as JSON lines. A repeated
    key of a JSON line is not noticed: recordings are written by programs, and read several times faster this
    way.

    Raises:
        InputError: the file cannot be read or unpacked, or a line is not JSON.
    """
    if path != "-":
        check_regular(Path(path))
    if path != "-" and Path(path).suffix in SUFFIXES:
        yield from load_documents(path)
        return
    name = STANDARD_INPUT if path == "-" else shown(path)
    decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder()
    is_empty = True
    for number, line in enumerate(_lines(path, name), 1):
        if not line.isspace():
            is_empty = False
            yield Document(_decoded(decoder, line, name, number), name, 1, number, line, is_alone=True)
    if is_empty:
        raise InputError("nothing in it", source=name)


def _decoded(decoder: msgspec.json.Decoder[Value], line: bytes, name: str, number: int) -> Value:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise json_error(line, name, number) from None


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
