"""The doctor: what it notices, by its code, and repairs that keep every entry that any state can keep."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, reduce
from itertools import chain, combinations, permutations
from operator import or_
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.explain.refused_starts import RecordedStart, recorded_starts
from tests.planner.doctor_nodes import CONFIG, MACHINE, GiB, config
from tests.planner.recordings import recorded, some
from tests.plans import started_kubelet
from tests.values import not_none

from mooring import CPUSet, Machine, Pod, load_machine
from mooring.answers.base.answering import RESTART
from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.answers.doctor.diagnosis import diagnose, with_repairs
from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.checkpoint.memory_file import memory_state_text
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.errors import KubeletCrashError
from mooring.engine.core.machineinfo import Core, MachineInfo, NUMANode
from mooring.engine.cpumanager.policy import StaticPolicy
from mooring.engine.cpumanager.state import CPUState
from mooring.engine.cpumanager.static import start as start_cpu
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.engine.memorymanager.policy import MemoryPolicy
from mooring.engine.memorymanager.start import replayed
from mooring.engine.memorymanager.start import start as start_memory
from mooring.engine.memorymanager.state import Block, MemoryState, MemoryTable, NUMANodeState
from mooring.engine.node import Node
from mooring.engine.node.settings import Settings, build_settings
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.machines.isolation import PinnedContainer


def looked_at(
    cpu: CPUState | str | None = None,
    memory: MemoryState | str | None = None,
    *,
    config: KubeletConfig = CONFIG,
    active: tuple[Pod, ...] = (),
) -> Any:
    files = StateTexts(
        cpu_state_text(cpu, pod_level=True, baselines=True) if isinstance(cpu, CPUState) else cpu,
        memory_state_text(memory, pod_level=True) if isinstance(memory, MemoryState) else memory,
    )
    return diagnose(Question(Machine("small", MACHINE), config, active=active, files=files))


def severities(diagnosis: Any) -> dict[str, str]:
    # A memory file alone lacks the CPU manager's; that has tests of its own.
    return {problem.code: problem.severity for problem in diagnosis.all_problems if problem.code != "MOOR-345"}


def made(found: KubeletConfig) -> Settings:
    settings_ = build_settings(found, MooringConfig(), MACHINE)
    assert isinstance(settings_, Settings), settings_
    return settings_


def memory_with(entries: Mapping[str, tuple[Block, ...]]) -> MemoryState:
    """Return the state of a kubelet that gave these blocks to containers called a, in this order."""
    nodes = replayed(not_none(made(CONFIG).memory).default_nodes, [(blocks,) for blocks in entries.values()])
    return MemoryState("Static", nodes, {uid: {"a": blocks} for uid, blocks in entries.items()})


def pod(uid: str, cpus: int) -> Pod:
    return replace(Pod.of("a", cpus, "64Mi"), uid=uid, name=f"pod-{uid}")


def cpu_state(pool: int, entries: Mapping[str, Mapping[str, int]], *more: Mapping[str, object]) -> CPUState:
    """Return a state of masks: the pool, the entries of containers, and those of pods and baselines."""
    return CPUState("static", CPUMask(pool), entries, *more)  # type: ignore[arg-type]


NO_MEMORY = replace(CONFIG, memory_manager_policy="None", reserved_memory=())
PODS_ALONE = replace(config(pods=True), memory_manager_policy="None", reserved_memory=())
HELD = {"u": {"a": 0b1100}}


@pytest.mark.parametrize(
    ("state", "config", "found"),
    [
        pytest.param(cpu_state(0b0001, {"u": {"a": 0b1110}}), NO_MEMORY, {"MOOR-318": "warning"}, id="reserved only"),
        pytest.param(cpu_state(0b0011, {"u": {"a": 0b1100, "init": 0b0100}}), NO_MEMORY, {}, id="one pod may share"),
        pytest.param(cpu_state(0b0011, {}, {"u": 0b1100}), PODS_ALONE, {"MOOR-321": "warning"}, id="pod set stays"),
        pytest.param(cpu_state(0b0011, HELD, {}, HELD), NO_MEMORY, {"MOOR-322": "note"}, id="baselines, no gate"),
        pytest.param(
            '{"policyName":"static","defaultCpuSet":"0-3","checksum":0,"leases":{}}',
            NO_MEMORY,
            {"MOOR-307": "warning"},
            id="members of a newer kubelet",
        ),
    ],
)
def test_what_keeps_no_kubelet_from_its_start_is_no_error(
    state: CPUState | str, config: KubeletConfig, found: dict[str, str]
) -> None:
    diagnosis = looked_at(state, config=config)
    assert severities(diagnosis) == found
    assert diagnosis.sound
    assert "MOOR-307" not in found or '"leases"' in diagnosis.all_problems[0].message


@pytest.mark.parametrize(
    ("memory", "code", "words", "dropped"),
    [
        pytest.param(
            memory_with({"u": (Block((0, 1), "memory", 3 * GiB // 2),)}),
            "MOOR-337",
            "the kubelet crashes",
            [("u", "a")],
            id="unlike nodes in a group",
        ),
        pytest.param(
            '{"policyName":"Static","machineState":{"0":null},"checksum":0}', "MOOR-337", "is null", [], id="null node"
        ),
        pytest.param(
            memory_with({"u": (Block((0, 1), "memory", 4096),), "v": (Block((0,), "memory", 4096),)}),
            "MOOR-338",
            "only by chance",
            None,
            id="groups by order",
        ),
        pytest.param(
            memory_with({"u": (Block((1,), "memory", 5 * GiB),)}),
            "MOOR-339",
            "5 GiB of memory on NUMA node 1, which can assign 1 GiB",
            None,
            id="more than there is",
        ),
    ],
)
def test_memory_on_which_the_kubelet_crashes_is_an_error_and_what_it_bears_a_warning(
    memory: MemoryState | str, code: str, words: str, dropped: list[tuple[str, str]] | None
) -> None:
    """What is dropped is None where the kubelet starts."""
    found = looked_at(cpu_state(0b1111, {}), memory)
    assert severities(found) == {code: "warning" if dropped is None else "error"}
    assert words in " ".join([found.start_error, *(one.message for one in found.all_problems)])
    assert (found.sound, found.starts) == (dropped is None, dropped is None)
    assert [(one.uid, one.container) for repair in found.repairs for one in repair.dropped] == (dropped or [])


def test_cpus_without_memory_are_files_of_two_moments() -> None:
    cpus = cpu_state(0b0011, HELD)
    for memory in (None, memory_with({})):
        assert severities(looked_at(cpus, memory)) == {"MOOR-340": "warning"}
    assert severities(looked_at(cpus, memory_with({"u": (Block((0,), "memory", 4096),)}))) == {}


def test_a_machine_with_other_nodes_types_and_reservations_is_told_in_each() -> None:
    state = memory_with({"u": (Block((0,), "hugepages-2Mi", 2**21),)})
    one, other = state.nodes[0], state.nodes[1]
    tables = {"memory": replace(one.memory["memory"], system_reserved=1), "hugepages-1Gi": one.memory["hugepages-2Mi"]}
    odd = {0: replace(one, memory=tables), 7: other}
    found = severities(looked_at(memory=replace(state, nodes=odd)))
    assert {"MOOR-330", "MOOR-331", "MOOR-333"} <= found.keys()


# The doctor and claims to CPUs: owners beside pods, in order without any pod, and kept in repairs.


THREADS = MachineInfo(4, 1, 2**31, (NUMANode(0, 2**31, (), (Core(0, (0, 1), 0), Core(1, (2, 3), 0))),))
WHOLE = replace(NO_MEMORY, reserved_system_cpus="0-1", cpu_manager_policy_options={"full-pcpus-only": "true"})


def looked_at_claims(
    pool: int,
    entries: Mapping[str, Mapping[str, int]],
    *active: Pod,
    config: KubeletConfig = NO_MEMORY,
    machine: MachineInfo = MACHINE,
) -> Any:
    text = cpu_state_text(cpu_state(pool, entries), pod_level=False, baselines=False)
    return diagnose(Question(Machine("small", machine), config, active=active, files=StateTexts(text)))


def about_claims(found: Any) -> list[Any]:
    return [problem for problem in found.all_problems if problem.code == "MOOR-323"]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"shop/cpus/numa0/fast": 0}, "Claim shop/cpus has no CPU for request fast of numa0"),
        ({"app": 0b0010}, "Claim u has an entry whose name has no device (app)"),
        ({"a/one/numa0/r": 0b0010, "a/two/numa0/r": 0b0100}, "Claim u has entries of more than one name"),
        (
            {"shop/cpus/numa0/fast": 0b0110, "shop/cpus/numa0/slow": 0b0100},
            "Claim shop/cpus has CPU 2 for more than one of its requests",
        ),
    ],
)
def test_an_entry_that_no_claim_is_given_is_reported(entries: dict[str, int], words: str) -> None:
    found = looked_at_claims(0b1111 & ~reduce(or_, entries.values()), {"claim:u": entries})
    [problem] = about_claims(found)
    assert problem.message.startswith(words)
    assert problem.severity == "warning"
    assert {holder.container for holder in problem.containers} == set(entries)


def test_parts_of_cores_are_told_only_where_whole_cores_are_given() -> None:
    entries = {"claim:u": {"shop/cpus/numa0/fast": 0b0100}}
    [problem] = about_claims(looked_at_claims(0b1011, entries, config=WHOLE, machine=THREADS))
    assert "parts of cores for request fast of numa0 (2) under full-pcpus-only" in problem.message
    whole = {"claim:u": {"shop/cpus/numa0/fast": 0b1100}}
    assert not about_claims(looked_at_claims(0b0011, whole, config=WHOLE, machine=THREADS))
    loose = replace(WHOLE, cpu_manager_policy_options={})
    assert not about_claims(looked_at_claims(0b1011, entries, config=loose, machine=THREADS))


def test_a_cpu_of_a_pod_and_a_claim_is_damage_and_the_repair_keeps_the_claim_before_a_pod_that_is_gone() -> None:
    entries = {"claim:u": {"shop/cpus/numa0/fast": 0b0010}, "gone": {"a": 0b0110}, "p": {"a": 0b1000}}
    found = looked_at_claims(0b0001, entries, pod("p", 1))
    [problem] = [one for one in found.all_problems if one.code == "MOOR-312"]
    assert problem.message.startswith("More than one pod or claim holds CPU 1.")
    [repair] = found.repairs
    assert repair.action == "replace"
    repaired = load_cpu_state(repair.text, policy="static", pod_level=False, baselines=False)
    assert isinstance(repaired, CPUState)
    assert repaired.assignments == {"claim:u": {"shop/cpus/numa0/fast": 0b0010}, "p": {"a": 0b1000}}
    [dropped] = repair.dropped
    assert dropped.why == "claim shop/cpus (fast) holds CPU 1 too"


# State files with CPUs that went offline since they were written.


def looked_at_offline(offline: str) -> Any:
    """Look at the file of a machine with CPUs 0-3 that had 0-7: one container has 1 and 4, one 5, one 2."""
    machine = parse_compact("cores=4 threads=1")
    hardware = replace(not_none(machine.hardware), offline=CPUSet.parse(offline))
    state = cpu_state(0b11001001, {"a": {"app": 0b010010}, "b": {"app": 0b100000}, "c": {"app": 0b100}})
    text = cpu_state_text(state, pod_level=False, baselines=False)
    static = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    return diagnose(Question(replace(machine, hardware=hardware), static, files=StateTexts(cpu=text)))


def test_offline_cpus_are_named_with_whom_they_concern_and_what_comes_of_it() -> None:
    found = looked_at_offline("4-7")
    (problem,) = found.all_problems
    assert (problem.code, problem.severity, problem.cpus) == ("MOOR-319", "error", "4-7")
    assert [holder.uid for holder in problem.containers] == ["a", "b"]
    assert problem.message == (
        "This machine has CPUs 4-7 offline; the file gives them to 2 containers and the shared pool. The kubelet "
        "refuses it at its next start, unless they are online by then."
    )
    assert not found.starts
    assert "doesn't match with CPUs in state" in found.start_error
    assert found.repairs[0].kept == 1


# Heal: damaged, drifted, rolled-back and torn states of every release; the engine judges what was written.


MACHINES = {
    (cores, memory): load_machine(f"sockets=1 numa=2 cores={cores} threads=2 memory={memory}Gi")
    for cores in (4, 6, 8)
    for memory in (15, 16)
}
"""A node before and after a change of its firmware, of its kernel, or of what the hypervisor gives it."""


def configuration(random: Random, *, memory: bool) -> KubeletConfig:
    options = random.choice([{}, {}, {"full-pcpus-only": "true"}, {"strict-cpu-reservation": "true"}])
    return KubeletConfig(
        cpu_manager_policy="static",
        cpu_manager_policy_options=options,
        memory_manager_policy="Static" if memory else "None",
        reserved_memory=(ReservedMemory(0, {"memory": "1Gi"}),) if memory else (),
        kube_reserved={"memory": "924Mi"} if memory else {},
        reserved_system_cpus=random.choice(["0", "0,4", "0-1"]),
        topology_manager_policy=random.choice(["none", "best-effort", "restricted"]),
        feature_gates={"CPUManagerPolicyAlphaOptions": True},
    )


def pods(random: Random) -> tuple[Pod, ...]:
    return tuple(
        replace(
            Pod.of(f"default/pod-{number}", cpu=random.choice([1, 2, 2, 4]), memory=random.choice(["1Gi", "2Gi"])),
            uid=f"{number:08x}-0000-0000-0000-000000000000",
        )
        for number in range(random.randint(0, 5))
    )


def pinned(plan: Plan) -> tuple[PinnedContainer, ...]:
    """Return what the control groups of a node's containers say."""
    node = plan.kubelet.node
    found = []
    for answer in plan.answers:
        for container in answer.pod.containers if answer.admitted else ():
            cpus = CPUSet(node.cpu.assignments.get(answer.pod.uid, {}).get(container.name, 0))  # type: ignore[arg-type]
            blocks = node.memory.assignments.get(answer.pod.uid, {}).get(container.name, ())
            memory = tuple((block.type, block.size) for block in blocks)
            nodes = blocks[0].numa if blocks else ()
            found.append(PinnedContainer(answer.pod.uid, container.name, cpus, nodes, memory))
    return tuple(found)


