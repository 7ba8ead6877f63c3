"""Laws of writing and reading: writers equal the plain way, and the quick way of reading the strict one."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.checkpoint.checkpoint_states import STRICTLY, cpu_states, memory_states
from tests.planner.recordings import WHOLE

from mooring.engine.checkpoint.checksum import data_checksum, legacy_checksum
from mooring.engine.checkpoint.cpu_file import (
    canonical_cpu_state,
    cpu_state_text,
    cpu_text_v2,
    cpu_text_v3,
    load_cpu_state,
)
from mooring.engine.checkpoint.gotypes import CPU_LEGACY_NAME, CPU_V2, CPU_V3, MEMORY_LEGACY_NAME, MEMORY_V1, MEMORY_V2
from mooring.engine.checkpoint.memory_file import (
    canonical_memory_state,
    load_memory_state,
    memory_state_text,
    memory_text_v1,
    memory_text_v2,
)
from mooring.engine.core.bits import CPUMask, list_text
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.settings import CPU_FILE, MEMORY_FILE


def compact(members: dict[str, Any]) -> str:
    """Return JSON as Go marshals it: no spaces, map keys sorted, special characters of HTML and JavaScript escaped."""
    text = json.dumps(members, separators=(",", ":"), ensure_ascii=False)
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def in_order(mapping: dict[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def without_empty(members: dict[str, Any], *names_of_maps: str) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value or name not in names_of_maps}


def plain_cpu_members(state: CPUState) -> dict[str, Any]:
    entries = {
        pod: in_order({name: list_text(mask) for name, mask in held.items()}) for pod, held in state.assignments.items()
    }
    return {"policyName": state.policy, "defaultCpuSet": list_text(state.default), "entries": in_order(entries)}


def plain_cpu_data(state: CPUState) -> str:
    pods = {pod: {"cpuSet": list_text(mask)} if mask else {} for pod, mask in state.pods.items()}
    baselines = {
        pod: in_order({name: {"baseline": list_text(mask)} for name, mask in held.items()})
        for pod, held in state.baselines.items()
    }
    members = plain_cpu_members(state) | {"podEntries": in_order(pods), "baselines": in_order(baselines)}
    return compact(without_empty(members, "entries", "podEntries", "baselines"))


def around(old: dict[str, Any], checksum: int, data: str) -> str:
    """Return a file of the newest format."""
    newest = {"checksum": checksum, "data": data, "dataChecksum": data_checksum(data)}
    text = json.dumps(without_empty(old, "entries") | newest, separators=(",", ":"), ensure_ascii=False)
    # The data was escaped once already, so no special character is left in it; the other members have theirs.
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


@given(cpu_states)
def test_cpu_text_equals_the_plain_way(state: CPUState) -> None:
    old = plain_cpu_members(state)
    checksum = legacy_checksum(CPU_V2, old, CPU_LEGACY_NAME)
    assert cpu_state_text(state, pod_level=True, baselines=True) == around(old, checksum, plain_cpu_data(state))
    assert json.loads(cpu_text_v2(state))["checksum"] == checksum
    pods = {"podEntries": state.pods}
    assert json.loads(cpu_text_v3(state))["checksum"] == legacy_checksum(CPU_V3, old | pods, CPU_LEGACY_NAME)


@given(cpu_states)
def test_cpu_state_without_baselines_gets_its_assignments_as_such(state: CPUState) -> None:
    loaded = load_cpu_state(cpu_text_v2(state), policy=state.policy, pod_level=True, baselines=True)
    assert isinstance(loaded, CPUState)
    assert loaded.baselines == state.assignments
    assert loaded.pods == {}


@given(cpu_states)
def test_order_of_mappings_does_not_show(state: CPUState) -> None:
    def turned(mapping: Any) -> dict[str, Any]:
        return dict(reversed(mapping.items()))

    other = CPUState(
        state.policy,
        state.default,
        turned({pod: turned(held) for pod, held in state.assignments.items()}),
        turned(state.pods),
        turned({pod: turned(held) for pod, held in state.baselines.items()}),
    )
    assert cpu_state_text(other, pod_level=True, baselines=True) == cpu_state_text(
        state, pod_level=True, baselines=True
    )


def test_a_changed_mapping_is_not_taken_for_the_one_before() -> None:
    held = {"main": CPUMask(0b110)}
    state = CPUState("static", CPUMask(1), {"uid": held})
    before = cpu_state_text(state, pod_level=False, baselines=False)
    held["main"] = CPUMask(0b1100)
    after = cpu_state_text(state, pod_level=False, baselines=False)
    assert '"main":"1-2"' in before
    assert '"main":"2-3"' in after


def test_names_that_are_no_text_are_written_as_go_writes_what_is_not_utf8() -> None:
    state = CPUState(
        "static\udcff",
        CPUMask(1),
        {"\ud800": {"c\udc80": CPUMask(2)}},
        {"\ud800": CPUMask(2)},
        {"\ud800": {"c": CPUMask(2)}},
    )
    texts = [cpu_state_text(state, pod_level=True, baselines=True), cpu_text_v2(state), cpu_text_v3(state)]
    memory = MemoryState("\udcff", {}, {"\ud800": {"c": (Block((), "\udcff", 1),)}}, {"\ud800": ()})
    texts += [memory_state_text(memory, pod_level=True), memory_text_v1(memory), memory_text_v2(memory)]
    for text in texts:
        assert "\\ufffd" in text
        assert text.isascii()


def plain_block(block: Block) -> dict[str, Any]:
    return {"numaAffinity": list(block.numa), "type": block.type, "size": block.size}


def plain_node(node: NUMANodeState) -> dict[str, Any]:
    memory = {
        name: {
            "total": table.total,
            "systemReserved": table.system_reserved,
            "allocatable": table.allocatable,
            "reserved": table.reserved,
            "free": table.free,
        }
        for name, table in node.memory.items()
    }
    return {"numberOfAssignments": node.assignments, "memoryMap": in_order(memory), "cells": list(node.cells)}


def plain_memory_members(state: MemoryState) -> dict[str, Any]:
    entries = {
        pod: in_order({name: [plain_block(block) for block in given] for name, given in held.items()})
        for pod, held in state.assignments.items()
    }
    return {
        "policyName": state.policy,
        "machineState": {node: plain_node(held) for node, held in state.nodes.items()},
        "entries": in_order(entries),
    }


def as_json(members: dict[str, Any]) -> dict[str, Any]:
    machine = {str(node): held for node, held in members["machineState"].items()}
    return members | {"machineState": in_order(machine)}


@given(memory_states)
def test_memory_text_equals_the_plain_way(state: MemoryState) -> None:
    old = plain_memory_members(state)
    pods = {pod: [plain_block(block) for block in held] for pod, held in state.pods.items()}
    pod_entries = {pod: {"memoryBlocks": held} if held else {} for pod, held in pods.items()}
    data = as_json(old) | {"podEntries": in_order(pod_entries)}
    checksum = legacy_checksum(MEMORY_V1, old, MEMORY_LEGACY_NAME)
    expected = around(as_json(old), checksum, compact(without_empty(data, "entries", "podEntries")))
    assert memory_state_text(state, pod_level=True) == expected
    assert json.loads(memory_text_v1(state))["checksum"] == checksum
    v2 = old | {"podEntries": {pod: {"memoryBlocks": held or None} for pod, held in pods.items()}}
    assert json.loads(memory_text_v2(state))["checksum"] == legacy_checksum(MEMORY_V2, v2, MEMORY_LEGACY_NAME)


STATE_FILES = Path(__file__).parents[1] / "corpora" / "state-files.jsonl.gz"
BEYOND = 2**64
ODD = (
    "null",
    "{}",
    "[]",
    '""',
    "0",
    "-1",
    "1.0",
    "1e3",
    str(2**63),
    str(BEYOND),
    "true",
    '"0-3,3"',
    '"3-0"',
    '"\\ud800"',
)
"""JSON values that might stand where others are expected."""


def cpu_readings(text: str, *, pod_level: bool, baselines: bool, releases: bool) -> tuple[object, object]:
    """Return what is read in a text, and what Go's rules alone say."""
    found = canonical_cpu_state(text, pod_level=pod_level, baselines=baselines)
    policy = "static" if found is None else found.policy
    quick = load_cpu_state(text, policy=policy, pod_level=pod_level, baselines=baselines, releases=releases)
    strict = load_cpu_state(text + STRICTLY, policy=policy, pod_level=pod_level, baselines=baselines, releases=releases)
    return shown(quick), shown(strict)


