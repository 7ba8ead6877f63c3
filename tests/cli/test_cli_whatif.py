"""``mooring whatif``: before and after side by side, and the nearest changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, mooring
from tests.cli.given import STATIC, container, given, pod, written
from tests.documents.validation import complaints

from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment

SOLVER = "hpc/solver"
RESTRICTED = ("--set", "topologyManagerPolicy=restricted")


def test_the_limit_limits_and_keeps_the_order() -> None:
    every = mooring("whatif", SOLVER, *PODS, *NODE, "-o", "json").document["proposals"]
    few = mooring("whatif", SOLVER, *PODS, *NODE, "-o", "json", "--limit", "2").document["proposals"]
    assert few == every[:2]


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
    asked = ("-f", written(tmp_path / "web.json", pod("web")), *NODE)
    assert mooring("whatif", *asked).out == "Every pod is admitted: nothing needs to change.\n"
    assert mooring("whatif", *asked, "-o", "json").document["pod"] is None
    answer = mooring("whatif", *asked, "--ask", "web:cpu=500", code=1)
    assert "OutOfcpu" in mooring("whatif", *asked, "--ask", "web:cpu=500", "--ask", "web:memory=1Gi").out + answer.out


def test_no_change_found_is_a_no(tmp_path: Path) -> None:
    three = [container(name, {"cpu": "200", "memory": "1Gi"}) for name in ("one", "other", "third")]
    huge = written(tmp_path / "huge.json", pod("huge") | {"spec": {"containers": three}})
    assert "No small change was found" in mooring("whatif", "-f", huge, *NODE, code=1).out


EIGHT = "sockets=2 numa=8 cores=128 threads=2 memory=2048Gi"
GPUS: dict[str, Any] = {
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "reservedSystemCPUs": "0,128",
    "kubeReserved": {"memory": "924Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi"}}],
}


def test_two_requests_are_changed_together_where_neither_helps_alone(tmp_path: Path) -> None:
    """GPUs are on 4 of 8 NUMA nodes; restricted wants CPUs and memory of exactly these."""
    gpus = [{"id": f"g{number}", "numa": [number % 4 * 2 + 1]} for number in range(8)]
    devices = {"apiVersion": "mooring/v1alpha1", "kind": "NodeDevices", "devices": {"nvidia.com/gpu": gpus}}
    worker = pod("worker", 240, "1800Gi", limits={"nvidia.com/gpu": 8})
    node = given(tmp_path, worker, machine=EIGHT, kubelet=STATIC | GPUS, more=(devices,))
    found = mooring("whatif", "worker", *node, "-o", "json").document
    options = [(one["option"], one["value"]) for one in found["proposals"][0]["changes"]]
    assert options == [("--ask", "default/worker/app:cpu=128"), ("--ask", "default/worker/app:memory=1Ti")]
    assert found["proposals"][0]["containers"]["app"]["mems"] == "1,3,5,7"
    words = [word for option in options for word in option]
    assert mooring("whatif", *node, *words).code == 0


# ``mooring resize``, and what ``mooring show`` draws of releases that wait for their delay.


RESIZING = (*NODE[:2], "--config", str(EXAMPLES / "resizing-kubelet.yaml"))
SIXTEEN = "sockets=1 cores=16 threads=1 memory=16Gi"
KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
featureGates:
  InPlacePodVerticalScalingExclusiveCPUs: true
  InPlacePodVerticalScalingExclusiveCPUsScaleDownDelay: true
---
apiVersion: mooring/v1alpha1
kind: MooringConfiguration
extensions: [exclusive-resize, scale-down-delay]
"""
POD_FILE = """\
apiVersion: v1
kind: Pod
metadata:
  {name: web, uid: web, annotations: {mooring/scale-down-grace-period-seconds: "5"}}
spec: {containers: [{name: app, resources: {limits: {cpu: "CPUS", memory: 1Gi}}}]}
"""


def node(folder: Path, cpus: int = 4, pending: PreAssignment | None = None) -> tuple[str, ...]:
    """Return the options of a node on which a pod has CPUs 1 to 4, the first two of them at first."""
    releases = {"web": {"app": pending}} if pending is not None else {}
    state = CPUState(
        "static", CPUMask(0xFFE1), {"web": {"app": CPUMask(0b11110)}}, {}, {"web": {"app": CPUMask(0b00110)}}, releases
    )
    (folder / "cpu_manager_state").write_text(cpu_state_text(state, pod_level=False, baselines=True), "utf-8")
    (folder / "kubelet.yaml").write_text(KUBELET, "utf-8")
    (folder / "web.yaml").write_text(POD_FILE.replace("CPUS", str(cpus)), "utf-8")
    config = str(folder / "kubelet.yaml")
    return "--machine", SIXTEEN, "--config", config, "--state", str(folder), "--active", str(folder / "web.yaml")


