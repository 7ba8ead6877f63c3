"""``mooring whatif``: before and after side by side, and the nearest changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import NODE, PODS, mooring

SOLVER = "hpc/solver"
RESTRICTED = ("--set", "topologyManagerPolicy=restricted")


def test_the_nearest_changes_of_the_first_refused_pod_are_found() -> None:
    answer = mooring("whatif", *PODS, *NODE, code=0)
    assert answer.out.startswith("ai/inference is not admitted: TopologyAffinityError [MOOR-105]\n")
    assert "Let container load-model of ai/inference request 24" in answer.out
    assert "--ask ai/inference/load-model:cpu=24" in answer.out


def test_every_option_that_is_shown_admits_the_pod() -> None:
    found = mooring("whatif", SOLVER, *PODS, *NODE, "-o", "json").document
    assert found["kind"] == "NearestChanges"
    assert found["pod"]["name"] == "solver"
    assert not found["admitted"]
    assert [proposal["changes"][0]["kind"] for proposal in found["proposals"]] == ["amount", "field", "field"]
    for proposal in found["proposals"]:
        options = [word for change in proposal["changes"] for word in (change["option"], change["value"])]
        after = mooring("whatif", *PODS, *NODE, *options, "-o", "json").document["after"]
        pods = {pod["name"]: pod for pod in after["pods"]}
        assert pods["solver"]["admitted"], proposal["text"]
        assert {name: place["cpus"] for name, place in pods["solver"]["containers"].items()} == {
            name: place["cpus"] for name, place in proposal["containers"].items()
        }


def test_the_limit_limits_and_keeps_the_order() -> None:
    every = mooring("whatif", SOLVER, *PODS, *NODE, "-o", "json").document["proposals"]
    few = mooring("whatif", SOLVER, *PODS, *NODE, "-o", "json", "--limit", "2").document["proposals"]
    assert few == every[:2]


def test_before_and_after_are_shown_side_by_side() -> None:
    answer = mooring("whatif", *PODS, *NODE, *RESTRICTED, code=1)
    lines = answer.out.splitlines()
    assert lines[0] == "Set topologyManagerPolicy to restricted."
    assert any(line.split() == ["hpc/solver", "rejected:", "TopologyAffinityError", "admitted"] for line in lines)
    assert "Before: 8 pods admitted, 3 not." in lines
    assert "After: 9 pods admitted, 2 not." in lines
    assert "core/upf-0" not in answer.out


def test_the_answer_is_yes_when_everybody_is_admitted_afterwards() -> None:
    changes = ("--ask", "timekeeper:cpu=4", "--ask", "solver:cpu=16", "--ask", "inference/load-model:cpu=24")
    assert "11 pods admitted, 0 not." in mooring("whatif", *PODS, *NODE, *changes, code=0).out


def test_the_document_has_both_plans_and_what_differs() -> None:
    document = mooring("whatif", *PODS, *NODE, *RESTRICTED, "--remove", "upf-2", "-o", "json").document
    assert (document["kind"], document["before"]["kind"], document["after"]["kind"]) == ("WhatIf", "Plan", "Plan")
    assert [change["kind"] for change in document["changes"]] == ["field", "removal"]
    states = {one["name"]: (one["before"]["state"], one["after"]["state"]) for one in document["differences"]}
    assert states["solver"] == ("rejected", "admitted")
    assert states["upf-2"] == ("admitted", "absent")
    assert "upf-0" not in states
    keys = {tuple(one[side]) for one in document["differences"] for side in ("before", "after")}
    assert keys == {("state", "reason", "code", "why", "containers", "pod")}


def test_the_order_of_options_does_not_matter() -> None:
    one = mooring("whatif", *PODS, *NODE, *RESTRICTED, "--remove", "upf-0=solver", "--ask", "solver:cpu=36")
    other = mooring("whatif", "--ask", "solver:cpu=36", "--remove", "upf-0=solver", *RESTRICTED, *PODS, *NODE)
    assert one == other


def test_a_kubelet_that_would_not_start_is_the_answer() -> None:
    answer = mooring(
        "whatif", *PODS, *NODE, "--set", "cpuManagerPolicyOptions.distribute-cpus-across-cores=true", code=1
    )
    assert "After: the kubelet would not start." in answer.out
    assert "CPU Manager Policy Alpha-level Options not enabled" in answer.out
    assert "the kubelet then starts (run here)" in " ".join(answer.out.split())


def test_a_policy_changes_on_a_running_node_only_without_its_state_file(tmp_path: Path) -> None:
    state = tmp_path / "state"
    mooring("plan", *PODS, *NODE, "--save-state", state)
    runs = ("--active", PODS[1], "--state", state, *NODE)
    options = ("full-pcpus-only", "prefer-align-cpus-by-uncorecache")
    off = [word for name in options for word in ("--set", f"cpuManagerPolicyOptions.{name}=")]
    change = ("--set", "cpuManagerPolicy=none", *off)
    refused = mooring("whatif", *runs, *change, code=1)
    assert "differs from state checkpoint policy" in " ".join(refused.out.split())
    started = mooring("whatif", *runs, *change, "--fresh-state", "cpu", "-o", "json").document
    assert "startError" not in started["after"]
    assert {one["after"]["state"] for one in started["differences"]} == {"admitted"}


def test_the_node_after_a_change_can_be_drawn(tmp_path: Path) -> None:
    target = tmp_path / "after.svg"
    assert mooring("whatif", *PODS, *NODE, *RESTRICTED, "-o", "svg", "--to", target).code == 1
    assert "hpc/solver/rank" in target.read_text()


def test_nothing_has_to_change_for_an_admitted_pod() -> None:
    answer = mooring("whatif", "upf-0", *PODS, *NODE)
    assert (answer.code, answer.out) == (0, "core/upf-0 is admitted: nothing needs to change.\n")
    document = mooring("whatif", "upf-0", *PODS, *NODE, "-o", "json").document
    assert (document["admitted"], document["proposals"]) == (True, [])


def test_nothing_has_to_change_when_everybody_is_admitted(tmp_path: Path) -> None:
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web"}, "spec": {"containers": [{"name": "app"}]}}
    (tmp_path / "web.json").write_text(json.dumps(pod))
    given = ("-f", tmp_path / "web.json", *NODE)
    assert mooring("whatif", *given).out == "Every pod is admitted: nothing needs to change.\n"
    assert mooring("whatif", *given, "-o", "json").document["pod"] is None
    answer = mooring("whatif", *given, "--ask", "web:cpu=500", code=1)
    assert "OutOfcpu" in mooring("whatif", *given, "--ask", "web:cpu=500", "--ask", "web:memory=1Gi").out + answer.out


def test_no_change_found_is_a_no(tmp_path: Path) -> None:
    containers = [
        {"name": name, "resources": {"limits": {"cpu": "200", "memory": "1Gi"}}} for name in ("one", "other", "third")
    ]
    pod = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "huge"}, "spec": {"containers": containers}}
    (tmp_path / "huge.json").write_text(json.dumps(pod))
    assert "No small change was found" in mooring("whatif", "-f", tmp_path / "huge.json", *NODE, code=1).out


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(columns: int) -> None:
    for arguments in ((SOLVER,), RESTRICTED, ("--move", "upf-0=inference")):
        text = mooring("whatif", *arguments, *PODS, *NODE, columns=columns).out
        # The options of commands are not broken.
        assert max(len(line) for line in text.splitlines() if not line.lstrip().startswith("-")) <= columns


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("nobody",), "mooring: there is no pod 'nobody'; there are core/upf-0"),
        (("solvr",), "mooring: there is no pod 'solvr'; did you mean hpc/solver?"),
        (("upf-*",), "mooring: 'upf-*' means 3 pods: core/upf-0, core/upf-1, core/upf-2; name one of them"),
        ((SOLVER, *RESTRICTED, "-o", "svg"), "mooring whatif: -o svg draws the node after a change: give one, without"),
        ((*RESTRICTED, "--limit", "3"), "mooring whatif: --limit is for changes that are searched: give POD"),
        (("-o", "svg"), "mooring whatif: -o svg draws the node after a change: give one"),
        (("--ask", "inference:cpu=2"), "--ask: ai/inference has several containers; name one of load-model, server"),
        (("--ask", "solver/rang:cpu=2"), "--ask: hpc/solver has no container 'rang'; it has rank"),
        (("--ask", "solver:cpus=2"), "--ask: hpc/solver: limits.cpus: is not a container resource; did you mean cpu?"),
        (("--ask", "solver:cpu=-2"), "--ask: hpc/solver: limits.cpu: must not be negative, but is -2"),
        (("--set", "policy=none"), "--set: 'policy' cannot be set; "),
        (("--remove", "solver", "--move", "solver"), "what becomes of hpc/solver is changed twice"),
        (("--first", "solver=nobody"), "--first: there is no pod 'nobody'"),
        (
            ("--device", "vendor.example/gpu=0"),
            "--device: no devices of vendor.example/gpu are declared; declared are none",
        ),
        (("--limit", "0"), "'--limit': 0 is not in the range"),
    ],
)
def test_bad_input_is_reported_in_one_line(arguments: tuple[str, ...], complaint: str) -> None:
    answer = mooring("whatif", *arguments, *PODS, *NODE, code=2)
    assert complaint in answer.complaint
    assert answer.out == ""


def test_a_question_without_pods_has_no_answer() -> None:
    answer = mooring("whatif", *NODE, code=2)
    assert answer.complaint == "mooring: there is no pod to evaluate; give pods with -f, --active or --node"


EIGHT = "sockets=2 numa=8 cores=128 threads=2 memory=2048Gi"
GPUS = """
kind: KubeletConfiguration
cpuManagerPolicy: static
memoryManagerPolicy: Static
topologyManagerPolicy: restricted
topologyManagerScope: pod
reservedSystemCPUs: "0,128"
kubeReserved: {memory: 924Mi}
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
---
apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  nvidia.com/gpu:
"""


def test_two_requests_are_changed_together_where_neither_helps_alone(tmp_path: Path) -> None:
    """GPUs are on 4 of 8 NUMA nodes; restricted wants CPUs and memory of exactly these."""
    gpus = "".join(f"  - {{id: g{number}, numa: [{number % 4 * 2 + 1}]}}\n" for number in range(8))
    (tmp_path / "kubelet.yaml").write_text(GPUS + gpus)
    (tmp_path / "pod.yaml").write_text(
        "{apiVersion: v1, kind: Pod, metadata: {name: worker}, spec: {containers: ["
        "{name: main, resources: {limits: {cpu: 240, memory: 1800Gi, nvidia.com/gpu: 8}}}]}}"
    )
    node = ("-f", tmp_path / "pod.yaml", "--machine", EIGHT, "--config", tmp_path / "kubelet.yaml")
    found = mooring("whatif", "worker", *node, "-o", "json").document
    options = [(one["option"], one["value"]) for one in found["proposals"][0]["changes"]]
    assert options == [("--ask", "default/worker/main:cpu=128"), ("--ask", "default/worker/main:memory=1Ti")]
    assert found["proposals"][0]["containers"]["main"]["mems"] == "1,3,5,7"
    words = [word for option in options for word in option]
    assert mooring("whatif", *node, *words).code == 0
