"""Damaged and hostile files: always an answer, and never one that the file does not vouch for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3, load_cpu_state
from mooring.engine.checkpoint.formats import describe_format
from mooring.engine.checkpoint.memory_file import load_memory_state, memory_state_text, memory_text_v1, memory_text_v2
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState

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


@pytest.mark.parametrize("text", CPU_TEXTS + MEMORY_TEXTS, ids=lambda text: " ".join(describe_format(text))[-20:])
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
    assert describe_format(as_text(data))[0]


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
        *("policyName", "defaultCpuSet", "entries", "podEntries", "baselines", "machineState", "checksum"),
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
        assert describe_format(text)[0].count("state") == 1


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
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
    assert describe_format(text)[0]
