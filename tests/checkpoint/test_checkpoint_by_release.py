"""State files by release: what is written, read in which order, accepted and refused (releases.md section 4)."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.checkpoint_states import STRICTLY, cpu_states, memory_states
from tests.faults import inner_text

from mooring.engine.checkpoint.checksum import data_checksum, legacy_checksum
from mooring.engine.checkpoint.cpu_file import (
    ContainerIDs,
    canonical_cpu_state,
    cpu_state_text,
    cpu_text_of,
    cpu_text_v2,
    cpu_text_v3,
    load_cpu_state,
)
from mooring.engine.checkpoint.gojson import decode
from mooring.engine.checkpoint.goscan import parse
from mooring.engine.checkpoint.gotypes import CPU_V1, CPU_V2, CPU_V3, MEMORY_V1, MEMORY_V2, GoStruct, fresh
from mooring.engine.checkpoint.memory_file import (
    canonical_memory_state,
    load_memory_state,
    memory_text_of,
    memory_text_v1,
)
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment
from mooring.engine.memorymanager.state import MemoryState
from mooring.engine.releases.catalog import state_file_rules
from mooring.engine.releases.rule import RELEASE_NAMES

OLD = ("1.31", "1.32", "1.33", "1.34", "1.35")
SPECIFIED = (*OLD, "1.36", "1.37")
"""The releases of releases.md section 4."""
POOL = CPUMask(0b1111_0000)
HELD = {"u1": {"app": CPUMask(0b0011)}, "u2": {"app": CPUMask(0b0100), "log": CPUMask(0b1000)}}
STATE = CPUState("static", POOL, HELD, {"u3": CPUMask(0)})
IDS = {"a": ("u1", "app"), "b": ("u2", "app"), "c": ("u2", "log")}
BY_ID = {"a": "0-1", "b": "2", "c": "3"}
release_names = st.sampled_from(RELEASE_NAMES)


def with_checksum(members: dict[str, object], name: str = "CPUManagerCheckpoint") -> str:
    """Return a file without data; its checksum is that of its structure under a name."""
    entries = members.get("entries", {})
    assert isinstance(entries, dict)
    structure = MEMORY_V1 if "machineState" in members else CPU_V1 if _is_by_id(entries) else CPU_V2
    value = {"entries": {}, **members}
    return json.dumps({**members, "checksum": legacy_checksum(structure, value, name)})


def _is_by_id(entries: dict[str, object]) -> bool:
    return any(isinstance(value, str) for value in entries.values())


def v1(policy: str = "static", default: str = "4-7", **entries: str) -> str:
    return with_checksum({"policyName": policy, "defaultCpuSet": default, "entries": entries or BY_ID})


def read(release: str, text: str, containers: ContainerIDs = IDS, *, pod_level: bool = False) -> object:
    return load_cpu_state(
        text, policy="static", pod_level=pod_level, baselines=False, release=release, containers=containers
    )


def refusal(release: str, text: str, *, pod_level: bool = False) -> str:
    found = read(release, text, pod_level=pod_level)
    assert isinstance(found, StartRefusal), found
    return inner_text(found)


def memory_refusal(release: str, text: str) -> str:
    found = load_memory_state(text, policy="Static", pod_level=False, release=release)
    assert isinstance(found, StartRefusal), found
    return inner_text(found)


@given(cpu_states, release_names, st.booleans(), st.booleans())
def test_a_release_reads_what_it_writes_and_both_readers_agree(
    state: CPUState, release: str, pod_level: bool, baselines: bool
) -> None:
    rules = state_file_rules(release, pod_level=pod_level)
    text = cpu_text_of(release, state, pod_level=pod_level, baselines=baselines)
    keeps = baselines and rules.keeps_baselines
    kept = replace(state, pods=state.pods if rules.keeps_pods else {}, baselines=state.baselines if keeps else {})
    gates = {"pod_level": pod_level, "baselines": baselines, "release": release}
    assert load_cpu_state(text, policy=state.policy, **gates) == kept  # type: ignore[arg-type]
    assert canonical_cpu_state(text, **gates) == kept  # type: ignore[arg-type]
    assert load_cpu_state(text + STRICTLY, policy=state.policy, **gates) == kept  # type: ignore[arg-type]


@given(memory_states, release_names, st.booleans())
def test_a_release_reads_the_memory_file_that_it_writes(state: MemoryState, release: str, pod_level: bool) -> None:
    rules = state_file_rules(release, pod_level=pod_level)
    text = memory_text_of(release, state, pod_level=pod_level)
    kept = state if rules.keeps_pods else replace(state, pods={})
    strict = load_memory_state(text + STRICTLY, policy=state.policy, pod_level=pod_level, release=release)
    assert strict == kept
    # The quick way is for sizes that Go's signed numbers hold.
    is_small = all(int(number) < 2**63 for number in re.findall(r"[0-9]{19,}", text))
    quick = canonical_memory_state(text, pod_level=pod_level, release=release)
    assert quick in ((kept,) if is_small else (kept, None))


@pytest.mark.parametrize("release", [*OLD, "1.36"])
def test_entries_by_container_id_are_migrated_up_to_1_36(release: str) -> None:
    assert read(release, v1()) == replace(STATE, pods={})


@pytest.mark.parametrize("release", [*OLD, "1.36"])
def test_a_container_that_the_runtime_does_not_know_stops_the_migration(release: str) -> None:
    text = v1(a="0-1", gone="2")
    before = "error migrating v1 checkpoint state to v2 checkpoint state"
    prefix = "failed to migrate checkpoint from v1 to v2" if release == "1.36" else before
    assert refusal(release, text) == f"{prefix}: containerID 'gone' not found in initial containers list"


def test_the_newest_release_cannot_read_entries_by_container_id() -> None:
    field = "CPUManagerCheckpointV2.entries of type map[string]string"
    assert refusal("1.37", v1()) == f"json: cannot unmarshal string into Go struct field {field}"


@pytest.mark.parametrize(("release", "pod_level"), [*((name, False) for name in SPECIFIED), ("1.36", True)])
def test_a_damaged_file_is_refused_in_the_words_of_the_last_attempt(release: str, pod_level: bool) -> None:
    wrong = json.dumps({"policyName": "static", "defaultCpuSet": "0", "entries": {"u": {"c": "1"}}, "checksum": 1})
    v1_words = "json: cannot unmarshal object into Go struct field CPUManagerCheckpointV1.entries of type string"
    expected = v1_words if release == "1.36" else "checkpoint is corrupted"
    assert refusal(release, wrong, pod_level=pod_level) == expected


@pytest.mark.parametrize("release", SPECIFIED)
def test_the_structure_in_messages_has_the_name_that_it_has_in_the_release(release: str) -> None:
    name = "CPUManagerCheckpointV1" if release == "1.36" else "CPUManagerCheckpoint"
    name = "CPUManagerCheckpointV2" if release == "1.37" else name
    text = '{"policyName":"static","defaultCpuSet":[],"checksum":1}'
    assert refusal(release, text).endswith(f"array into Go struct field {name}.defaultCpuSet of type string")
    memory = "MemoryManagerCheckpointV1" if release >= "1.36" else "MemoryManagerCheckpoint"
    text = '{"policyName":[],"machineState":{},"checksum":1}'
    assert memory_refusal(release, text).endswith(f"array into Go struct field {memory}.policyName of type string")


@pytest.mark.parametrize("release", [*OLD, "1.36"])
def test_an_empty_file_by_container_id_with_checksum_0_is_one_of_the_oldest_format(release: str) -> None:
    assert read(release, '{"policyName":"static","defaultCpuSet":"4-7","entries":null,"checksum":0}', {}) == CPUState(
        "static", POOL, {}
    )


KINDS = tuple((release, pod_level) for release in SPECIFIED for pod_level in (False, True))
BY_POD: dict[str, object] = {"policyName": "static", "defaultCpuSet": "4-7", "entries": {"u": {"c": "1"}}}
WITH_PODS: dict[str, object] = {**BY_POD, "podEntries": {"p": {"cpuSet": "2-3"}}}
MEMORY: dict[str, object] = {"policyName": "Static", "machineState": {}, "entries": {"u": {}}}
MEMORY_WITH_PODS: dict[str, object] = {**MEMORY, "podEntries": {"p": {}}}
WITH_GATE, WITHOUT_GATE = ("1.36", True), ("1.36", False)
FROM_137 = (("1.37", False), ("1.37", True))
UP_TO_136 = tuple(kind for kind in KINDS if kind not in FROM_137)
FROM_136 = (WITHOUT_GATE, WITH_GATE, *FROM_137)


@pytest.mark.parametrize(
    ("members", "structure", "name", "accepted"),
    [
        ({**BY_POD, "entries": BY_ID}, CPU_V1, "", UP_TO_136),
        ({**BY_POD, "entries": BY_ID}, CPU_V1, "CPUManagerCheckpoint", UP_TO_136),
        ({**BY_POD, "entries": BY_ID}, CPU_V1, "CPUManagerCheckpointV1", ()),
        (BY_POD, CPU_V2, "", KINDS),
        (BY_POD, CPU_V2, "CPUManagerCheckpoint", KINDS),
        (BY_POD, CPU_V2, "CPUManagerCheckpointV2", (WITHOUT_GATE, ("1.37", False))),
        (WITH_PODS, CPU_V3, "CPUManagerCheckpoint", (WITH_GATE, *FROM_137)),
        (WITH_PODS, CPU_V3, "CPUManagerCheckpointV3", FROM_137),
        (MEMORY, MEMORY_V1, "", FROM_136),
        (MEMORY, MEMORY_V1, "MemoryManagerCheckpoint", KINDS),
        (MEMORY, MEMORY_V1, "MemoryManagerCheckpointV1", (WITHOUT_GATE,)),
        (MEMORY_WITH_PODS, MEMORY_V2, "MemoryManagerCheckpoint", (WITH_GATE, *FROM_137)),
        (MEMORY_WITH_PODS, MEMORY_V2, "MemoryManagerCheckpointV2", ()),
    ],
)
def test_checksums_are_accepted_under_the_names_of_the_specification(
    members: dict[str, object], structure: GoStruct, name: str, accepted: tuple[tuple[str, bool], ...]
) -> None:
    """No name stands for checksum 0."""
    value, _ = decode(parse(json.dumps(members).encode()), structure, fresh(structure))
    checksum = legacy_checksum(structure, value, name) if name else 0
    text = json.dumps({**members, "checksum": checksum})
    found = [
        (release, pod_level)
        for release, pod_level in KINDS
        if not isinstance(
            load_memory_state(text, policy="Static", pod_level=pod_level, release=release)
            if "machineState" in members
            else read(release, text, pod_level=pod_level),
            StartRefusal,
        )
    ]
    assert found == list(accepted)


@pytest.mark.parametrize("kind", [WITH_GATE, *FROM_137])
def test_entries_of_pods_with_checksum_0_are_lost_because_the_file_is_read_as_an_older_one(
    kind: tuple[str, bool],
) -> None:
    release, pod_level = kind
    found = read(release, json.dumps({**WITH_PODS, "checksum": 0}), pod_level=pod_level)
    assert found == CPUState("static", POOL, {"u": {"c": CPUMask(0b10)}})
    memory = json.dumps({**MEMORY_WITH_PODS, "checksum": 0})
    found = load_memory_state(memory, policy="Static", pod_level=pod_level, release=release)
    assert found == MemoryState("Static", {}, {"u": {}})


@pytest.mark.parametrize("release", SPECIFIED)
def test_the_shared_pool_is_called_cpu_set_before_it_was_called_CPU_set(release: str) -> None:  # noqa: N802
    text = with_checksum({"policyName": "static", "defaultCpuSet": "x"})
    noun = "CPU set" if release == "1.37" else "cpu set"
    assert refusal(release, text).startswith(f'could not parse default {noun} "x": strconv.Atoi')


@pytest.mark.parametrize("part", ["dataChecksum", "checksum"])
def test_damage_of_one_part_of_a_newest_file_counts_where_that_part_is_read(part: str) -> None:
    whole = json.loads(cpu_state_text(STATE, pod_level=False, baselines=False))
    text = json.dumps({**whole, part: whole[part] ^ 1})
    refused = {release for release in SPECIFIED if isinstance(read(release, text), StartRefusal)}
    assert refused == ({"1.37"} if part == "dataChecksum" else set(SPECIFIED) - {"1.37"})


def test_formats_are_written_as_the_specification_lists_them() -> None:
    rules = {
        (release, pod_level): state_file_rules(release, pod_level=pod_level)
        for release in SPECIFIED
        for pod_level in (False, True)
    }
    written = {kind: (one.cpu.written, one.memory.written) for kind, one in rules.items()}
    expected = {(release, pod_level): ("V2", "V1") for release in OLD for pod_level in (False, True)}
    expected |= {("1.36", False): ("V2", "V1"), ("1.36", True): ("V3", "V2")}
    expected |= {("1.37", False): ("V4", "V3"), ("1.37", True): ("V4", "V3")}
    assert written == expected
    assert cpu_text_of("1.36", STATE, pod_level=True, baselines=False) == cpu_text_v3(STATE)
    assert cpu_text_of("1.35", STATE, pod_level=False, baselines=True) == cpu_text_v2(STATE)
    state = MemoryState("Static", {}, {})
    assert memory_text_of("1.36", state, pod_level=False) == memory_text_v1(state)


BOOT = "11111111-2222-3333-4444-555555555555"
PENDING = PreAssignment(CPUMask(0b0000_0110), Moment(7_500_000_000, BOOT), is_written=True)
SHRINKING = CPUState(
    "static",
    CPUMask(0b1110_0001),
    {"uid": {"app": CPUMask(0b0001_1110)}},
    baselines={"uid": {"app": CPUMask(0b0000_0010)}},
    pre_assignments={"uid": {"app": PENDING}},
)

words = st.text('<>&"\\ \n\x00é\u2028😀a-0', min_size=1, max_size=5)
moments = st.builds(Moment, st.integers(0, 2**62), words | st.just(BOOT))


@st.composite
def states(draw: st.DrawFn) -> CPUState:
    """Return states some of whose containers are about to give CPUs back."""
    held: dict[str, dict[str, CPUMask]] = {}
    baselines: dict[str, dict[str, CPUMask]] = {}
    pending: dict[str, dict[str, PreAssignment]] = {}
    for pod in draw(st.sets(words, min_size=1, max_size=3)):
        for name in draw(st.sets(words, min_size=1, max_size=3)):
            baseline = CPUMask(draw(st.integers(1, 2**20 - 1)))
            kept = baseline | draw(st.integers(0, 2**20 - 1))
            held.setdefault(pod, {})[name] = kept
            baselines.setdefault(pod, {})[name] = baseline
            more = draw(st.integers(0, 2**20 - 1)) & ~kept
            if more:
                held[pod][name] = kept | more
                pending.setdefault(pod, {})[name] = PreAssignment(kept, draw(moments), draw(st.booleans()))
    return CPUState("static", CPUMask(draw(st.integers(0, 2**20 - 1))), held, {}, baselines, pending)


def text_of(state: CPUState) -> str:
    return cpu_state_text(state, pod_level=False, baselines=True)


def loaded(text: str, *, releases: bool = True) -> CPUState:
    state = load_cpu_state(text, policy="static", pod_level=False, baselines=True, releases=releases)
    assert isinstance(state, CPUState), state
    return state


def written(state: CPUState) -> CPUState:
    """Return what of a state the file keeps: releases of the node's own delay are in memory only."""
    kept = {
        pod: {name: pre for name, pre in held.items() if pre.is_written} for pod, held in state.pre_assignments.items()
    }
    return replace(state, pre_assignments={pod: held for pod, held in kept.items() if held})


