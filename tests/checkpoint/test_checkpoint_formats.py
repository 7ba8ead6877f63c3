"""Naming the format of a file, and the hash behind its checksums."""

from __future__ import annotations

import importlib.util
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooring.engine.checkpoint import checksum
from mooring.engine.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.engine.checkpoint.formats import describe_format
from mooring.engine.checkpoint.memory_file import memory_state_text, memory_text_v1, memory_text_v2
from mooring.engine.core.bits import CPUMask
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import MemoryState

CPU = CPUState("static", CPUMask(1), {"p": {"c": CPUMask(2)}}, {"p": CPUMask(2)})
MEMORY = MemoryState("Static", {}, {}, {"p": ()})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (cpu_state_text(CPU, pod_level=True, baselines=True), "CPU manager state, format V4"),
        (cpu_text_v3(CPU), "CPU manager state, format V3"),
        (cpu_text_v2(CPU), "CPU manager state, format V2"),
        (
            '{"policyName":"none","entries":{"id":"1"},"checksum":1}',
            "CPU manager state, format V1 (not readable since kubelet 1.37)",
        ),
        (memory_state_text(MEMORY, pod_level=True), "memory manager state, format V3"),
        ('{"data":"{\\"machineState\\":{}}"}', "memory manager state, format V3"),
        (memory_text_v2(MEMORY), "memory manager state, format V2"),
        (memory_text_v1(MEMORY), "memory manager state, format V1"),
        ("{}", "not a state file: it has none of the members of one"),
        ("null", "not a state file: the JSON text is not an object"),
        ("", "not JSON: unexpected end of JSON input"),
    ],
)
def test_formats_are_named(text: str, expected: str) -> None:
    assert ", ".join(filter(None, describe_format(text))) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)], ids=["empty", "a", "foobar"]
)
def test_published_values_are_met(text: bytes, expected: int) -> None:
    assert checksum.plain_fnv1a_32(text) == expected
    assert checksum.fnv1a_32(text) == expected


@given(st.binary(max_size=400))
def test_accelerator_equals_the_plain_form(data: bytes) -> None:
    accelerated = pytest.importorskip("fnv_hash_fast").fnv1a_32
    assert accelerated(data) == checksum.plain_fnv1a_32(data) == checksum.fnv1a_32(data)


def test_plain_form_is_used_when_the_accelerator_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fnv_hash_fast", None)
    # The choice is made once a process: a second copy of the module makes it anew.
    spec = importlib.util.spec_from_file_location("checksum_anew", checksum.__file__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    monkeypatch.setattr(anew, "plain_fnv1a_32", len)
    assert anew.fnv1a_32(b"foobar") == len(b"foobar")
    assert checksum.plain_fnv1a_32(b"foobar") == 0xBF9CF968
