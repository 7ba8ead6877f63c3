"""The bytes and the text of files and of standard input, bounded in size before they are read.

Where fields stand in a text. Values carry no positions, so that the text is read once more for an error.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeAlias

from mooring.engine.core.errors import InputError
from mooring.lazy import dataclass

DEEPEST: Final = 100
"""Levels of nesting that a document may have; a pod needs about twelve."""

FileMark: TypeAlias = tuple[int, int, int]
"""Inode, time of change and size: what changes when a file is replaced or written."""

_TOKEN: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*"?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
_NUMBER: Final = re.compile(r"-?[0-9]")
_LONGEST_NUMBER: Final = 4300
"""Digits that Python converts."""
_OPENING: Final = {"{": "mapping", "[": "sequence"}
_CONSTANTS: Final = ("NaN", "Infinity", "-Infinity")
_INDEX: Final = re.compile(r"\[(\d+)\]")


def file_mark(path: str | os.PathLike[str]) -> FileMark | None:
    """Return what tells whether a file has changed, without reading it; None for one that is not there."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a str in most hands
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def field_places(text: str, index: int, fields: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return line and column, counted from 1, of the keys of fields.

    Args:
        text: of a file, YAML or JSON.
        index: number of the document in it, counted from 1.
        fields: names and indices from the top, as errors name them: ``plugins[0].weight``. Of a field that is not there
            the place of what contains it is returned.

    Returns:
        A place for each field; None when no part of the field is in the document.
    """
    found: list[tuple[int, int] | None] = [None] * len(fields)
    if text.lstrip("\ufeff \t\r\n")[:1] in ("{", "["):
        tops = _json_documents(text)
        found = [_place(tops[index - 1], name, text) for name in fields] if index <= len(tops) else found
    if any(found) or not any(fields):
        return found
    node = _composed(text, index)
    return found if node is None else [_place(node, name, text) for name in fields]


# Several places are asked of one text in turn.


@lru_cache(maxsize=1)
def _json_documents(text: str) -> list[_Node]:
    """Return the documents of JSON as nodes."""
    return [*_json_nodes(text)]


@lru_cache(maxsize=1)
def _composed(text: str, index: int) -> Any:
    """Return the nodes of a document; None where it has none."""
    import yaml  # noqa: PLC0415 - loading it takes longer than reading most JSON files

    documents = yaml.compose_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    with suppress(yaml.YAMLError):
        return next(islice(documents, index - 1, None), None)
    return None


def offset_place(text: str, offset: int) -> tuple[int, int]:
    r"""Return line and column of a character.

    >>> offset_place("ab\ncd", 4)
    (2, 2)
    """
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def shown_place(source: str, text: str, offset: int) -> str:
    """Return file, line and column of a character, for messages."""
    line, column = offset_place(text, offset)
    return f"{source}:{line}:{column}"


def json_fault(text: str, start: int = 0) -> int:
    """Return the offset of the first thing in JSON that the grammar allows and that cannot be used.

    A key that its object has already, a number that is none or too large, and nesting that is too deep; the offset of
    the end without any.
    """
    faults: list[int] = []
    for _ in _json_nodes(text, start, faults):
        if faults:
            break
    return faults[0] if faults else len(text)


@dataclass(slots=True)
class _Node:
    """A value of JSON, as PyYAML's nodes are."""

    id: str
    start_mark: int
    """Offset in the text."""
    value: Any
    keys: set[str] | None = None
    """Of a mapping, as far as it is read."""
    key: _Node | None = None
    """In a mapping: the key whose value follows."""


def _json_nodes(text: str, start: int = 0, faults: list[int] | None = None) -> Iterator[_Node]:
    """Yield the values of JSON as nodes; what is no JSON is read as well as it can be. ``faults`` receives offsets."""
    stack: list[_Node] = []
    for match in _TOKEN.finditer(text, start):
        word, offset = match.group(), match.start()
        if word in (",", ":"):
            continue
        if word in ("}", "]"):
            done = stack.pop() if stack else None
            if done is not None and not stack:
                yield done
            continue
        opens = word in _OPENING
        node = _Node(_OPENING.get(word, "scalar"), offset, [] if opens else word.strip('"'))
        is_wrong = _entered(stack[-1], node, word) if stack else False
        is_wrong |= not opens and word[0] != '"' and (word in _CONSTANTS or _is_too_large(word))
        stack += [node] if opens else []
        if faults is not None and (is_wrong or len(stack) > DEEPEST):
            faults.append(offset)
        if not stack:
            yield node
        elif len(stack) > DEEPEST:
            break
    if stack:
        yield stack[0]


def _entered(parent: _Node, node: _Node, word: str) -> bool:
    """Put a node into the one around it, and tell whether it is a key that is there already."""
    repeated = False
    if parent.id == "sequence":
        parent.value.append(node)
    elif parent.key is None:
        parent.keys = parent.keys or set()
        repeated = word in parent.keys
        parent.keys.add(word)
        parent.key = node
    else:
        parent.value.append((parent.key, node))
        parent.key = None
    return repeated


def _is_too_large(word: str) -> bool:
    if not _NUMBER.match(word):
        return False
    if word.lstrip("-").isdigit():
        return len(word) > _LONGEST_NUMBER
    with suppress(ValueError):
        return float(word) in (float("inf"), float("-inf"))
    return False


def _place(node: Any, name: str, text: str) -> tuple[int, int] | None:
    mark: Any = None
    while name and node is not None:
        # The key or item that the field begins with, its value, and the rest of the field
        index = _INDEX.match(name)
        if node.id == "sequence" and index is not None and int(index[1][:9]) < len(node.value):
            at = node = node.value[int(index[1])]
            name = name[index.end() :]
        elif node.id == "mapping":
            # Names may have dots, so the longest one that fits is meant.
            keys = [(key, value) for key, value in node.value if isinstance(key.value, str) and key.value]
            fitting = [pair for pair in keys if f"{name}.".startswith((f"{pair[0].value}.", f"{pair[0].value}["))]
            if not fitting:
                break
            at, node = max(fitting, key=lambda pair: len(pair[0].value))
            name = name[len(at.value) :]
        else:
            break
        name, mark = name.removeprefix("."), at.start_mark
    if mark is None:
        return None
    return offset_place(text, mark) if isinstance(mark, int) else (mark.line + 1, mark.column + 1)


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
        problem = f"not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise InputError(problem, source=f"{source}:{line}:{column}", remedy="save it as UTF-8") from None
    zero = text.find("\0")
    if zero >= 0:
        raise InputError("a NUL character: this is not a text file", source=shown_place(source, text, zero))
    return text


_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FENCE: Final = re.compile(r"([ \t>]*)(?:`{3,}|~{3,})[^`]*")
_DESCRIBED: Final = re.compile(r"(?ms)^[\w.-]+:\n----\n(.*?)(?=^[\w.-]+:\n----\n|^BinaryData|^Events:|\Z)")
_PROMPT: Final = re.compile(r"(?:\([\w.-]+\) ?)?(?:\[?[\w.-]+@[\w.-]+(?:[: ][^\]#$%>]*)?\]?[ ]?[#$%>]|[$%])(?:\s.*)?")
"""A line that is a prompt of a shell, with the command behind it."""
_QUOTED: Final = re.compile(r"[ \t]*>[> ]?")


def pasted(text: str) -> list[str]:
    r"""Return what a person copied from a terminal, an e-mail or a page: without colours, quotes, fences and prompts.

    Each text has its lines where they were. Markdown with fenced blocks is one text for each of them.

    >>> pasted("It says:\n```yaml\nmaxPods: 1\n```\n")
    ['\n\nmaxPods: 1\n']
    """
    lines = _COLOUR.sub("", text).replace("\r", "").replace("\xa0", " ").split("\n")
    if 2 * sum(line.lstrip().startswith(">") for line in lines) > sum(bool(line.strip()) for line in lines):
        lines = [_QUOTED.sub("", line, count=1) if _QUOTED.match(line) else "" for line in lines]
    lines = ["" if _PROMPT.fullmatch(line) else line for line in lines]
    found, begins, indent = list[str](), -1, ""
    if "Data" in lines and "----" in lines:  # kubectl describe configmap: each key above a line of dashes
        text = "\n".join(lines)
        return ["\n" * text[: one.start(1)].count("\n") + one[1] for one in _DESCRIBED.finditer(text)] or [text]
    for number, line in enumerate([*lines, "```"]):
        if not (fence := _FENCE.fullmatch(line)):
            continue
        if begins >= 0 and (number < len(lines) or begins < len(lines) - 1):
            body = (one.removeprefix(indent) for one in lines[begins:number])
            found.append("\n" * begins + "".join(f"{one}\n" for one in body))
            begins = -1
        else:
            begins, indent = number + 1, fence[1]
    return found or ["\n".join(lines)]
