"""Comparisons: legal combinations, ranks, groups, luck and stranded CPUs; the same from any number of processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby, islice
from multiprocessing import active_children
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.patience import until
from tests.planner.compared import FIGURES, SMALL, STATIC, machine, outcome, pod, pods, run_trial, trace, varied
from tests.planner.recordings import machines, scenarios

from mooring import CPUSet, Machine
from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import Trace, shapes, trace_of_scenario
from mooring.answers.compare.answer import Comparison, VariantOutcome, compare, judge
from mooring.answers.compare.measures import (
    MEASURES,
    AlignedContainersPart,
    VariantPart,
    alignment,
    digest,
    rank_key,
)
from mooring.answers.compare.trial import SharedKubelet, StrandedCPUsPart, Trial
from mooring.answers.compare.variant import ALL_OPTIONS, Dimension, Variant, changes_between, option_sets
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.pod import Container, Pod, QoS
from mooring.engine.core.topology import discover_topology
from mooring.engine.devicemanager.state import Device
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.scenario import scenario

ASKED = trace([*pods(3, 8, 2), pod("with-init", 2, init=4), pod("huge", 40)])
VARIANTS = varied(machine(), STATIC, *ALL_OPTIONS)


def test_the_legal_combinations_are_those_with_which_the_kubelet_starts() -> None:
    small = machine(SMALL)
    variants = varied(small, STATIC, *ALL_OPTIONS)
    node = MooringConfig(), StateTexts()
    starts = [refusal_of(start_kubelet(small.info, one.config, *node)) is None for one in variants]
    found = compare(trace(pods(2)), variants)
    assert len(found.variants) == sum(starts) == 392
    assert sum(one.count for one in found.document.left_out) == len(variants) - sum(starts)
    legal = {repr(one.config) for one, yes in zip(variants, starts, strict=True) if yes}
    assert {repr(one.config) for one in found.variants} == legal


def test_an_option_that_needs_a_gate_gets_it_and_others_do_not() -> None:
    made = list(option_sets(STATIC, [Dimension.CPU_OPTIONS], 4))
    alpha = {"align-by-socket", "distribute-cpus-across-cores"}
    for one in made:
        needs = bool(alpha & set(one.cpu_manager_policy_options))
        assert dict(one.feature_gates) == ({"CPUManagerPolicyAlphaOptions": True} if needs else {})
    off = replace(STATIC, feature_gates={"CPUManagerPolicyBetaOptions": False})
    gates = [
        dict(one.feature_gates)
        for one in option_sets(off, [Dimension.CPU_OPTIONS], 4)
        if set(one.cpu_manager_policy_options) == {"distribute-cpus-across-numa"}
    ]
    assert gates == [{"CPUManagerPolicyBetaOptions": True}]


def test_machines_of_many_nodes_get_room_where_the_topology_manager_looks() -> None:
    wide = machine("sockets=2 numa=16 cores=32 memory=64Gi")
    found = compare(trace(pods(2)), varied(wide, STATIC, Dimension.TOPOLOGY_POLICY))
    assert len(found.variants) == 4
    room = {dict(one.config.topology_manager_policy_options).get("max-allowable-numa-nodes") for one in found.variants}
    assert room == {None, "16"}


def test_a_configuration_that_is_given_stays_even_if_the_kubelet_refuses_it() -> None:
    wrong = replace(STATIC, cpu_manager_policy_options={"no-such-option": "true"})
    found = compare(trace(pods(2)), [Variant("wrong", machine(), wrong), Variant("right", machine(), STATIC)])
    assert [one.name for one in found.variants] == ["right", "wrong"]
    assert not found.document.variants[1].starts
    assert found.document.left_out == []
    assert found.is_yes


@pytest.mark.parametrize(
    ("dimension", "field", "taken"),
    [
        ("cpu-policy", "cpu_manager_policy", {"none", "static"}),
        ("memory-policy", "memory_manager_policy", {"None", "Static"}),
        ("topology-scope", "topology_manager_scope", {"container", "pod"}),
        ("topology-policy", "topology_manager_policy", {"none", "best-effort", "restricted", "single-numa-node"}),
    ],
)
def test_a_dimension_takes_all_its_values(dimension: str, field: str, taken: set[str]) -> None:
    assert {getattr(one, field) for one in option_sets(STATIC, [Dimension(dimension)], 4)} == taken


def test_changes_lead_from_the_given_configuration_to_the_combination() -> None:
    for one in option_sets(STATIC, ALL_OPTIONS, 4):
        changes = changes_between(STATIC, one)
        assert (changes == ()) == (replace(one, feature_gates={}) == STATIC)
        back = [(change.after, change.before) for change in changes_between(one, STATIC)]
        assert back == [(change.before, change.after) for change in changes]


def figures() -> st.SearchStrategy[VariantPart]:
    small = st.integers(0, 2)
    none = st.just(0)
    return st.builds(
        lambda **drawn: structs.replace(FIGURES, **drawn),
        admitted=small,
        lost=small,
        exclusive_containers=st.integers(1, 3),
        aligned=st.builds(AlignedContainersPart, small, small, small, small, none, none),
        spread=st.sampled_from([1.0, 1.333, 1.5, 2.0]),
        stranded=st.builds(StrandedCPUsPart, small, none, none, none),
        memory_nodes_beyond_need=small,
    )


@given(figures(), figures(), st.sampled_from(sorted(MEASURES)))
@settings(deadline=None, max_examples=100)
def test_what_is_nowhere_worse_is_never_ranked_behind(one: VariantPart, other: VariantPart, by: str) -> None:
    values = [(one.lost,), *(value(one) for value in MEASURES.values())]
    others = [(other.lost,), *(value(other) for value in MEASURES.values())]
    if all(left <= right for left, right in zip(values, others, strict=True)):
        assert rank_key(one, by) <= rank_key(other, by)
    if one.lost < other.lost:
        assert rank_key(one, by) < rank_key(other, by), "no measure outweighs a running pod"
    if one.lost == other.lost and MEASURES[by](one) < MEASURES[by](other):
        assert rank_key(one, by) < rank_key(other, by)


@cache
def compared(jobs: int = 1) -> Comparison:
    variants = varied(machine(), STATIC, Dimension.CPU_OPTIONS, Dimension.TOPOLOGY_POLICY)
    return compare(ASKED, variants, jobs=jobs)


def test_a_group_decides_alike_and_is_led_by_what_changes_least_and_every_pod_has_its_answer() -> None:
    variants = compared().document.variants
    assert [one.group for one in variants] == sorted(one.group for one in variants)
    for _, found in groupby(variants, key=lambda one: one.group):
        group = list(found)
        assert len({one.figures for one in group}) == 1
        changes = [len(one.changes) for one in group]
        assert changes == sorted(changes)
    assert {one.admitted + sum(one.rejected.values()) for one in variants} == {len(ASKED.pods)} == {5}
    assert compared().document.never_admitted == ["default/huge"]
    assert not compared().is_yes


class StopWatchingError(Exception):
    """Stands for an interrupt, which a test cannot raise without ending the run."""


@pytest.fixture
def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes take part however little there is to do."""
    monkeypatch.setattr("mooring.answers.compare.answer.FEW", 0)


