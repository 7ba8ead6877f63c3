"""Kubelet 1.37 to 1.38 and back: each hazard, as ``mooring upgrade`` tells it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.command import mooring
from tests.releases.flipped import OF_BOTH, PREVIEW, machines, recorded

from mooring.answers.base.scenario import replay_scenario
from mooring.engine.checkpoint.checksum import data_checksum
from mooring.engine.releases.catalog import RELEASES
from mooring.inputs.pods.scenario import scenario

SMT = "sockets=1 cores=8 threads=2 siblings=adjacent memory=16Gi"
TWO_NODES = "sockets=1 numa=2 cores=16 memory=32Gi"
SPREAD: dict[str, Any] = {
    "cpuManagerPolicyOptions": {"distribute-cpus-across-cores": "true"},
    "featureGates": {"CPUManagerPolicyAlphaOptions": True},
    "kubeReserved": {"cpu": "2"},
}
WHOLE: dict[str, Any] = {
    "featureGates": {"PodLevelResourceManagers": True},
    "reservedSystemCPUs": "0",
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
    "memoryManagerPolicy": "Static",
    "evictionHard": {"memory.available": "100Mi"},
    "reservedMemory": [{"numaNode": 0, "limits": {"memory": "100Mi"}}],
}
NAMED = {"reservedSystemCPUs": "0"}


def pod(name: str, *cpus: str, whole: str = "") -> dict[str, Any]:
    def resources(cpu: str) -> dict[str, Any]:
        return {"resources": {"limits": {"cpu": cpu, "memory": "1Gi"}}} if cpu else {}

    containers = [{"name": f"c{index}", **resources(cpu)} for index, cpu in enumerate(cpus)]
    amounts = {"cpu": whole, "memory": "4Gi"}
    spec = {"containers": containers, **({"resources": {"limits": amounts, "requests": amounts}} if whole else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name}, "spec": spec}


def upgrade(
    tmp_path: Path, old: str, new: str, kubelet: dict[str, Any], *pods: dict[str, Any], machine: str = SMT
) -> dict[str, Any]:
    config, active = tmp_path / "kubelet.json", tmp_path / "pods.json"
    config.write_text(json.dumps({"kind": "KubeletConfiguration", "cpuManagerPolicy": "static", **kubelet}))
    active.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(pods) or [pod("a", "2")]}))
    asked = ("--kubelet-version", old, new, "--machine", machine, "--config", config, "--active", active)
    found: dict[str, Any] = mooring("upgrade", *asked, "-o", "json").document
    return found


@pytest.mark.parametrize(
    ("old", "new", "gates", "told"),
    [
        ("1.37", "1.38", {"DynamicResourceAllocation": True}, "unrecognized feature gate: DynamicResourceAllocation"),
        ("1.38", "1.37", {"SecurityProfileOCI": False}, "unrecognized feature gate: SecurityProfileOCI"),
        ("1.37", "1.38", {"EnvFiles": False}, "cannot set feature gate EnvFiles to false, feature is locked to true"),
    ],
)
def test_a_gate_that_came_or_went_stops_the_other_kubelet(
    tmp_path: Path, old: str, new: str, gates: dict[str, bool], told: str
) -> None:
    found = upgrade(tmp_path, old, new, {**NAMED, "featureGates": gates})
    assert found["startError"].endswith(told)
    assert [(one["kind"], one["names"], one["kept"]) for one in found["advice"]] == [("remove gates", [*gates], 1)]
    refused = [one["name"] for one in found["settings"] if one["effect"] == "refused"]
    assert refused == [f"featureGates.{name}" for name in gates]


@pytest.mark.parametrize(("old", "new", "cpus"), [("1.37", "1.38", ["0-1", "0,2"]), ("1.38", "1.37", ["0,2", "0-1"])])
def test_reserved_cpus_that_are_chosen_anew_can_be_those_of_a_pod(
    tmp_path: Path, old: str, new: str, cpus: list[str]
) -> None:
    found = upgrade(tmp_path, old, new, SPREAD, pod("a", "6"), pod("b", "6"))
    assert found["startError"].startswith(f'start cpu manager error: not all reserved cpus: "{cpus[1]}" are present in')
    assert [one["name"] for one in found["causes"]] == ["spread-by-cpu-number"]
    assert ("reserved CPUs", "computed", *cpus) in [
        (one["name"], one["effect"], one["before"], one["after"]) for one in found["settings"]
    ]
    [advice] = found["advice"]
    assert (advice["kind"], advice["names"], advice["kept"]) == ("reserve CPUs", [cpus[0]], 2)


def test_strictly_reserved_cpus_are_outside_of_the_shared_pool_and_chosen_anew_too(tmp_path: Path) -> None:
    options = {**SPREAD["cpuManagerPolicyOptions"], "strict-cpu-reservation": "true"}
    found = upgrade(tmp_path, "1.37", "1.38", {**SPREAD, "cpuManagerPolicyOptions": options}, pod("a", "1500m"))
    assert found["startError"].startswith('start cpu manager error: some of strictly reserved cpus: "2" are present in')
    assert found["advice"][0]["kind"] == "reserve CPUs"


@pytest.mark.parametrize(("old", "new"), [("1.37", "1.38"), ("1.38", "1.37")])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_other_pods_keep_what_they_have_and_the_managers_files_their_text(
    tmp_path: Path, old: str, new: str, scope: str
) -> None:
    kubelet = {**WHOLE, "topologyManagerScope": scope}
    found = upgrade(tmp_path, old, new, kubelet, pod("a", "2", "1"), pod("b", "3"), machine=TWO_NODES)
    assert (found["safe"], [one["outcome"] for one in found["pods"]]) == (True, ["kept", "kept"])
    [cpu, memory, *others] = found["stateFiles"]
    for one in (cpu, memory):
        assert one["writtenBefore"] == one["writtenAfter"]
    assert [one["file"] for one in others] == ["allocated_pods_state", "actuated_pods_state"]
    versions = {(one["writtenBefore"], one["writtenAfter"]) for one in others}
    assert versions == {("V1", "V2") if old < new else ("V2", "V1")}


def test_pods_with_cpus_as_a_whole_are_kept_by_1_38_and_rejected_after_a_rollback(tmp_path: Path) -> None:
    found = upgrade(tmp_path, "1.37", "1.38", WHOLE, pod("a", "2", "", whole="4"), machine=TWO_NODES)
    assert found["safe"]
    assert [one["name"] for one in found["causes"]] == ["pod-allocation-not-restored"]
    assert [one["outcome"] for one in found["rollback"]["pods"]] == ["rejected"]
    back = upgrade(tmp_path, "1.38", "1.37", WHOLE, pod("a", "2", "", whole="4"), machine=TWO_NODES)
    assert [one["outcome"] for one in back["pods"]] == ["rejected"]


def replayed_with_restart(name: str, release: str) -> list[dict[str, Any]]:
    """Return the steps of a recording of 1.37.2, and a restart as another release."""
    content = next(one for one in recorded(PREVIEW / OF_BOTH) if one["id"] == name)
    restart = {"restart": True, "release": RELEASES[release].tag}
    asked = scenario({**content, "steps": [*content["steps"], restart]}, source="test")
    found: list[dict[str, Any]] = replay_scenario(asked, machines())["expect"]["steps"]
    return found


def test_cpus_with_two_owners_stay_until_the_pods_end() -> None:
    *_, before, after = replayed_with_restart("difference-core-size", "1.38")
    assert all(one["admitted"] for one in after["readmitted"])
    assert after["cpuManagerState"] == before["cpuManagerState"]


def test_cpus_that_a_restart_of_1_37_lost_stop_the_start_before_anything_is_restored() -> None:
    for release in ("1.37", "1.38"):
        *_, after = replayed_with_restart("difference-pl-prefix", release)
        assert "doesn't match with CPUs in state" in after["startError"]


def test_the_doctor_reads_the_files_of_allocated_pods_in_both_versions(tmp_path: Path) -> None:
    data = '{"entries":{"u1":{"ContainerResources":{}}}}'
    folder = tmp_path / "kubelet"
    folder.mkdir()
    config = tmp_path / "kubelet.yaml"
    config.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\nreservedSystemCPUs: '0'\n")

    def told(member: str, release: str) -> tuple[int, str]:
        text = f'{{{member}"data":{json.dumps(data)},"checksum":{data_checksum(data)}}}'
        (folder / "allocated_pods_state").write_text(text)
        asked = ("--state", folder, "--machine", SMT, "--config", config, "--kubelet-version", release)
        answered = mooring("doctor", *asked, "-o", "json")
        [found] = [one for one in answered.document["files"] if one["file"] == "allocated_pods_state"]
        return answered.code, found["format"] if found["sound"] else found["kubeletMessage"]

    assert told("", "1.37") == told("", "1.38") == (0, "pods with their resources, format V1, 1 pod")
    assert told('"version":"v2",', "1.37") == (0, "pods with their resources, format V2, 1 pod")
    assert told('"version":"v2",', "1.38") == (0, "pods with their resources, format V2, 1 pod")
    code, words = told('"version":"v3",', "1.38")
    assert code == 1
    assert 'unsupported checkpoint version "v3": this kubelet reads legacy (unversioned) and "v2" checkpoints' in words
