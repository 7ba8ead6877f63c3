"""Scenario files: JSON lines, compressed lines, documents written by hand."""

from __future__ import annotations

import gzip
import io
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.values import cases, refusal

from mooring.engine.core.config import KubeletConfig
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import QoS
from mooring.engine.kubelet.events import Admit, Remove, Restart
from mooring.inputs.pods.scenario import MergeCase, Scenario, load_scenarios, scenario

POD = {"metadata": {"name": "p1", "uid": "u1"}, "spec": {"containers": [{"name": "c", "resources": {}}]}}
LINE: dict[str, Any] = {
    "id": "one",
    "machine": "m",
    "kubelet": {"cpuManagerPolicy": "static"},
    "files": {"cpu_manager_state": "{}"},
    "active": [POD],
    "devices": {"vendor.com/nic": [{"id": "nic-0", "numa": [0]}]},
    "steps": [{"admit": POD}, {"remove": "u1"}, {"restart": True}, {"restart": True, "kubelet": {"maxPods": 5}}],
    "expect": {"steps": []},
    "note": "by hand",
}
MERGE = {"id": "m", "numaNodes": [0, 1], "policy": "restricted", "providers": [None], "result": {"admitted": True}}


def only(path: Path | str) -> Scenario | MergeCase:
    (found,) = load_scenarios(path)
    return found


def load(path: Path | str) -> list[Scenario | MergeCase]:
    return list(load_scenarios(path))


def lines(path: Path, *objects: object) -> Path:
    path.write_text("".join(json.dumps(content) + "\n" for content in objects))
    return path


def admitted(content: Mapping[str, Any], index: int = 0) -> QoS:
    step = scenario(content, source="s").steps[index]
    assert isinstance(step, Admit)
    return step.pod.qos


def test_every_field_of_a_line_is_read(tmp_path: Path) -> None:
    found = only(lines(tmp_path / "s.jsonl", LINE))
    assert isinstance(found, Scenario)
    assert (found.id, found.machine, found.note, found.raw) == ("one", "m", "by hand", LINE)
    assert found.kubelet == KubeletConfig(cpu_manager_policy="static")
    assert (found.files, found.devices, found.expect) == (LINE["files"], LINE["devices"], LINE["expect"])
    (pod,) = found.active
    assert found.steps == (Admit(pod), Remove("u1"), Restart(), Restart(KubeletConfig(max_pods=5)))


def test_compressed_plain_and_piped_lines_say_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = lines(tmp_path / "s.jsonl", LINE, {}, MERGE)
    packed = tmp_path / "s.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    expected = list(load_scenarios(plain))
    assert list(load_scenarios(packed)) == expected
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(packed.read_bytes())))
    assert list(load_scenarios("-")) == expected


def test_scenario_written_by_hand(tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    file.write_text("machine: m\nkubelet: {maxPods: 3}\nsteps:\n- remove: u1\n- restart: true\n---\nmachine: m2\n")
    first, second = load_scenarios(file)
    assert isinstance(first, Scenario)
    assert (first.kubelet.max_pods, first.steps) == (3, (Remove("u1"), Restart()))
    assert isinstance(second, Scenario)
    assert second.machine == "m2"


def test_merge_cases_are_told_apart(tmp_path: Path) -> None:
    assert only(lines(tmp_path / "m.jsonl", MERGE)) == MergeCase(
        "m", [0, 1], None, "restricted", {}, [None], {"admitted": True}
    )


def test_lines_are_read_one_at_a_time(tmp_path: Path) -> None:
    file = lines(tmp_path / "s.jsonl", LINE)
    file.write_text(file.read_text() + "\n \nbroken\n")
    stories = load_scenarios(file)
    assert isinstance(next(stories), Scenario)
    assert "s.jsonl:4:1: not valid JSON" in refusal(next, stories)


def test_unknown_kubelet_fields_are_reported(tmp_path: Path) -> None:
    found: list[Finding] = []
    list(load_scenarios(lines(tmp_path / "s.jsonl", {"kubelet": {"maxpods": 5}}), report=found.append))
    assert [finding.subject for finding in found] == ["maxpods"]


def test_pods_get_the_gates_of_their_time() -> None:
    limits = {"cpu": "1", "memory": "1Gi"}
    pod = {
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}], "resources": {"requests": limits}},
    }
    off = {"featureGates": {"PodLevelResources": False}}
    content = {
        "steps": [{"admit": pod}, {"restart": True, "kubelet": off}, {"admit": pod}, {"restart": True}, {"admit": pod}]
    }
    # Pod-level limits are not filled in for scenarios: the recordings were made without that default.
    assert [admitted(content, index) for index in (0, 2, 4)] == [QoS.BURSTABLE, QoS.GUARANTEED, QoS.GUARANTEED]


@pytest.mark.parametrize(("change", "message"), cases(__file__, "refused-scenarios.yaml", "fields", "says"))
def test_wrong_scenario_is_refused_with_line_and_field(tmp_path: Path, change: Mapping[str, Any], message: str) -> None:
    file = lines(tmp_path / "s.jsonl", LINE, {**LINE, **change})
    place, _, said = refusal(load, file).removeprefix(f"{file}:2:").partition(": ")
    assert place.isdecimal()
    assert said.startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[1]\n", ":1: must be a mapping, not a list"),
        (b'{"id": "\xff"}\n', ":1:9: not UTF-8"),
        (b"[" * 100_000, ":1:101: nested too deeply"),
        (gzip.compress(b"{}\n{}\n", mtime=0)[:-9], "the compressed data is damaged or cut short; copy the file again"),
        (gzip.compress(b"{}\n", mtime=0)[:12] + b"\xff" * 30, "the compressed data is damaged or cut short"),
        (b"\x1f\x8b\xff\xff", "damaged or cut short"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    file = tmp_path / "s.jsonl"
    file.write_bytes(data)
    assert message in refusal(load, file)


def test_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.inputs.decoding.documents.LONGEST_LINE", 1024**2)
    file = tmp_path / "bomb.jsonl.gz"
    file.write_bytes(gzip.compress(b'{"id":"' + b"x" * 2**21, mtime=0))
    assert refusal(load, file) == f"{file}:1: a line longer than 1 MiB"


def test_missing_file_and_folder_are_refused(tmp_path: Path) -> None:
    assert "cannot be read: no such file or directory" in refusal(load, tmp_path / "no.jsonl")
    assert "cannot be read: is a directory" in refusal(load, tmp_path)
