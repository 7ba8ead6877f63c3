"""The bytes and the text of files and of standard input, bounded in size before they are read."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.positions import shown_place

Paths: TypeAlias = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
"""One path, or several."""
LARGEST_FILE = 64 * 1024**2
"""Bytes that one file may have: ``kubectl get pods -o json`` of about five thousand pods."""
STANDARD_INPUT = "standard input"
"""Name of ``-`` in messages."""


def paths_of(given: Paths) -> list[str]:
    """Return the paths; a text is one path and not many letters."""
    return [os.fspath(path) for path in ([given] if isinstance(given, str | os.PathLike) else given)]


def read_text(file: Path) -> str:
    """Read a text file of bounded size.

    Raises:
        InputError: it cannot be opened, is too large, or is not UTF-8 text.
    """
    return text_of(read_bytes(file), shown(file))


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path as messages show it: printable whatever bytes it has."""
    return os.fspath(path).encode("utf-8", "backslashreplace").decode()


def open_problem(error: OSError | ValueError) -> str:
    """Return in words why a file cannot be opened."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return f"cannot be read: {reason.lower()}"


def check_regular(file: Path) -> None:
    """Refuse a file that may never end to be waited for, such as a named pipe.

    The pipes of a shell (``/dev/stdin``, ``<(...)``) are below ``/dev`` and ``/proc``, and open already.

    Raises:
        InputError: it is no regular file, or not there.
    """
    if file.parts[:2] in (("/", "dev"), ("/", "proc")):
        return
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=shown(file)) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        remedy = "name a file, or pass the content on standard input: -"
        raise InputError("is a pipe, socket or device", source=shown(file), remedy=remedy)


def read_bytes(file: Path) -> bytes:
    """Read a file of bounded size.

    Raises:
        InputError: it cannot be opened, or is too large.
    """
    try:
        with file.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size > LARGEST_FILE:
                raise _too_large(shown(file))
            return _bounded(stream.read(LARGEST_FILE + 1), shown(file))
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=shown(file)) from None


def read_standard_input() -> bytes:
    """Read standard input, bounded like a file.

    Raises:
        InputError: it is closed, or too large.
    """
    try:
        return _bounded(sys.stdin.buffer.read(LARGEST_FILE + 1), STANDARD_INPUT)
    except (OSError, ValueError) as error:
        raise InputError(open_problem(error), source=STANDARD_INPUT) from None


def _bounded(data: bytes, source: str) -> bytes:
    if len(data) > LARGEST_FILE:
        raise _too_large(source)
    return data


def _too_large(source: str) -> InputError:
    limit = LARGEST_FILE // 1024**2
    return InputError(f"larger than {limit} MiB", source=source, remedy="split it, or select fewer objects")


def text_of(data: bytes, source: str) -> str:
    """Return the text in the bytes of a file; ``source`` names it in messages.

    Raises:
        InputError: it is not UTF-8 text.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise InputError("the text is UTF-16", source=source, remedy="save it as UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise InputError(
            f"not UTF-8 text (byte 0x{data[error.start]:02x})",
            source=f"{source}:{line}:{column}",
            remedy="save it as UTF-8",
        ) from None
    zero = text.find("\0")
    if zero >= 0:
        raise InputError("a NUL character: this is not a text file", source=shown_place(source, text, zero))
    return text
