"""``mooring resize``, and what ``mooring show`` draws of releases that wait for their delay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, NODE, PODS, mooring
from tests.documents.validation import complaints

from mooring.engine.checkpoint.cpu_file import cpu_state_text, load_cpu_state
from mooring.engine.core.bits import CPUMask
from mooring.engine.core.moment import Moment
from mooring.engine.cpumanager.state import CPUState, PreAssignment

RESIZING = (*NODE[:2], "--config", str(EXAMPLES / "resizing-kubelet.yaml"))
POD = "core/upf-0/forwarder"
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


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((POD,), "--cpu N"),
        ((POD, "--cpu", "x"), "--cpu"),
        ((POD, "--cpu", "0"), "--cpu"),
        (("nobody", "--cpu", "2"), "there is no pod 'nobody';"),
        (("core/upf-0", "--cpu", "2"), "--cpu forwarder=AMOUNT"),
        (("core/upf-0", "--cpu", "nobody=2"), "has no container 'nobody'"),
        ((POD, "--cpu", "2", "--cpu", "3"), "given twice"),
        ((POD, "--cpu", "mesh=2"), "names container mesh, but POD names forwarder; write POD without /forwarder"),
        (("--cpu", "2"), "mooring: POD: is missing, and there are 11 pods; name one of them, such as core/upf-0"),
    ],
    ids=["nothing", "no amount", "zero", "no pod", "which container", "no container", "twice", "another", "which pod"],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], words: str) -> None:
    assert words in mooring("resize", *arguments, *PODS, *RESIZING, code=2).complaint


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
    pending = PreAssignment(CPUMask(0b01110), Moment(7_500_000_000, "0af3c2e1-0000"), is_written=True)
    inputs = node(tmp_path, pending=pending)[:-2]
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
    pending = PreAssignment(CPUMask(0b01110), Moment(7_500_000_000, "0af3c2e1-0000"), is_written=True)
    inputs = node(tmp_path, cpus=3, pending=pending)
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
    pending = PreAssignment(CPUMask(0b01110), Moment(7_500_000_000, "0af3c2e1-0000"), is_written=True)
    inputs = node(tmp_path, cpus=3, pending=pending)
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
