"""Files, folders and standard input to documents.

One reader for every input: YAML of several documents, JSON, kubectl's output, whole folders. Files are bounded in size
before they are read, values are bounded while they are built.

JSON texts to documents, with the place of what is wrong in them.

The standard library's decoder is used because it shows the pairs of an object before they become a mapping, so that
repeated keys are refused; where that does not matter (scenario lines) msgspec is several times faster.
"""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, NoReturn, cast

from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import SourcePlace
from mooring.inputs.decoding import files
from mooring.inputs.decoding.fields import Document, Value
from mooring.lazy import lazily

with lazily():
    import gzip
    import zlib

    import msgspec

_SPACE = re.compile(r"[ \t\r\n]*")
_HALF_OF_A_PAIR = re.compile(r"\\u[dD][89a-fA-F]")


class NotJSONError(Exception):
    """The text is not JSON; what to make of that is for the caller to say."""

    def __init__(self, problem: str, line: int, column: int) -> None:
        self.problem = problem
        self.line = line
        self.column = column
        super().__init__(problem)


def read_json(text: str, source: str) -> Iterator[Document]:
    """Yield the JSON values of ``text``, which may stand one after the other, as kubectl allows.

    Raises:
        NotJSONError: the text breaks the grammar of JSON.
        InputError: it is JSON, but holds something that cannot be used.
    """
    index = 0
    start = _after_space(text, 0)
    while start < len(text):
        index += 1
        value, end = _decode(text, start, source)
        half = _HALF_OF_A_PAIR.search(text, start, end)
        if half:
            # No output could carry an escape such as ``\ud800`` without its other half.
            try:
                json.dumps(value, ensure_ascii=False).encode()
            except (UnicodeEncodeError, RecursionError):
                raise InputError(
                    "a \\u escape names half of a character", source=files.shown_place(source, text, half.start())
                ) from None
        yield Document(value, source, index, text.count("\n", 0, start) + 1, text)
        start = _after_space(text, end)


def _decode(text: str, start: int, source: str) -> tuple[Value, int]:
    problem, remedy = "nested too deeply", ""
    try:
        value: Value
        value, end = _DECODER.raw_decode(text, start)
    except json.JSONDecodeError as error:
        raise NotJSONError(error.msg, error.lineno, error.colno) from None
    except _RefusedError as error:
        problem, remedy = error.args
    except RecursionError:
        pass
    except ValueError:
        # Python refuses to convert numbers of more than 4300 digits.
        problem = "a number has too many digits"
    else:
        return value, end
    raise InputError(problem, source=files.shown_place(source, text, files.json_fault(text, start)), remedy=remedy)


def json_error(data: bytes, source: str, line: int = 1) -> InputError:
    """Return the error for bytes that a decoder of JSON does not take.

    Args:
        data: the bytes.
        source: names their file.
        line: on which they begin.
    """
    try:
        for _ in read_json("\n" * (line - 1) + files.text_of(data, source), source):
            pass
    except NotJSONError as error:
        return InputError(f"not valid JSON: {error.problem}", source=f"{source}:{error.line}:{error.column}")
    except InputError as error:
        return error
    return InputError("not valid JSON: something follows the first value", source=f"{source}:{line}")


class _RefusedError(Exception):
    """JSON that cannot be used: the problem and what to do."""


def _mapping(pairs: list[tuple[str, Value]]) -> dict[str, Value]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _RefusedError(f"the key {twice!r:.80} appears twice in one object", "keep one of them")
    return mapping


def _constant(name: str) -> NoReturn:
    raise _RefusedError(f"{name} is not a number that JSON knows", "")


