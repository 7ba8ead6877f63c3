"""Each example of a vendor's configuration is planned with, and every verb that reads a configuration takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring

from mooring.core.cpuset import CPUSet
from mooring.planner.nodearchive.layout import KUBELET_CONFIG

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
