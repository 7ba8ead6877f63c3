"""Refusals among which the kubelet chooses at random: the answer lists them, and any of them agrees."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from tests.planner.recordings import CORPORA

from mooring.answers.base.agreement import differences
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import load_machines
from mooring.inputs.pods.scenario import scenario

FOLDER = CORPORA / "releases"
IDS = '{"policyName":"static","defaultCpuSet":"1-7","entries":{"b":"1","a":"2"},"checksum":0}'


def refused(release: str, kubelet: dict[str, Any], cpu: str = "") -> dict[str, Any]:
    content: dict[str, Any] = {"id": "s", "machine": "m", "kubelet": kubelet, "release": release}
    if cpu:
        content["files"] = {"cpu_manager_state": cpu}
    machines = load_machines([str(FOLDER / "machines.jsonl")])
    answer = replay_scenario(scenario(content, source="test"), {"m": machines["t-2s12"]})
    expect: dict[str, Any] = answer["expect"]
    return expect


def test_each_unknown_gate_may_be_the_one_that_is_named() -> None:
    answer = refused("1.31", {"featureGates": {"NoSuchGate": True, "AlsoNone": False, "PodLevelResources": True}})
    names = ["AlsoNone", "NoSuchGate", "PodLevelResources"]
    assert answer["startErrorAlternatives"] == [f"unrecognized feature gate: {name}" for name in names]
    for name in names:
        recorded = {"startError": f"unrecognized feature gate: {name}", "startErrorStage": "featureGates"}
        assert differences(recorded, answer) == []
    assert differences({"startError": "unrecognized feature gate: Other"}, answer) != []


def test_each_bad_option_may_be_the_one_that_is_named() -> None:
    options = {"strict-cpu-reservation": "true", "full-pcpus-only": "maybe", "align-by-socket": "true"}
    kubelet = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}, "cpuManagerPolicyOptions": options}
    texts = refused("1.31", kubelet)["startErrorAlternatives"]
    assert [name for name in sorted(options) if any(f'"{name}"' in text for text in texts)] == sorted(options)


def test_each_unknown_container_may_be_the_one_that_is_named() -> None:
    kubelet = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
    texts = refused("1.34", kubelet, IDS)["startErrorAlternatives"]
    assert ["containerID 'a' not found" in text for text in texts] == [True, False]
    assert ["containerID 'b' not found" in text for text in texts] == [False, True]


@pytest.mark.parametrize(
    "kubelet",
    [
        {"featureGates": {"NoSuchGate": True, "PodLevelResources": True}},
        {"topologyManagerPolicy": "other", "topologyManagerScope": "other"},
        {"cpuManagerPolicy": "static", "cpuManagerPolicyOptions": {"none": "1", "full-pcpus-only": "true"}},
    ],
)
def test_one_fault_has_one_text(kubelet: dict[str, Any]) -> None:
    answer = refused("1.37", {"systemReserved": {"cpu": "1"}, **kubelet})
    assert answer["startError"]
    assert "startErrorAlternatives" not in answer


@pytest.mark.corpus
def test_every_recorded_alternative_of_an_older_kubelet_is_one_of_the_answers() -> None:
    machines = load_machines([str(FOLDER / "machines.jsonl")])
    missing, seen = {}, 0
    for file in sorted(FOLDER.glob("v*/*.jsonl.gz")):
        with gzip.open(file, "rt", encoding="utf-8") as lines:
            for line in lines:
                if "startErrorAlternatives" not in line or "but depends on features" in line:
                    continue  # the order of needs is compared as a set
                content = json.loads(line)
                recorded = set(content["expect"]["startErrorAlternatives"])
                answer = replay_scenario(scenario(content, source="test"), machines)["expect"]
                seen += 1
                if not recorded <= set(answer["startErrorAlternatives"]):
                    missing[content["id"]] = recorded
    assert missing == {}
    assert seen > 25
