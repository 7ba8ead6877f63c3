"""The module that the Kubernetes parts are built from."""

from __future__ import annotations

import importlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.containerd.runtime import SCRIPT

OWN = """\
module k8s.io/kubernetes

go 1.26.0

require (
	k8s.io/klog/v2 v2.140.0
	k8s.io/api v0.0.0
)

replace (
	k8s.io/kubelet => ./staging/src/k8s.io/kubelet
	k8s.io/api => ./staging/src/k8s.io/api
	example.test/other => ./other
)
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module("e2e_kube_parts")


def test_only_modules_of_the_staging_folder_are_replaced_and_by_the_published_version(script: Any) -> None:
    assert script.module_text(OWN, script.VERSIONS["v1.37.1"]).splitlines() == [
        "module mooring.test/kubernetes",
        "",
        "go 1.26.0",
        "",
        "require k8s.io/kubernetes v1.37.1",
        "",
        "replace (",
        "\tk8s.io/api => k8s.io/api v0.37.1",
        "\tk8s.io/kubelet => k8s.io/kubelet v0.37.1",
        ")",
    ]


def test_a_module_without_staging_modules_is_not_kubernetes(script: Any) -> None:
    with pytest.raises(RuntimeError, match="no staging modules"):
        script.module_text("module k8s.io/kubernetes\n\ngo 1.26.0\n", script.VERSIONS["v1.37.1"])


def test_a_machine_without_go_is_told_what_it_misses(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert script.main(["kubelet"]) == 0
    assert capsys.readouterr().out == "SKIPPED kubelet: no go: kubelet could not be built\n"


def test_a_build_of_minutes_is_announced_before_it_begins(
    script: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("MOORING_E2E_CACHE", str(tmp_path))
    monkeypatch.setattr(script.os, "getloadavg", lambda: (7.0, 0.0, 0.0))
    monkeypatch.setattr(script.os, "sched_getaffinity", lambda _pid: {0, 1})
    announced = []

    def run(command: Sequence[str], **_where: object) -> subprocess.CompletedProcess[str]:
        announced.append(capsys.readouterr().err)
        return subprocess.CompletedProcess(command, int("download" in command), "go1.26.0\n", "no network")

    monkeypatch.setattr(script, "run", run)
    monkeypatch.setattr(script.shutil, "which", lambda _name: "/bin/go")
    with pytest.raises(script.UnavailableError):
        script.kube_program("kube-apiserver")
    assert "".join(announced) == (
        "building kube-apiserver v1.37.1, once: about 36 minutes at a load of 7.0 on 2 CPUs\n"
    )
