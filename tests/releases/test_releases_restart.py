"""A kubelet that is replaced by one of another release on its state files, and one without a memory manager."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from mooring.answers.base.scenario import replay_scenario
from mooring.engine.core.config import KubeletConfig, MooringConfig, ReservedMemory
from mooring.engine.core.decision import StartRefusal
from mooring.engine.core.machineinfo import MachineInfo
from mooring.engine.kubelet.kubelet import Kubelet, StateTexts
from mooring.engine.kubelet.start import NotStarted, Start, refusal_of, start_kubelet
from mooring.engine.releases.catalog import RELEASES
from mooring.engine.releases.rule import RELEASE_NAMES
from mooring.inputs.machines.compact import parse_compact
from mooring.inputs.pods.scenario import scenario

MACHINE: dict[str, MachineInfo] = {"m": parse_compact("sockets=1 cores=4 threads=2 memory=8Gi").info}
CONFIG = {
    "cpuManagerPolicy": "static",
    "reservedSystemCPUs": "0,4",
    "memoryManagerPolicy": "Static",
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}


def pod(uid: str, cpus: str) -> dict[str, Any]:
    resources = {"limits": {"cpu": cpus, "memory": "1Gi"}}
    spec = {"containers": [{"name": "c", "resources": resources}]}
    return {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec}


def steps(release: str, kubelet: dict[str, Any], *steps: dict[str, Any]) -> list[dict[str, Any]]:
    content = {"id": "s", "machine": "m", "release": release, "kubelet": kubelet, "steps": list(steps)}
    found: list[dict[str, Any]] = replay_scenario(scenario(content, source="test"), MACHINE)["expect"]["steps"]
    return found


@pytest.mark.parametrize(
    ("before", "after"), [*pairwise(RELEASE_NAMES), *((new, old) for old, new in pairwise(RELEASE_NAMES))]
)
def test_a_neighbouring_release_starts_on_the_files_and_keeps_what_pods_have(before: str, after: str) -> None:
    admitted, restarted = steps(before, CONFIG, {"admit": pod("u", "2")}, {"restart": True, "release": after})
    assert restarted["readmitted"][0]["admitted"]
    assert restarted["readmitted"][0]["containers"] == admitted["containers"]
    assert restarted["sharedPool"] == admitted["sharedPool"]


def test_the_release_after_the_restart_decides_about_pods_that_run_and_that_come() -> None:
    """Rule smt-check-before-existing: 4 of the 6 CPUs are taken, so that 1.36 has too few for the pod that has them."""
    kubelet = {**CONFIG, "cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}
    whole = {"admit": pod("u", "4")}
    to_1_37 = steps("1.36", kubelet, whole, {"restart": True, "release": "1.37"})
    to_1_36 = steps("1.37", kubelet, whole, {"restart": True, "release": "v1.36.3"})
    assert to_1_37[1]["readmitted"][0]["admitted"]
    assert not to_1_36[1]["readmitted"][0]["admitted"]
    assert to_1_36[1]["readmitted"][0]["reason"] == "SMTAlignmentError"


def test_a_setting_that_the_next_release_refuses_stops_it() -> None:
    gates = {**CONFIG, "featureGates": {"MemoryManager": True}}
    [restarted] = steps("1.35", gates, {"restart": True, "release": "1.36"})
    assert restarted["startErrorStage"] == "decode"
    assert restarted["startError"].endswith("unrecognized feature gate: MemoryManager")


WITHOUT = KubeletConfig(
    cpu_manager_policy="static",
    system_reserved={"cpu": "1"},
    memory_manager_policy="Static",
    reserved_memory=(ReservedMemory(0, {"memory": "100Mi"}),),
    feature_gates={"MemoryManager": False},
)


def started(config: KubeletConfig, memory: str | None = None, release: str = "1.31") -> Start:
    return start_kubelet(MACHINE["m"], config, MooringConfig(release=RELEASES[release]), StateTexts(memory=memory))


@pytest.mark.parametrize("text", [None, "no state file", '{"policyName":"None","machineState":{},"checksum":1}'])
def test_the_file_of_the_memory_manager_is_neither_read_nor_written(text: str | None) -> None:
    start = started(WITHOUT, text)
    assert isinstance(start, Kubelet)
    assert start.settings.memory is None
    assert start.files.memory == text
    assert start.files.cpu is not None


def test_with_the_gate_on_the_same_file_stops_the_kubelet() -> None:
    on = replace(WITHOUT, feature_gates={})
    assert isinstance(started(on), Kubelet)
    assert isinstance(started(on, "no state file"), NotStarted)


def test_later_releases_refuse_to_switch_it_off() -> None:
    assert refusal_of(started(WITHOUT, release="1.32")) == StartRefusal(
        "decode",
        "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
        "cannot set feature gate MemoryManager to false, feature is locked to true",
    )
