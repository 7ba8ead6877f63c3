"""Restarts of the kubelet that move or reject running pods: every verb names the defect, what moves and what fails."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import mooring

CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: {policy}
topologyManagerScope: pod
reservedSystemCPUs: "0"
featureGates: {{PodLevelResourceManagers: true}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: budget, uid: 11111111-1111-1111-1111-111111111111}
spec:
  resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}
  containers:
  - {name: pinned, resources: {limits: {cpu: "1", memory: 512Mi}, requests: {cpu: "1", memory: 512Mi}}}
  - {name: rest}
"""
OTHER = "{apiVersion: v1, kind: Pod, metadata: {name: other}, spec: {containers: [{name: c}]}}"
MOVES = (
    "default/budget: a start of the kubelet on its state moves it: CPUs 1-2 become 3-4; CPUs 1-2 are lost, in no pool "
    "and of no container (defect pod-restart)"
)
FAILS = (
    "state files: after a start of the kubelet on them, its next start fails: start cpu manager error: current set of "
    'available CPUs "0-5" doesn\'t match with CPUs in state "0,3-5"'
)


def given(folder: Path, policy: str = "best-effort", fixed: str = "") -> list[str | Path]:
    (folder / "kubelet.yaml").write_text(
        CONFIG.format(policy=policy) + f"---\n{{kind: MooringConfiguration, fixedDefects: [{fixed}]}}\n"
    )
    (folder / "pod.yaml").write_text(POD)
    (folder / "other.yaml").write_text(OTHER)
    return ["--machine", "cores=6 memory=16Gi", "--config", folder / "kubelet.yaml"]


@pytest.mark.parametrize(("fixed", "told"), [("", (MOVES, FAILS)), ("pod-restart", ())])
def test_a_state_that_is_saved_says_what_the_next_start_does_to_its_pods(
    tmp_path: Path, fixed: str, told: tuple[str, ...]
) -> None:
    node = given(tmp_path, fixed=fixed)
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    assert (answered.code, answered.err) == (0, "".join(f"warning[MOOR-547]: {one}\n" for one in told))


def test_explain_and_doctor_name_the_defect_on_files_that_are_sound(tmp_path: Path) -> None:
    node = given(tmp_path)
    mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    running = ("--active", tmp_path / "pod.yaml", "--state", tmp_path / "state", *node)
    explained = mooring("explain", "budget", "-f", tmp_path / "other.yaml", *running, "-o", "json").document
    assert [one["code"] for one in explained["remarks"]] == ["MOOR-547", "MOOR-547"]
    assert [one["message"] for one in explained["remarks"]] == [text.partition(": ")[2] for text in (MOVES, FAILS)]
    sick = mooring("doctor", *running)
    assert sick.code == 1
    text = " ".join(sick.out.split())
    assert text.startswith(f"{tmp_path}/state: the kubelet starts on these files, but its start after that fails ")
    assert f"warning[MOOR-547]: {MOVES}." in text
    assert f"error[MOOR-547]: {FAILS}." in text


def test_a_running_pod_that_a_restart_rejects_is_named_with_the_defect(tmp_path: Path) -> None:
    node = given(tmp_path, policy="restricted")
    saved = mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    said = "a start of the kubelet on its state rejects it, although it runs"
    assert saved.err == f"warning[MOOR-547]: default/budget: {said} (defect pod-restart)\n"


def test_an_upgrade_that_moves_pods_or_starts_only_once_is_not_safe(tmp_path: Path) -> None:
    node = given(tmp_path)
    arguments = ("upgrade", "--kubelet-version", "1.36", "1.37", "-f", tmp_path / "pod.yaml", *node)
    answered = mooring(*arguments, "-o", "json")
    found = answered.document
    assert (answered.code, found["changed"], found["safe"]) == (1, False, False)
    assert found["nextStartError"] == FAILS.partition("fails: ")[2]
    assert "MOOR-547" in {one["code"] for one in found["findings"]}
    text = mooring(*arguments).out
    assert "but moves 1 of 1 running pod. A restart of the old one does the same." in text
    assert "Its start after that fails: start cpu manager error" in text


def test_pods_that_keep_what_they_have_are_not_mentioned(tmp_path: Path) -> None:
    node = given(tmp_path)
    plain = POD.replace('  resources: {limits: {cpu: "2", memory: 1Gi}, requests: {cpu: "2", memory: 1Gi}}\n', "")
    (tmp_path / "pod.yaml").write_text(
        plain.replace("{name: rest}", "{name: rest, resources: {limits: {cpu: 1, memory: 1Gi}}}")
    )
    answered = mooring("plan", "-f", tmp_path / "pod.yaml", *node, "--save-state", tmp_path / "state")
    assert (answered.code, answered.err) == (0, "")
    upgraded = mooring("upgrade", "--kubelet-version", "1.36", "-f", tmp_path / "pod.yaml", *node, "-o", "json")
    assert (upgraded.code, upgraded.document["safe"], upgraded.document["nextStartError"]) == (0, True, None)
