"""JSON syntax: what is accepted, and Go's complaint about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.checkpoint.goscan import (
    MAX_DEPTH,
    JSONNumber,
    JSONObject,
    JSONSyntaxError,
    JSONValue,
    parse,
    unquote,
)

END = "unexpected end of JSON input"


def complaint(data: bytes) -> str:
    with pytest.raises(JSONSyntaxError) as caught:
        parse(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", END),
        (b" \n", END),
        (b"{", END),
        (b'{"a"', END),
        (b'{"a":', END),
        (b'{"a":1', END),
        (b'{"a":1,', END),
        (b"[1", END),
        (b"[1,", END),
        (b'"abc', END),
        (b'"abc\\', "invalid character ' ' in string escape code"),
        (b'"\\u00', "invalid character ' ' in \\u hexadecimal character escape"),
        (b"tr", "invalid character ' ' in literal true (expecting 'u')"),
        (b"-", "invalid character ' ' in numeric literal"),
        (b"1.", "invalid character ' ' after decimal point in numeric literal"),
        (b"1e", "invalid character ' ' in exponent of numeric literal"),
        (b"1e+", "invalid character ' ' in exponent of numeric literal"),
    ],
    ids=repr,
)
def test_text_cut_off(data: bytes, expected: str) -> None:
    assert complaint(data) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"x", "'x' looking for beginning of value"),
        (b"+1", "'+' looking for beginning of value"),
        (b".5", "'.' looking for beginning of value"),
        (b"[1,]", "']' looking for beginning of value"),
        (b"NaN", "'N' looking for beginning of value"),
        (b"\xef\xbb\xbf{}", "'ï' looking for beginning of value"),
        (b"\xc3\xa9", "'Ã' looking for beginning of value"),
        (b"\x00", "'\\x00' looking for beginning of value"),
        (b"\x85", "'\\u0085' looking for beginning of value"),
        (b"'a'", "'\\'' looking for beginning of value"),
        (b"{1:2}", "'1' looking for beginning of object key string"),
        (b'{"a":1,}', "'}' looking for beginning of object key string"),
        (b'{"a" 1}', "'1' after object key"),
        (b'{"a":1 "b":2}', "'\"' after object key:value pair"),
        (b'{"a":01}', "'1' after object key:value pair"),
        (b"[1 2]", "'2' after array element"),
        (b"[1}", "'}' after array element"),
        (b"{}}", "'}' after top-level value"),
        (b"01", "'1' after top-level value"),
        (b"1.5.2", "'.' after top-level value"),
        (b"1e5.", "'.' after top-level value"),
        (b"{} x", "'x' after top-level value"),
        (b'"a\nb"', "'\\n' in string literal"),
        (b'"\\x"', "'x' in string escape code"),
        (b'"\\ug124"', "'g' in \\u hexadecimal character escape"),
        (b'"\\u12g4"', "'g' in \\u hexadecimal character escape"),
        (b"-a", "'a' in numeric literal"),
        (b"1.e5", "'e' after decimal point in numeric literal"),
        (b"1e+x", "'x' in exponent of numeric literal"),
        (b"tRue", "'R' in literal true (expecting 'r')"),
        (b"faise", "'i' in literal false (expecting 'l')"),
        (b"nul1", "'1' in literal null (expecting 'l')"),
    ],
    ids=repr,
)
def test_wrong_character(data: bytes, expected: str) -> None:
    assert complaint(data) == f"invalid character {expected}"


def test_nesting_is_limited_as_in_go() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert complaint(b"[" * (MAX_DEPTH + 1)) == "invalid character '[' exceeded max depth"
    assert complaint(b'{"a":' * MAX_DEPTH + b"{}") == "invalid character '{' exceeded max depth"
    assert complaint(b"[" * 200_000) == "invalid character '[' exceeded max depth"
    assert complaint(b"[" * MAX_DEPTH) == END


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"plain", "plain"),
        (rb"a\"b\\c\/d", 'a"b\\c/d'),
        (rb"\\u0041", "\\u0041"),
        (rb"\b\f\n\r\t", "\b\f\n\r\t"),
        (rb"\u0041\u00e9", "Aé"),
        (rb"\ud83d\ude00", "😀"),
        (rb"\ud83d\u0041", "�A"),
        (rb"\ude00\ud83d", "��"),
        (rb"\ud83d\ud83d\ude00", "�😀"),
        (b"\xff\xfe", "��"),
        (b"\xe2\x82", "��"),
        (b"\xed\xa0\x80", "���"),
        ("ü€".encode(), "ü€"),
    ],
    ids=repr,
)
def test_strings_mean_what_go_makes_of_them(raw: bytes, expected: str) -> None:
    assert unquote(raw) == expected


def plain(value: JSONValue) -> Any:
    """Return a value as the json module returns it, numbers as spelt."""
    if isinstance(value, JSONObject):
        return [(name, plain(member)) for name, member in value.members]
    if isinstance(value, list):
        return [plain(item) for item in value]
    return f"number {value.text}" if isinstance(value, JSONNumber) else value


def refuse(_: str) -> None:
    raise ValueError


def by_the_json_module(text: str) -> Any:
    def number(spelt: str) -> str:
        return f"number {spelt}"

    return json.loads(text, object_pairs_hook=list, parse_int=number, parse_float=number, parse_constant=refuse)


@given(
    st.one_of(
        st.text(alphabet='{}[]:,"\\ \n01-+.eEtrufalsn', max_size=12),
        st.text(alphabet='[]{}",: 1', max_size=20),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=8,
        ).map(json.dumps),
    )
)
def test_accepts_and_reads_what_the_json_module_does(text: str) -> None:
    # Halves of surrogate pairs are the one thing that both accept and read in two ways.
    data = text.encode(errors="replace")
    try:
        expected = by_the_json_module(data.decode())
    except ValueError:
        assert complaint(data)
    else:
        if "\\ud" not in text:
            assert plain(parse(data)) == expected


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_complained_about(data: bytes) -> None:
    message = END
    try:
        parse(data)
    except JSONSyntaxError as error:
        message = str(error)
    assert message == END or message.startswith("invalid character '")
