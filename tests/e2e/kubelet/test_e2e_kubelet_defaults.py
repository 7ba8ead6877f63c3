"""Beside a real kubelet the defaults of a question are that kubelet's: its files, found by its process."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.e2e.containerd.runtime import running
from tests.e2e.kubelet.apiserver import APIServer
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until

NAME = "here"
POLICIES = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}}
SPEC = {"containers": [{"name": "app", "image": "none", "resources": {"limits": {"cpu": "1", "memory": "64Mi"}}}]}


@pytest.fixture
def kubelet(parts: Any, kube: Any, cluster: APIServer, folder: Path) -> Iterator[Kubelet]:  # noqa: ARG001 - network
    with running(parts, folder) as node, kubelet_on(node, kube.kubelet, NAME, POLICIES) as made:
        yield made


@pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs CPUs 0 and 1")
def test_the_running_kubelet_is_the_default_node(
    kubelet: Kubelet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A static pod takes CPUs, so that the state file says something.
    taker = {**POD, "metadata": {"name": "taker"}, "spec": SPEC}
    (kubelet.manifests / "taker.json").write_text(json.dumps(taker), encoding="utf-8")
    file = kubelet.root / "cpu_manager_state"
    until(lambda: file.exists() and '"app"' in kubelet.state("cpu"), "the pod has its CPU")
    asked = tmp_path / "asked.json"
    asked.write_text(json.dumps({**POD, "spec": SPEC}), encoding="utf-8")
    question = ("plan", "-f", asked, "-o", "json")
    files = ("--machine", "live", "--config", kubelet.configuration, "--state", kubelet.root)
    written = mooring(*question, *files, "--active", "none", "--node", "none").document
    monkeypatch.setenv("MOORING_ROOT", "")
    default = mooring(*question).document
    [note] = [one for one in default["findings"] if one["code"] == "MOOR-584"]
    assert note["subject"] == NAME
    assert f"configuration ({kubelet.configuration}" in note["message"]
    assert f"state files ({kubelet.root})" in note["message"]
    for answer in (written, default):
        del answer["findings"], answer["machine"]
    assert default == written


def test_another_release_is_named_by_the_kubelet_only_where_it_is_needed(
    kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOORING_ROOT", "")
    drawn = mooring("doctor", "--kubelet-version", "1.37")
    assert drawn.code == 0, drawn.err
    assert str(kubelet.root) in drawn.out
