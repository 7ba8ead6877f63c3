"""A kubelet that finds a state file of another policy ends, in the words of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.cases import Case
from tests.e2e.kubelet.kubelet import kubelet_on
from tests.e2e.kubelet.patience import until

from mooring.configuration.node_configuration import load_config
from mooring.discovery.loader import load_machine
from mooring.kubelet.kubelet import StateTexts
from mooring.kubelet.start import start_on
from mooring.releases.catalog import release_of


def check_refused_start(
    node: Runtime, program: Path, case: Case, policies: Mapping[str, Any], machine: Path, kubeconfig: Path
) -> None:
    """Start a kubelet that manages no CPUs on the files of one that did; it must not start.

    Args:
        node: its containerd.
        program: the kubelet.
        case: whose kubelet ran before.
        policies: that it is to have, but for the policy of the CPU manager.
        machine: folder with the files of the machine.
        kubeconfig: of the API server.
    """
    root = node.folder / case.name / "root"
    text = (root / "cpu_manager_state").read_text(encoding="utf-8")
    other = "none" if '"policyName":"static"' in text else "static"
    wanted = {key: value for key, value in policies.items() if key != "cpuManagerPolicyOptions"}
    with (
        contextlib.suppress(AssertionError),
        kubelet_on(
            node, program, case.name, {**wanted, "cpuManagerPolicy": other}, machine=machine, kubeconfig=kubeconfig
        ) as kubelet,
    ):
        until(lambda: _has_ended(kubelet.log), "the kubelet ends", seconds=20)
    folder = node.folder / case.name
    found = load_config(folder / "kubelet.json")
    mooring = replace(found.mooring, release=release_of(case.older)) if case.older else found.mooring
    start = start_on(load_machine(str(machine)), found.kubelet, mooring, StateTexts(text))
    assert start.refusal is not None
    # The log quotes what the kubelet says, which names the file with its folder.
    log = (folder / "kubelet.log").read_text(encoding="utf-8", errors="replace")
    assert start.refusal.message in log.replace('\\"', '"').replace(f"{root}/", ""), log[-2000:]


def _has_ended(log: str) -> bool:
    return "Failed to start" in log or "failed to run Kubelet" in log
