"""Naming the format of a file."""

from __future__ import annotations

import pytest

from mooring.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3
from mooring.checkpoint.formats import describe_format
from mooring.checkpoint.memory_file import memory_state_text, memory_text_v1, memory_text_v2
from mooring.core.bits import CPUMask
from mooring.cpumanager.state import CPUState
from mooring.memorymanager.state import MemoryState

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
    assert describe_format(text) == expected
