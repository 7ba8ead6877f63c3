"""Writing answers to standard output or to a file that is replaced whole or not at all; what every verb refuses.

Documents are UTF-8; texts for people are in the encoding of the terminal. Standard output and standard error can fail:
full disks, pipes without a reader, closed descriptors. Refused are typed values that are empty, numbers that are none,
and verbs whose packages an extra would have installed.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from math import isnan
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO

import click
from click.core import ParameterSource

from mooring import DISTRIBUTION
from mooring.lazy import lazily

with lazily():
    import json
    import pathlib

    import msgspec

    from mooring.engine.core import errors

if TYPE_CHECKING:
    from mooring.documents.plan import FindingPart
    from mooring.engine.core.machine import Finding


class Verb(click.Command):
    """A command of which no value that was typed is empty.

    An unset variable of a script gives such a value. It would count as not given, or as the current folder, and the
    answer would be about another node than the one that was meant.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line.

        Raises:
            InputError: a value is empty.
        """
        rest = super().parse_args(ctx, args)
        for parameter in self.params if not ctx.resilient_parsing else ():
            value = ctx.params.get(parameter.name or "")
            typed = ctx.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
            values = value if isinstance(value, tuple) else (value,)
            if typed and any(isinstance(one, str) and not one.strip() for one in values):
                raise errors.InputError(
                    "is empty",
                    field=parameter.opts[0] if isinstance(parameter, click.Option) else "the argument",
                    remedy="give it a value" if parameter.required else "give it a value, or leave it out",
                )
        return rest


class Seconds(click.FloatRange):
    """A number of seconds; click's own ranges take nan, which is in none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        seconds = float(super().convert(value, param, ctx))
        if isnan(seconds):
            self.fail(f"{value} is not a number of seconds", param, ctx)
        return seconds