def _number(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise _RefusedError(f"the number {text[:40]} is too large", "")
    return number


_DECODER = json.JSONDecoder(object_pairs_hook=_mapping, parse_constant=_constant, parse_float=_number)


def _after_space(text: str, start: int) -> int:
    match = _SPACE.match(text, start)
    return match.end() if match else start


_OF_KUBECTL = re.compile(r"Name: +\S+\n(?:Namespace|Roles|Labels): |(?:NAMESPACE +)?NAME +READY +STATUS ")
_OF_SPARK = re.compile(r"\A(?:(?!apiVersion|kind)[^\n]*\n){0,40}?[ \t$#>]*(?:[\w./${}-]*/)?spark-submit\s(?!:)")
SUFFIXES = (".yaml", ".yml", ".json")
"""Files of a folder that are read; the same as kubectl's."""


def load_documents(path: str | os.PathLike[str]) -> list[Document]:
    """Read the documents of a file, of a folder's manifests by name, or of standard input (``-``).

    Empty documents are left out.

    Raises:
        InputError: nothing there, not readable, too large, not text, not YAML or JSON, or nothing in it.
    """
    texts = (
        [(files.text_of(files.read_standard_input(), files.STANDARD_INPUT), files.STANDARD_INPUT, False)]
        if path == "-"
        else [(files.read_text(file), files.shown(file), file.suffix == ".json") for file in _files(path)]
    )
    documents: list[Document] = []
    for text, name, json_only in texts:
        if _OF_KUBECTL.match(text):
            problem = "this is output of kubectl for people, which leaves out fields"
            raise InputError(problem, source=name, remedy="write it with -o yaml: kubectl get pods -o yaml")
        if _OF_SPARK.match(text):
            remedy = "give its pods, kubectl get pods -l spark-role -o yaml, or a SparkApplication with the same values"
            raise InputError("this is a command of Spark, which makes the pods itself", source=name, remedy=remedy)
        try:
            documents += _parse(text, name, json_only=json_only)
        except InputError as error:
            if (parts := files.pasted(text)) == [text]:
                raise
            try:
                documents += [one for part in parts for one in _parse(part, name, json_only=json_only)]
            except InputError:
                raise error from None
    return documents


def documents_in(data: bytes, source: str, *, json_only: bool = False) -> list[Document]:
    """Return the documents in the bytes of a file; ``source`` names it in messages.

    Raises:
        InputError: not text, not YAML or JSON, or nothing in it.
    """
    return _parse(files.text_of(data, source), source, json_only=json_only)


@contextmanager
def located(document: Document) -> Iterator[None]:
    """Name file, line and column in an InputError about a field of a document; an error of another file stays."""
    try:
        yield
    except InputError as error:
        if error.source not in ("", document.source):
            raise
        place = str(places_of(document, [error.field])[error.field])
        raise InputError(error.problem, source=place, field=error.field, remedy=error.remedy) from None


def places_of(document: Document, fields: Sequence[str]) -> dict[str, SourcePlace]:
    """Return the places of fields; the document's own place where they are unknown."""
    return {
        field: document.place if place is None else SourcePlace(document.file, *place)
        for field, place in positions_of(document, fields).items()
    }


def positions_of(document: Document, fields: Sequence[str]) -> dict[str, tuple[int, int] | None]:
    """Return line and column in the file of fields; None where they are unknown."""
    text = _text_of(document.text) if isinstance(document.text, bytes) else document.text
    index, above = document.index, 0
    if document.is_alone:
        index, above = 1, document.line - 1
    elif index > 1 and text.lstrip("\ufeff \t\r\n")[:1] not in ("{", "["):
        # A YAML document begins on a line of its own: those before it need not be read again.
        text, index, above = text.split("\n", document.line - 1)[-1], 1, document.line - 1
    places = files.field_places(text, index, fields) if text else [None] * len(fields)
    return {
        field: None if place is None else (place[0] + above, place[1])
        for field, place in zip(fields, places, strict=True)
    }


@lru_cache(maxsize=1)
def _text_of(data: bytes) -> str:
    """Return the same text for the same bytes, so that what is known of it is found without reading it again."""
    return data.decode("utf-8", "replace")


def _files(path: str | os.PathLike[str]) -> list[Path]:
    file = Path(path)
    try:
        if not file.is_dir():
            return [file]
        for name, (what, command) in _RENDERED.items():
            if (file / name).is_file():
                remedy = f"{command} {files.shown(file)} prints its manifests: pipe them to mooring with -f -"
                raise InputError(f"the folder is {what}", source=files.shown(file), remedy=remedy)
        found = sorted(entry for entry in file.iterdir() if entry.suffix in SUFFIXES and not entry.is_dir())
    except (OSError, ValueError) as error:
        raise InputError(files.open_problem(error), source=files.shown(path)) from None
    for entry in found:
        files.check_regular(entry)
    if not found:
        problem = "the folder holds no manifests"
        raise InputError(problem, source=files.shown(path), remedy=f"put {', '.join(SUFFIXES)} files there")
    return found


_RENDERED = {
    "Chart.yaml": ("a Helm chart", "helm template"),
    "kustomization.yaml": ("for Kustomize", "kubectl kustomize"),
    "kustomization.yml": ("for Kustomize", "kubectl kustomize"),
    "Kustomization": ("for Kustomize", "kubectl kustomize"),
}
"""File of a folder whose manifests another tool makes -> what the folder is, and the command."""


def _parse(text: str, source: str, *, json_only: bool = False) -> list[Document]:
    found: Iterable[Document] | None = None
    # YAML contains JSON, but its reader takes ten times as long.
    if json_only or text.lstrip()[:1] in ("{", "["):
        try:
            found = list(read_json(text, source))
        except NotJSONError as error:
            if json_only:
                place = f"{source}:{error.line}:{error.column}"
                raise InputError(f"not valid JSON: {error.problem}", source=place) from None
    if found is None:
        # Loading the YAML library takes longer than reading most JSON files.
        from mooring.inputs.decoding.yaml_reader import read_yaml  # noqa: PLC0415

        found = read_yaml(text, source)
    documents = [document for document in found if document.content is not None]
    if not documents:
        raise InputError("nothing in it", source=source)
    return documents


LONGEST_LINE = 32 * 1024**2
"""Bytes that a line may have, such as a scenario, unpacked; the longest recorded one has a hundredth of that."""
_GZIP = b"\x1f\x8b"


def load_lines(path: str | os.PathLike[str]) -> Iterator[Document]:
    """Yield the objects of a file, one at a time.

    Files called ``.yaml``, ``.yml`` and ``.json`` are read as documents, all others as JSON lines. A repeated
    key of a JSON line is not noticed: recordings are written by programs, and read several times faster this
    way.

    Raises:
        InputError: the file cannot be read or unpacked, or a line is not JSON.
    """
    if path != "-":
        files.check_regular(Path(path))
    if path != "-" and Path(path).suffix in SUFFIXES:
        yield from load_documents(path)
        return
    name = files.STANDARD_INPUT if path == "-" else files.shown(path)
    decoder: msgspec.json.Decoder[Value] = msgspec.json.Decoder()
    is_empty = True
    for number, line in enumerate(_lines(path, name), 1):
        if not line.isspace():
            is_empty = False
            try:
                content = decoder.decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise json_error(line, name, number) from None
            yield Document(content, name, 1, number, line, is_alone=True)
    if is_empty:
        raise InputError("nothing in it", source=name)


def _lines(path: str | os.PathLike[str], name: str) -> Iterator[bytes]:
    number = 0
    try:
        with ExitStack() as stack:
            opened: io.RawIOBase | io.BytesIO
            opened = io.BytesIO(files.read_standard_input()) if path == "-" else stack.enter_context(io.FileIO(path))
            packed = stack.enter_context(io.BufferedReader(opened))
            stream: IO[bytes] = packed
            if packed.peek(2)[:2] == _GZIP:
                stream = cast("IO[bytes]", stack.enter_context(gzip.GzipFile(fileobj=packed)))
            while line := stream.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    limit = LONGEST_LINE // 1024**2
                    raise InputError(f"a line longer than {limit} MiB", source=f"{name}:{number}")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile):
        remedy = "copy the file again"
        problem = "the compressed data is damaged or cut short"
        raise InputError(problem, source=f"{name}:{number + 1}", remedy=remedy) from None
    except (OSError, ValueError) as error:
        raise InputError(files.open_problem(error), source=name) from None