def memory_readings(text: str, *, pod_level: bool) -> tuple[object, object]:
    found = canonical_memory_state(text, pod_level=pod_level)
    policy = "Static" if found is None else found.policy
    quick = load_memory_state(text, policy=policy, pod_level=pod_level)
    return shown(quick), shown(load_memory_state(text + STRICTLY, policy=policy, pod_level=pod_level))


def shown(read: object) -> str:
    """Return everything about an answer, the order of its mappings included."""
    return repr(read)


def assert_read_alike(text: str) -> None:
    for pod_level in (False, True):
        quick, strict = memory_readings(text, pod_level=pod_level)
        assert quick == strict
        for baselines in (False, True):
            for releases in (False, True):
                quick, strict = cpu_readings(text, pod_level=pod_level, baselines=baselines, releases=releases)
                assert quick == strict


@settings(max_examples=30)
@given(cpu_states)
def test_files_of_any_cpu_state_are_read_alike(state: CPUState) -> None:
    for pod_level in (False, True):
        for baselines in (False, True):
            assert_read_alike(cpu_state_text(state, pod_level=pod_level, baselines=baselines))
    assert_read_alike(cpu_text_v2(state))
    assert_read_alike(cpu_text_v3(state))


@settings(max_examples=30)
@given(memory_states)
@example(MemoryState("Static", {0: NUMANodeState(0, {"memory": MemoryTable(BEYOND, 0, 0, 0, 0)}, (0,))}, {}))
@example(MemoryState("Static", {0: NUMANodeState(0, {"memory": MemoryTable(1, -1, 0, 0, 0)}, (0,))}, {}))
@example(MemoryState("Static", {0: NUMANodeState(BEYOND, {}, (0,))}, {}))
@example(MemoryState("Static", {BEYOND: NUMANodeState(0, {}, (-BEYOND,))}, {}))
@example(MemoryState("Static", {-1: NUMANodeState(-1, {}, (-1,))}, {}))
@example(MemoryState("Static", {}, {"uid": {"main": (Block((0,), "memory", BEYOND), Block((BEYOND,), "memory", -1))}}))
@example(MemoryState("Static", {10: NUMANodeState(0, {}, ()), 2: NUMANodeState(0, {}, ())}, {"uid": {}}))
def test_files_of_any_memory_state_are_read_alike(state: MemoryState) -> None:
    for pod_level in (False, True):
        assert_read_alike(memory_state_text(state, pod_level=pod_level))
    assert_read_alike(memory_text_v1(state))
    assert_read_alike(memory_text_v2(state))


