"""A repair keeps every entry that any state can keep on which the kubelet starts; found by trying all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain, combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.doctor_nodes import CONFIG, MACHINE, GiB, config
from tests.values import not_none

from mooring.answers.base.plan import Question
from mooring.answers.doctor.answer import DiagnosisDocument
from mooring.answers.doctor.cpu_checks import repaired_cpu
from mooring.answers.doctor.diagnosis import diagnose, with_repairs
from mooring.answers.doctor.memory_checks import repaired_memory
from mooring.engine.checkpoint.cpu_file import cpu_state_text
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.bits import NO_CPUS, CPUMask
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machine import Machine
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import start as start_cpu
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import replayed
from mooring.engine.memorymanager.start import start as start_memory
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node.settings import Settings, build_settings


def made(found: KubeletConfig) -> Settings:
    settings_ = build_settings(found, MooringConfig(), MACHINE)
    assert isinstance(settings_, Settings), settings_
    return settings_


def subsets(things: Iterable[object]) -> Iterator[tuple[object, ...]]:
    known = list(things)
    return chain.from_iterable(combinations(known, size) for size in range(len(known) + 1))


UIDS, NAMES = ("u1", "u2", "u3"), ("a", "b")
MASKS = st.sampled_from([0b00010, 0b00100, 0b01000, 0b00110, 0b01100, 0b01110, 0b00011, 0b10100, 0b10000, 0])
"""CPU 0 is reserved, CPU 4 is not there."""
CPU_STATES = st.builds(
    CPUState,
    st.just("static"),
    st.integers(0, 31),
    st.dictionaries(st.sampled_from(UIDS), st.dictionaries(st.sampled_from(NAMES), MASKS, min_size=1), max_size=3),
    st.dictionaries(st.sampled_from(UIDS), MASKS.filter(bool), max_size=2),
)


def cpu_units(state: CPUState, *, pods: bool) -> set[tuple[str, str]]:
    units = {
        (uid, "" if pods and uid in state.pods else name) for uid, held in state.assignments.items() for name in held
    }
    return units | ({(uid, "") for uid in state.pods} if pods else set())


def cpu_part(state: CPUState, units: Iterable[object], default: int, *, pods: bool) -> CPUState:
    chosen = set(units)
    assignments = {
        uid: part
        for uid, held in state.assignments.items()
        if (part := {n: m for n, m in held.items() if (uid, "" if pods and uid in state.pods else n) in chosen})
    }
    return CPUState(
        "static", CPUMask(default), assignments, {u: m for u, m in state.pods.items() if pods and (u, "") in chosen}
    )


def is_apart(state: CPUState) -> bool:
    masks: dict[str, int] = dict(state.pods)
    for uid, held in state.assignments.items():
        for mask in held.values():
            masks[uid] = masks.get(uid, 0) | mask
    return all(not left & right for left, right in combinations(masks.values(), 2))


def some_pool_starts(policy: StaticPolicy, state: CPUState, units: Iterable[object], *, pods: bool) -> bool:
    known = list(units)
    for default in range(32):
        part = cpu_part(state, known, default, pods=pods)
        # An empty pool is a fresh state: what the kubelet does not look at is not kept.
        is_kept = default or not known
        held = 0
        for mask in part.pods.values():
            held |= mask
        if is_kept and not held & default and is_apart(part) and isinstance(start_cpu(policy, part), CPUState):
            return True
    return False


@settings(max_examples=80)
@given(CPU_STATES, st.booleans(), st.booleans())
def test_no_state_keeps_more_cpu_entries(state: CPUState, strict: bool, pods: bool) -> None:
    policy = not_none(made(config(strict=strict, pods=pods)).cpu)
    repaired, lost = repaired_cpu(policy, state, ())
    kept = cpu_units(repaired, pods=pods)
    units = cpu_units(state, pods=pods)
    assert kept <= units
    assert is_apart(repaired)
    assert isinstance(start_cpu(policy, repaired), CPUState)
    assert cpu_part(state, kept, repaired.default, pods=pods) == repaired
    possible = {unit for unit in units if some_pool_starts(policy, state, [unit], pods=pods)}
    if some_pool_starts(policy, state, possible, pods=pods):
        assert kept == possible
    for more in subsets(possible - kept):
        assert not more or not some_pool_starts(policy, state, {*kept, *more}, pods=pods)
    told = {(dropped.holder.uid, dropped.holder.container) for dropped in lost}
    assert len(told) == len(lost)
    names = {(uid, name) for uid, held in state.assignments.items() for name in held}
    left = {(uid, name) for uid, held in repaired.assignments.items() for name in held}
    assert told & names == names - left


def test_entries_of_running_pods_go_before_others() -> None:
    policy = not_none(made(config()).cpu)
    state = CPUState("static", CPUMask(0b1001), {"u1": {"a": CPUMask(0b0110)}, "u2": {"a": CPUMask(0b0100)}})
    assert set(repaired_cpu(policy, state, ())[0].assignments) == {"u1"}
    assert set(repaired_cpu(policy, state, {"u2"})[0].assignments) == {"u2"}


def test_the_entry_that_stands_against_fewer_is_kept() -> None:
    policy = not_none(made(config()).cpu)
    state = CPUState(
        "static",
        CPUMask(0b0001),
        {"u1": {"a": CPUMask(0b1110)}, "u2": {"a": CPUMask(0b0010)}, "u3": {"a": CPUMask(0b0100)}},
    )
    repaired, lost = repaired_cpu(policy, state, ())
    assert set(repaired.assignments) == {"u2", "u3"}
    assert [(dropped.holder.uid, dropped.why) for dropped in lost] == [("u1", "pod u2 holds CPU 1 too")]


def test_a_pool_that_strict_reservation_left_empty_takes_back_the_smallest_entry() -> None:
    policy = not_none(made(config(strict=True)).cpu)
    repaired, lost = repaired_cpu(
        policy, CPUState("static", NO_CPUS, {"u1": {"a": CPUMask(0b0110)}, "u2": {"a": CPUMask(0b1000)}}), ()
    )
    assert repaired == CPUState("static", CPUMask(0b1000), {"u1": {"a": CPUMask(0b0110)}})
    assert lost[0].why == "no CPU would be left for the shared pool"


BLOCKS = st.lists(
    st.builds(
        Block,
        st.sampled_from(((0,), (1,), (0, 1), (2,))),
        st.sampled_from(("memory", "hugepages-2Mi")),
        st.sampled_from((GiB // 4, GiB, 0)),
    ),
    max_size=2,
).map(tuple)
MEMORY_STATES = st.builds(
    MemoryState,
    st.just("Static"),
    st.just({0: NUMANodeState(0, {"memory": MemoryTable(1, 0, 1, 0, 1)}, (0,))}),
    st.dictionaries(st.sampled_from(UIDS), st.dictionaries(st.just("a"), BLOCKS, min_size=1), max_size=3),
    st.dictionaries(st.sampled_from(UIDS), BLOCKS, max_size=1),
)


def memory_part(state: MemoryState, uids: Iterable[object]) -> MemoryState:
    chosen = set(uids)
    return replace(
        state,
        assignments={uid: held for uid, held in state.assignments.items() if uid in chosen},
        pods={uid: held for uid, held in state.pods.items() if uid in chosen},
    )


def some_accounts_start(policy: MemoryPolicy, state: MemoryState) -> bool:
    for order in permutations(state.assignments):
        charged = [
            (state.pods[uid],)
            if policy.gates.managers and uid in state.pods
            else tuple(state.assignments[uid][name] for name in sorted(state.assignments[uid]))
            for uid in order
        ]
        try:
            nodes = replayed(policy.default_nodes, charged)
            if isinstance(start_memory(policy, replace(state, nodes=nodes)), MemoryState):
                return True
        except (KubeletCrashError, KeyError):
            continue
    return False


@settings(max_examples=80)
@given(MEMORY_STATES, st.booleans())
def test_no_state_keeps_more_memory_entries(state: MemoryState, pods: bool) -> None:
    policy = not_none(made(config(pods=pods)).memory)
    state = state if pods else replace(state, pods={})
    repaired, lost = repaired_memory(policy, state, ())
    kept = set(repaired.assignments)
    assert isinstance(start_memory(policy, repaired), MemoryState)
    assert {uid: state.assignments[uid] for uid in kept} == repaired.assignments
    possible = {uid for uid in state.assignments if some_accounts_start(policy, memory_part(state, [uid]))}
    for more in subsets(set(state.assignments) - kept):
        assert not more or not some_accounts_start(policy, memory_part(state, {*kept, *more}))
    # An entry can bear more company than solitude: a narrower one parts a group on which the kubelet crashes.
    if some_accounts_start(policy, memory_part(state, possible)):
        assert kept >= possible
    assert {dropped.holder.uid for dropped in lost} == set(state.assignments) - kept


@pytest.fixture(scope="module")
def question() -> Question:
    return Question(Machine("small", MACHINE), CONFIG)


@settings(max_examples=60)
@given(CPU_STATES, MEMORY_STATES, st.booleans(), st.booleans(), st.booleans())
def test_random_states_are_repaired_to_sound_ones(
    question: Question, cpu: CPUState, memory: MemoryState, strict: bool, before: bool, after: bool
) -> None:
    texts = StateTexts(
        cpu_state_text(cpu, pod_level=before, baselines=False), memory_state_text(memory, pod_level=before)
    )
    check(replace(question, config=config(strict=strict, pods=after), files=texts))


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 2**20), st.sampled_from(("cut", "change", "insert", "drop")), st.characters(max_codepoint=126)
    ),
    max_size=3,
)


def damaged(text: str, mutations: Iterable[tuple[int, str, str]]) -> str:
    for where, how, sign in mutations:
        at = where % (len(text) + 1)
        match how:
            case "cut":
                text = text[:at]
            case "change":
                text = text[:at] + sign + text[at + 1 :]
            case "insert":
                text = text[:at] + sign + text[at:]
            case _:
                text = text[:at] + text[at + 1 :]
    return text


@settings(max_examples=120)
@given(CPU_STATES, MEMORY_STATES, MUTATIONS, MUTATIONS, st.sampled_from(("static", "none")), st.booleans())
def test_damaged_files_are_repaired_to_sound_ones(
    question: Question,
    cpu: CPUState,
    memory: MemoryState,
    for_cpu: list[tuple[int, str, str]],
    for_memory: list[tuple[int, str, str]],
    policy: str,
    pods: bool,
) -> None:
    texts = StateTexts(
        damaged(cpu_state_text(cpu, pod_level=True, baselines=False), for_cpu),
        damaged(memory_state_text(memory, pod_level=True), for_memory),
    )
    check(replace(question, config=replace(config(pods=pods), cpu_manager_policy=policy), files=texts))


def check(question: Question) -> None:
    """The doctor agrees with the engine about the files, and the engine with the doctor about the repair."""
    diagnosis = diagnose(question)
    try:
        refused = refusal_of(start_kubelet(question.machine.info, question.config, question.mooring, question.files))
    except KubeletCrashError:
        assert not diagnosis.starts
    else:
        assert diagnosis.start_error == ("" if refused is None else refused.message)
    assert "MOOR-351" not in {problem.code for problem in diagnosis.all_problems}
    assert has_repairable_error(diagnosis) == bool(diagnosis.repairs)
    for file in diagnosis.files:
        assert file.sound or any(repair.file == file.file for repair in diagnosis.repairs)
    after = diagnose(replace(question, files=with_repairs(question.files, diagnosis.repairs)))
    assert after.starts
    assert not has_repairable_error(after), [problem for problem in after.all_problems if problem.severity == "error"]
    assert not after.repairs


def has_repairable_error(diagnosis: DiagnosisDocument) -> bool:
    """Tell whether something is wrong that a repair could remove: a file that is gone cannot be written again."""
    errors = {problem.code for problem in diagnosis.all_problems if problem.severity == "error"}
    return not diagnosis.starts or bool(errors - {"MOOR-345"})
