"""Damaged and hostile files: always an answer, and never more than the file vouches for."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.checkpoint.checkpoint_states import format_of

from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.cpu_file import cpu_family, cpu_state_text, cpu_text_v2, cpu_text_v3, load_cpu_state
from mooring.engine.checkpoint.goscan import JSONSyntaxError, parse, parse_prefix
from mooring.engine.checkpoint.memory_file import (
    load_memory_state,
    memory_family,
    memory_state_text,
    memory_text_v1,
    memory_text_v2,
)
from mooring.engine.checkpoint.salvage import CPUContents, Salvage, cpu_contents, json_of, memory_contents, salvaged
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.releases.catalog import state_file_rules

CPU = CPUState(
    "static",
    CPUMask(0b10000001),
    {"6a6f-uid": {"main": CPUMask(0b110), "side": CPUMask(0b11000)}, "other": {"c": CPUMask(0b100000)}},
    {"6a6f-uid": CPUMask(0b11110)},
    {"6a6f-uid": {"main": CPUMask(0b110), "side": CPUMask(0b11000)}, "other": {"c": CPUMask(0b100000)}},
)
TABLE = MemoryTable(4096, 512, 3584, 1024, 2560)
MEMORY = MemoryState(
    "Static",
    {
        0: NUMANodeState(2, {"memory": TABLE, "hugepages-2Mi": TABLE}, (0, 1)),
        1: NUMANodeState(2, {"memory": TABLE}, (0, 1)),
    },
    {"6a6f-uid": {"main": (Block((0, 1), "memory", 1024),)}},
    {"6a6f-uid": (Block((0, 1), "memory", 1024),)},
)
CPU_TEXTS = [cpu_state_text(CPU, pod_level=True, baselines=True), cpu_text_v3(CPU), cpu_text_v2(CPU)]
MEMORY_TEXTS = [memory_state_text(MEMORY, pod_level=True), memory_text_v2(MEMORY), memory_text_v1(MEMORY)]


def load(text: str) -> list[CPUState | MemoryState | StartRefusal]:
    return [
        load_cpu_state(text, policy="static", pod_level=True, baselines=True),
        load_memory_state(text, policy="Static", pod_level=True),
    ]


def as_text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


@pytest.mark.parametrize("text", CPU_TEXTS + MEMORY_TEXTS, ids=lambda text: format_of(text)[-20:])
def test_a_file_cut_off_anywhere_is_refused(text: str) -> None:
    for length in range(len(text)):
        assert all(isinstance(outcome, StartRefusal) for outcome in load(text[:length])), length


# A file of CPU V3 or memory V2 that loses its checksum is taken by the kubelet for the format before, without
# its pod entries.


@given(st.sampled_from(CPU_TEXTS + MEMORY_TEXTS), st.data())
def test_one_wrong_byte_is_refused_or_harmless(text: str, data: st.DataObject) -> None:
    of_memory = text in MEMORY_TEXTS
    original: Any = load(text)[of_memory]
    assert not isinstance(original, StartRefusal)
    outcome = load(as_text(spoil(text, data)))[of_memory]
    assert isinstance(outcome, StartRefusal) or outcome in (original, replace(original, pods={}))


def spoil(text: str, data: st.DataObject) -> bytes:
    raw = text.encode()
    position = data.draw(st.integers(0, len(raw) - 1))
    replacement = data.draw(st.one_of(st.just(b""), st.binary(min_size=1, max_size=2)))
    return raw[:position] + replacement + raw[position + 1 :]


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    assert all(isinstance(outcome, StartRefusal) for outcome in load(as_text(data)))
    assert format_of(as_text(data))


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "0-3", "9-1", "static", "Static", "1.3", "-1", "0-99999999999999999999", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["0", "p", "c", "x", ""]), inner),
    max_leaves=6,
)
member_names = st.sampled_from(
    [
        *("policyName", "defaultCpuSet", "entries", "podEntries", "baselines", "machineState", "checksum", "data", "0"),
        *("baseline", "cpuSet", "memoryBlocks", "cells", "memoryMap", "numaAffinity", "size", "total", "ENTRIES"),
    ]
)
documents = st.dictionaries(
    member_names, json_values | st.dictionaries(st.sampled_from(["0", "p"]), json_values), max_size=5
)


@given(documents, st.booleans())
def test_any_document_with_a_right_checksum_gets_an_answer(document: dict[str, Any], whole: bool) -> None:
    data = json.dumps(document)
    file = {"data": data, "dataChecksum": data_checksum(data)}
    for outcome in load(json.dumps(document | file if whole else file)):
        assert isinstance(outcome, CPUState | MemoryState | StartRefusal)
        if isinstance(outcome, StartRefusal):
            assert outcome.message.startswith(f"start {outcome.faults[0].names[0]} manager error: ")


@given(documents)
def test_any_document_of_the_older_formats_gets_an_answer(document: dict[str, Any]) -> None:
    for policy in ("static", "Static"):
        text = json.dumps({"policyName": policy} | document | {"checksum": 0})
        assert all(isinstance(outcome, CPUState | MemoryState | StartRefusal) for outcome in load(text))
        assert format_of(text).count("state") == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        json.dumps({"data": "[" * 100_000}),
        '{"entries":' * 10_001,
        '{"x":' + "[" * 9_998 + "]" * 9_998 + "}",
        '{"entries":{"p":{"c":' + "[" * 5_000 + "]" * 5_000 + "}}}",
        '{"checksum":' + "9" * 10_000 + "}",
        '{"machineState":{"' + "9" * 10_000 + '":{}}}',
        '{"policyName":"static","defaultCpuSet":"0-' + "9" * 10_000 + '"}',
        '{"policyName":"static","defaultCpuSet":"0-1000000000"}',
        '{"policyName":"static","defaultCpuSet":"\udcff\ud800"}',
        "\ud800",
        "\x00",
        "\ufeff{}",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_hostile_texts_are_refused(text: str) -> None:
    assert isinstance(load_cpu_state(text, policy="static", pod_level=True, baselines=True), StartRefusal)
    assert isinstance(load_memory_state(text, policy="Static", pod_level=True), StartRefusal)
    assert format_of(text)


CPU_FAMILY = cpu_family(state_file_rules("1.37", pod_level=True).cpu)
MEMORY_FAMILY = memory_family(state_file_rules("1.37", pod_level=False).memory)
NAMES = st.sampled_from(("main", "side", 'odd"name', "a\\b"))
UIDS = st.sampled_from(("u1", "u2", "6a1f-81c2"))
MASKS = st.integers(0, 2**12 - 1)

CPU_STATES = st.builds(
    CPUState,
    st.just("static"),
    MASKS,
    st.dictionaries(UIDS, st.dictionaries(NAMES, MASKS, min_size=1), max_size=3),
    st.dictionaries(UIDS, MASKS.filter(bool), max_size=2),
)
BLOCKS = st.lists(
    st.builds(Block, st.sampled_from(((0,), (0, 1))), st.sampled_from(("memory", "hugepages-2Mi")), st.integers(0, 99)),
    min_size=1,
    max_size=2,
).map(tuple)
MEMORY_STATES = st.builds(
    MemoryState,
    st.just("Static"),
    st.just({0: NUMANodeState(1, {"memory": MemoryTable(9, 1, 8, 3, 5)}, (0,))}),
    st.dictionaries(UIDS, st.dictionaries(NAMES, BLOCKS, min_size=1), max_size=3),
)


def found(text: str, *, of_memory: bool = False) -> Salvage:
    copy = salvaged(text, MEMORY_FAMILY if of_memory else CPU_FAMILY)
    assert copy is not None
    return copy


def contents(text: str) -> CPUContents:
    return cpu_contents(found(text))


def is_part(part: CPUState, whole: CPUState) -> bool:
    return all(
        name in whole.assignments.get(uid, {}) and whole.assignments[uid][name] == mask
        for uid, held in part.assignments.items()
        for name, mask in held.items()
    ) and all(whole.pods.get(uid) == mask for uid, mask in part.pods.items())


@settings(max_examples=40)
@given(CPU_STATES)
def test_of_a_whole_file_everything_is_left(state: CPUState) -> None:
    copy = found(cpu_state_text(state, pod_level=True, baselines=False))
    assert (copy.in_data, copy.trusted, copy.whole) == (True, True, True)
    assert cpu_contents(copy).state == state
    for text, read in (
        (cpu_text_v3(state), state),
        (cpu_text_v2(state), CPUState("static", state.default, state.assignments)),
    ):
        assert found(text).trusted
        assert contents(text).state == read


@settings(max_examples=40)
@given(MEMORY_STATES)
def test_of_a_whole_memory_file_everything_is_left(state: MemoryState) -> None:
    for text in (memory_state_text(state, pod_level=True), memory_text_v2(state), memory_text_v1(state)):
        copy = found(text, of_memory=True)
        assert copy.trusted
        assert memory_contents(copy).state == state


@settings(max_examples=30)
@given(CPU_STATES, st.data())
def test_a_cut_leaves_only_entries_that_were_there(state: CPUState, data: st.DataObject) -> None:
    text = cpu_state_text(state, pod_level=True, baselines=False)
    for cut in data.draw(st.lists(st.integers(1, len(text) - 1), min_size=5, max_size=20)):
        copy = salvaged(text[:cut], CPU_FAMILY)
        if copy is not None:
            assert is_part(cpu_contents(copy).state, state), text[:cut]


@settings(max_examples=40)
@given(CPU_STATES, st.integers(0, 2**31))
def test_a_cut_inside_of_data_costs_no_container(state: CPUState, where: int) -> None:
    text = cpu_state_text(state, pod_level=True, baselines=False)
    start = text.index('"data":')
    copy = found(text[: start + where % (len(text) - start)])
    assert copy.trusted
    assert cpu_contents(copy).state.assignments == state.assignments


@settings(max_examples=40)
@given(CPU_STATES, st.integers(0, 2**31))
def test_damage_before_data_costs_nothing(state: CPUState, where: int) -> None:
    text = cpu_state_text(state, pod_level=True, baselines=False)
    at = where % text.index('"data":')
    copy = found(f"{text[:at]}\x01{text[at + 1 :]}")
    assert copy.trusted
    assert cpu_contents(copy).state.assignments == state.assignments


@settings(max_examples=40)
@given(MEMORY_STATES, st.integers(0, 2**31))
def test_a_cut_memory_file_leaves_only_blocks_that_were_there(state: MemoryState, where: int) -> None:
    text = memory_text_v1(state)
    copy = salvaged(text[: where % len(text)], MEMORY_FAMILY)
    if copy is not None:
        left = memory_contents(copy)
        assert all(
            state.assignments[uid][name] == blocks
            for uid, held in left.state.assignments.items()
            for name, blocks in held.items()
        )
        assert not left.has_nodes


@settings(max_examples=40)
@given(CPU_STATES, st.integers(0, 2**31), st.characters(max_codepoint=126))
def test_one_wrong_character_never_passes_for_what_a_kubelet_wrote(state: CPUState, where: int, wrong: str) -> None:
    text = cpu_state_text(state, pod_level=True, baselines=False)
    at = where % len(text)
    copy = salvaged(f"{text[:at]}{wrong}{text[at + 1 :]}", CPU_FAMILY)
    if copy is not None and copy.trusted:
        assert cpu_contents(copy).state.assignments == state.assignments


@settings(max_examples=100)
@given(st.text(max_size=40) | st.binary(max_size=60).map(lambda raw: raw.decode(errors="surrogateescape")))
def test_any_text_is_read_without_a_complaint(text: str) -> None:
    for family in (CPU_FAMILY, MEMORY_FAMILY):
        copy = salvaged(text, family)
        if copy is not None:
            cpu_contents(copy)
            memory_contents(copy)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.sampled_from(("0-3", "x", "")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(member_names, inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100)
@given(JSON)
def test_members_of_any_type_are_read_without_a_complaint(value: object) -> None:

    copy = salvaged(json.dumps(value), CPU_FAMILY)
    if copy is not None:
        cpu_contents(copy)
        memory_contents(copy)
    assert (copy is None) <= (not isinstance(value, dict))


def test_a_value_before_a_wrong_character_is_doubted() -> None:
    assert contents('{"policyName":"static","entries":{"u":{"a":"1-3","b":"4"7"').state.assignments == {
        "u": {"a": 0b1110}
    }


def test_data_with_a_wrong_escape_is_no_copy() -> None:
    text = '{"policyName":"static","defaultCpuSet":"0","data":"{\\"policyName\\":\\utotal","dataChecksum":1}'
    assert not found(text).in_data
    assert not found(text).whole


def test_a_null_is_reported() -> None:
    left = memory_contents(
        found('{"policyName":"Static","machineState":{"0":null,"1":{"memoryMap":{"memory":null}}}}', of_memory=True)
    )
    assert left.null == ("NUMA node 0", "memory on NUMA node 1")
    assert not left.has_nodes


@given(JSON)
def test_what_is_written_again_reads_the_same(value: object) -> None:

    document = parse(json.dumps(value).encode())
    assert parse(json_of(document).encode()) == document


@given(st.binary(max_size=50))
def test_a_prefix_is_whole_exactly_when_the_text_is_json(raw: bytes) -> None:
    read, fault = parse_prefix(raw, 3)
    if fault is None:
        assert parse(raw) == read
    else:
        with pytest.raises(JSONSyntaxError, match=f"^{re.escape(str(fault))}$") as caught:
            parse(raw)
        assert caught.value.at == fault.at


@pytest.mark.parametrize(
    ("text", "offset"), [('{"a": 1', 7), ('{"a" 1}', 5), ('{"a": 1} x', 9), ('{"a": "\n"}', 7), ("", 0)]
)
def test_a_fault_has_its_place(text: str, offset: int) -> None:
    _, fault = parse_prefix(text.encode(), 3)
    assert fault is not None
    assert fault.at == offset