def torn(text: str, random: Random) -> str:
    return text[: random.randrange(len(text))]


def flipped(text: str, random: Random) -> str:
    place = random.randrange(len(text))
    return f"{text[:place]}{chr(ord(text[place]) ^ (1 << random.randrange(5)))}{text[place + 1 :]}"


TEXTS: Mapping[str, Callable[[str, Random], str | None]] = {
    "torn": torn,
    "flipped": flipped,
    "empty": lambda _text, _random: "",
    "zeros": lambda text, _random: "\0" * len(text),
    "missing": lambda _text, _random: None,
    "another file": lambda _text, _random: '{"policyName":"none","checksum":0}',
}


def damaged(question: Question, files: StateTexts, kind: str, random: Random) -> Question:
    """Return the node as it starts again, after one of the things that happen."""
    config = question.config
    if kind in TEXTS:
        if files.memory and random.random() < 0.5:
            return replace(question, files=replace(files, memory=TEXTS[kind](files.memory, random)))
        return replace(question, files=replace(files, cpu=TEXTS[kind](files.cpu or "", random)))
    question = replace(question, files=files)
    if kind == "machine":
        return replace(question, machine=random.choice(list(MACHINES.values())))
    if kind == "release":
        return replace(question, mooring=MooringConfig(release=random.choice(list(RELEASES.values()))))
    if kind == "reserved":
        return replace(question, config=replace(config, reserved_system_cpus=random.choice(["0", "1", "0-3", "2,6"])))
    if kind == "options":
        return replace(question, config=replace(configuration(random, memory=bool(files.memory))))
    return replace(question, config=replace(config, cpu_manager_policy="none", cpu_manager_policy_options={}))


