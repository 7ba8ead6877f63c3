"""Documents for programs: versioned, complete, and the same whichever way they are written."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.cli.command import CORPORA, EXAMPLES, NODE, PODS, ROOT, SMALL, mooring

MACHINES = ROOT.parent / "shared" / "machines"
ADMIT_RESULT = {
    "admitted",
    "reason",
    "message",
    "containers",
    "pod",
    "affinity",
    "sharedPool",
    "cpuManagerState",
    "memoryManagerState",
}


def test_a_plan_is_a_versioned_document_with_the_fields_of_the_recordings() -> None:
    document = mooring("plan", *PODS, *NODE, "-o", "json").document
    assert (document["apiVersion"], document["kind"], document["kubelet"]) == ("mooring/v1alpha1", "Plan", "v1.37.2")
    assert document["machine"] == "epyc-7763-2s-nps4"
    assert "startError" not in document
    assert [pod["name"] for pod in document["pods"]][:4] == ["upf-0", "upf-1", "upf-2", "inference"]
    for pod in document["pods"]:
        assert {"uid", "namespace", "name", "why", *ADMIT_RESULT} <= set(pod)
        assert pod["why"].endswith(".")
    first = document["pods"][0]
    assert first["uid"] == "core_upf-0"
    assert first["containers"]["forwarder"] == {"cpus": "8-15,136-143", "mems": ""}
    assert first["affinity"]["forwarder"] == {"numa": [0], "preferred": True}
    assert first["hints"]["forwarder"]["cpu"]["count"] == 255
    assert document["sharedPool"] == "0,5-7,44-128,133-135,172-255"
    assert [node["freeCount"] for node in document["numaNodes"]] == [6, 0, 8, 32, 30, 32, 32, 32]


def test_yaml_says_the_same_as_json() -> None:
    for command in (("plan", *PODS, *NODE), ("topology", *NODE[:2])):
        as_json = mooring(*command, "-o", "json").document
        assert yaml.safe_load(mooring(*command, "-o", "yaml").out) == as_json


def test_findings_are_in_the_document_and_not_on_standard_error() -> None:
    answered = mooring("plan", *PODS, *SMALL, "-o", "json")
    assert answered.err == ""
    assert answered.document["findings"][0]["subject"] == "configuration"


def test_the_kubelets_view_can_be_read_again(tmp_path: Path) -> None:
    told = mooring("topology", *NODE[:2], "-o", "machineinfo", "--to", tmp_path / "node.json")
    assert (told.code, told.out) == (0, "")
    again = mooring("topology", "--machine", tmp_path / "node.json", "-o", "machineinfo")
    assert again.out == (tmp_path / "node.json").read_text()
    plan = mooring("plan", *PODS, "--machine", tmp_path / "node.json", *NODE[2:], "-o", "json").document
    assert plan["pods"] == mooring("plan", *PODS, *NODE, "-o", "json").document["pods"]


def test_one_machine_of_a_file_is_named_after_a_hash() -> None:
    name = json.loads((CORPORA / "machines.jsonl").read_text().splitlines()[3])["name"]
    answered = mooring("topology", "--machine", f"{CORPORA / 'machines.jsonl'}#{name}", "-o", "json")
    assert answered.document["name"] == name


def test_a_picture_is_well_formed_and_the_same_every_time(tmp_path: Path) -> None:
    command = ("show", *PODS, *NODE, "-o", "svg")
    first = mooring(*command)
    ET.fromstring(first.out)  # noqa: S314 - our own
    assert first.out == mooring(*command).out
    mooring(*command, "--to", tmp_path / "node.svg")
    assert (tmp_path / "node.svg").read_text("utf-8") == first.out


def test_standard_input_is_read_as_kubectl_does() -> None:
    text = (EXAMPLES / "pods.yaml").read_bytes()
    assert mooring("plan", "-f", "-", *NODE, stdin=text).out == mooring("plan", *PODS, *NODE).out
    config = (EXAMPLES / "kubelet.yaml").read_bytes()
    piped = mooring("plan", *PODS, *NODE[:2], "--config", "-", stdin=config)
    assert piped.out == mooring("plan", *PODS, *NODE).out


def test_configz_of_a_running_kubelet_is_a_configuration(tmp_path: Path) -> None:
    content = yaml.safe_load((EXAMPLES / "kubelet.yaml").read_text())
    (tmp_path / "configz.json").write_text(json.dumps({"kubeletconfig": content}))
    answered = mooring("plan", *PODS, *NODE[:2], "--config", tmp_path / "configz.json")
    assert answered.out == mooring("plan", *PODS, *NODE).out


def test_a_dash_is_standard_output_as_a_destination() -> None:
    assert mooring("topology", *SMALL, "--to", "-").out == mooring("topology", *SMALL).out


def test_a_file_is_replaced_whole_and_keeps_its_rights(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("before")
    target.chmod(0o640)
    link.symlink_to(target)
    assert mooring("topology", *SMALL, "-o", "json", "--to", link).code == 0
    assert link.is_symlink()
    assert json.loads(target.read_text())["kind"] == "Machine"
    assert stat.S_IMODE(target.stat().st_mode) == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "real.json"]


def test_a_new_file_is_as_readable_as_any_other(tmp_path: Path) -> None:
    mooring("topology", *SMALL, "--to", tmp_path / "new")
    (tmp_path / "other").touch()
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_an_answer_that_cannot_be_written_leaves_the_file_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.txt").write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answered = mooring("topology", *SMALL, "--to", tmp_path / "plan.txt")
    assert answered.code == 2
    assert "--to: cannot be written: no space left on device" in answered.complaint
    assert [path.name for path in tmp_path.iterdir()] == ["plan.txt"]
    assert (tmp_path / "plan.txt").read_text() == "before"


needs_machines = pytest.mark.skipif(
    not MACHINES.is_dir(), reason="the collection of machines is not beside the repository"
)


@needs_machines
def test_where_cadvisor_fails_its_text_is_the_answer() -> None:
    failing = 0
    for position, file in enumerate(sorted(MACHINES.glob("*/expected-cadvisor.json"))):
        expected = json.loads(file.read_text())["infoError"]
        if not expected and position % 4:  # one in four of those that it can describe
            continue
        answered = mooring("topology", "--machine", file.parent / f"{file.parent.name}.tar.gz", "-o", "machineinfo")
        assert answered.err == ""
        if expected:
            failing += 1
            assert (answered.code, answered.out) == (1, f"{expected}\n")
        else:
            assert answered.code == 0
            assert json.loads(answered.out)["topology"]
    assert failing == 8


@needs_machines
def test_a_plan_on_a_machine_that_cadvisor_cannot_describe_says_so() -> None:
    machine = MACHINES / "2amd64-2n" / "2amd64-2n.tar.gz"
    answered = mooring("plan", *PODS, "--machine", machine, "-o", "json")
    assert answered.code == 1
    assert answered.document["startError"] == "open /proc/cpuinfo: no such file or directory"
    assert answered.document["startErrorStage"] == "machine"
