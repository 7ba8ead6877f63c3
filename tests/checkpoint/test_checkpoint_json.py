"""JSON as Go reads and writes it: what is accepted, its complaints, names, nulls, duplicates and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values import cases

import mooring.engine.checkpoint.gotypes as structures
from mooring.engine.checkpoint.gojson import GoFault, decode, quoted
from mooring.engine.checkpoint.goscan import (
    MAX_DEPTH,
    JSONNumber,
    JSONObject,
    JSONSyntaxError,
    JSONValue,
    parse,
    unquote,
)
from mooring.engine.checkpoint.gotypes import (
    CPU_DATA,
    CPU_V4,
    GoStruct,
    fresh,
)

END = "unexpected end of JSON input"


def complaint(data: bytes, *, json_v2: bool = False) -> str:
    with pytest.raises(JSONSyntaxError) as caught:
        parse(data, json_v2=json_v2)
    return str(caught.value)


def test_nesting_is_limited_as_in_go() -> None:
    assert parse(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH)
    assert complaint(b"[" * (MAX_DEPTH + 1)) == "invalid character '[' exceeded max depth"
    assert complaint(b'{"a":' * MAX_DEPTH + b"{}") == "invalid character '{' exceeded max depth"
    assert complaint(b"[" * 200_000) == "invalid character '[' exceeded max depth"
    assert complaint(b"[" * MAX_DEPTH) == END
    assert complaint(b"[" * (MAX_DEPTH + 1), json_v2=True) == "exceeded max depth"


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (rb"\ud83d\ude00", "😀"),
        (rb"\ud83d\u0041", "�A"),
        (rb"\ude00\ud83d", "��"),
        (rb"\ud83d\ud83d\ude00", "�😀"),
        (b"\xff\xfe", "��"),
        (b"\xe2\x82", "��"),
        (b"\xed\xa0\x80", "���"),
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


def read(struct: GoStruct, text: str) -> tuple[dict[str, Any], GoFault | None]:
    return decode(parse(text.encode()), struct, fresh(struct))


def value_of(struct: GoStruct, text: str) -> dict[str, Any]:
    value, fault = read(struct, text)
    assert fault is None
    return value


@pytest.mark.parametrize(
    ("struct", "member", "value", "text"), cases(__file__, "go-values.yaml", "type", "member", "value", "document")
)
def test_documents_are_decoded_as_go_does(struct: str, member: str, value: object, text: str) -> None:
    assert value_of(getattr(structures, struct), text)[member] == value


def test_the_first_fault_is_kept_and_the_rest_is_decoded() -> None:
    value, fault = read(CPU_V4, '{"policyName":1,"data":"d","checksum":"x","dataChecksum":5}')
    assert str(fault).startswith("json: cannot unmarshal number")
    assert (value["data"], value["dataChecksum"]) == ("d", 5)


def test_a_bad_pod_entry_ends_the_decoding_at_once() -> None:
    text = '{"podEntries":{"p":{"cpuSet":"1-"}},"policyName":1}'
    assert str(read(CPU_DATA, text)[1]) == 'failed to parse cpuset: strconv.Atoi: parsing "": invalid syntax'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", '"plain"'),
        ('<&>"\\', r'"\u003c\u0026\u003e\"\\"'),
        ("\b\f\n\r\t\x00\x1f", r'"\b\f\n\r\t\u0000\u001f"'),
        ("\u2028\u2029", r'"\u2028\u2029"'),
        ("é\x7f", '"é\x7f"'),
        ("\udc80", r'"\ufffd"'),
    ],
    ids=ascii,
)
def test_strings_are_written_as_go_writes_them(text: str, expected: str) -> None:
    assert quoted(text) == expected


@given(st.text())
def test_a_written_string_reads_back(text: str) -> None:
    assert unquote(quoted(text)[1:-1].encode()) == text


# What encoding/json of Go 1.26 and of go 1.27.3 says about small documents, decoded into the structures of the state
# files.

COMPLAINTS = [
    (release == "1_27", json.loads(line))
    for release in ("1_26", "1_27")
    for line in Path(__file__).with_name(f"go_{release}_complaints.jsonl").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(("json_v2", "case"), COMPLAINTS, ids=repr)
def test_complaints_are_those_of_go(json_v2: bool, case: dict[str, str]) -> None:
    struct = getattr(structures, case["type"])
    try:
        document = parse(case["document"].encode(errors="surrogateescape"), json_v2=json_v2)
        complaint = str(decode(document, struct, fresh(struct), json_v2=json_v2)[1])
    except JSONSyntaxError as error:
        complaint = str(error)
    assert complaint == case["complaint"]


@given(st.binary(max_size=60) | st.text(alphabet='{}[]:,"\\u0dtrue-1.e é~/', max_size=40).map(str.encode))
def test_both_readers_accept_the_same_documents(data: bytes) -> None:
    read_as = []
    for json_v2 in (False, True):
        try:
            read_as.append(parse(data, json_v2=json_v2))
        except JSONSyntaxError:
            read_as.append("refused")
    assert read_as[0] == read_as[1]
