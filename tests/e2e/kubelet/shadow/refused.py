"""Kubelets that do not start on the state files that they find, in the words of the engine."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.e2e.containerd.runtime import Runtime
from tests.e2e.kubelet.cases import Case
from tests.e2e.kubelet.kubelet import Kubelet, kubelet_on
from tests.e2e.kubelet.patience import until

from mooring.engine.kubelet.kubelet import StateTexts
from mooring.engine.kubelet.start import NotStarted, Start, start_on
from mooring.engine.releases.catalog import release_of
from mooring.inputs.configuration.node_configuration import load_config
from mooring.inputs.machines.loader import load_machine

_MOST_STARTS = 20


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
    start = start_of(case, folder / "kubelet.json", machine, StateTexts(text))
    assert isinstance(start, NotStarted)
    # The log quotes what the kubelet says, which names the file with its folder.
    log = (folder / "kubelet.log").read_text(encoding="utf-8", errors="replace")
    assert start.refusal.message in log.replace('\\"', '"').replace(f"{root}/", ""), log[-2000:]


def start_of(case: Case, configuration: Path, machine: Path, files: StateTexts) -> Start:
    """Return how the engine starts with a configuration on state files."""
    found = load_config(configuration)
    mooring = replace(found.mooring, release=release_of(case.older)) if case.older else found.mooring
    return start_on(load_machine(str(machine)), found.kubelet, mooring, files)


def remove_files_on_which_none_starts(case: Case, kubelet: Kubelet, machine: Path) -> None:
    """Do what an operator does about state files that a killed kubelet left, and on which the next does not start.

    Source: kubelet v1.37.1, cm/memorymanager/policy_static.go (validateState: what was released last on several NUMA
    nodes decides which of them has it).
    """
    files = [kubelet.root / f"{manager}_manager_state" for manager in ("cpu", "memory")]
    cpu, memory = (file.read_text(encoding="utf-8") if file.exists() else None for file in files)
    if isinstance(start_of(case, kubelet.configuration, machine, StateTexts(cpu, memory)), NotStarted):
        for file in files:
            file.unlink(missing_ok=True)


@contextlib.contextmanager
def started(start: Callable[[], contextlib.AbstractContextManager[Kubelet]]) -> Iterator[Kubelet]:
    """Start a kubelet until one starts, as systemd does.

    Whether one starts on memory of groups of NUMA nodes is left to chance: it charges the assignments in random order.

    Source: kubelet v1.37.1, cm/memorymanager/policy_static.go (validateState).
    """
    for _ in range(_MOST_STARTS):
        with start() as kubelet:
            until(lambda: _has_started(kubelet.log) or _has_ended(kubelet.log), "the kubelet has started, or ended")
            if _has_started(kubelet.log):
                yield kubelet
                return
    raise AssertionError(f"none of {_MOST_STARTS} kubelets started: {kubelet.log[-2000:]}")


def _has_started(log: str) -> bool:
    return "Starting plugin manager" in log


def _has_ended(log: str) -> bool:
    return "Failed to start" in log or "failed to run Kubelet" in log