@pytest.mark.usefixtures("spread")
def test_any_number_of_processes_gives_the_same_answer() -> None:
    assert compared(jobs=2).document == compared().document


@pytest.mark.long
@pytest.mark.usefixtures("spread")
def test_an_interrupt_ends_all_workers() -> None:
    def interrupted(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        yield next(iter(outcomes))
        assert len(active_children()) == 2
        raise StopWatchingError

    with pytest.raises(StopWatchingError):
        compare(ASKED, VARIANTS, jobs=2, watch=interrupted)
    gc.collect()
    until(lambda: not active_children(), "no worker is left")


@pytest.mark.long
@pytest.mark.usefixtures("spread")
def test_workers_that_are_killed_change_nothing_in_the_answer() -> None:
    def killed(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        for number, one in enumerate(outcomes):
            yield one
            if number == 0:
                for process in active_children():
                    process.kill()

    assert compare(ASKED, VARIANTS, jobs=2, watch=killed).document == compare(ASKED, VARIANTS).document


@pytest.mark.usefixtures("spread")
def test_where_no_process_can_be_started_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    variants = varied(machine(), STATIC, Dimension.TOPOLOGY_POLICY, Dimension.CPU_OPTIONS)
    assert compare(ASKED, variants, jobs=2).document == compare(ASKED, variants).document


def test_combinations_that_share_runs_have_the_outcomes_that_they_have_alone() -> None:
    """Two containers tell the scopes apart, 12 CPUs beside a full node the distances; one in 23 is run alone."""
    two = replace(pod("two", 5), containers=(*pod("a", 5).containers, *pod("b", 5).containers))
    asked = trace([*pods(7, 12), two])
    groups: dict[Hashable, dict[int, Variant]] = {}
    for position, variant in enumerate(VARIANTS):
        groups.setdefault(variant.shared_by, {})[position] = variant
    together: dict[int, VariantOutcome] = {}
    for members in groups.values():
        together |= judge(asked, members, shapes(asked))
    alone = {
        position: judge(asked, {position: VARIANTS[position]}, shapes(asked))[position]
        for position in range(0, len(VARIANTS), 23)
    }
    assert {position: together[position] for position in alone} == alone
    assert len(groups) < len(VARIANTS)


# A trial decides what a plan and a replay decide; resizes of a trace are left out, with a finding.


def planned(variant: Variant, asked: list[Pod], active: tuple[Pod, ...] = (), files: StateTexts | None = None) -> None:
    """Check that a trial and a plan of the same give the same."""
    told = Trace(tuple(Admit(one) for one in asked), active, files or StateTexts())
    trial = run_trial(told, variant)
    node = variant.machine, variant.config, variant.mooring
    plan = make_plan(Question(*node, tuple(asked), active, files or StateTexts()))
    if isinstance(plan, RefusedPlan):
        assert trial.end == plan.refusal
    assert [(one.running, replaced(one.decision)) for one in trial.admissions] == [
        (answer.running, replaced(answer.decision)) for answer in plan.answers if answer.decision.endless is None
    ]
    if isinstance(plan, Plan) and not plan.unasked:
        assert isinstance(trial.end, SharedKubelet)
        assert trial.end.kubelet.files == plan.files


def replaced(decision: Any) -> tuple[Any, ...]:
    return (decision.uid, decision.rejection, decision.containers, decision.pod, decision.shared_pool)


@given(st.sampled_from(VARIANTS), st.lists(st.integers(1, 12), min_size=1, max_size=8), st.booleans())
@settings(deadline=None, max_examples=40)
def test_a_trial_decides_what_a_plan_decides(variant: Variant, cpus: list[int], running: bool) -> None:
    asked, first = pods(*cpus), 1 if running else 0
    planned(variant, asked[first:], tuple(asked[:first]))


@pytest.mark.parametrize("name", ["admission-lifecycle-restart.jsonl.gz", "admission-memory.jsonl.gz"])
def test_a_trial_of_a_recording_decides_what_was_recorded(name: str) -> None:
    checked = 0
    for case in islice(scenarios(name), 80):
        if case.devices or any(isinstance(step, Restart) and step.kubelet is not None for step in case.steps):
            continue
        answer = replay_scenario(case, machines())
        told, findings = trace_of_scenario(case)
        assert findings == ()
        # Recordings are of the managers alone: what the node resources check refuses would be another story.
        trial = run_trial(told, Variant("x", Machine("x", machines()[case.machine]), case.kubelet))
        if any(one.decision.reason.startswith("OutOf") for one in trial.admissions):
            continue
        checked += 1
        compared_with(trial, answer["expect"])
    assert checked > 20


def compared_with(trial: Trial, expect: dict[str, Any]) -> None:
    if "startError" in expect:
        assert isinstance(trial.end, StartRefusal)
        assert trial.end.message == expect["startError"]
        return
    steps = expect.get("steps", [])
    answers = [*expect["start"].get("readmitted", [])]
    for step in steps:
        answers += [step] if "admitted" in step else step.get("readmitted", [])
    assert [(one.decision.admitted, one.decision.reason) for one in trial.admissions] == [
        (answer["admitted"], answer["reason"]) for answer in answers
    ]
    for one, answer in zip(trial.admissions, answers, strict=True):
        held = {name: str(placement.cpus) for name, placement in one.decision.containers.items()}
        assert held == {name: placement["cpus"] for name, placement in answer["containers"].items()}
    if expect.get("endless"):
        assert trial.end == "endless"


def test_a_running_pod_that_the_kubelet_refuses_is_lost() -> None:
    found = outcome(Trace((Admit(pod("one", 2)),), active=(pod("wide", 40),)))
    assert (found.asked, found.admitted, found.lost, found.is_yes) == (1, 1, 1, False)


def test_a_configuration_in_the_trace_gives_way_to_the_compared_one() -> None:
    cases = islice(scenarios("admission-lifecycle-restart.jsonl.gz"), 20)
    case = next(one for one in cases if any(isinstance(step, Restart) and step.kubelet for step in one.steps))
    told, findings = trace_of_scenario(case)
    assert [finding.code for finding in findings] == ["MOOR-721"]
    assert all(step.kubelet is None for step in told.steps if isinstance(step, Restart))


def test_shapes_are_pods_that_differ_in_more_than_their_names() -> None:
    found = shapes(trace([pod("a", 2), pod("b", 4), pod("c", 2), pod("d", 2, init=2)]))
    assert [[one.limits["cpu"].units for one in shape.containers] for shape in found] == [[4], [2], [2, 2]]


def test_only_what_decides_alike_has_one_digest() -> None:
    asked = trace(pods(2, 4))
    plain = run_trial(asked, Variant("x", machine(), STATIC))
    scope = run_trial(asked, Variant("y", machine(), replace(STATIC, topology_manager_scope="pod")))
    strict = replace(STATIC, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    assert digest(plain) == digest(scope)
    assert digest(plain) != digest(run_trial(asked, Variant("z", machine(), strict)))
    assert digest(plain) != digest(run_trial(trace(pods(4, 2)), Variant("x", machine(), STATIC)))


def test_a_burstable_pod_fills_nothing() -> None:
    found = outcome([replace(pod("b", 3), qos=QoS.BURSTABLE)])
    assert (found.exclusive_containers, found.stranded.total) == (0, 31)


def test_resizes_and_time_are_left_out_of_a_compared_trace() -> None:
    arriving = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "c"}]}}
    left_out = {"resize": {"uid": "a", "containers": {}}}, {"advance": "1s"}
    steps = [{"admit": arriving}, *left_out, {"reboot": True}, {"remove": "a"}]
    told, findings = trace_of_scenario(scenario({"steps": steps}, source="x"))
    assert [type(step) for step in told.steps] == [Admit, Restart, Remove]
    assert [finding.code for finding in findings] == ["MOOR-723"]