def live(seed: int) -> tuple[str, bool]:
    """Let a node run, and damage it; check what heal writes, and return what happened and whether it was needed."""
    random = Random(seed)  # noqa: S311 - for examples
    release = random.choice(list(RELEASES.values()))
    asked = Question(
        random.choice(list(MACHINES.values())),
        configuration(random, memory=random.random() < 0.6),
        MooringConfig(release=release),
        pods(random),
    )
    plan = make_plan(asked)
    if isinstance(plan, RefusedPlan):  # an option that the release does not know
        return "configuration", False
    kind = random.choice([*TEXTS, "machine", "release", "reserved", "options", "policy"])
    node = damaged(replace(asked, pods=()), plan.files, kind, random)
    own = pinned(plan)

    def refused(files: StateTexts) -> object:
        return refusal_of(start_kubelet(node.machine.info, node.config, node.mooring, files))

    if refused(StateTexts()) is not None:  # the configuration does not fit this machine, whatever the files say
        return kind, False
    found = diagnose(node, pinned=own)
    if refused(node.files) is None and "missing" not in kind:
        return kind, False
    healed = with_repairs(node.files, found.repairs)
    assert refused(healed) is None, (seed, kind, found.repairs)
    if node.config.cpu_manager_policy == "static":
        start = start_kubelet(node.machine.info, node.config, node.mooring, healed)
        state, settings = start.node.cpu, start.settings.cpu  # type: ignore[union-attr]
        assert settings is not None
        possible = {
            (one.uid, one.name): one.cpus.mask
            for one in own
            if one.cpus and not one.cpus.mask & (~settings.topology.all_cpus | settings.reserved)
        }
        kept = {(uid, name): mask for uid, held in state.assignments.items() for name, mask in held.items()}
        lost = possible.items() - kept.items()
        assert not lost or not settings.shareable & ~sum(possible.values()), (seed, kind, lost, kept)
    return kind, True


