"""``-o resources``: capacity and allocatable as the kubelet reports them in its Node object."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import NODE, PODS, mooring

CONFIG = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
kubeReserved: {cpu: 500m, memory: 1Gi}
systemReserved: {cpu: 500m}
evictionHard: {memory.available: 512Mi}
maxPods: 42
"""
DEVICES = """apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  vendor.example/gpu:
    - {id: gpu0, numa: [0]}
    - {id: gpu1, numa: [0], unhealthy: true}
"""


def rows(text: str) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in text.splitlines() if (words := line.split()) and len(words) == 4}


@pytest.mark.parametrize("verb", ["show", "topology"])
def test_reservations_thresholds_huge_pages_and_unhealthy_devices_are_no_capacity_for_pods(
    verb: str, tmp_path: Path
) -> None:
    config, devices = tmp_path / "kubelet.yaml", tmp_path / "devices.yaml"
    config.write_text(CONFIG, encoding="utf-8")
    devices.write_text(DEVICES, encoding="utf-8")
    machine = ("--machine", "sockets=1 cores=8 memory=16Gi hugepages-1Gi=2")
    answered = mooring(verb, *machine, "--config", config, "--config", devices, "-o", "resources")
    assert answered.code == 0, answered
    assert rows(answered.out) == {
        "resource": ["capacity", "allocatable", "requested"],
        "cpu": ["8", "7", "0"],
        "memory": ["16Gi", "12800Mi", "0"],
        "hugepages-1Gi": ["2Gi", "2Gi", "0"],
        "pods": ["42", "42", "0"],
        "vendor.example/gpu": ["2", "1", "0"],
    }


def test_requests_are_those_of_the_pods_that_are_admitted() -> None:
    answered = mooring("show", *PODS, *NODE, "-o", "resources")
    assert (answered.code, rows(answered.out)["pods"]) == (1, ["110", "110", "8"])


@pytest.mark.parametrize("verb", ["show", "topology"])
def test_a_kubelet_that_does_not_start_has_no_allocatable(verb: str) -> None:
    answered = mooring(verb, "--machine", "cores=4", *NODE[2:], "-o", "resources")
    assert (answered.code, "would not start" in answered.out) == (1, True), answered


def test_a_configuration_without_its_answer_is_refused() -> None:
    answered = mooring("topology", "--machine", "cores=4", *NODE[2:])
    assert (answered.code, "add -o resources" in answered.err) == (2, True), answered