def test_pending_releases_are_left_to_the_strict_reader() -> None:
    pre = {"uid": {"main": PreAssignment(CPUMask(0b010), Moment(5, "boot"), is_written=True)}}
    state = CPUState(
        "static", CPUMask(1), {"uid": {"main": CPUMask(0b110)}}, {}, {"uid": {"main": CPUMask(0b010)}}, pre
    )
    text = cpu_state_text(state, pod_level=True, baselines=True)
    read = load_cpu_state(text, policy="static", pod_level=True, baselines=True, releases=True)
    assert read == state
    assert canonical_cpu_state(text, pod_level=True, baselines=True) is None
    assert_read_alike(text)


texts: st.SearchStrategy[str] = st.one_of(
    cpu_states.map(lambda state: cpu_state_text(state, pod_level=True, baselines=True)),
    memory_states.map(lambda state: memory_state_text(state, pod_level=True)),
)


@given(texts, st.data())
def test_a_damaged_text_is_read_alike(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    end = start + data.draw(st.integers(0, 3))
    put = data.draw(
        st.sampled_from(("", " ", "0", "9", "{", "}", ",", '"', "\\", "\udc80", "\ufffd", "ſ", "A", "null"))
    )
    assert_read_alike(text[:start] + put + text[end:])


@given(texts, st.data())
def test_data_of_another_shape_with_a_right_checksum_is_read_alike(text: str, data: st.DataObject) -> None:
    outer = json.loads(text)
    inner = outer["data"]
    values = [match.span() for match in re.finditer(r'"(?:[^"\\]|\\.)*"(?!:)|-?[0-9]+|\{\}|\[\]', inner)]
    start, end = data.draw(st.sampled_from(values))
    inner = inner[:start] + data.draw(st.sampled_from(ODD)) + inner[end:]
    outer |= {"data": inner, "dataChecksum": data_checksum(inner)}
    assert_read_alike(json.dumps(outer, separators=(",", ":"), ensure_ascii=False))


@given(texts)
def test_wrong_checksums_are_never_taken(text: str) -> None:
    for name in ("checksum", "dataChecksum"):
        outer = json.loads(text)
        outer[name] ^= 1
        assert_read_alike(json.dumps(outer, separators=(",", ":"), ensure_ascii=False))


@pytest.mark.corpus
def test_recorded_state_files_are_read_alike() -> None:
    seen: set[str] = set()
    with gzip.open(STATE_FILES, "rt", encoding="utf-8") as lines:
        for line in lines:
            scenario = json.loads(line)
            files = scenario.get("files") or {}
            seen.update(text for name in (CPU_FILE, MEMORY_FILE) if (text := files.get(name)) is not None)
    assert len(seen) > 100
    for text in sorted(seen)[:: 2 if WHOLE else 20]:
        assert_read_alike(text)
