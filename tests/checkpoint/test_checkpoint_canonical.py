"""The quick way of reading answers as the strict one does, on every text, and is taken for what writers write."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.checkpoint.checkpoint_states import STRICTLY, cpu_states, memory_states
from tests.planner.recordings import WHOLE

from mooring.engine.checkpoint import cpu_file, memory_file
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.engine.checkpoint.memory_file import memory_state_text, memory_text_v1, memory_text_v2
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.start import CPU_FILE, MEMORY_FILE

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
    found = cpu_file.canonical_cpu_state(text, pod_level=pod_level, baselines=baselines)
    policy = "static" if found is None else found.policy
    quick = cpu_file.load_cpu_state(text, policy=policy, pod_level=pod_level, baselines=baselines, releases=releases)
    strict = cpu_file.load_cpu_state(
        text + STRICTLY, policy=policy, pod_level=pod_level, baselines=baselines, releases=releases
    )
    return shown(quick), shown(strict)


def memory_readings(text: str, *, pod_level: bool) -> tuple[object, object]:
    found = memory_file.canonical_memory_state(text, pod_level=pod_level)
    policy = "Static" if found is None else found.policy
    quick = memory_file.load_memory_state(text, policy=policy, pod_level=pod_level)
    return shown(quick), shown(memory_file.load_memory_state(text + STRICTLY, policy=policy, pod_level=pod_level))


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


@given(cpu_states, memory_states)
def test_what_the_writers_write_takes_the_quick_way(cpu: CPUState, memory: MemoryState) -> None:
    # Without any baselines the assignments become them, which is for the strict reader; sizes may be too large.
    text = cpu_state_text(cpu, pod_level=True, baselines=True)
    assert cpu_file.canonical_cpu_state(text, pod_level=True, baselines=True) == cpu
    bare = replace(cpu, pods={}, baselines={})
    text = cpu_state_text(cpu, pod_level=False, baselines=False)
    assert cpu_file.canonical_cpu_state(text, pod_level=False, baselines=False) == bare
    text = memory_state_text(memory, pod_level=True)
    small = all(int(number) < 2**63 for number in re.findall(r"[0-9]{19,}", text))
    assert memory_file.canonical_memory_state(text, pod_level=True) in ((memory,) if small else (memory, None))


def test_pending_releases_are_left_to_the_strict_reader() -> None:
    pre = {"uid": {"main": PreAssignment(CPUMask(0b010), Moment(5, "boot"), is_written=True)}}
    state = CPUState(
        "static", CPUMask(1), {"uid": {"main": CPUMask(0b110)}}, {}, {"uid": {"main": CPUMask(0b010)}}, pre
    )
    text = cpu_state_text(state, pod_level=True, baselines=True)
    read = cpu_file.load_cpu_state(text, policy="static", pod_level=True, baselines=True, releases=True)
    assert read == state
    assert cpu_file.canonical_cpu_state(text, pod_level=True, baselines=True) is None
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


def with_member(text: str, change: Callable[[dict[str, Any]], object]) -> str:
    outer = json.loads(text)
    change(outer)
    return json.dumps(outer, separators=(",", ":"), ensure_ascii=False)


@given(texts)
def test_wrong_checksums_are_never_taken(text: str) -> None:
    for name in ("checksum", "dataChecksum"):
        wrong = with_member(text, lambda outer, name=name: outer.update({name: outer[name] ^ 1}))  # type: ignore[misc]
        assert cpu_file.canonical_cpu_state(wrong, pod_level=True, baselines=True) is None
        assert memory_file.canonical_memory_state(wrong, pod_level=True) is None
        assert_read_alike(wrong)


def test_a_text_that_nests_without_end_is_left_to_the_strict_reader() -> None:
    for text in ("[" * 100_000, '{"data":' + "[" * 100_000, json.dumps({"data": "[" * 100_000})):
        assert cpu_file.canonical_cpu_state(text, pod_level=True, baselines=True) is None
        assert memory_file.canonical_memory_state(text, pod_level=True) is None


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