PENDING = PreAssignment(CPUMask(0b01110), Moment(7_500_000_000, "0af3c2e1-0000"), is_written=True)


def test_a_container_of_the_shared_pool_has_a_largest_size_too(tmp_path: Path) -> None:
    log = "{name: log, resources: {limits: {cpu: 500m, memory: 1Gi}}}"
    (tmp_path / "kubelet.yaml").write_text(KUBELET, "utf-8")
    (tmp_path / "web.yaml").write_text(POD_FILE.replace("CPUS", "2").replace("]}\n", f", {log}]}}\n"), "utf-8")
    asked = ("web", "--machine", SIXTEEN, "--config", tmp_path / "kubelet.yaml", "-f", tmp_path / "web.yaml")
    assert "\nlog can have at most 12999m of CPU now.\n" in mooring("resize", *asked, "--cpu", "log=700m").out
    both = mooring("resize", *asked, "--cpu", "log=700m", "--cpu", "app=4", "-o", "json").document["containers"]
    assert [one["largest"] for one in both] == [
        {"cpus": 14, "memoryBytes": None, "milliCPUs": None},
        {"cpus": None, "memoryBytes": None, "milliCPUs": 12999},
    ]


def test_a_shrink_tells_what_goes_back_later(tmp_path: Path) -> None:
    answered = mooring("resize", "web", "--cpu", "3", *node(tmp_path), code=0)
    assert "default/web to app cpu 3: accepted." in answered.out
    assert "app        cpu 4 → 3  4: 1-4    3: 1-3     1-2" in answered.out
    assert "app keeps CPU 4 for at least 5s; no other container gets it before." in answered.out
    document = mooring("resize", "web", "--cpu", "3", *node(tmp_path), "-o", "json").document
    assert document["condition"] == "PodResizeInProgress"
    assert document["events"] == ["ResizeStarted"]
    (container,) = document["containers"]
    assert container["pending"] == {"cpus": "1-3", "delayMilliseconds": 5000}
    assert (container["after"]["cpus"], container["baseline"]) == ("1-4", "1-2")


def test_a_shrink_below_the_baseline_is_refused(tmp_path: Path) -> None:
    answered = mooring("resize", "web", "--cpu", "1", *node(tmp_path), code=1)
    assert "[MOOR-182]" in answered.out
    assert "Not allowed to reduce container exclusively allocated pool below original" in " ".join(answered.out.split())


