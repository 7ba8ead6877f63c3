"""JSON syntax as Go reads it: which texts are JSON, and the exact complaint about those that are not.

Go looks at bytes, not at characters, and feeds one space behind the end of the text to finish what is open. So a text
that is cut off is an ``unexpected end of JSON input`` in most places, but ``invalid character ' ' in string escape
code`` behind a backslash. Nothing here recurses: a text may nest 10000 levels deep, which is Go's own limit.

Source: encoding/json of Go (scanner.go) as built into kubelet v1.37.1; spec: state-files.md section 4.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from mooring.engine.core.errors import MooringError
from mooring.engine.core.gotext import quote
from mooring.lazy import dataclass, field

MAX_DEPTH = 10000
"""Deepest nesting that Go's decoder accepts."""
_BEHIND = "after top-level value"


class JSONSyntaxError(MooringError):
    """A text that is not JSON; the message is Go's."""

    def __init__(self, message: str, at: int, *, is_behind: bool = False) -> None:
        super().__init__(message)
        self.at = at
        """Offset of the byte that does not fit."""
        self.is_behind = is_behind
        """A whole value ends before it: the text is JSON with something behind it."""


@dataclass(slots=True)
class JSONObject:
    """The members of an object in the order of the text, duplicates included."""

    members: list[tuple[str, JSONValue]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class JSONNumber:
    """A number as it is spelt."""

    text: str


JSONValue: TypeAlias = "JSONObject | list[JSONValue] | str | JSONNumber | bool | None"
"""What a JSON text stands for, before any type is asked of it."""

_FOLLOWS: JSONValue = JSONObject()
"""Stands for a value that is still to be read (compared by identity)."""

_NO_SPACE = re.compile(rb"[^ \t\r\n]")
# Greedy, not possessive: Python 3.11.2 does not undo a group that failed.
_STRING_BODY = re.compile(rb'[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*')
_NUMBER = re.compile(rb"-?(?:0|[1-9][0-9]*+)(\.[0-9]++)?([eE][+-]?[0-9]++)?")
_ESCAPE = re.compile(r"\\u([dD][89abAB]..)\\u([dD][c-fC-F]..)|\\u(....)|\\(.)")
_ESCAPED_BYTE = re.compile("[\udc80-\udcff]")
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = b"0123456789abcdefABCDEF"
_WORDS: dict[int, tuple[bytes, bool | None]] = {0x74: (b"true", True), 0x66: (b"false", False), 0x6E: (b"null", None)}
_QUOTE, _COLON, _COMMA, _MINUS, _DOT = b'":,-.'
_AFTER_MEMBER, _AFTER_ELEMENT = "after object key:value pair", "after array element"
_TOO_DEEP = "exceeded max depth"
_IN_V2 = {
    "after decimal point in numeric literal": "in numeric literal",
    "in exponent of numeric literal": "in numeric literal",
    "in string literal": "in string",
}
"""What a fault is called up to Go 1.26 -> since Go 1.27, where they differ."""
_UNICODE_ESCAPE = 6  # bytes of one
_CUT_ESCAPE = re.compile(rb"\\(?:u[0-9a-fA-F]*)?")
_OPEN_ARRAY, _CLOSE_ARRAY, _OPEN_OBJECT, _CLOSE_OBJECT, _BACKSLASH, _U = b"[]{}\\u"


def parse(data: bytes, *, json_v2: bool = False) -> JSONValue:
    r"""Read a whole JSON text.

    Args:
        data: the text.
        json_v2: whether the complaints are those of Go 1.27.

    Raises:
        JSONSyntaxError: with Go's text.

    >>> parse(b'{"a": [1, null]}')
    JSONObject(members=[('a', [JSONNumber(text='1'), None])])
    >>> parse(b'{"a": "cut off behind a backslash\\')
    Traceback (most recent call last):
    mooring.engine.checkpoint.goscan.JSONSyntaxError: invalid character ' ' in string escape code
    """
    return _Scanner(data, json_v2=json_v2).document()


def parse_prefix(data: bytes, depth: int) -> tuple[JSONValue, JSONSyntaxError | None]:
    """Read as much of a JSON text as is beyond doubt.

    A value that a fault follows at once is left out, because the fault may have ended it early; where the text ends
    there is no such doubt.

    Args:
        data: the text.
        depth: how many levels of unfinished containers are kept; what is unfinished further inside is left out.

    Returns:
        The value before the first fault, in which what was open there is closed, None when there is no value; and the
        fault, None for a text that is JSON.

    >>> parse_prefix(b'{"a": {"b": "1-3", "c": "4-', depth=2)
    (JSONObject(members=[('a', JSONObject(members=[('b', '1-3')]))]), JSONSyntaxError('unexpected end of JSON input'))
    """
    return _Scanner(data).prefix(depth)


class _Scanner:
    """One pass over a text: a position, the containers that are open, and the keys that wait for values."""

    __slots__ = ("_at", "_buffer", "_json_v2", "_keys", "_open")

    def __init__(self, data: bytes, *, json_v2: bool = False) -> None:
        self._json_v2 = json_v2
        self._buffer = data + b" "  # the space that Go feeds behind the end of its input
        self._at = 0
        self._open: list[JSONObject | list[JSONValue]] = []
        self._keys: list[str] = []

    def document(self) -> JSONValue:
        """Read one value and make sure that nothing but space follows."""
        value = self._value()
        rest = _NO_SPACE.search(self._buffer, self._at)
        if rest:
            raise self._fault(rest.start(), _BEHIND)
        return value

    def _value(self) -> JSONValue:
        value = self._begin()
        while self._open:
            value = self._begin() if value is _FOLLOWS else self._put(value)
        return value

    def prefix(self, depth: int) -> tuple[JSONValue, JSONSyntaxError | None]:
        """Read up to the first fault."""
        try:
            value = self._value()
        except JSONSyntaxError as error:
            doubted = str(error).endswith((_AFTER_MEMBER, _AFTER_ELEMENT))
            # Close what is open, from the inside, and return the outermost container
            if self._open and doubted:
                innermost = self._open[-1]
                values: list[Any] = innermost.members if isinstance(innermost, JSONObject) else innermost
                del values[-1:]
            keys = self._keys
            while len(self._open) > 1:
                container, around = self._open.pop(), self._open[-1]
                # The key of the innermost container's next value may wait as well: keys belong to containers by number.
                names = sum(isinstance(one, JSONObject) for one in self._open)
                del keys[names:]
                if len(self._open) < depth:
                    if isinstance(around, JSONObject):
                        around.members.append((keys.pop(), container))
                    else:
                        around.append(container)
            return self._open[0] if self._open else None, error
        rest = _NO_SPACE.search(self._buffer, self._at)
        return value, None if rest is None else self._fault(rest.start(), _BEHIND)

    def _begin(self) -> JSONValue:
        """Read a scalar or an empty container; or open a container and stand before its first value."""
        first = self._next()
        if first == _QUOTE:
            return self._string()
        if first in (_OPEN_OBJECT, _OPEN_ARRAY):
            if len(self._open) >= MAX_DEPTH:
                raise self._fault(self._at, _TOO_DEEP)
            container: JSONObject | list[JSONValue] = JSONObject() if first == _OPEN_OBJECT else []
            self._at += 1
            if self._next() == (_CLOSE_OBJECT if first == _OPEN_OBJECT else _CLOSE_ARRAY):
                self._at += 1
                return container
            self._open.append(container)
            if first == _OPEN_OBJECT:
                self._key()
            return _FOLLOWS
        if first in _WORDS:
            return self._word(*_WORDS[first])
        match = _NUMBER.match(self._buffer, self._at)
        if match is None:
            if self._buffer[self._at] == _MINUS:
                raise self._fault(self._at + 1, "in numeric literal")
            raise self._fault(self._at, "looking for beginning of value")
        fraction, exponent = match.groups()
        end = match.end()
        if self._buffer[end] == _DOT and fraction is None and exponent is None:
            raise self._fault(end + 1, "after decimal point in numeric literal")
        if self._buffer[end] in b"eE" and exponent is None:
            signed = self._buffer[end + 1] in b"+-"
            raise self._fault(end + 2 if signed else end + 1, "in exponent of numeric literal")
        self._at = end
        return JSONNumber(match.group().decode())

    def _put(self, value: JSONValue) -> JSONValue:
        """Store a value in the innermost container and read on: to its next value, or over its end."""
        container = self._open[-1]
        if isinstance(container, JSONObject):
            container.members.append((self._keys.pop(), value))
            closing, context = _CLOSE_OBJECT, _AFTER_MEMBER
        else:
            container.append(value)
            closing, context = _CLOSE_ARRAY, _AFTER_ELEMENT
        found = self._next()
        if found not in (_COMMA, closing):
            raise self._fault(self._at, context)
        self._at += 1
        if found == closing:
            return self._open.pop()
        if closing == _CLOSE_OBJECT:
            self._key()
        return _FOLLOWS

    def _key(self) -> None:
        """Read a member's name and the colon behind it."""
        if self._next() != _QUOTE:
            raise self._fault(self._at, "looking for beginning of object key string")
        self._keys.append(self._string())
        if self._next() != _COLON:
            raise self._fault(self._at, "after object key")
        self._at += 1

    def _string(self) -> str:
        start = self._at + 1
        # The end of a match of a pattern that matches everywhere, at least the empty text
        match = _STRING_BODY.match(self._buffer, start)
        end = match.end() if match else start
        if end >= len(self._buffer):
            raise _unexpected_end(self._buffer)
        if self._buffer[end] != _QUOTE:
            raise self._string_fault(end)
        self._at = end + 1
        return unquote(self._buffer[start:end])

    def _string_fault(self, at: int) -> JSONSyntaxError:
        """Name what is wrong at the first byte that no string may hold."""
        if self._buffer[at] != _BACKSLASH:
            return self._fault(at, "in string literal")
        if self._json_v2:
            # Show the escape sequence as Go 1.27 does: in back quotes where they can hold it.
            raw = self._buffer[at : at + (_UNICODE_ESCAPE if self._buffer[at + 1] == _U else 2)]
            if at + len(raw) == len(self._buffer):
                raw = raw[:-1]  # the space behind the end
                if _CUT_ESCAPE.fullmatch(raw):
                    return _unexpected_end(self._buffer)
            shown = raw.decode(errors="surrogateescape")
            plain = all(char.isprintable() and not char.isspace() and char not in "`\ufffd" for char in shown)
            return JSONSyntaxError(f"invalid escape sequence {f'`{shown}`' if plain else quote(shown)} in string", at)
        at += 1
        if self._buffer[at] != _U:
            return self._fault(at, "in string escape code")
        at += 1
        while self._buffer[at] in _HEX:
            at += 1
        return self._fault(at, "in \\u hexadecimal character escape")

    def _word(self, word: bytes, value: bool | None) -> bool | None:  # noqa: FBT001 - the value that the word stands for
        for offset, expected in enumerate(word):
            if self._buffer[self._at + offset] != expected:
                context = f"in literal {word.decode()} (expecting {_character(chr(expected))})"
                raise self._fault(self._at + offset, context)
        self._at += len(word)
        return value

    def _next(self) -> int:
        """Skip space and return the byte found."""
        found = _NO_SPACE.search(self._buffer, self._at)
        if found is None:
            raise _unexpected_end(self._buffer)
        self._at = found.start()
        return self._buffer[self._at]

    def _fault(self, at: int, context: str) -> JSONSyntaxError:
        if not self._json_v2:
            message = f"invalid character {_character(chr(self._buffer[at]))} {context}"
            return JSONSyntaxError(message, at, is_behind=context == _BEHIND)
        if at >= len(self._buffer) - 1:
            return _unexpected_end(self._buffer)
        if context == _TOO_DEEP:
            return JSONSyntaxError(context, at)
        # A character has at most four bytes; one that is cut off, or wrong, is shown as its first byte.
        char = self._buffer[at : at + 4].decode(errors="surrogateescape")[0]
        message = f"invalid character {_character(char)} {_IN_V2.get(context, context)}"
        return JSONSyntaxError(message, at, is_behind=context == _BEHIND)


def unquote(raw: bytes) -> str:
    r"""Return what a JSON string literal stands for, given the (valid) bytes between its quotes.

    Bytes that are not UTF-8 become U+FFFD one by one, and so do halves of surrogate pairs.

    >>> unquote(rb"\u0041\n\ud83d\ude00\ud83d")
    'A\n😀�'
    """
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = _ESCAPED_BYTE.sub("\ufffd", raw.decode(errors="surrogateescape"))
    backslashes = text.count("\\")
    if not backslashes:
        return text
    if backslashes == text.count('\\"'):  # the usual case: JSON inside a string
        return text.replace('\\"', '"')
    return _ESCAPE.sub(_unescape, text)


def _unescape(match: re.Match[str]) -> str:
    high, low, single, short = match.groups()
    if high:
        return chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    if single:
        code = int(single, 16)
        return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)
    return _SHORT.get(short, short)


def _unexpected_end(buffer: bytes) -> JSONSyntaxError:
    return JSONSyntaxError("unexpected end of JSON input", len(buffer) - 1)  # without the space behind the end


def _character(char: str) -> str:
    """Return a character as Go's complaint quotes it; up to Go 1.26 every byte counts as one."""
    if char == "'":
        return r"'\''"
    if char == '"':
        return "'\"'"
    return f"'{quote(char)[1:-1]}'"
