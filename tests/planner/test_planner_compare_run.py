"""What is compared: legal combinations, ranks, groups; and the same answer from any number of processes."""

from __future__ import annotations

import gc
import os
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import groupby, islice
from multiprocessing import active_children
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from tests.patience import until
from tests.planner.compared import (
    FIGURES,
    SMALL,
    STATIC,
    container,
    machine,
    measure,
    pod,
    pods,
    run_trial,
    trace,
    varied,
)

from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import Trace, shapes, trace_of_scenario
from mooring.answers.compare import answer as run
from mooring.answers.compare.answer import Comparison, compare
from mooring.answers.compare.measures import (
    MEASURES,
    AlignedContainersPart,
    VariantOutcome,
    VariantPart,
    digest,
    judge,
    rank_key,
)
from mooring.answers.compare.trial import SharedKubelet, StrandedCPUsPart, Trial
from mooring.answers.compare.variant import ALL_OPTIONS, Dimension, Variant, changes_between, option_sets
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import refusal_of, start_kubelet
from mooring.inputs.machines.machineinfo_json import machines_of_lines
from mooring.inputs.pods.scenario import Scenario, load_scenarios, scenario

ASKED = trace([*pods(3, 8, 2), pod("with-init", 2, init=4), pod("huge", 40)])


def test_all_options_are_all_sets_of_cpu_options_times_policies_scopes_and_topology_options() -> None:
    made = list(option_sets(STATIC, ALL_OPTIONS, 4))
    assert len(made) == 2**6 * 4 * 2 * 2
    assert len({repr(one) for one in made}) == len(made)


def test_the_legal_combinations_are_those_with_which_the_kubelet_starts() -> None:
    small = machine(SMALL)
    variants = varied(small, STATIC, *ALL_OPTIONS)
    starts = [
        refusal_of(start_kubelet(small.info, one.config, MooringConfig(), StateTexts())) is None for one in variants
    ]
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
    ("dimension", "settings_found"),
    [
        (Dimension.CPU_POLICY, {"none", "static"}),
        (Dimension.MEMORY_POLICY, {"None", "Static"}),
        (Dimension.TOPOLOGY_SCOPE, {"container", "pod"}),
        (Dimension.TOPOLOGY_POLICY, {"none", "best-effort", "restricted", "single-numa-node"}),
    ],
    ids=lambda value: value.value if isinstance(value, Dimension) else "",
)
def test_a_dimension_takes_all_its_values(dimension: Dimension, settings_found: set[str]) -> None:
    field = {
        Dimension.CPU_POLICY: "cpu_manager_policy",
        Dimension.MEMORY_POLICY: "memory_manager_policy",
        Dimension.TOPOLOGY_SCOPE: "topology_manager_scope",
        Dimension.TOPOLOGY_POLICY: "topology_manager_policy",
    }[dimension]
    assert {getattr(one, field) for one in option_sets(STATIC, [dimension], 4)} == settings_found


def test_changes_lead_from_the_given_configuration_to_the_combination() -> None:
    for one in option_sets(STATIC, ALL_OPTIONS, 4):
        changes = changes_between(STATIC, one)
        assert (changes == ()) == (replace(one, feature_gates={}) == STATIC)
        assert [(change.after, change.before) for change in changes_between(one, STATIC)] == [
            (change.before, change.after) for change in changes
        ]


def measures() -> st.SearchStrategy[VariantPart]:
    small = st.integers(0, 2)
    none = st.just(0)
    return st.builds(
        lambda **figures: structs.replace(FIGURES, **figures),
        admitted=small,
        lost=small,
        exclusive_containers=st.integers(1, 3),
        aligned=st.builds(AlignedContainersPart, small, small, small, small, none, none),
        spread=st.sampled_from([1.0, 1.333, 1.5, 2.0]),
        stranded=st.builds(StrandedCPUsPart, small, none, none, none),
        memory_nodes_beyond_need=small,
    )


@given(measures(), measures(), st.sampled_from(sorted(MEASURES)))
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


@pytest.mark.parametrize("by", sorted(MEASURES))
def test_entries_are_in_the_order_of_their_keys(by: str) -> None:
    variants = varied(machine(), STATIC, Dimension.TOPOLOGY_SCOPE, Dimension.TOPOLOGY_POLICY)
    found = compare(ASKED, variants, by=by)
    keys = [rank_key(one, by) for one in found.document.variants]
    assert keys == sorted(keys)


