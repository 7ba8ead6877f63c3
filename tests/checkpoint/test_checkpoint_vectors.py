"""The checksum vectors of the specification (spec: vectors.md sections 6 and 7), by their numbers there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from mooring.engine.checkpoint.checksum import data_checksum, legacy_checksum
from mooring.engine.checkpoint.cpu_file import (
    cpu_state_text,
    cpu_text_v2,
    cpu_text_v3,
    initial_cpu_text,
    load_cpu_state,
)
from mooring.engine.checkpoint.gojson import decode
from mooring.engine.checkpoint.goscan import parse
from mooring.engine.checkpoint.gotypes import (
    CPU_LEGACY_NAME,
    CPU_V1,
    CPU_V2,
    CPU_V3,
    MEMORY_LEGACY_NAME,
    MEMORY_V1,
    MEMORY_V2,
    GoStruct,
    fresh,
)
from mooring.engine.checkpoint.memory_file import (
    initial_memory_text,
    load_memory_state,
    memory_state_text,
    memory_text_v1,
    memory_text_v2,
)
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.cpuset import CPUSet
from mooring.engine.core.decision import StartRefusal
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.start import not_restored

Members = dict[str, Any]
ENTRIES = {"pod": {"container1": "4-6", "container2": "1-3"}}
KEP_ENTRIES = {"pod1": {"container1": "5-6", "container2": "3-4"}}
KEP_PODS = {"pod2": {"cpuSet": "7-9"}}
FIELD_ENTRIES = {"235148fe-393f-47a8-a17d-bd55bc1a836b": {"cgroup1-0": "1,13"}}


def checksum(struct: GoStruct, name: str, members: Members) -> int:
    decoded = decode(parse(json.dumps(members).encode()), struct, fresh(struct))
    assert decoded.fault is None
    return legacy_checksum(struct, decoded.value, name)


def cpu(policy: str, default: str, entries: object = None, pods: object = None) -> Members:
    members: Members = {"policyName": policy, "defaultCpuSet": default}
    if entries is not None:
        members["entries"] = entries
    if pods is not None:
        members["podEntries"] = pods
    return members


@pytest.mark.parametrize(
    ("struct", "name", "members", "expected"),
    [
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("static", "0-63"), 1058907510, id="1"),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("static", "2-15,17-31,34-47,49-63"), 4141502832, id="2"),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("none", "4-6"), 354655845, id="3"),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("none", "1-3", ENTRIES), 3610638499, id="4"),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("static", "7-9", ENTRIES), 964019483, id="5"),
        pytest.param(CPU_V2, CPU_V2.name, cpu("static", "7-9", ENTRIES), 1692845551, id="5-raw"),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("none", "1.3"), 3021697696, id="6"),
        pytest.param(
            CPU_V2,
            CPU_LEGACY_NAME,
            cpu("none", "1-3", {"pod": {"container1": "4-6", "container2": "asd"}}),
            962272150,
            id="7",
        ),
        pytest.param(CPU_V2, CPU_LEGACY_NAME, cpu("static", "0,2-12,14-23", FIELD_ENTRIES), 1552716370, id="8"),
        pytest.param(CPU_V1, CPU_LEGACY_NAME, cpu("none", "1-3"), 1694838852, id="9-left"),
        pytest.param(
            CPU_V1,
            CPU_LEGACY_NAME,
            cpu("static", "7-9", {"containerID1": "4-6", "containerID2": "1-3"}),
            2026311253,
            id="9-right",
        ),
        pytest.param(
            CPU_V3,
            CPU_LEGACY_NAME,
            cpu("none", "1-3", ENTRIES, {"pod": {"cpuSet": "4-6"}}),
            2649431787,
            id="10",
        ),
        pytest.param(CPU_V3, CPU_LEGACY_NAME, cpu("static", "1-2", KEP_ENTRIES, KEP_PODS), 766259872, id="11"),
        pytest.param(CPU_V3, CPU_V3.name, cpu("static", "1-2", KEP_ENTRIES, KEP_PODS), 2284712151, id="11-raw"),
        pytest.param(CPU_V3, CPU_V3.name, cpu("static", "7-9", ENTRIES), 1942532442, id="12"),
        pytest.param(
            CPU_V2,
            CPU_LEGACY_NAME,
            cpu("static", "1-3", {"pod": {"container1": "4-6", "container2": "7-9"}}),
            428551915,
            id="13-v2",
        ),
        pytest.param(
            CPU_V3,
            CPU_LEGACY_NAME,
            cpu("static", "1-3", {"pod": {"container1": "4-6", "container2": "7-9"}}),
            1659543133,
            id="13-v3",
        ),
        pytest.param(
            CPU_V2,
            CPU_LEGACY_NAME,
            cpu("static", "0,5-15", {"gu-pod-1-uid": {"gu-container-1": "1-4"}}),
            3203987209,
            id="more-v2",
        ),
        pytest.param(
            CPU_V3,
            CPU_LEGACY_NAME,
            cpu("static", "0,5-7", {"p": {"c1": "1-2", "c2": "3-4"}}, {"p": {"cpuSet": "1-4"}}),
            2096508218,
            id="more-v3",
        ),
    ],
)
def test_cpu_checksums(struct: GoStruct, name: str, members: Members, expected: int) -> None:
    assert checksum(struct, name, members) == expected


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
    return cpu("other", "100-200") | {"checksum": 1234, "data": data, "dataChecksum": value}


@pytest.mark.parametrize(
    ("number", "policy", "expected"),
    [
        (14, "none", CPUState("none", mask("4-6"), {})),
        (15, "static", CPUState("static", mask("7-9"), masks(ENTRIES))),
        (16, "none", 'configured policy "none" differs from state checkpoint policy "other"'),
        (
            17,
            "none",
            'could not parse default CPU set "1.3": strconv.Atoi: parsing "1.3": invalid syntax',
        ),
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


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            cpu("none", "1-3", ENTRIES) | {"checksum": 3610638499, "dataChecksum": 1234},
            (
                "could not load v4 checkpoint: failed to deserialize cpu manager checkpoint data: "
                "unexpected end of JSON input"
            ),
        ),
        (
            cpu("none", "4-6") | {"checksum": 354655845, "data": DATA[14][0]},
            "could not load v4 checkpoint: checkpoint is corrupted",
        ),
        (cpu("none", "1-3") | {"checksum": 1694838852}, "checkpoint is corrupted"),
        (
            cpu("static", "7-9", {"containerID1": "4-6", "containerID2": "1-3"}) | {"checksum": 2026311253},
            (
                "json: cannot unmarshal string into Go struct field CPUManagerCheckpointV2.entries"
                " of type map[string]string"
            ),
        ),
    ],
    ids=["no-data", "no-data-checksum", "v1-without-entries", "v1-with-entries"],
)
def test_cpu_files_that_are_refused(members: Members, expected: str) -> None:
    assert load(members) == not_restored("cpu", expected)


def test_broken_cpu_file_is_refused_with_the_bare_text() -> None:
    refusal = load_cpu_state("{", policy="none", pod_level=False, baselines=False)
    assert refusal == not_restored("cpu", "unexpected end of JSON input")


@pytest.mark.parametrize("pod_level", [False, True])
def test_v2_under_its_own_name_is_accepted_only_without_pod_level_managers(pod_level: bool) -> None:
    members = cpu("static", "7-9", ENTRIES) | {"checksum": 1692845551}
    loaded = load_cpu_state(json.dumps(members), policy="static", pod_level=pod_level, baselines=False)
    if pod_level:
        assert loaded == not_restored("cpu", "checkpoint is corrupted")
    else:
        assert loaded == CPUState("static", mask("7-9"), masks(ENTRIES))


@pytest.mark.parametrize("value", [766259872, 2284712151])
@pytest.mark.parametrize("pod_level", [False, True])
def test_v3_is_accepted_under_both_names_with_and_without_the_gate(value: int, pod_level: bool) -> None:
    members = cpu("static", "1-2", KEP_ENTRIES, KEP_PODS) | {"checksum": value}
    loaded = load_cpu_state(json.dumps(members), policy="static", pod_level=pod_level, baselines=False)
    pods = {"pod2": mask("7-9")} if pod_level else {}
    assert loaded == CPUState("static", mask("1-2"), masks(KEP_ENTRIES), pods)


def test_v3_with_checksum_0_is_taken_for_v2_and_loses_its_pod_sets() -> None:
    members = cpu("static", "1-2", KEP_ENTRIES, KEP_PODS) | {"checksum": 0}
    loaded = load_cpu_state(json.dumps(members), policy="static", pod_level=True, baselines=False)
    assert loaded == CPUState("static", mask("1-2"), masks(KEP_ENTRIES))


def test_v3_with_a_wrong_checksum_is_corrupted() -> None:
    members = cpu("static", "1-2", KEP_ENTRIES, KEP_PODS) | {"checksum": 1}
    assert load(members, "static", gates=True) == not_restored("cpu", "checkpoint is corrupted")


def test_an_empty_object_is_a_v2_file_without_a_policy() -> None:
    message = 'configured policy "none" differs from state checkpoint policy ""'
    assert load({}) == not_restored("cpu", message)


V4_FILES = [
    (
        CPUState("static", CPUMask(0xFF), {}),
        (False, False),
        (
            r'{"policyName":"static","defaultCpuSet":"0-7","checksum":14413152,"data":"{\"policyName\":\"static\",'
            r'\"defaultCpuSet\":\"0-7\"}","dataChecksum":3294586087}'
        ),
    ),
    (
        CPUState("static", mask("0,3-15"), masks({"gu-pod-1-uid": {"gu-container-1": "1-2"}})),
        (True, False),
        (
            r'{"policyName":"static","defaultCpuSet":"0,3-15","entries":{"gu-pod-1-uid":{"gu-container-1":"1-2"}},'
            r'"checksum":874601309,"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0,3-15\",\"entries\":'
            r'{\"gu-pod-1-uid\":{\"gu-container-1\":\"1-2\"}}}","dataChecksum":3908609286}'
        ),
    ),
    (
        CPUState(
            "static",
            mask("0,3-15"),
            masks({"gu-pod-1-uid": {"gu-container-1": "1-2"}}),
            baselines=masks({"gu-pod-1-uid": {"gu-container-1": "1-2"}}),
        ),
        (False, True),
        (
            r'{"policyName":"static","defaultCpuSet":"0,3-15","entries":{"gu-pod-1-uid":{"gu-container-1":"1-2"}},'
            r'"checksum":874601309,"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0,3-15\",\"entries\":'
            r"{\"gu-pod-1-uid\":{\"gu-container-1\":\"1-2\"}},\"baselines\":{\"gu-pod-1-uid\":{\"gu-container-1\":"
            r'{\"baseline\":\"1-2\"}}}}","dataChecksum":3909985426}'
        ),
    ),
    (
        CPUState("static", mask("0,5-7"), masks({"p": {"c1": "1-2", "c2": "3-4"}}), {"p": mask("1-4")}),
        (True, False),
        (
            r'{"policyName":"static","defaultCpuSet":"0,5-7","entries":{"p":{"c1":"1-2","c2":"3-4"}},'
            r'"checksum":3940466392,"data":"{\"policyName\":\"static\",\"defaultCpuSet\":\"0,5-7\",\"entries\":'
            r'{\"p\":{\"c1\":\"1-2\",\"c2\":\"3-4\"}},\"podEntries\":{\"p\":{\"cpuSet\":\"1-4\"}}}",'
            r'"dataChecksum":102565876}'
        ),
    ),
    (
        CPUState("none", NO_CPUS, {}),
        (True, True),
        (
            r'{"policyName":"none","defaultCpuSet":"","checksum":1353318690,"data":"{\"policyName\":\"none\",'
            r'\"defaultCpuSet\":\"\"}","dataChecksum":3028111495}'
        ),
    ),
]


@pytest.mark.parametrize(("state", "gates", "text"), V4_FILES, ids=["plain", "entries", "baselines", "pods", "none"])
def test_whole_cpu_files(state: CPUState, gates: tuple[bool, bool], text: str) -> None:
    pod_level, baselines = gates
    assert cpu_state_text(state, pod_level=pod_level, baselines=baselines) == text
    assert load_cpu_state(text, policy=state.policy, pod_level=pod_level, baselines=baselines) == state


def test_what_the_gates_hide_is_not_written() -> None:
    full = CPUState("static", CPUMask(1), {"p": {"c": CPUMask(6)}}, {"p": CPUMask(6)}, {"p": {"c": CPUMask(6)}})
    bare = CPUState("static", CPUMask(1), {"p": {"c": CPUMask(6)}})
    assert cpu_state_text(full, pod_level=False, baselines=False) == cpu_state_text(
        bare, pod_level=True, baselines=True
    )


def test_first_cpu_files() -> None:
    text = (
        r'{"policyName":"static","defaultCpuSet":"","checksum":3083571066,"data":"{\"policyName\":\"static\",'
        r'\"defaultCpuSet\":\"\"}","dataChecksum":3812689767}'
    )
    assert initial_cpu_text("static") == text


def test_older_cpu_formats_are_written_with_their_vectors() -> None:
    kep = CPUState("static", mask("1-2"), masks(KEP_ENTRIES), {"pod2": mask("7-9")})
    assert json.loads(cpu_text_v3(kep))["checksum"] == 766259872
    plain = CPUState("static", mask("7-9"), masks(ENTRIES))
    assert json.loads(cpu_text_v2(plain))["checksum"] == 964019483


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


def test_whole_memory_file_holds_its_vectors() -> None:
    members = json.loads(memory_state_text(M0, pod_level=False))
    assert (members["checksum"], members["data"], members["dataChecksum"]) == (
        4215593881,
        M0_DATA,
        1849615440,
    )


def test_first_memory_files() -> None:
    text = (
        r'{"policyName":"Static","machineState":{},"checksum":3940083781,"data":"{\"policyName\":\"Static\",'
        r'\"machineState\":{}}","dataChecksum":3196122654}'
    )
    assert initial_memory_text("Static") == text


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            {"dataChecksum": 1234},
            (
                "could not load v3 checkpoint: failed to deserialize memory manager checkpoint data: "
                "unexpected end of JSON input"
            ),
        ),
        ({"data": M0_DATA}, "could not load v3 checkpoint: checkpoint is corrupted"),
        (json.loads(M0_DATA) | {"checksum": 101010}, "checkpoint is corrupted"),
        (
            {"policyName": "Static", "podEntries": {}, "machineState": 1, "checksum": 1, "data": "x"},
            (
                "could not load v3 checkpoint: failed to deserialize memory manager checkpoint: "
                "json: cannot unmarshal number into Go struct field "
                "MemoryManagerCheckpoint.MemoryManagerCheckpointV1.machineState of type state.NUMANodeMap"
            ),
        ),
    ],
    ids=["no-data", "no-data-checksum", "wrong-v1", "wrong-type"],
)
def test_memory_files_that_are_refused(members: Members, expected: str) -> None:
    assert memory(members) == not_restored("memory", expected)


def test_memory_policy_must_be_the_configured_one() -> None:
    message = '[memorymanager] configured policy "none" differs from state checkpoint policy "static"'
    assert memory({"data": M0_DATA, "dataChecksum": 1849615440}, "none") == not_restored("memory", message)


def test_v1_with_checksum_0_is_accepted() -> None:
    assert memory(json.loads(M0_DATA) | {"checksum": 0}) == M0


@pytest.mark.parametrize("pod_level", [False, True])
def test_v2_is_accepted_and_its_pod_blocks_depend_on_the_gate(pod_level: bool) -> None:
    loaded = load_memory_state(memory_text_v2(M0_WITH_POD), policy="static", pod_level=pod_level)
    assert loaded == (M0_WITH_POD if pod_level else M0)


def test_what_the_kubelet_would_crash_on_is_refused() -> None:
    node = memory({"policyName": "static", "machineState": {"0": None}})
    table = memory({"policyName": "static", "machineState": {"0": {"memoryMap": {"memory": None}}}})
    assert isinstance(node, StartRefusal)
    assert isinstance(table, StartRefusal)
    assert "would crash" in node.message
    assert "would crash" in table.message
