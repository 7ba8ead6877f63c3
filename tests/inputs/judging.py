"""What holds for every input: one line or an answer, in time, and nothing written outside a temporary folder."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from random import Random

from tests.inputs.readers import Reader

from mooring.engine.core.errors import MooringError

MOST_TIME = 1.0
"""Seconds of CPU for one input."""
LONGEST_LINE = 2000
"""Characters of a message."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod")
_FOLDER = os.path.realpath(tempfile.gettempdir())
_watched: list[bool] = []


def judged(reader: Reader, data: bytes) -> None:
    """Read one input.

    Raises:
        AssertionError: it took too long, or its message is not one line.
        Exception: whatever the reader raised that is no MooringError.
    """
    taken = _read(reader, data)
    if taken > MOST_TIME:
        # The first input of a process may import modules.
        taken = _read(reader, data)
    assert taken <= MOST_TIME, f"{taken:.2f} seconds of CPU for {len(data)} bytes"


def _read(reader: Reader, data: bytes) -> float:
    """Read an input, and return the seconds of CPU that this took."""
    before = time.process_time()
    with _nothing_written():
        try:
            reader.read(data)
        except MooringError as error:
            text = str(error)
            assert text, "an error without a message"
            assert "\n" not in text, f"a message of several lines: {text!r}"
            assert len(text) <= LONGEST_LINE, f"a message of {len(text)} characters: {text[:200]!r}"
    return time.process_time() - before


def damaged(data: bytes, draw: Random) -> bytes:
    """Return the bytes with one to four changes: bytes replaced, cut, doubled, or moved."""
    made = bytearray(data)
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(len(made) + 1)
        end = min(len(made), start + draw.choice((1, 2, 8, 64)))
        match draw.randrange(4):
            case 0:
                made[start:end] = draw.randbytes(end - start)
            case 1:
                del made[start:end]
            case 2:
                made[start:start] = made[start:end] * draw.choice((1, 2, 100))
            case _:
                part = made[start:end]
                del made[start:end]
                at = draw.randrange(len(made) + 1)
                made[at:at] = part
    return bytes(made)


@contextmanager
def _nothing_written() -> Iterator[None]:
    _listen()
    _watched.append(True)
    try:
        yield
    finally:
        _watched.pop()


@cache
def _listen() -> None:
    sys.addaudithook(_audit)


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if not _watched:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = bool(isinstance(flags, int) and flags & _WRITING) or (
            isinstance(mode, str) and set(mode) & set("wax+")
        )
        if writes and isinstance(path, str | bytes):
            _check(os.fsdecode(path))
    elif event in _CHANGES and isinstance(arguments[0], str | bytes):
        _check(os.fsdecode(arguments[0]))


def _check(path: str) -> None:
    found = os.path.realpath(path)
    assert found == _FOLDER or found.startswith(_FOLDER + os.sep), f"{path} is written"