NODE = load_machine("sockets=2 numa=2 cores=8 threads=1 memory=32Gi")
"""Nodes 0-3 and 4-7; CPU 0 is reserved."""
PINNING = replace(
    STATIC,
    memory_manager_policy="Static",
    kube_reserved={"memory": "1948Mi"},
    reserved_memory=(ReservedMemory(0, {"memory": "2Gi"}),),
)


def by_policy(
    pods: list[Pod], config: KubeletConfig = STATIC, gpus: tuple[int, ...] = (0, 1), by: str = "guaranteed"
) -> Comparison:
    """Compare the topology policies on a node with a GPU on each of some NUMA nodes."""
    devices = {"vendor.example/gpu": tuple(Device(f"gpu-{number}", (node,)) for number, node in enumerate(gpus))}
    variants = [replace(one, devices=devices) for one in varied(NODE, config, Dimension.TOPOLOGY_POLICY)]
    return compare(trace(pods), variants, by=by)


def policies(comparison: Comparison) -> list[str]:
    return [one.settings.topology_manager_policy for one in comparison.document.variants]


def of_policy(comparison: Comparison, policy: str) -> VariantPart:
    return next(one for one in comparison.document.variants if one.settings.topology_manager_policy == policy)


def of_devices(found: VariantPart) -> tuple[int, int]:
    """Return how many containers with devices are aligned, and how many there are."""
    return found.aligned.devices, found.device_containers


