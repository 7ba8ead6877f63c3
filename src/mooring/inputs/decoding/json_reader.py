"""JSON texts to documents, with the place of what is wrong in them.

The standard library's decoder is used because it shows the pairs of an object before they become a mapping, so that
repeated keys are refused; where that does not matter (scenario lines) msgspec is several times faster.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NoReturn

from mooring.engine.core.errors import InputError
from mooring.inputs.decoding.fields import Document, Value
from mooring.inputs.decoding.files import text_of
from mooring.inputs.decoding.positions import json_fault, shown_place

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
            _refuse_half_characters(value, shown_place(source, text, half.start()))
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
    raise InputError(problem, source=shown_place(source, text, json_fault(text, start)), remedy=remedy)


def json_error(data: bytes, source: str, line: int = 1) -> InputError:
    """Return the error for bytes that a decoder of JSON does not take.

    Args:
        data: the bytes.
        source: names their file.
        line: on which they begin.
    """
    try:
        for _ in read_json("\n" * (line - 1) + text_of(data, source), source):
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


def _refuse_half_characters(value: Value, source: str) -> None:
    r"""Refuse an escape such as ``\ud800`` without its other half: no output could carry it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except (UnicodeEncodeError, RecursionError):
        raise InputError("a \\u escape names half of a character", source=source) from None