def test_a_group_decides_alike_and_is_led_by_what_changes_least() -> None:
    variants = compared().document.variants
    assert [one.group for one in variants] == sorted(one.group for one in variants)
    for _, found in groupby(variants, key=lambda one: one.group):
        group = list(found)
        assert len({one.figures for one in group}) == 1
        changes = [len(one.changes) for one in group]
        assert changes == sorted(changes)


def test_pods_that_nobody_admits_are_named() -> None:
    assert compared().document.never_admitted == ["default/huge"]
    assert not compared().is_yes


def test_every_pod_is_admitted_or_has_a_reason() -> None:
    for found in compared().document.variants:
        assert found.admitted + sum(found.rejected.values()) == len(ASKED.pods) == 5


def test_without_room_for_a_trace_nothing_was_asked() -> None:
    found = compare(trace(pods(2)), [Variant("x", machine(), KubeletConfig(cpu_manager_policy="static"))])
    (one,) = found.document.variants
    assert (one.rejected, one.is_yes) == ({"not asked": 1}, False)


class StopWatchingError(Exception):
    """Stands for an interrupt, which a test cannot raise without ending the run."""


def spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let worker processes take part however little there is to do."""
    monkeypatch.setattr(run, "FEW", 0)


def test_any_number_of_processes_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)
    assert compared(jobs=2).document == compared().document


@pytest.mark.long
def test_an_interrupt_ends_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def interrupted(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        yield next(iter(outcomes))
        assert len(active_children()) == 2
        raise StopWatchingError

    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    with pytest.raises(StopWatchingError):
        compare(ASKED, variants, jobs=2, watch=interrupted)
    gc.collect()
    until(lambda: not active_children(), "no worker is left")


@pytest.mark.long
def test_workers_that_are_killed_change_nothing_in_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def killed(outcomes: Iterable[VariantOutcome]) -> Iterator[VariantOutcome]:
        for number, outcome in enumerate(outcomes):
            yield outcome
            if number == 0:
                for process in active_children():
                    process.kill()

    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    assert compare(ASKED, variants, jobs=2, watch=killed).document == compare(ASKED, variants).document


def test_where_no_process_can_be_started_the_answer_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    spread(monkeypatch)

    def refused() -> int:
        raise BlockingIOError("no more processes")

    monkeypatch.setattr(os, "fork", refused)
    variants = varied(machine(), STATIC, Dimension.TOPOLOGY_POLICY, Dimension.CPU_OPTIONS)
    assert compare(ASKED, variants, jobs=2).document == compare(ASKED, variants).document


def test_combinations_that_share_runs_have_the_outcomes_that_they_have_alone() -> None:
    """Two containers tell the scopes apart, 12 CPUs beside a full node the distances; one in 23 is run alone."""
    variants = varied(machine(), STATIC, *ALL_OPTIONS)
    two = Pod("uid-two", "two", containers=(container("a", 5), container("b", 5)), qos=QoS.GUARANTEED)
    asked = trace([*pods(7, 12), two])
    groups: dict[Hashable, dict[int, Variant]] = {}
    for position, variant in enumerate(variants):
        groups.setdefault(variant.shared_by, {})[position] = variant
    together: dict[int, VariantOutcome] = {}
    for members in groups.values():
        together |= judge(asked, members, shapes(asked))
    alone = {
        position: judge(asked, {position: variants[position]}, shapes(asked))[position]
        for position in range(0, len(variants), 23)
    }
    assert {position: together[position] for position in alone} == alone
    assert len(groups) < len(variants)


# A trial decides what a plan and a replay decide; resizes of a trace are left out, with a finding.


CORPORA = Path(__file__).resolve().parents[1] / "corpora"
VARIANTS = varied(machine(), STATIC, *ALL_OPTIONS)


def planned(variant: Variant, asked: list[Pod], active: tuple[Pod, ...] = (), files: StateTexts | None = None) -> None:
    """Check that a trial and a plan of the same give the same."""
    told = Trace(tuple(Admit(one) for one in asked), active, files or StateTexts())
    trial = run_trial(told, variant)
    plan = make_plan(
        Question(
            variant.machine,
            variant.config,
            variant.mooring,
            tuple(asked),
            files=files or StateTexts(),
            active=tuple(active),
        )
    )
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
    asked = pods(*cpus)
    planned(variant, asked[1:], tuple(asked[:1])) if running else planned(variant, asked)


def test_the_node_resources_check_comes_after_the_managers() -> None:
    asked = [pod("one", 2), pod("two", 2)]
    config = replace(STATIC, max_pods=1)
    planned(Variant("x", machine(), config), asked)
    trial = run_trial(trace(asked), Variant("x", machine(), config))
    assert [one.decision.reason for one in trial.admissions] == ["", "OutOfpods"]


def test_state_files_are_continued_from() -> None:
    first = make_plan(Question(machine(), STATIC, MooringConfig(), tuple(pods(4))))
    planned(Variant("x", machine(), STATIC), [pod("new", 4)], (), first.files)
    planned(Variant("x", machine(), STATIC), [pod("new", 4)], tuple(pods(4)), first.files)
    planned(Variant("x", machine(), KubeletConfig()), [pod("new", 4)], tuple(pods(4)), first.files)


def recorded(name: str, count: int) -> list[Scenario]:
    found = (case for case in load_scenarios(CORPORA / name) if isinstance(case, Scenario))
    return list(islice(found, count))


@pytest.mark.parametrize("name", ["admission-lifecycle-restart.jsonl.gz", "admission-memory.jsonl.gz"])
def test_a_trial_of_a_recording_decides_what_was_recorded(name: str) -> None:
    described = machines_of_lines((CORPORA / "machines.jsonl").read_bytes(), "machines")
    machines = {one.name: one.info for one in described}
    checked = 0
    for case in recorded(name, 80):
        if case.devices or any(isinstance(step, Restart) and step.kubelet is not None for step in case.steps):
            continue
        answer = replay_scenario(case, machines)
        told, findings = trace_of_scenario(case)
        assert findings == ()
        # Recordings are of the managers alone: what the node resources check refuses would be another story.
        trial = run_trial(told, Variant("x", Machine("x", machines[case.machine]), case.kubelet))
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


def test_pods_come_and_go_and_the_kubelet_restarts() -> None:
    steps = (Admit(pod("one", 20)), Admit(pod("two", 20)), Remove("uid-one"), Restart(), Admit(pod("three", 20)))
    told = Trace(steps)
    trial = run_trial(told, Variant("x", machine(), STATIC))
    assert [(one.pod.name, one.running, one.decision.admitted) for one in trial.admissions] == [
        ("one", False, True),
        ("two", False, False),
        ("three", False, True),
    ]
    found = measure(told, trial, shapes(told))
    assert (found.asked, found.admitted, found.rejected, found.lost) == (3, 2, {"UnexpectedAdmissionError": 1}, 0)


def test_a_running_pod_that_the_kubelet_refuses_is_lost() -> None:
    told = Trace((Admit(pod("one", 2)),), active=(pod("wide", 40),))
    trial = run_trial(told, Variant("x", machine(), STATIC))
    found = measure(told, trial, shapes(told))
    assert (found.asked, found.admitted, found.lost, found.is_yes) == (1, 1, 1, False)


def test_a_configuration_in_the_trace_gives_way_to_the_compared_one() -> None:
    cases = recorded("admission-lifecycle-restart.jsonl.gz", 20)
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
    burstable = replace(pod("b", 3), qos=QoS.BURSTABLE, containers=(container("main", 3),))
    asked = trace([burstable])
    trial = run_trial(asked, Variant("x", machine(), STATIC))
    found = measure(asked, trial, shapes(asked))
    assert (found.exclusive_containers, found.stranded.total) == (0, 31)


def test_resizes_and_time_are_left_out_of_a_compared_trace() -> None:
    pod = {"metadata": {"name": "a", "uid": "a"}, "spec": {"containers": [{"name": "c"}]}}
    steps = [
        {"admit": pod},
        {"resize": {"uid": "a", "containers": {}}},
        {"advance": "1s"},
        {"reboot": True},
        {"remove": "a"},
    ]
    trace, findings = trace_of_scenario(scenario({"steps": steps}, source="x"))
    assert [type(step) for step in trace.steps] == [Admit, Restart, Remove]
    assert [finding.code for finding in findings] == ["MOOR-723"]
