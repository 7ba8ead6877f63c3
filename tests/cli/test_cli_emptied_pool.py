"""A shared pool without any CPU is reported where it is planned, drawn, counted or checked, with its pod."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import SMALL, mooring

CONFIG = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}
reservedSystemCPUs: "0"
"""
SPEC = "spec: {containers: [{name: app, resources: {limits: {cpu: 5, memory: 1Gi}}}]}"
BIG = f"kind: Pod\nmetadata: {{name: big}}\n{SPEC}\n"
LAST = BIG.replace("big", "last").replace("cpu: 5", "cpu: 2")
WEB = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: app}]}\n"


@pytest.fixture
def node(tmp_path: Path) -> tuple[str | Path, ...]:
    (tmp_path / "kubelet.yaml").write_text(CONFIG, encoding="utf-8")
    (tmp_path / "pods.yaml").write_text(f"{BIG}---\n{LAST}---\n{WEB}", encoding="utf-8")
    (tmp_path / "big.yaml").write_text(BIG, encoding="utf-8")
    return (*SMALL, "--config", tmp_path / "kubelet.yaml")


@pytest.mark.parametrize("verb", ["plan", "show"])
def test_the_pod_that_takes_the_last_cpu_is_named(tmp_path: Path, node: tuple[str | Path, ...], verb: str) -> None:
    answered = mooring(verb, "-f", tmp_path / "pods.yaml", *node, columns=1000)
    assert answered.code == 1
    for text in (answered.out, answered.err):
        assert "MOOR-179" in text
        assert "takes the last CPUs of the shared pool (3,7)" in text
    assert "warning[MOOR-179]: default/last:" in answered.err


def test_a_pool_with_a_cpu_left_is_no_finding(tmp_path: Path, node: tuple[str | Path, ...]) -> None:
    answered = mooring("plan", "-f", tmp_path / "big.yaml", *node)
    assert (answered.code, answered.err) == (0, "")


def test_capacity_names_the_replica_that_empties_the_pool(tmp_path: Path, node: tuple[str | Path, ...]) -> None:
    answered = mooring("capacity", "--shape", "cpu=1,memory=1Gi", "-f", tmp_path / "big.yaml", *node, "-o", "json")
    (found,) = [one for one in answered.document["findings"] if one["code"] == "MOOR-179"]
    assert found["subject"] == "default/shape+2"


def test_doctor_names_the_pods_of_a_file_and_the_running_pod_that_is_last(
    tmp_path: Path, node: tuple[str | Path, ...]
) -> None:
    mooring("plan", "-f", tmp_path / "pods.yaml", *node, "--save-state", tmp_path / "state")
    alone = mooring("doctor", "--state", tmp_path / "state", *node, columns=1000)
    assert alone.code == 1
    assert "have emptied the shared pool: default_big (5 CPUs), default_last (2 CPUs)" in alone.out
    known = mooring("doctor", "--state", tmp_path / "state", *node, "--active", tmp_path / "pods.yaml", columns=1000)
    assert "error[MOOR-179]: When the running pods are admitted again, default/last takes the last CPUs" in known.out


def test_a_pod_that_gets_reserved_cpus_where_a_core_lacks_one_is_named(tmp_path: Path) -> None:
    (tmp_path / "kubelet.yaml").write_text(CONFIG.replace("cpuManagerPolicyOptions: {strict", "# {"), encoding="utf-8")
    (tmp_path / "big.yaml").write_text(BIG.replace("cpu: 5", "cpu: 2"), encoding="utf-8")
    node = "-f", tmp_path / "big.yaml", *SMALL, "--config", tmp_path / "kubelet.yaml"
    uneven = mooring("plan", *node, "--offline", "5", columns=1000)
    assert "warning[MOOR-313]: default/big: gets reserved CPUs (0)" in uneven.err
    assert "MOOR-313" not in mooring("plan", *node).err


def test_pods_that_hold_one_cpu_on_uneven_cores_are_named(tmp_path: Path) -> None:
    """The kubelet takes a core of two CPUs for a free one when one of them is free."""
    pods = [
        f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, resources: "
        f"{{limits: {{cpu: {cpus}, memory: 64Mi}}}}}}]}}}}"
        for name, cpus in (("one", 1), ("eight", 8), ("two", 2))
    ]
    (tmp_path / "pods.yaml").write_text("\n---\n".join(pods), encoding="utf-8")
    (tmp_path / "kubelet.yaml").write_text(
        "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, cpuManagerPolicy: static, "
        "cpuManagerPolicyOptions: {full-pcpus-only: 'true'}, reservedSystemCPUs: '0-1'}",
        encoding="utf-8",
    )
    node = ("--machine", "i7-1370p", "--config", tmp_path / "kubelet.yaml")
    answered = mooring("plan", "-f", tmp_path / "pods.yaml", *node, columns=1000)
    assert answered.code == 0
    assert "warning[MOOR-312]: default/two: gets CPUs 2, which default/eight has too" in answered.err