def test_devices_far_from_the_cpus_are_counted() -> None:
    # Without hints the CPUs of the first pod come from NUMA node 0 and its GPU is gpu-0; the second gets CPUs of both.
    found = by_policy([pod("one", 2), pod("two", 3, gpu=1)], gpus=(0,))
    assert of_devices(of_policy(found, "none")) == (0, 1)
    # Of the two the GPU is where the CPUs are, when hints are used.
    assert of_devices(of_policy(by_policy([pod("two", 3, gpu=1)], gpus=(1,)), "restricted")) == (1, 1)


def test_memory_away_from_the_cpus_is_counted() -> None:
    found = by_policy([pod("one", 2), pod("two", 4)], PINNING)
    without, sure = of_policy(found, "none"), of_policy(found, "restricted")
    assert without.memory_containers == sure.memory_containers == 2
    assert without.aligned.memory < 2
    assert sure.aligned.memory == 2


def test_a_policy_that_promises_nothing_does_not_win_when_it_aligns_as_much() -> None:
    found = by_policy([pod("one", 3, gpu=1), pod("two", 4, gpu=1)])
    assert len({one.admitted for one in found.document.variants}) == 1, "every policy decides the same here"
    assert policies(found)[-2:] == ["best-effort", "none"]
    assert not found.document.variants[0].is_luck


