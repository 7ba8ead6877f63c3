"""The checksum vectors of the specification (spec: vectors.md sections 6 and 7), by number; names of formats."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.checkpoint_states import format_of

import mooring.engine.checkpoint.checksum as hashing
import mooring.engine.checkpoint.gotypes as structures
from mooring.engine.checkpoint.checksum import data_checksum, legacy_checksum
from mooring.engine.checkpoint.cpu_file import cpu_state_text, cpu_text_v2, cpu_text_v3, load_cpu_state
from mooring.engine.checkpoint.gojson import decode
from mooring.engine.checkpoint.goscan import parse
from mooring.engine.checkpoint.gotypes import (
    CPU_LEGACY_NAME,
    MEMORY_LEGACY_NAME,
    MEMORY_V1,
    MEMORY_V2,
    GoStruct,
    fresh,
)
from mooring.engine.checkpoint.memory_file import load_memory_state, memory_state_text, memory_text_v1, memory_text_v2
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.settings import not_restored

Members = dict[str, Any]
ENTRIES = {"pod": {"container1": "4-6", "container2": "1-3"}}


def checksum(struct: GoStruct, name: str, members: Members) -> int:
    value, fault = decode(parse(json.dumps(members).encode()), struct, fresh(struct))
    assert fault is None
    return legacy_checksum(struct, value, name)


VECTORS = [
    json.loads(line)
    for line in Path(__file__).with_name("checksum_vectors.jsonl").read_text(encoding="utf-8").splitlines()
]
"""By number (raw: under the name of the structure itself)."""


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["number"] for vector in VECTORS])
def test_cpu_checksums(vector: dict[str, Any]) -> None:
    struct = getattr(structures, vector["type"])
    name = struct.name if vector["number"].endswith("raw") else CPU_LEGACY_NAME
    assert checksum(struct, name, vector["members"]) == vector["checksum"]


DATA = {
    14: ('{"policyName":"none","defaultCPUSet":"4-6"}', 657950972),
    15: (
        '{"policyName":"static","defaultCPUSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}}}',
        1420829534,
    ),
    16: (
        '{"policyName":"other","defaultCPUSet":"7-9","entries":{"pod":{"container1":"4-6","container2":"1-3"}}}',
        1432271708,
    ),
    17: ('{"policyName":"none","defaultCPUSet":"1.3"}', 3033143655),
    18: (
        '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"asd"}}}',
        3794806925,
    ),
    19: ('{"policyName":"none","defaultCPUSet":"4-6","unknownField":"value"}', 3492408555),
    20: (
        (
            '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},'
            '"podEntries":{"pod":{"cpuSet":"4-10"}},'
            '"baselines":{"pod":{"container1":{"baseline":"4-5"},"container2":{"baseline":"7-8"}}}}'
        ),
        1032795074,
    ),
    21: (
        (
            '{"policyName":"static","defaultCPUSet":"1-3","entries":{"pod":{"container1":"4-6","container2":"7-9"}},'
            '"podEntries":{"pod":{"cpuSet":"4-10"}}}'
        ),
        2328898362,
    ),
}


@pytest.mark.parametrize("number", DATA)
def test_data_checksums(number: int) -> None:
    data, expected = DATA[number]
    assert data_checksum(data) == expected


def mask(text: str) -> CPUMask:
    return CPUSet.parse(text).mask


def masks(entries: dict[str, dict[str, str]]) -> dict[str, dict[str, CPUMask]]:
    return {pod: {name: mask(text) for name, text in held.items()} for pod, held in entries.items()}


def load(members: Members, policy: str = "none", *, gates: bool = False) -> CPUState | StartRefusal:
    return load_cpu_state(json.dumps(members), policy=policy, pod_level=gates, baselines=gates)


def with_data(number: int) -> Members:
    """Return a V4 file whose embedded part is wrong throughout: the kubelet must not look at it."""
    data, value = DATA[number]
    old = {"policyName": "other", "defaultCpuSet": "100-200", "checksum": 1234}
    return old | {"data": data, "dataChecksum": value}


@pytest.mark.parametrize(
    ("number", "policy", "expected"),
    [
        (14, "none", CPUState("none", mask("4-6"), {})),
        (15, "static", CPUState("static", mask("7-9"), masks(ENTRIES))),
        (16, "none", 'configured policy "none" differs from state checkpoint policy "other"'),
        (17, "none", 'could not parse default CPU set "1.3": strconv.Atoi: parsing "1.3": invalid syntax'),
        (
            18,
            "static",
            (
                'could not parse cpuset "asd" for container "container2" in pod "pod": '
                'strconv.Atoi: parsing "asd": invalid syntax'
            ),
        ),
        (19, "none", CPUState("none", mask("4-6"), {})),
    ],
)
def test_data_loads(number: int, policy: str, expected: CPUState | str) -> None:
    loaded = load(with_data(number), policy)
    assert loaded == (not_restored("cpu", expected) if isinstance(expected, str) else expected)


def test_pod_sets_and_baselines_are_loaded_behind_their_gates() -> None:
    held = masks({"pod": {"container1": "4-6", "container2": "7-9"}})
    baselines = masks({"pod": {"container1": "4-5", "container2": "7-8"}})
    pods = {"pod": mask("4-10")}
    assert load(with_data(20), "static") == CPUState("static", mask("1-3"), held)
    assert load(with_data(20), "static", gates=True) == CPUState("static", mask("1-3"), held, pods, baselines)
    assert load(with_data(21), "static", gates=True) == CPUState("static", mask("1-3"), held, pods, held)


# --- memory ---

BLOCK = Block((0,), "memory", 512)
M0 = MemoryState(
    "static",
    {0: NUMANodeState(0, {"memory": MemoryTable(2048, 512, 1536, 512, 1024)}, ())},
    {"pod": {"container1": (BLOCK,)}},
)
M0_DATA = (
    '{"policyName":"static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":{"total":2048,'
    '"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},'
    '"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}}}'
)
M0_WITH_POD = MemoryState(M0.policy, M0.nodes, M0.assignments, {"pod": (BLOCK,)})
GIB = 2**30
TWO_NODES = MemoryState(
    "Static",
    {
        0: NUMANodeState(
            0,
            {
                "memory": MemoryTable(8 * GIB, GIB, 5 * GIB, 0, 5 * GIB),
                "hugepages-1Gi": MemoryTable(2 * GIB, 0, 2 * GIB, 0, 2 * GIB),
            },
            (0,),
        ),
        1: NUMANodeState(0, {"memory": MemoryTable(8 * GIB, 0, 8 * GIB, 0, 8 * GIB)}, (1,)),
    },
    {},
)


def memory(members: Members, policy: str = "static") -> MemoryState | StartRefusal:
    return load_memory_state(json.dumps(members), policy=policy, pod_level=False)


def test_memory_checksums_of_v1() -> None:
    members = json.loads(M0_DATA)
    assert checksum(MEMORY_V1, MEMORY_LEGACY_NAME, members) == 4215593881  # 22
    assert json.loads(memory_text_v1(M0))["checksum"] == 4215593881
    assert json.loads(memory_text_v1(MemoryState("Static", {}, {})))["checksum"] == 3940083781  # 26
    assert json.loads(memory_text_v1(MemoryState("None", {}, {})))["checksum"] == 4236770233
    assert json.loads(memory_text_v1(TWO_NODES))["checksum"] == 3597660690  # 28


def test_memory_checksums_of_v2() -> None:
    block = {"numaAffinity": [0], "type": "memory", "size": 512}
    members = json.loads(M0_DATA) | {"podEntries": {"pod": {"memoryBlocks": [block]}}}
    assert checksum(MEMORY_V2, MEMORY_LEGACY_NAME, members) == 1278640530  # 23
    assert json.loads(memory_text_v2(M0_WITH_POD))["checksum"] == 1278640530


def test_memory_checksums_of_data() -> None:
    unknown = M0_DATA.replace("{", '{"unknownField":"value",', 1)
    assert data_checksum(M0_DATA) == 1849615440  # 24
    assert data_checksum(unknown) == 2100279793  # 25
    assert data_checksum('{"policyName":"Static","machineState":{}}') == 3196122654  # 27
    assert data_checksum('{"policyName":"None","machineState":{}}') == 3093843326
    assert memory({"data": unknown, "dataChecksum": 2100279793}) == M0


def test_what_the_kubelet_would_crash_on_is_refused() -> None:
    node = memory({"policyName": "static", "machineState": {"0": None}})
    table = memory({"policyName": "static", "machineState": {"0": {"memoryMap": {"memory": None}}}})
    assert isinstance(node, StartRefusal)
    assert isinstance(table, StartRefusal)
    assert "would crash" in node.message
    assert "would crash" in table.message


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
    assert format_of(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [(b"", 0x811C9DC5), (b"a", 0xE40C292C), (b"foobar", 0xBF9CF968)], ids=["empty", "a", "foobar"]
)
def test_published_values_are_met(text: bytes, expected: int) -> None:
    assert hashing.plain_fnv1a_32(text) == expected
    assert hashing.fnv1a_32(text) == expected


@given(st.binary(max_size=400))
def test_accelerator_equals_the_plain_form(data: bytes) -> None:
    accelerated = pytest.importorskip("fnv_hash_fast").fnv1a_32
    assert accelerated(data) == hashing.plain_fnv1a_32(data) == hashing.fnv1a_32(data)


def test_plain_form_is_used_when_the_accelerator_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fnv_hash_fast", None)
    # The choice is made once a process: a second copy of the module makes it anew.
    spec = importlib.util.spec_from_file_location("checksum_anew", hashing.__file__)
    assert spec is not None
    assert spec.loader is not None
    anew = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(anew)
    monkeypatch.setattr(anew, "plain_fnv1a_32", len)
    assert anew.fnv1a_32(b"foobar") == len(b"foobar")
    assert hashing.plain_fnv1a_32(b"foobar") == 0xBF9CF968