@contextmanager
def needs_extra(name: str, *, source: str) -> Iterator[None]:
    """Name the extra that installs what a verb lacks.

    Args:
        name: the extra, of ``pyproject.toml``.
        source: the verb, as errors name it.

    Raises:
        InputError: a package other than Mooring is missing.

    >>> try:
    ...     with needs_extra("fleet", source="mooring fleet"):
    ...         import no_such_package
    ... except errors.InputError as error:
    ...     print(error.remedy)
    install its packages: pip install 'kube-mooring[fleet]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "mooring").startswith("mooring"):
            raise
        raise errors.InputError(
            f"the package {(error.name or '').partition('.')[0]} is missing",
            source=source,
            remedy=f"install its packages: pip install '{DISTRIBUTION}[{name}]'",
        ) from None


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


STANDARD_OUTPUT = "-"
"""Names standard output as a destination."""
TO = "--to"
"""The option by which most verbs name a destination."""
YES = 0
NO = 1
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_NOTES = frozenset(f"MOOR-{number}" for number in (502, 503, 514, 516, 517, 528, 541, 542, 543, 548, 584, 585))
"""Codes of findings of the severity info that a person has to know."""


class StyledText(str):
    """A text whose escapes are those of styles: :func:`mooring.cli.terminal.text_for` makes it of printable texts."""

    __slots__ = ()


def emit(text: str, to: str = "") -> None:
    """Write a text for people to the terminal, or to the file ``to``; nothing foreign in it is more than text.

    Raises:
        InputError: it cannot be written.
    """
    on_terminal = to in ("", STANDARD_OUTPUT)
    encoding = (getattr(sys.stdout, "encoding", None) if on_terminal else None) or "utf-8"
    shown = text if isinstance(text, StyledText) else errors.printable(text)
    write_answer(_ended(shown).encode(encoding, "replace"), to)


def tell(text: str) -> None:
    """Write lines for people to standard error: errors, warnings, and what happens meanwhile."""
    click.echo(errors.printable(text), err=True)


def emit_document(text: str | Iterable[str], to: str = "", option: str = TO) -> None:
    """Write a document for programs, such as JSON, YAML or SVG: UTF-8 whatever the terminal's encoding.

    One that comes in parts is never in memory as a whole. Control characters that the format leaves as they are, as
    JSON does those of a second kind (C1), are escaped.

    Raises:
        InputError: it cannot be written.
    """
    parts = (_ended(text),) if isinstance(text, str) else text
    escaped = (_CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", one) for one in parts)
    write_answer((one.encode("utf-8", "backslashreplace") for one in escaped), to, option)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def json_text(document: Any) -> str:
    """Return a document as indented JSON."""
    try:
        return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
    except UnicodeEncodeError:
        # A name with bytes that are not UTF-8, as a file can have: JSON can escape what UTF-8 cannot say.
        return json.dumps(msgspec.to_builtins(document), indent=2)


def warn(findings: Iterable[Finding | FindingPart]) -> None:
    """Print warnings and what was left out to standard error, one line each; of many subjects the first."""
    told: dict[tuple[str, str], dict[str, None]] = {}
    for finding in findings:
        if finding.severity == "warning" or finding.code in _NOTES:
            kind = "warning" if finding.severity == "warning" else "note"
            mark = f"[{finding.code}]" if finding.code else ""
            told.setdefault((f"{kind}{mark}", finding.message), {})[finding.subject] = None
    for (kind, message), subjects in told.items():
        names = [*subjects]
        if len(names) > _MOST_SUBJECTS:
            names = [f"{names[0]} and {len(names) - 1} more (-o json lists them)"]
        for name in names:
            tell(errors.clean(f"{kind}: {name}: {message}"))


_MOST_SUBJECTS = 2
"""Findings with one message that are printed each."""
_REMEDY = "name a file in a directory that can be written"


def check_destination(to: str, option: str = TO) -> str:
    """Return a destination; one that cannot work is refused before anything is computed.

    Args:
        to: the destination.
        option: that names it.

    Raises:
        InputError: it is a directory, or its directory is missing or may not be written.
    """
    if to in ("", STANDARD_OUTPUT):
        return to
    path = pathlib.Path(to)
    try:
        if path.is_dir():
            raise errors.InputError("is a directory", source=to, field=option, remedy="name a file in it")
        if path.exists() and not path.is_file():
            return to
        folder = path.resolve().parent
        if not folder.is_dir():
            raise errors.InputError(f"no such directory: {folder}", source=to, field=option, remedy="create it first")
        if not os.access(folder, os.W_OK):
            raise errors.InputError(f"cannot write in {folder}", source=to, field=option, remedy=_REMEDY)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(to, option, error) from None
    return to


def write_answer(data: bytes | Iterable[bytes], to: str, option: str = TO) -> None:
    """Write an answer to standard output or to a file.

    A file appears with all of the answer or stays as it was; links are followed, devices and pipes are written to.
    Arguments as of :func:`check_destination`.

    Raises:
        InputError: that fails.
        BrokenPipeError: the reader of standard output went away.
    """
    parts = (data,) if isinstance(data, bytes) else data
    if to in ("", STANDARD_OUTPUT):
        _print(parts)
        return
    try:
        path = pathlib.Path(to).resolve()
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.writelines(parts)
        else:
            _replace(path, parts)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(to, option, error) from None


def unprintable(error: OSError) -> errors.InputError:
    """Return the error of a standard output that takes nothing; what it was to take is dropped."""
    drop_unwritten(sys.stdout)
    reason = (error.strerror or str(error)).lower()
    return errors.InputError(f"cannot be written: {reason}", source="standard output", remedy="redirect it elsewhere")


def _print(parts: Iterable[bytes]) -> None:
    if sys.stdout is None:
        raise errors.InputError("is closed", source="standard output", remedy="redirect it to a file")
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    try:
        if stream is None:
            sys.stdout.writelines(one.decode() for one in parts)
        else:
            stream.writelines(parts)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise unprintable(error) from None


def _replace(path: pathlib.Path, parts: Iterable[bytes]) -> None:
    # Not the tempfile module: its files are for the owner only, and an answer is as readable as any other new file.
    temporary = path.with_name(f".{path.name[:200]}.{os.urandom(4).hex()}")
    try:
        with temporary.open("xb") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            temporary.chmod(stat.S_IMODE(path.stat().st_mode))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _unwritable(to: str, option: str, error: Exception) -> errors.InputError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return errors.InputError(f"cannot be written: {reason.lower()}", source=to, field=option, remedy=_REMEDY)