def test_align_by_socket_guarantees_sockets_and_not_numa_nodes() -> None:
    gates = {"CPUManagerPolicyAlphaOptions": True}
    config = replace(STATIC, cpu_manager_policy_options={"align-by-socket": "true"}, feature_gates=gates)
    found = by_policy([pod("one", 4)], config)
    measured_ = of_policy(found, "restricted")
    assert (measured_.alignment_promise, measured_.is_luck, measured_.is_socket_luck) == ("socket", True, False)
    assert MEASURES["numa"](measured_) == (0,)
    assert MEASURES["socket"](measured_) == (-1,)


def test_without_anything_to_align_the_given_configuration_stays_first() -> None:
    shared = Pod("uid-shared", "shared", containers=(Container("main"),), qos=QoS.BEST_EFFORT)
    assert policies(by_policy([shared]))[0] == "none"


@st.composite
def measured(draw: st.DrawFn, promise: str) -> VariantPart:
    small = st.integers(0, 3)
    numa, socket, l3, memory, devices = (draw(small) for _ in range(5))
    return structs.replace(
        FIGURES,
        admitted=4,
        exclusive_containers=3,
        memory_containers=3,
        device_containers=3,
        aligned=AlignedContainersPart(numa, socket, l3, 3, memory, devices),
        spread=round(draw(st.integers(3, 6)) / 3, 3),
        alignment_promise=promise,
    )


@pytest.mark.parametrize("by", sorted(set(MEASURES) - {"socket"}))
@given(
    measured("guarantee"),
    st.sampled_from(["nothing", "attempt"]).flatmap(measured),
)
@settings(deadline=None, max_examples=50)
def test_luck_never_outranks_a_guarantee(by: str, sure: VariantPart, lucky: VariantPart) -> None:
    assert rank_key(sure, by) < rank_key(lucky, by)


# Alignment and stranded CPUs of placements that were made by hand, and of nodes filled by the engine.


