"""The steps of a report are the node after the first pods, the next pod, and so on; nothing is told twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.plans import refused_plan, started_plan
from tests.render.report_steps import cpu_states

from mooring.answers.base.picture import plan_view
from mooring.answers.base.plan import Question
from mooring.answers.base.report import machine_report, report_of
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pod_files import load_pods
from mooring.views.report import ReportCPU, ReportView
from mooring.views.view import CPUUse, NodeView

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HUGE_PAGES = "sockets=2 numa=4 cores=64 threads=2 l3=16 memory=256Gi hugepages-2Mi=4096"


def question(name: str) -> Question:
    prefix, machine = {
        "telco": ("", "epyc-7763-2s-nps4"),
        "ai": ("ai-", HUGE_PAGES),
        # With threads that are hidden for a pod.
        "hybrid": ("plugins/hybrid-", "i7-1370p"),
    }[name]
    loaded = load_machine(machine)
    configuration = load_config(str(EXAMPLES / f"{prefix}kubelet.yaml"))
    pods = load_pods([str(EXAMPLES / f"{prefix}pods.yaml")])
    devices = offered_devices(configuration.devices, loaded)
    return Question(loaded, configuration.kubelet, configuration.mooring, tuple(pods), devices=devices)


def drawn(view: NodeView) -> dict[int, tuple[CPUUse, tuple[str, ...]]]:
    """Return use and owners of every CPU of a picture, by name."""
    return {
        cpu.cpu: (
            cpu.use,
            tuple(view.owners[owner].label for owner in (cpu.owner, *cpu.other_owners) if owner is not None),
        )
        for cpu in view.cpus()
    }


def told(report: ReportView, step: int) -> dict[int, tuple[CPUUse, tuple[str, ...]]]:
    """Return the same of a step of a report."""
    states = cpu_states(report, step)
    return {
        cpu: (state.use, tuple(report.node.owners[owner].label for owner in state.owners))
        for cpu, state in states.items()
    }


@pytest.mark.parametrize("name", ["telco", "ai", "hybrid"])
def test_each_step_is_the_picture_of_a_plan_that_ends_there(name: str) -> None:
    asked = question(name)
    report = report_of(started_plan(asked))
    assert len(report.steps) == len(asked.pods) + 1
    for step in range(len(report.steps)):
        assert told(report, step) == drawn(plan_view(started_plan(replace(asked, pods=asked.pods[:step]))))


@pytest.mark.parametrize("name", ["telco", "ai", "hybrid"])
def test_the_report_draws_the_node_that_show_draws(name: str) -> None:
    plan = started_plan(question(name))
    report = report_of(plan)
    assert drawn(report.node) == drawn(plan_view(plan))
    assert {cpu.cpu for cpu in report.node.cpus()} == set(cpu_states(report, 0))


def test_a_step_names_only_what_became_different() -> None:
    report = report_of(started_plan(question("ai")))
    for step in range(1, len(report.steps)):
        before, after = cpu_states(report, step - 1), cpu_states(report, step)
        changed = {cpu for change in report.steps[step].cpus for cpu in change.cpus}
        assert changed == {cpu for cpu in after if after[cpu] != before[cpu]}


def test_pods_have_the_answers_of_the_plan() -> None:
    plan = started_plan(question("telco"))
    for step, (pod, answer) in enumerate(zip(report_of(plan).pods, plan.answers, strict=True), 1):
        assert (pod.step, pod.admitted, pod.uid) == (step, answer.admitted, answer.pod.uid)
        assert (pod.reason, pod.message) == (answer.decision.reason, answer.decision.message)
        assert pod.why == answer.why
        held = {row.container: row.cpus for row in pod.containers}
        placed = {name: placement.cpus for name, placement in answer.decision.containers.items()}
        assert held == (placed if answer.admitted else {})


def test_accounts_add_up_to_those_of_the_memory_manager() -> None:
    plan = started_plan(question("ai"))
    report = report_of(plan)
    now = {index: state for step in report.steps for index, state in step.accounts}
    assert report.accounted
    assert {account.resource for account in report.accounts} == {"memory", "hugepages-2Mi"}
    for index, account in enumerate(report.accounts):
        node = plan.kubelet.node.memory.nodes[account.node]
        table = node.memory[account.resource]
        assert (now[index].assigned, now[index].free, now[index].group) == (table.reserved, table.free, node.cells)
        assert account.allocatable == now[index].assigned + now[index].free


def test_devices_are_with_their_holders() -> None:
    report = report_of(started_plan(question("ai")))
    now = {index: holder for step in report.steps for index, holder in step.devices}
    held = {report.devices[index].id: holder for index, holder in now.items()}
    assert held == {"gpu-0": "ai/train-0/worker", "gpu-1": "ai/train-1/worker", "gpu-2": "ai/train-2/worker"}


def test_running_pods_keep_what_the_files_say_until_they_are_asked() -> None:
    first = replace(question("telco"), pods=question("telco").pods[:3])
    files = started_plan(first).files
    again = replace(first, pods=(), active=first.pods, files=files)
    report = report_of(started_plan(again))
    states = [told(report, step) for step in range(4)]
    assert states[0] == states[3] == told(report_of(started_plan(first)), 3)
    assert [pod.verdict for pod in report.pods] == ["runs already"] * 3


def test_a_kubelet_that_does_not_start_is_reported_with_its_message() -> None:
    asked = question("telco")
    plan = refused_plan(replace(asked, config=replace(asked.config, reserved_system_cpus="")))
    report = report_of(plan)
    assert plan.refusal.message in report.refusal
    assert len(report.steps) == 1
    assert {pod.verdict for pod in report.pods} == {"not asked"}
    assert all(pod.step is None for pod in report.pods)


def test_a_machine_alone_has_one_step_and_its_distances() -> None:
    report = machine_report(load_machine("epyc-7763-2s-nps4"))
    assert set(cpu_states(report, 0).values()) == {ReportCPU(CPUUse.SHARED)}
    assert report.distances is not None
    assert report.distances.nodes == tuple(range(8))
    assert report.distances.rows[0] == (10, 12, 12, 12, 32, 32, 32, 32)
    assert not report.accounted