MORE = [
    pytest.param(range(first, first + 2500), id=str(first), marks=pytest.mark.long)
    for first in range(300, 10_300, 2500)
]


@pytest.mark.parametrize("seeds", [pytest.param(range(300), id="0"), *MORE])
def test_the_kubelet_starts_on_what_was_written_and_running_containers_keep_their_cpus(seeds: range) -> None:
    seen = Counter(live(seed) for seed in seeds)
    needed = {kind for (kind, is_needed) in seen if is_needed}
    assert needed >= {*TEXTS, "machine", "reserved", "policy"} - {"another file"}, seen


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


def repaired(config: KubeletConfig, files: StateTexts) -> tuple[Node, dict[tuple[str, str], str]]:
    """Return the node that starts on the files as the doctor leaves them, and why which entries were dropped."""
    found = looked_at(files.cpu, files.memory, config=config)
    mended = with_repairs(files, found.repairs)
    dropped = [one for repair in found.repairs for one in repair.dropped]
    lost = {(one.uid, one.container): one.why for one in dropped}
    assert len(lost) == len(dropped)
    return started_kubelet(MACHINE, config, files=mended).node, lost


def repaired_cpus(config: KubeletConfig, state: CPUState) -> tuple[CPUState, dict[tuple[str, str], str]]:
    node, lost = repaired(config, StateTexts(cpu_state_text(state, pod_level=True, baselines=False)))
    return node.cpu, lost


