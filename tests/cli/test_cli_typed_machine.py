"""Machines that are typed in: what is a guess of theirs, and decides nothing, is not worth a warning."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import mooring

EIGHT = "sockets=2 numa=8 cores=64 threads=2 memory=256Gi"
CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
featureGates: {CPUManagerPolicyAlphaOptions: true}
"""
POD = "{apiVersion: v1, kind: Pod, metadata: {name: app}, spec: {containers: [{name: c}]}}"


@pytest.mark.parametrize(
    ("options", "warned"), [("", False), ('cpuManagerPolicyOptions: {prefer-align-cpus-by-uncorecache: "true"}', True)]
)
def test_caches_that_the_kubelet_merges_are_warned_of_where_they_decide(
    tmp_path: Path, options: str, *, warned: bool
) -> None:
    (tmp_path / "kubelet.yaml").write_text(CONFIG + options)
    (tmp_path / "pod.yaml").write_text(POD)
    planned = mooring("plan", "-f", tmp_path / "pod.yaml", "--machine", EIGHT, "--config", tmp_path / "kubelet.yaml")
    assert planned.code == 0
    assert ("MOOR-445" in planned.err) == warned
    assert "num_physical_cores" not in mooring("topology", "--machine", EIGHT).out
