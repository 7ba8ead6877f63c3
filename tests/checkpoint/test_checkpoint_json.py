"""JSON as Go reads and writes it: what is accepted, its complaints, names, nulls, duplicates and faults."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
    CPU_V2,
    CPU_V4,
    MEMORY_V1,
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


def read(struct: GoStruct, text: str) -> tuple[dict[str, Any], GoFault | None]:
    return decode(parse(text.encode()), struct, fresh(struct))


def value_of(struct: GoStruct, text: str) -> dict[str, Any]:
    value, fault = read(struct, text)
    assert fault is None
    return value


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ('{"policyName":"a"}', "a"),
        ('{"POLICYNAME":"a"}', "a"),
        ('{"policyname":"a","policyName":"b"}', "b"),
        ('{"policyName":"a","POLICYNAME":"b"}', "b"),
        ('{"policyName":"a","policyName":null}', "a"),
        ('{"policyName ":"a"}', ""),
        ('{"policy_name":"a"}', ""),
        ("null", ""),
    ],
)
def test_names_match_in_any_case_and_the_last_one_wins(text: str, policy: str) -> None:
    assert value_of(CPU_V2, text)["policyName"] == policy


def test_the_long_s_and_the_kelvin_sign_are_letters_of_other_case() -> None:
    assert value_of(CPU_V2, '{"chec\u212aſum":7}')["checksum"] == 7


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("{}", {}),
        ('{"entries":{}}', {}),
        ('{"entries":null}', None),
        ('{"entries":{"p":null}}', {"p": None}),
        ('{"entries":{"p":{"c":null}}}', {"p": {"c": ""}}),
        ('{"entries":{"p":{"c":"1"}},"entries":{"q":{}}}', {"p": {"c": "1"}, "q": {}}),
        ('{"entries":{"p":{"c":"1"},"p":{"d":"2"}}}', {"p": {"d": "2"}}),
        ('{"entries":null,"entries":{"q":{}}}', {"q": {}}),
    ],
)
def test_maps_are_added_to_and_null_makes_them_nil(text: str, entries: object) -> None:
    assert value_of(CPU_V2, text)["entries"] == entries


def test_a_slice_that_appears_twice_is_decoded_over_its_former_elements() -> None:
    text = '{"machineState":{"0":{"cells":[4,5,6],"cells":[null,9]}}}'
    assert value_of(MEMORY_V1, text)["machineState"][0]["cells"] == [4, 9]


def test_nodes_are_keyed_by_number() -> None:
    text = '{"machineState":{"10":null,"-1":{},"+2":{"cells":[]},"007":{"memoryMap":{"memory":null}}}}'
    nodes = value_of(MEMORY_V1, text)["machineState"]
    assert nodes == {
        10: None,
        -1: {"numberOfAssignments": 0, "memoryMap": None, "cells": None},
        2: {"numberOfAssignments": 0, "memoryMap": None, "cells": []},
        7: {"numberOfAssignments": 0, "memoryMap": {"memory": None}, "cells": None},
    }


def test_the_first_fault_is_kept_and_the_rest_is_decoded() -> None:
    value, fault = read(CPU_V4, '{"policyName":1,"data":"d","checksum":"x","dataChecksum":5}')
    assert str(fault).startswith("json: cannot unmarshal number")
    assert (value["data"], value["dataChecksum"]) == ("d", 5)


def test_a_bad_pod_entry_ends_the_decoding_at_once() -> None:
    text = '{"podEntries":{"p":{"cpuSet":"1-"}},"policyName":1}'
    assert str(read(CPU_DATA, text)[1]) == 'failed to parse cpuset: strconv.Atoi: parsing "": invalid syntax'


def test_pod_sets_are_masks() -> None:
    text = '{"podEntries":{"a":{"cpuSet":"0-2"},"b":{},"c":null,"d":{"CPUSET":"4"}}}'
    assert value_of(CPU_DATA, text)["podEntries"] == {"a": 0b111, "b": 0, "c": 0, "d": 0b10000}


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