def test_nothing_is_written(tmp_path: Path) -> None:
    inputs = node(tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    mooring("resize", "web", "--cpu", "3", *inputs)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


OF_THE_WHOLE_POD = """\
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  resources: {requests: {cpu: 2, memory: 1Gi}, limits: {cpu: 4, memory: 2Gi}}
  containers: [{name: app, resources: {requests: {cpu: 1, memory: 512Mi}}}]
"""


def test_containers_request_no_more_than_their_pod(tmp_path: Path) -> None:
    (tmp_path / "web.yaml").write_text(OF_THE_WHOLE_POD, "utf-8")
    asked = "resize", "web", "-f", tmp_path / "web.yaml", "--machine", SIXTEEN
    refused = mooring(*asked, "--cpu", "10")
    problem = "spec.resources.requests.cpu: 2 is less than the containers' requests of 10\n"
    assert (refused.code, refused.err) == (2, f"mooring: {problem}")
    taken = mooring(*asked, "--cpu", "1500m", "--memory", "600Mi")
    assert (taken.code, "app can have at most 2 CPUs or 1 GiB of memory now." in taken.out) == (0, True)


def test_static_pods_cannot_be_resized(tmp_path: Path) -> None:
    mirror = OF_THE_WHOLE_POD.replace("name: web", "name: web, annotations: {kubernetes.io/config.mirror: abc}", 1)
    (tmp_path / "web.yaml").write_text(mirror, "utf-8")
    refused = mooring("resize", "--cpu", "2", "-f", tmp_path / "web.yaml", "--machine", SIXTEEN)
    assert (refused.code, refused.err) == (2, "mooring: static pods cannot be resized; change the pod's manifest\n")


def test_an_older_kubelet_refuses_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(KUBELET.partition("featureGates")[0], "utf-8")
    (tmp_path / "web.yaml").write_text(POD_FILE.replace("CPUS", "2"), "utf-8")
    asked = ("resize", "web", "--machine", SIXTEEN, "--config", tmp_path / "kubelet.yaml", "-f", tmp_path / "web.yaml")
    static = mooring(*asked, "--memory", "2Gi", "--kubelet-version", "1.33", columns=120)
    assert "Infeasible, guaranteed_pod_cpu_manager_static_policy [MOOR-181]" in static.out
    assert "static policy”." in static.out
    beyond = mooring(*asked, "--memory", "20Gi", "--kubelet-version", "1.34", columns=120)
    assert "Infeasible, insufficient_node_allocatable [MOOR-142]" in beyond.out
    assert (
        "The pod would request 20 GiB of memory, more than the 16 GiB of memory that the whole node has" in beyond.out
    )


def test_a_pod_that_does_not_run_cannot_be_resized() -> None:
    answered = mooring("resize", "hpc/solver", "--cpu", "2", *PODS, *RESIZING, code=1)
    assert "hpc/solver does not run and cannot be resized." in answered.out


def test_show_tells_what_a_container_had_at_first_and_what_goes_back(tmp_path: Path) -> None:
    inputs = node(tmp_path, pending=PENDING)[:-2]
    answered = mooring("show", *inputs)
    assert "1a  2a  3a  4A" in answered.out
    assert "CPUs with capital letters are released when a scale-down delay is over." in answered.out
    told = " ".join(answered.out.split())
    assert (
        "web/app has CPUs 1-4 (baseline 1-2); CPU 4 is released 7.5 s after the machine started (boot 0af3c2e1)" in told
    )
    assert "released when the delay is over" in mooring("show", *inputs, "-o", "svg").out


def test_a_release_that_went_on_after_a_restart_is_told_from_now(tmp_path: Path) -> None:
    answered = mooring("show", *node(tmp_path, cpus=3))
    # The pod asks for three: without a moment that is known the delay begins anew.
    assert "CPU 4 is released in 5 s or a little later." in " ".join(answered.out.split())


def test_nothing_is_said_where_nobody_was_resized() -> None:
    answered = mooring("show", *PODS, *NODE)
    assert "baseline" not in answered.out
    assert "released" not in answered.out


def test_the_doctor_knows_releases_with_the_extension_only(tmp_path: Path) -> None:
    inputs = node(tmp_path, cpus=3, pending=PENDING)
    sound = mooring("doctor", *inputs, code=0)
    assert "MOOR-307" not in sound.out
    assert "MOOR-343" not in sound.out
    (tmp_path / "kubelet.yaml").write_text(KUBELET.partition("---")[0].rpartition("  InPlace")[0], "utf-8")
    plain = mooring("doctor", *inputs)
    assert "MOOR-307" in plain.out
    assert "MOOR-343" in plain.out
    for release in ("1.36", "1.35"):
        assert mooring("doctor", *inputs, "--kubelet-version", release).code == 0


def test_a_repair_keeps_releases(tmp_path: Path) -> None:
    inputs = node(tmp_path, cpus=3, pending=PENDING)
    file = tmp_path / "cpu_manager_state"
    whole = file.read_text("utf-8")
    state = load_cpu_state(whole, policy="static", pod_level=False, baselines=True, releases=True)
    assert isinstance(state, CPUState)
    overlapping = replace(state, default=state.default | 0b10)
    file.write_text(cpu_state_text(overlapping, pod_level=False, baselines=True), "utf-8")
    assert mooring("doctor", *inputs).code == 1
    assert mooring("doctor", *inputs, "--write").code == 0
    assert file.read_text("utf-8") == whole


@pytest.mark.parametrize("cpus", [1, 3, 4, 6], ids=["too few", "fewer", "same", "more"])
def test_an_explanation_of_a_resumed_resize_is_what_its_schema_says(tmp_path: Path, cpus: int) -> None:
    answered = mooring("explain", "web", *node(tmp_path, cpus=cpus), "-o", "json")
    assert answered.code == (1 if cpus == 1 else 0)
    assert complaints("Explanation", answered.document) == []
    told = {fact["fact"] for fact in answered.document["facts"]}
    assert ("ScaleDownStarted" in told, "CPUsMoved" in told) == (cpus == 3, cpus == 6)