@settings(max_examples=80)
@given(CPU_STATES, st.booleans(), st.booleans())
def test_no_state_keeps_more_cpu_entries(state: CPUState, strict: bool, pods: bool) -> None:
    node = replace(config(strict=strict, pods=pods), memory_manager_policy="None", reserved_memory=())
    policy = not_none(made(node).cpu)
    state = state if pods else replace(state, pods={})
    left, lost = repaired_cpus(node, state)
    kept = cpu_units(left, pods=pods)
    units = cpu_units(state, pods=pods)
    assert kept <= units
    assert is_apart(left)
    assert cpu_part(state, kept, left.default, pods=pods) == left
    possible = {unit for unit in units if some_pool_starts(policy, state, [unit], pods=pods)}
    if some_pool_starts(policy, state, possible, pods=pods):
        assert kept == possible
    for more in subsets(possible - kept):
        assert not more or not some_pool_starts(policy, state, {*kept, *more}, pods=pods)
    names = {(uid, name) for uid, held in state.assignments.items() for name in held}
    assert lost.keys() & names == names - {(uid, name) for uid, held in left.assignments.items() for name in held}


def test_the_entry_that_stands_against_fewer_is_kept() -> None:
    state = cpu_state(0b0001, {"u1": {"a": 0b1110}, "u2": {"a": 0b0010}, "u3": {"a": 0b0100}})
    left, lost = repaired_cpus(NO_MEMORY, state)
    assert set(left.assignments) == {"u2", "u3"}
    assert lost == {("u1", "a"): "pod u2 holds CPU 1 too"}