NONE_STRANDED = StrandedCPUsPart(0, 0, 0, 0)
TOPOLOGY = discover_topology(machine().info)
"""4 NUMA nodes of 4 cores with 2 threads on 2 sockets, two L3 caches a node; siblings are c and c + 16."""


@pytest.mark.parametrize(
    ("cpus", "aligned"),
    [
        ("0,16", (1, 1, 1, 1)),
        ("0-1", (1, 1, 1, 0)),
        ("1-2,17-18", (1, 1, 0, 1)),
        ("0-3,16-19", (1, 1, 1, 1)),
        ("3-4,19-20", (0, 1, 0, 1)),
        ("7-8,23-24", (0, 0, 0, 1)),
        ("0-7,16-23", (1, 1, 1, 1)),
        ("0-3,8-11,16-19,24-27", (1, 0, 1, 1)),
        ("0-2,16-17", (1, 1, 1, 0)),
    ],
)
def test_a_container_is_aligned_on_the_fewest_elements(cpus: str, aligned: tuple[int, int, int, int]) -> None:
    assert alignment(TOPOLOGY, 0, [CPUSet.parse(cpus).mask]) == aligned


def test_what_is_reserved_counts_as_room_for_nobody() -> None:
    eight = CPUSet.parse("1-4,17-20").mask
    assert alignment(TOPOLOGY, 0, [eight])[0] == 0
    # One reserved CPU on every node: 8 CPUs need two nodes then.
    reserved = CPUSet.parse("0,4,8,12").mask
    assert alignment(TOPOLOGY, reserved, [eight])[0] == 1


@pytest.mark.parametrize(
    ("asked", "filling", "parts"),
    [
        # 31 CPUs without the reserved one, one at a time: all of them can be used.
        ((1, 1), (), (0, 0, 0, 0)),
        # 7 CPUs remain on the node of the reserved CPU; its sibling is beside nobody's core.
        ((8,), (), (7, 0, 0, 7)),
        # Pods of 5 leave 3 on three nodes, one of them beside a thread that is taken. On the node of the reserved CPU
        # the fifth one is that CPU's sibling, and a whole core is left.
        ((5,), (), (11, 0, 3, 8)),
        ((5,), (5, 3), (2, 0, 0, 2)),
        ((5,), (1, 5), (0, 0, 0, 0)),
    ],
)
def test_what_no_shape_can_use_is_stranded_and_smaller_shapes_fill_what_larger_ones_leave(
    asked: tuple[int, ...], filling: tuple[int, ...], parts: tuple[int, ...]
) -> None:
    found = outcome(pods(*asked), replace(STATIC, topology_manager_policy="single-numa-node"), pods(*filling))
    assert (found.admitted, found.stranded) == (len(asked), StrandedCPUsPart(*parts))


def test_threads_beside_taken_ones_are_stranded_under_whole_cores() -> None:
    config = replace(STATIC, cpu_manager_policy_options={"full-pcpus-only": "true"})
    stranded = outcome(pods(2), config).stranded
    assert stranded == StrandedCPUsPart(1, 0, 0, 1), "the sibling of the reserved CPU, which is nobody's"


def test_cpus_of_ended_init_containers_are_stranded() -> None:
    found = outcome([pod("one", 2, init=6)])
    assert found.stranded.init == 4
    assert (found.exclusive_containers, found.aligned.numa) == (1, 1), "the init container itself is not counted"


def test_nothing_is_stranded_where_nobody_gets_cpus() -> None:
    found = outcome(pods(2, 3), replace(STATIC, cpu_manager_policy="none"))
    assert (found.admitted, found.exclusive_containers, found.stranded, found.spread) == (2, 0, NONE_STRANDED, 0.0)


def test_memory_on_more_nodes_than_its_amount_needs_is_counted() -> None:
    config = replace(PINNING, topology_manager_policy="best-effort", topology_manager_scope="pod")
    found = outcome(pods(12), config)
    assert found.admitted == 1, found.rejected
    assert (found.spread, found.memory_nodes_beyond_need) == (2, 1), "1 GiB is bound to both nodes of the CPUs"
