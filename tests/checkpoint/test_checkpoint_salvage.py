"""What is left of a damaged state file is never more than it said, and never less than what is beyond doubt."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.engine.checkpoint.cpu_file import cpu_family, cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.engine.checkpoint.formats import FormatFamily
from mooring.engine.checkpoint.goscan import JSONSyntaxError, parse, parse_prefix
from mooring.engine.checkpoint.memory_file import memory_family, memory_state_text, memory_text_v1, memory_text_v2
from mooring.engine.checkpoint.salvage import CPUContents, Salvage, cpu_contents, json_of, memory_contents, salvaged
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.releases.state_files import state_file_rules

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


def found(text: str, family: FormatFamily = CPU_FAMILY) -> Salvage:
    copy = salvaged(text, family)
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
        copy = found(text, MEMORY_FAMILY)
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
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                (
                    "policyName",
                    "defaultCpuSet",
                    "entries",
                    "podEntries",
                    "machineState",
                    "data",
                    "memoryMap",
                    "0",
                    "cells",
                )
            ),
            inner,
            max_size=4,
        )
    ),
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
        found('{"policyName":"Static","machineState":{"0":null,"1":{"memoryMap":{"memory":null}}}}', MEMORY_FAMILY)
    )
    assert left.null == ("NUMA node 0", "memory on NUMA node 1")
    assert not left.has_nodes


@given(JSON)
def test_what_is_written_again_reads_the_same(value: object) -> None:

    document = parse(json.dumps(value).encode())
    assert parse(json_of(document).encode()) == document


@given(st.binary(max_size=50))
def test_a_prefix_is_whole_exactly_when_the_text_is_json(raw: bytes) -> None:
    read = parse_prefix(raw, 3)
    fault, value = "", None
    try:
        value = parse(raw)
    except JSONSyntaxError as error:
        fault = str(error)
    assert read.fault == fault
    assert fault or (read.value, read.whole) == (value, True)


@pytest.mark.parametrize(
    ("text", "offset"), [('{"a": 1', 7), ('{"a" 1}', 5), ('{"a": 1} x', 9), ('{"a": "\n"}', 7), ("", 0)]
)
def test_a_fault_has_its_place(text: str, offset: int) -> None:
    assert parse_prefix(text.encode(), 3).fault_at == offset
    with pytest.raises(JSONSyntaxError) as caught:
        parse(text.encode())
    assert caught.value.at == offset
