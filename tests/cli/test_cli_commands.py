"""Every command that an answer prints contains the options of the call, and runs as it stands."""

from __future__ import annotations

import json
import os
import shlex
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.cli.command import CORPORA, EXAMPLES, NODE, PODS, ROOT, SMALL, Answered, mooring, typed
from tests.cli.made_up_node import kubelet_pods, make_root, write_pods
from tests.documents.validation import complaints
from tests.values import cases

from mooring.documents.schemas import kinds

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec: {{containers: [{{name: app, resources: {{limits: {limits}}}}}]}}
"""
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
topologyManagerPolicy: single-numa-node
featureGates: {CPUManagerPolicyAlphaOptions: true}
cpuManagerPolicyOptions: {full-pcpus-only: "true"}
memoryManagerPolicy: Static
systemReserved: {memory: 1948Mi}
kubeReserved: {cpu: "0"}
evictionHard: {memory.available: 100Mi}
reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}]
"""
MACHINE = ("--machine", "sockets=2 cores=8 threads=2 memory=32Gi")
LIMITS = [
    "{cpu: 3, memory: 1Gi}",
    "{cpu: 20, memory: 1Gi}",
    "{cpu: 40, memory: 1Gi}",
    "{cpu: 2, memory: 20Gi}",
    "{cpu: 2, memory: 60Gi}",
]


def printed(answered: Answered) -> list[list[str]]:
    """Return the commands in an answer as a shell reads them."""
    lines = (line.partition("mooring ") for line in answered.out.replace("\\\n", "").splitlines())
    found = [shlex.split(rest) for before, command, rest in lines if command and before.strip() in ("", *"123456789")]
    return [words for words in found if not words[1].startswith("MOOR-")]


@pytest.fixture
def config(tmp_path: Path) -> str:
    file = tmp_path / "a kubelet.yaml"
    file.write_text(CONFIG)
    return str(file)


@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("verb", ["explain", "whatif"])
def test_printed_changes_run_and_admit_the_pod(tmp_path: Path, config: str, limits: str, verb: str) -> None:
    names = ["first", "asked"]
    files = [tmp_path / f"{name} pod.yaml" for name in names]
    for file, name, amounts in zip(files, names, ("{cpu: 2, memory: 1Gi}", limits), strict=True):
        file.write_text(POD.format(name=name, limits=amounts))
    options = ("--active", files[0], "-f", files[1], "--config", config, *MACHINE, "--kubelet-version", "1.36")
    commands = printed(mooring(verb, *options, columns=60))
    assert commands
    for words in commands:
        assert words[0] == "whatif"
        # Every pod is admitted after the change, as the answer promises.
        assert mooring(*words).code == 0, words


# Documents for programs: versioned, complete, and the same whichever way they are written.


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
        assert yaml.safe_load(mooring(*command, "-o", "yaml").out) == mooring(*command, "-o", "json").document


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


def test_an_answer_that_cannot_be_written_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.txt").write_text("before")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    answered = mooring("topology", *SMALL, "--to", tmp_path / "plan.txt", code=2)
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


# Every document of ``-o json`` is what its schema says, member by member.


WIDE_CONFIG = """
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
topologyManagerPolicyOptions: {max-allowable-numa-nodes: "64"}
reservedSystemCPUs: "0"
"""

DOCUMENTS = cases(__file__, "documents.yaml", "kind", "asked")


def printed_schemas(command: Sequence[str | Path]) -> Any:
    answered = mooring(*command, *(() if "-o" in command else ("-o", "json")))
    assert answered.code in (0, 1), answered.err
    return answered.document


@pytest.mark.parametrize(("kind", "asked"), DOCUMENTS)
def test_a_document_is_what_its_schema_says(kind: str, asked: str) -> None:
    document = printed_schemas(typed(asked))
    assert document["kind"] == kind
    assert complaints(kind, document) == []


def test_a_plan_on_more_nodes_than_masks_can_list_is_what_its_schema_says(tmp_path: Path) -> None:
    config = tmp_path / "kubelet.yaml"
    config.write_text(WIDE_CONFIG, encoding="utf-8")
    asked = (*PODS, "--machine", "sockets=2 numa=32 cores=128 threads=2", "--config", config)
    document = printed_schemas(("plan", *asked))
    assert any("listed" in hints.get("cpu", {}) for pod in document["pods"] for hints in pod["hints"].values())
    assert complaints("Plan", document) == []
    assert complaints("Explanation", printed_schemas(("explain", *asked))) == []


def test_documents_about_a_collected_node_are_what_their_schemas_say(tmp_path: Path) -> None:
    root, pods = make_root(tmp_path / "root"), write_pods(tmp_path / "pods.json", kubelet_pods())
    archive = tmp_path / "node.tar.gz"
    about = printed_schemas(("collect", "--root", root, "--no-kubectl", "--pods", pods, "--to", archive))
    assert complaints("NodeArchive", about) == []
    assert complaints("Plan", printed_schemas(("plan", *PODS, "--node", archive))) == []
    assert complaints("Machine", printed_schemas(("topology", "--node", archive))) == []
    running = printed_schemas(("explain", "--node", archive))
    assert (running["kind"], complaints("ExplanationList", running)) == ("ExplanationList", [])
    isolation = printed_schemas(("doctor", "--lint", "--node", archive))
    assert (isolation["kind"], complaints("Isolation", isolation)) == ("Isolation", [])


def test_every_kind_is_tested() -> None:
    here = {case.values[0] for case in DOCUMENTS}
    # In tests/agent/outside/test_agent_status.py, tests/fleet/test_fleet_live_archive.py and tests/shadow.
    elsewhere = {"AgentStatus", "ClusterArchive", "Recording", "Shadow"}
    assert here | elsewhere | {"Diagnosis", "NodeArchive", "ExplanationList", "Isolation"} == set(kinds())
