"""Recorded decisions of kubelet v1.37.1, replayed and compared."""

from __future__ import annotations

import gzip
import json
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.planner.recordings import (
    CORPORA,
    MACHINES,
    PARTS,
    check_decisions,
    lines,
    needs_cpu_manager_only,
    recorded,
    share,
)

from mooring.answers.base.agreement import differences, replay_file
from mooring.answers.base.scenario import replay_scenario
from mooring.answers.base.trace import load_machines
from mooring.inputs.pods.scenario import scenario

RECORDED = yaml.safe_load(Path(__file__).with_name("recorded.yaml").read_text(encoding="utf-8"))
"""File -> lines, and how many of them the CPU and topology managers decide alone."""


def test_no_recording_is_left_out() -> None:
    assert sorted(path.name for path in CORPORA.glob("*.gz")) == sorted(RECORDED)


@pytest.mark.corpus
@pytest.mark.parametrize("name", RECORDED)
def test_each_file_has_its_number_of_lines_and_each_line_an_answer(name: str) -> None:
    contents = list(recorded(name))
    assert [len(contents), sum(needs_cpu_manager_only(content) for content in contents)] == RECORDED[name]
    assert all(content.get("expect") or content.get("result") for content in contents)


@pytest.mark.corpus
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("name", RECORDED)
def test_decisions_equal_the_kubelets(name: str, part: int, tmp_path: Path) -> None:
    check_decisions(share(name)[part :: len(PARTS)], MACHINES, tmp_path / "part.jsonl")


def test_a_compressed_file_finds_the_machines_beside_it() -> None:
    outcomes = list(replay_file(CORPORA / "real-kubelet.jsonl.gz", (), compare=True))
    assert len(outcomes) == RECORDED["real-kubelet.jsonl.gz"][0]
    assert not any(outcome.standing in ("differ", "unsupported") for outcome in outcomes)


# The recordings are those that were recorded.


ROW = re.compile(r"^\| (\S+) \| (\d+) \|(?: [^|]+ \|)? `([0-9a-f]{64})` \|$", re.MULTILINE)
LISTED = [
    (f"{folder}{name}", count, digest)
    for folder in ("", "releases/")
    for name, count, digest in ROW.findall((CORPORA / folder / "README.md").read_text(encoding="utf-8"))
]


def test_every_file_is_listed_once() -> None:
    listed = [name for name, _, _ in LISTED]
    present = [path.relative_to(CORPORA) for path in CORPORA.rglob("*") if path.is_file()]
    assert sorted(listed) == sorted(str(path) for path in present if path.name != "README.md")


@pytest.mark.parametrize(("name", "count", "digest"), LISTED)
def test_files_are_unmodified(name: str, count: str, digest: str) -> None:
    data = (CORPORA / name).read_bytes()
    assert sha256(data).hexdigest() == digest
    found = len(lines(name)) if name.endswith(".gz") else len(data.splitlines())
    assert found == int(count)


# Refusals among which the kubelet chooses at random: the answer lists them, and any of them agrees.


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


OPTIONS = {"strict-cpu-reservation": "true", "full-pcpus-only": "maybe", "align-by-socket": "true"}


@pytest.mark.parametrize(
    ("release", "kubelet", "file", "words"),
    [
        pytest.param("1.31", {"cpuManagerPolicyOptions": OPTIONS}, "", [f'"{one}"' for one in OPTIONS], id="option"),
        pytest.param("1.34", {}, IDS, ["containerID 'a' not found", "containerID 'b' not found"], id="container"),
    ],
)
def test_each_bad_one_may_be_the_one_that_is_named(
    release: str, kubelet: dict[str, Any], file: str, words: list[str]
) -> None:
    static = {"cpuManagerPolicy": "static", "systemReserved": {"cpu": "1"}, **kubelet}
    texts = refused(release, static, file)["startErrorAlternatives"]
    assert [sum(word in text for text in texts) for word in words] == [1] * len(words)


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
