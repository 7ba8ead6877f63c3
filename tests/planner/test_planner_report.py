"""The steps of a report are the node after the first pods, the next pod, and so on; nothing is told twice."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.plans import started_plan
from tests.render.report_steps import cpu_states

from mooring.answers.base.picture import devices_before, plan_view
from mooring.answers.base.plan import Plan, Question
from mooring.answers.base.pods import explain
from mooring.answers.base.report import report_of
from mooring.answers.base.rows import plan_rows
from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Machine
from mooring.engine.core.pod import Pod
from mooring.inputs.configuration.devices import offered_devices
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine
from mooring.inputs.pods.pod_files import load_pods
from mooring.views.decision import DecisionPanel, DecisionView, Mark, decision_view
from mooring.views.report import ReportView, report_data
from mooring.views.svg.decision import decision_svg
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
    return asked_of(machine, EXAMPLES / f"{prefix}kubelet.yaml", EXAMPLES / f"{prefix}pods.yaml")


def asked_of(machine: str, config: Path, pods: Path) -> Question:
    """Return the question of three files, with the devices that the configuration declares."""
    loaded, read = load_machine(machine), load_config(str(config))
    devices = offered_devices(read.devices, loaded)
    return Question(loaded, read.kubelet, read.mooring, tuple(load_pods([str(pods)])), devices=devices)


def drawn(view: NodeView) -> dict[int, tuple[CPUUse, tuple[str, ...]]]:
    """Return use and owners of every CPU of a picture, by name."""
    return {
        cpu.cpu: (
            cpu.use,
            tuple(view.owners[owner].label for owner in cpu.owners),
        )
        for cpu in view.cpus()
    }


def told(report: ReportView, step: int) -> dict[int, tuple[CPUUse, tuple[str, ...]]]:
    """Return the same of a step of a report."""
    return {
        cpu: (state.use, tuple(report.node.owners[owner].label for owner in state.owners))
        for cpu, state in cpu_states(report, step).items()
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
        changed = {view.cpu for views in report.steps[step].cpus for view in views}
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
    data = report_data(report_of(plan))
    now = {change.pop("account"): change for step in data["steps"] for change in step["accounts"]}
    assert data["accounted"]
    assert {account["resource"] for account in data["accounts"]} == {"memory", "hugepages-2Mi"}
    for index, account in enumerate(data["accounts"]):
        node = plan.kubelet.node.memory.nodes[account["node"]]
        table = node.memory[account["resource"]]
        assert now[index] == {"assigned": table.reserved, "free": table.free, "group": [*node.cells]}
        assert account["allocatable"] == table.reserved + table.free


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


# Devices, init containers and hypothetical pods in the pictures of plans.


MACHINE = "sockets=2 numa=8 cores=64 threads=2 memory=64Gi"

DEVICES = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: {policy}
reservedSystemCPUs: "0"
---
apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  x.example/gpu:
    - {{id: gpu-0, numa: [0]}}
    - {{id: gpu-1, numa: [1]}}
    - {{id: gpu-2, numa: [1], unhealthy: true}}
    - {{id: "0000:3b:00.0"}}
"""


def pod(name: str, gpus: int, *, init: int = 0, cpus: int = 4) -> str:
    limits = f"{{cpu: {cpus}, memory: 1Gi, x.example/gpu: {gpus}}}" if gpus else f"{{cpu: {cpus}, memory: 1Gi}}"
    first = f"initContainers: [{{name: load, resources: {{limits: {{cpu: {init}, memory: 1Gi}}}}}}], " if init else ""
    return (
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: ai}}, "
        f"spec: {{{first}containers: [{{name: main, resources: {{limits: {limits}}}}}]}}}}\n---\n"
    )


def planned(folder: Path, pods: str, policy: str = "single-numa-node") -> Plan:
    (folder / "kubelet.yaml").write_text(DEVICES.format(policy=policy), encoding="utf-8")
    (folder / "pods.yaml").write_text(pods, encoding="utf-8")
    return started_plan(asked_of(MACHINE, folder / "kubelet.yaml", folder / "pods.yaml"))


def decided(plan: Plan, place: int) -> DecisionView:
    asked = plan.answers[place].pod
    before = devices_before(plan, asked.uid)
    return decision_view(explain(plan, asked), range(8), plan.kubelet.settings.topology, devices=before)