def test_the_data_names_cpus_time_since_boot_and_boot() -> None:
    data = json.loads(json.loads(text_of(SHRINKING))["data"])
    assert data["preAssignments"] == {"uid": {"app": {"cpuSet": "1-2", "applyAt": 7_500_000_000, "bootId": BOOT}}}
    assert data["entries"] == {"uid": {"app": "1-4"}}


@given(states())
def test_a_written_state_reads_back(state: CPUState) -> None:
    assert loaded(text_of(state)) == written(state)


@given(states())
def test_a_kubelet_reads_the_same_state_without_the_releases(state: CPUState) -> None:
    """A node is rolled back in the middle of a delay: v1.37.1 finds all CPUs where they are."""
    seen = loaded(text_of(state), releases=False)
    assert seen == replace(state, pre_assignments={})
    assert "preAssignments" not in text_of(seen)
    assert loaded(text_of(seen)) == seen


@given(states())
def test_formats_of_older_kubelets_know_nothing_of_releases(state: CPUState) -> None:
    bare = replace(state, baselines={}, pre_assignments={})
    assert cpu_text_v2(state) == cpu_text_v2(bare)
    assert cpu_text_v3(state) == cpu_text_v3(bare)


@pytest.mark.parametrize(
    "changed",
    [
        replace(SHRINKING, assignments={}),
        replace(SHRINKING, assignments={"uid": {"app": CPUMask(0b0110)}}),
        replace(SHRINKING, assignments={"uid": {"app": CPUMask(0b1100)}}),
        replace(SHRINKING, baselines={"uid": {"app": CPUMask(0b1000)}}),
        replace(SHRINKING, pre_assignments={"uid": {"app": replace(PENDING, cpus=NO_CPUS)}}),
    ],
    ids=["no entry", "nothing to give back", "not its own CPUs", "below the baseline", "all CPUs"],
)
def test_a_release_that_does_not_fit_its_container_is_dropped(changed: CPUState) -> None:
    assert loaded(text_of(changed)).pre_assignments == {}


def test_a_release_that_is_no_cpu_list_stops_the_start_and_only_with_the_extension() -> None:
    text = text_of(replace(SHRINKING, default=NO_CPUS, assignments={}, baselines={}))
    data = json.loads(text)["data"].replace('"1-2"', '"1-x"')
    outer = json.loads(text) | {"data": data}

    text = json.dumps(outer | {"dataChecksum": data_checksum(data)})
    refusal = load_cpu_state(text, policy="static", pod_level=False, baselines=True, releases=True)
    assert isinstance(refusal, StartRefusal)
    assert inner_text(refusal).startswith(
        'could not parse pre-assigned cpuset "1-x" for container "app" in pod "uid": strconv.Atoi'
    ), refusal.message
    assert loaded(text, releases=False).pre_assignments == {}
