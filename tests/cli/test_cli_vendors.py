"""Each example of a vendor's configuration is planned with, and every verb that reads a configuration takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring

from mooring.engine.core.cpuset import CPUSet
from mooring.inputs.archive.reader import KUBELET_CONFIG

VENDORS = EXAMPLES / "vendors"
MACHINE = ("--machine", "sockets=2 numa=2 cores=24 threads=2 memory=64Gi")
ALONE = sorted(
    file.name
    for file in VENDORS.iterdir()
    if file.is_file() and file.name not in {"kubelet.yaml", "kubelet-command-line.txt"}
)
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "app"},
    "spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "4", "memory": "1Gi"}}}]},
}
"""Asks for CPUs of its own."""


@pytest.fixture
def pods(tmp_path: Path) -> str:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(POD))
    return str(file)


@pytest.mark.parametrize("name", ALONE)
def test_an_example_gives_a_container_its_cpus(name: str, pods: str) -> None:
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", str(VENDORS / name), "-o", "json")
    container = answered.document["pods"][0]["containers"]["app"]
    assert (answered.code, len(CPUSet.parse(container["cpus"]))) == (0, 4), answered.err


def test_a_file_drop_ins_and_flags_are_one_configuration_with_origins(pods: str) -> None:
    given = [str(VENDORS / name) for name in ("kubelet-command-line.txt", "kubelet.conf.d", "kubelet.yaml")]
    answered = mooring(
        "plan", "-v", "-f", pods, *MACHINE, *(word for path in given for word in ("--config", path)), columns=400
    )
    rows = [line.split() for line in answered.out.partition("configuration in force")[2].splitlines()[1:]]
    origins = {row[0]: (row[1], Path(row[2]).name) for row in rows if len(row) == 3}
    assert origins["cpuManagerPolicy"] == ("static", "10-pinning.conf:3:1")
    assert origins["kubeReserved.memory"] == ("512Mi", "kubelet.yaml:4:27")
    assert origins["maxPods"] == ("40", "kubelet-command-line.txt:1")


@pytest.mark.parametrize(
    "words",
    [
        ("capacity", "--shape", "cpu=4,memory=1Gi"),
        ("show",),
        ("explain", "app"),
        ("whatif",),
        ("compare", "--with", ""),
    ],
    ids=lambda words: str(words[0]),
)
def test_every_verb_reads_what_a_plan_reads(words: tuple[str, ...], pods: str) -> None:
    config = str(VENDORS / "gke-system-config.yaml")
    given = [word or config for word in words]
    asked = ("-f", pods) if words[0] != "capacity" else ()
    answered = mooring(*given, *asked, *MACHINE, "--config", config)
    assert answered.code in (0, 1), answered.err
    assert "reserves CPU and memory by the size of the machine" in answered.err


def test_an_archive_keeps_what_a_vendors_file_comes_to(tmp_path: Path) -> None:
    folder = EXAMPLES / "node"
    packed = tmp_path / "node.tar.gz"
    config = ("--config", str(VENDORS / "talos-worker.yaml"))
    answered = mooring("collect", "--root", str(folder), "--no-kubectl", *config, "--to", str(packed))
    assert answered.code == 0, answered.err
    shown = mooring("plan", "--node", str(packed), "-f", str(EXAMPLES / "pods.yaml"), "-v").out
    assert "systemReserved.memory" in shown
    assert KUBELET_CONFIG in shown


def test_strict_refuses_a_misspelt_field_of_a_wrapper(pods: str, tmp_path: Path) -> None:
    file = tmp_path / "gke.yaml"
    file.write_text("kubeletConfig:\n  cpuManagerPolicys: static\n")
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", str(file), "--strict")
    assert answered.code == 2
    assert (
        "gke.yaml:2:3: GKEKubeletConfig has no field cpuManagerPolicys; did you mean cpuManagerPolicy?" in answered.err
    )


UNKNOWN = "failed to parse kubelet flag: unknown flag: --pod-infra-container-image"
WAYS = {
    "kubeadm-flags.env": 'KUBELET_KUBEADM_ARGS="--pod-infra-container-image=pause:3.10"\n',
    "k3s.yaml": 'kubelet-arg: ["pod-infra-container-image=pause:3.10"]\n',
    "kubelet.service": "[Service]\nExecStart=/usr/bin/kubelet --pod-infra-container-image=pause:3.10\n",
    "kubeadm.yaml": """
apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
nodeRegistration: {kubeletExtraArgs: [{name: pod-infra-container-image, value: "pause:3.10"}]}
""",
    "talos.yaml": """
version: v1alpha1
machine: {type: worker, kubelet: {extraArgs: {pod-infra-container-image: pause:3.10}}}
cluster: {}
""",
}
"""File -> flags of a kubelet, as a vendor writes them."""


@pytest.mark.parametrize("name", WAYS)
def test_a_flag_that_the_release_lacks_ends_the_kubelet_whichever_file_has_it(
    name: str, pods: str, tmp_path: Path
) -> None:
    file, config = tmp_path / name, tmp_path / "kubelet.yaml"
    file.write_text(WAYS[name])
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")
    beside = () if name == "talos.yaml" else ("--config", config)
    given = ("-f", pods, *MACHINE, "--config", file, *beside)
    answered = mooring("plan", *given, "--kubelet-version", "1.35", "-o", "json")
    assert (answered.code, answered.document["startError"]) == (1, UNKNOWN)
    assert "startError" not in mooring("plan", *given, "--kubelet-version", "1.34", "-o", "json").document
    explained = " ".join(mooring("explain", "app", *given, "--kubelet-version", "1.35", columns=400).out.split())
    assert UNKNOWN in explained
    assert f"Remove --pod-infra-container-image from {file}" in explained


def test_a_flag_that_no_kubelet_has_is_not_only_a_warning(pods: str, tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kubelet-arg: [cpu-manager=true, cpu-manager-policy=static, reserved-cpus=0-3]\n")
    answered = mooring("plan", "-f", pods, *MACHINE, "--config", file, "-o", "json")
    found = answered.document
    assert (answered.code, found["startError"]) == (1, "failed to parse kubelet flag: unknown flag: --cpu-manager")
    assert any("did you mean --cpu-manager-policy?" in one["message"] for one in found["findings"])