def texts(panel: DecisionPanel, name: str) -> list[tuple[str, str]]:
    [row] = [row for row in panel.rows if row.name == name]
    return [(cell.text, cell.more) for cell in row.cells]


def test_a_refusal_for_devices_names_what_each_numa_node_has_and_whose_they_are(tmp_path: Path) -> None:
    view = decided(planned(tmp_path, pod("one", 1) + pod("two", 2)), 1)
    [panel] = view.panels
    assert texts(panel, "x.example/gpu")[:3] == [("0/1 free", ""), ("1/2 free", "1 unhealthy"), ("0 free", "")]
    assert view.notes[-3:] == (
        "x.example/gpu on NUMA node 0: 1 in use by ai/one/main (gpu-0)",
        "x.example/gpu on NUMA node 1: 1 free (gpu-1); 1 unhealthy (gpu-2)",
        "x.example/gpu on no known NUMA node: 1 free (0000:3b:00.0)",
    )
    assert decision_svg(view).count("1/2 free") >= 1


def test_devices_that_are_too_few_have_a_row_without_any_hint(tmp_path: Path) -> None:
    enough = decided(planned(tmp_path, pod("one", 1), policy="none"), 0)
    assert [row.name for row in enough.panels[0].rows] == ["x.example/gpu allocated", "CPUs allocated"]
    assert enough.notes == ()
    view = decided(planned(tmp_path, pod("one", 4), policy="none"), 0)
    [row] = view.panels[0].rows
    assert (row.name, row.note) == ("x.example/gpu", "4 requested, 3 free on the node")
    assert {cell.mark for cell in row.cells} == {Mark.BARRED}
    assert view.panels[0].refused


def test_the_numa_node_of_an_init_container_is_marked_with_what_counts_there(tmp_path: Path) -> None:
    view = decided(planned(tmp_path, pod("one", 0, init=8, cpus=12) + pod("two", 0, init=4, cpus=16)), 1)
    last = view.panels[-1]
    [row] = [row for row in last.rows if row.name == "cpu"]
    required = [(place, cell.text, cell.more) for place, cell in enumerate(row.cells) if cell.required]
    assert required == [(1, "12 free", "+4 own")]
    picture = decision_svg(view)
    assert "◆ NUMA 1" in picture
    assert "required: earlier containers" in picture


def test_eight_numa_nodes_stand_in_one_row(tmp_path: Path) -> None:
    picture = decision_svg(decided(planned(tmp_path, pod("one", 1)), 0))
    heights = re.findall(r'class="node-title" x="[^"]*" y="([^"]*)"[^>]*>NUMA [0-7]<', picture)
    assert len(heights) == 8 * len(set(heights))


def alignment(machine: Machine, cpus: int) -> str:
    """Return what a plan says of a container with CPUs 1 and up."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    [row] = plan_rows(started_plan(Question(machine, config, pods=(Pod.of("web", cpus, "1Gi"),))), wide=False)
    assert len(row.cpus) == cpus
    return row.alignment


@pytest.mark.parametrize(
    ("caches", "cpus", "said"),
    [
        ("sockets=2 l3=2", 2, "whole cores, one L3"),
        ("sockets=2 l3=2", 6, "whole cores, one L3"),
        # The kubelet knows no L3 of less than a socket here.
        ("sockets=2 l3=4", 2, "whole cores, one L3"),
        ("sockets=2 l3=4", 6, "whole cores"),
        ("sockets=2 l3=8", 2, "whole cores"),
        ("sockets=1 l3=1", 2, "whole cores"),
    ],
)
def test_one_l3_is_said_where_the_machine_has_several_and_one_holds_the_cpus(caches: str, cpus: int, said: str) -> None:
    assert alignment(load_machine(f"{caches} numa=4 cores=16 memory=64Gi"), cpus) == said


def test_no_l3_is_said_of_a_machine_that_lists_no_cache() -> None:
    info = load_machine("sockets=2 numa=2 cores=8 memory=16Gi").info
    nodes = (
        replace(node, caches=(), cores=tuple(replace(core, caches=(), uncore_caches=()) for core in node.cores))
        for node in info.topology
    )
    assert alignment(Machine("bare", replace(info, topology=tuple(nodes))), 2) == "whole cores"
