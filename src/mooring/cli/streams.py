"""Standard output and standard error that fail: full disks, pipes without a reader, closed descriptors."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from typing import BinaryIO, TextIO


def drop_unwritten(stream: TextIO | BinaryIO | None) -> None:
    """Point a stream nowhere: the interpreter would try once more, in vain, to write what is buffered."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # type: ignore[union-attr]  # None is caught, too
    except (AttributeError, OSError, ValueError):
        return


@contextmanager
def unfailing(stream: TextIO | None) -> Iterator[None]:
    """Let standard error be ``stream``, where what it cannot take is lost without an error.

    A warning that cannot be written costs neither the answer, which goes to standard output, nor its exit code. What
    the encoding cannot express is escaped.
    """
    buffer = getattr(stream, "buffer", None)
    if stream is None or buffer is None:
        yield
        return
    taken = _Unfailing(buffer)
    with redirect_stderr(
        io.TextIOWrapper(taken, encoding=stream.encoding, errors="backslashreplace", write_through=True)
    ):
        try:
            yield
        finally:
            if not taken.passed_on():
                drop_unwritten(buffer)


class _Unfailing(io.RawIOBase):
    """Bytes on their way to a stream that may fail: a file on a disk that is full now may have room for the next."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__()
        self._stream = stream

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self._stream.name

    def writable(self) -> bool:
        """Tell that it takes bytes."""
        return True

    def isatty(self) -> bool:
        """Tell whether the stream is a terminal."""
        return self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor of the stream."""
        return self._stream.fileno()

    def write(self, data: bytes) -> int:  # type: ignore[override]  # a buffer of any kind
        """Pass bytes on, or lose them."""
        with suppress(OSError):
            self._stream.write(data)
            self._stream.flush()
        return len(data)

    def passed_on(self) -> bool:
        """Tell whether the stream has taken all that it still held back."""
        try:
            self._stream.flush()
        except OSError:
            return False
        return True
