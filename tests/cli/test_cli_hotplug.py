"""``--offline`` of the verbs about a node, and the replay of scenarios in which CPUs come and go."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring
from tests.documents.validation import complaints

MACHINE = ["--machine", "sockets=2 cores=16 threads=1"]
KUBELET = """apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: single-numa-node
reservedSystemCPUs: "0"
"""
EXTENSION = """---
apiVersion: mooring/v1alpha1
kind: MooringConfiguration
extensions: [cpu-hotplug]
"""
POD = """---
apiVersion: v1
kind: Pod
metadata: {{name: {0}, uid: {0}}}
spec: {{containers: [{{name: main, resources: {{limits: {{cpu: "{1}", memory: 1Gi}}}}}}]}}
"""


@pytest.fixture
def inputs(tmp_path: Path) -> list[str]:
    """Return the options of a node on which db and cache run."""
    (tmp_path / "config.yaml").write_text(KUBELET + EXTENSION)
    (tmp_path / "running.yaml").write_text(POD.format("db", 3) + POD.format("cache", 3))
    return [*MACHINE, "--config", str(tmp_path / "config.yaml"), "--active", str(tmp_path / "running.yaml")]


@pytest.fixture
def new(tmp_path: Path) -> list[str]:
    (tmp_path / "new.yaml").write_text(POD.format("web", 8))
    return ["-f", str(tmp_path / "new.yaml")]


def test_a_plan_has_stand_ins_findings_and_a_schema(inputs: list[str], new: list[str]) -> None:
    result = mooring("plan", *new, *inputs, "--offline", "2,5,12", "-o", "json")
    assert result.code == 1
    answer = result.document
    assert complaints(answer["kind"], answer) == []
    assert {one["code"] for one in answer["findings"]} >= {"MOOR-521", "MOOR-522"}
    cache = next(pod for pod in answer["pods"] if pod["name"] == "cache")
    assert cache["containers"]["main"]["cpus"] == "4,6-7"
    assert (answer["offline"], answer["usablePool"]) == ("2,5,12", "0,8-11,13-15")
    assert answer["broken"] == {"db": {"main": {"cpus": "1-3", "lost": "2"}}}
    assert answer["displaced"] == {"cache": {"main": {"cpus": "4,6-7", "original": "4-6"}}}


def test_whatif_and_capacity_ask_a_node_with_offline_cpus(inputs: list[str], new: list[str]) -> None:
    gone = mooring("whatif", *new, *inputs, "--offline", "2,5,12", "--remove", "cache", "-o", "json")
    assert gone.code == 1
    assert complaints(gone.document["kind"], gone.document) == []
    counted = mooring("capacity", "--shape", "cpu=4,memory=1Gi", *inputs, "--offline", "2,5,12-14", "-o", "json")
    assert (counted.code, counted.document["count"]) == (0, 1)
    assert counted.document["next"]["why"].endswith("CPUs 5,12-14 are offline.")


@pytest.mark.parametrize(
    ("name", "fact"),
    [("default/db", "CPUsBroken"), ("default/cache", "CPUsReplaced"), ("default/web", "OfflineCPUsLeftOut")],
)
def test_an_explanation_has_the_facts_and_a_schema(inputs: list[str], new: list[str], name: str, fact: str) -> None:
    result = mooring("explain", name, "--nearest", "0", *new, *inputs, "--offline", "2,5,12", "-o", "json")
    answer = result.document
    assert complaints(answer["kind"], answer) == []
    assert fact in [one["fact"] for one in answer["facts"]]
    assert result.code == (1 if name == "default/web" else 0)


@pytest.mark.parametrize("form", ["terminal", "svg", "html"])
def test_a_picture_tells_broken_from_offline(inputs: list[str], form: str) -> None:
    result = mooring("show", *inputs, "--offline", "2,5,12", "-o", form)
    assert result.code == 0
    assert "broken" in result.out
    assert "default/db/main has CPUs 1-3, of which CPU 2 is offline" in " ".join(result.out.split())


@pytest.mark.parametrize(
    ("cpus", "message"),
    [
        ("2,", "--offline: '2,' is not a list of CPUs; write for example 2-3,7"),
        ("-1", "--offline: '-1' is not a list of CPUs; write for example 2-3,7"),
        ("77", "--offline: the machine has no CPU 77; it has 0-15"),
    ],
)
def test_a_wrong_list_is_bad_input(inputs: list[str], new: list[str], cpus: str, message: str) -> None:
    result = mooring("plan", *new, *inputs, "--offline", cpus)
    assert (result.code, result.out) == (2, "")
    assert message in result.err


@pytest.mark.parametrize("verb", ["whatif", "explain"])
def test_a_proposed_change_works_on_the_cpus_that_are_left(verb: str, tmp_path: Path, new: list[str]) -> None:
    (tmp_path / "config.yaml").write_text(KUBELET + EXTENSION)
    node = ["--machine", "sockets=1 cores=8 threads=1", "--config", str(tmp_path / "config.yaml"), "--offline", "1,2,3"]
    told = mooring(verb, *new, *node)
    assert "request 4 CPUs instead of 8" in told.out
    assert "request 7 CPUs" not in told.out
    assert mooring("whatif", *new, *node, "--ask", "web:cpu=4").code == 0
    assert mooring("whatif", *new, *node, "--ask", "web:cpu=5").code == 1


def test_a_replay_says_step_by_step_what_becomes_of_whom() -> None:
    result = mooring("replay", str(EXAMPLES / "hotplug.yaml"), columns=200)
    assert result.code == 0
    lines = [line.strip() for line in result.out.splitlines()]
    assert "CPU 3 offline: shared pool 0,5-15; db/main 1-2,4 instead of 1-3" in lines
    assert "CPU 1 offline: shared pool 0,4-7; db/main 1-2 broken: 1 offline (1 needed, 0 free on NUMA node 0)" in lines
    assert "remove web: shared pool 0-1,4-7; db/main 2-3 instead of 1-2" in lines
    assert "CPUs 1,4-5 online: shared pool 0,3-5; db/main 1-2 again" in lines


def test_without_the_extension_the_kubelet_starts_without_these_cpus(tmp_path: Path, new: list[str]) -> None:
    (tmp_path / "stock.yaml").write_text(KUBELET)
    node = [*MACHINE, "--config", str(tmp_path / "stock.yaml")]
    assert mooring("plan", *new, *node, "--offline", "12").code == 1  # neither NUMA node has 8 CPUs any more
    answered = mooring("plan", *new, *node, "--offline", "2,5", "-o", "json")
    [pod] = answered.document["pods"]
    assert pod["containers"]["main"]["cpus"] == "8-15"
    assert [one["subject"] for one in answered.document["findings"] if one["code"] == "MOOR-517"] == ["CPUs 2,5"]
    assert "offline" not in answered.document
    drawn = mooring("show", *new, *node, "--offline", "2,5,12")
    assert "note[MOOR-517]: CPUs 2,5,12: offline before the kubelet starts" in drawn.err


def test_a_kubelet_does_not_start_on_the_state_of_more_cpus(tmp_path: Path, new: list[str]) -> None:
    (tmp_path / "stock.yaml").write_text(KUBELET)
    node = [*MACHINE, "--config", str(tmp_path / "stock.yaml")]
    assert mooring("plan", *new, *node, "--save-state", str(tmp_path / "root")).code == 0
    answered = mooring("plan", "-f", *new[1:], *node, "--state", str(tmp_path / "root"), "--offline", "3")
    assert answered.code == 1
    assert "The kubelet would not start" in answered.out


@pytest.mark.parametrize(("cpus", "problem"), [("99", "the machine has no CPU 99"), ("0-7", "no CPU would be left")])
def test_cpus_that_cannot_be_offline_are_refused(tmp_path: Path, new: list[str], cpus: str, problem: str) -> None:
    (tmp_path / "stock.yaml").write_text(KUBELET)
    node = ["--machine", "sockets=2 cores=8", "--config", str(tmp_path / "stock.yaml")]
    answered = mooring("plan", *new, *node, "--offline", cpus)
    assert answered.code == 2
    assert f"--offline: {problem}" in answered.err