def test_a_pool_that_strict_reservation_left_empty_takes_back_the_smallest_entry() -> None:
    strict = replace(NO_MEMORY, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    left, lost = repaired_cpus(strict, cpu_state(0, {"u1": {"a": 0b0110}, "u2": {"a": 0b1000}}))
    assert left == cpu_state(0b1000, {"u1": {"a": 0b0110}})
    assert lost == {("u2", "a"): "no CPU would be left for the shared pool"}


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
    node = replace(config(pods=pods), cpu_manager_policy="none")
    policy = not_none(made(node).memory)
    state = state if pods else replace(state, pods={})
    started, lost = repaired(node, StateTexts(memory=memory_state_text(state, pod_level=True)))
    left, kept = started.memory, set(started.memory.assignments)
    assert {uid: state.assignments[uid] for uid in kept} == left.assignments
    possible = {uid for uid in state.assignments if some_accounts_start(policy, memory_part(state, [uid]))}
    for more in subsets(set(state.assignments) - kept):
        assert not more or not some_accounts_start(policy, memory_part(state, {*kept, *more}))
    # An entry can bear more company than solitude: a narrower one parts a group on which the kubelet crashes.
    if some_accounts_start(policy, memory_part(state, possible)):
        assert kept >= possible
    assert {uid for uid, _ in lost} == set(state.assignments) - kept


QUESTION = Question(Machine("small", MACHINE), CONFIG)


MUTATIONS = st.lists(
    st.tuples(
        st.integers(0, 2**20), st.sampled_from(("cut", "change", "insert", "drop")), st.characters(max_codepoint=126)
    ),
    max_size=3,
)


def mutated(text: str, mutations: Iterable[tuple[int, str, str]]) -> str:
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


@settings(max_examples=180)
@given(CPU_STATES, MEMORY_STATES, st.data())
def test_random_states_and_damaged_files_are_repaired_to_sound_ones(
    cpu: CPUState, memory: MemoryState, data: st.DataObject
) -> None:
    strict, before, after, is_off = (data.draw(st.booleans()) for _ in range(4))
    texts = StateTexts(
        mutated(cpu_state_text(cpu, pod_level=before, baselines=False), data.draw(MUTATIONS)),
        mutated(memory_state_text(memory, pod_level=before), data.draw(MUTATIONS)),
    )
    asked = config(strict=strict and not is_off, pods=after)
    policy = "none" if is_off else "static"
    check(replace(QUESTION, config=replace(asked, cpu_manager_policy=policy), files=texts))


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


def has_repairable_error(diagnosis: Any) -> bool:
    """Tell whether something is wrong that a repair could remove: a file that is gone cannot be written again."""
    errors = {problem.code for problem in diagnosis.all_problems if problem.severity == "error"}
    return not diagnosis.starts or bool(errors - {"MOOR-345"})


RECORDINGS = {"state-files.jsonl.gz": 363, "admission-lifecycle-restart.jsonl.gz": 199}
"""File -> refused starts."""
NOTHING = ("", "null", "[]")
"""The only texts among the recordings that say nothing, so that deletion is all that is left."""

TABLE = yaml.safe_load(Path(__file__).with_name("causes.yaml").read_text(encoding="utf-8"))
CAUSES = [(one["says"], set(one["codes"])) for one in TABLE["refusals"]]
"""The kubelet's words -> codes of which one must be among the errors."""
DAMAGE = {damage: set(codes) for damage, codes in TABLE["damage"].items()}
"""How the recording damaged a memory state file that the kubelet read and refused -> the code for just that."""


@lru_cache(maxsize=2)
def refused_starts(name: str) -> tuple[RecordedStart, ...]:
    return tuple(start for start in recorded_starts(name) if start.error)


def errors(diagnosis: Any) -> set[str]:
    return {problem.code for problem in diagnosis.all_problems if problem.severity == "error"}


def wanted(message: str) -> set[str]:
    """Return the codes one of which is the cause; of a difference of CPU sets exactly what the two sets say."""
    sets = re.search(r'available CPUs "([^"]*)" doesn\'t match with CPUs in state "([^"]*)"', message)
    if sets:
        machine, state = (CPUSet.parse(text) for text in sets.groups())
        return {"MOOR-317"} if machine - state else {"MOOR-313", "MOOR-316"}
    return next(codes for pattern, codes in CAUSES if re.search(pattern, message))


@pytest.mark.corpus
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("name", RECORDINGS)
def test_every_refused_start_has_its_cause_and_a_repair_that_starts(name: str, part: int) -> None:
    found = refused_starts(name)
    assert len(found) == RECORDINGS[name]
    for start in some(found[part::3]):
        question = replace(start.question, active=())
        diagnosis = diagnose(question)
        assert not diagnosis.starts
        assert diagnosis.start_error == start.error, start.id
        codes = errors(diagnosis)
        assert codes & wanted(start.error), (start.id, codes, start.error)
        assert "MOOR-351" not in codes, start.id
        if start.stage != "start":
            assert "MOOR-350" in codes
            assert not diagnosis.repairs
            continue
        assert diagnosis.repairs, start.id
        for repair in diagnosis.repairs:
            text = question.files.cpu if repair.file.startswith("cpu") else question.files.memory
            assert (repair.action == "delete") == (text in NOTHING), (start.id, text)
        node = question.machine.info, question.config, question.mooring
        assert refusal_of(start_kubelet(*node, with_repairs(question.files, diagnosis.repairs))) is None, start.id


@pytest.mark.corpus
def test_damage_that_the_recording_describes_is_what_is_named() -> None:
    notes = {line["id"]: line.get("note", "") for line in recorded("state-files.jsonl.gz")}
    seen = set()
    for start in refused_starts("state-files.jsonl.gz"):
        damage = dict(word.split(":", 1) for word in notes[start.id].split()).get("memory", "")
        if "start memory manager error: [memorymanager]" not in start.error or damage not in DAMAGE:
            continue
        codes = errors(diagnose(replace(start.question, active=())))
        assert codes & DAMAGE[damage], (start.id, damage, codes)
        seen.add(damage)
    assert seen == set(DAMAGE)


@pytest.mark.corpus
def test_a_repaired_node_is_sound() -> None:
    for start in (start for name in RECORDINGS for start in refused_starts(name)[::16]):
        diagnosis = diagnose(start.question)
        again = diagnose(replace(start.question, files=with_repairs(start.question.files, diagnosis.repairs)))
        # No file keeps the kubelet from moving pods at a later start, which it names as an error too.
        is_whole = errors(again) <= {RESTART} and not again.repairs
        assert is_whole or "MOOR-350" in errors(diagnosis), (start.id, errors(again))


@pytest.mark.corpus
def test_files_on_which_the_kubelet_started_have_no_error_that_it_looks_for() -> None:
    looks_for = {code for _, codes in CAUSES for code in codes} - {"MOOR-311", "MOOR-313"}
    started = [start for start in recorded_starts("state-files.jsonl.gz") if not start.error]
    for start in started[::4]:
        diagnosis = diagnose(replace(start.question, active=()))
        assert diagnosis.starts
        assert not errors(diagnosis) & looks_for, start.id
        assert not any(file.kubelet_message for file in diagnosis.files)
