"""A trial decides what a plan and a replay decide; resizes of a trace are left out, with a finding."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.compared import STATIC, container, machine, measure, pod, pods, run_trial, trace, varied

from mooring.answers.base.plan import Plan, Question, RefusedPlan, make_plan
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import Trace, shapes, trace_of_scenario
from mooring.answers.compare.measures import digest
from mooring.answers.compare.trial import SharedKubelet, Trial
from mooring.answers.compare.variant import ALL_OPTIONS, Variant
from mooring.engine.core.config import KubeletConfig, MooringConfig
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod, QoS
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.engine.kubelet.kubelet import StateTexts
from mooring.inputs.machines.machineinfo_json import machines_of_lines
from mooring.inputs.pods.scenario import Scenario, load_scenarios, scenario

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
