"""``mooring migrate``: checks, what becomes of running containers, steps, and the way back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from tests.cli.command import EXAMPLES, mooring

NODE = ("--node", EXAMPLES / "node")
MACHINE = ("--machine", "sockets=1 cores=4 threads=1 memory=8Gi")
CONFIG = {"kind": "KubeletConfiguration", "cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}
POD = """
{apiVersion: v1, kind: Pod, metadata: {name: big, uid: u1},
 spec: {containers: [{name: c, resources: {limits: {cpu: 2, memory: 1Gi}}}]}}
"""


def on_node(folder: Path, **config: object) -> tuple[str | Path, ...]:
    """Return the options of a node on which the pod runs, placed by a kubelet with the static policy."""
    state, running = folder / "kubelet", folder / "pod.yaml"
    (folder / "config.yaml").write_text(json.dumps({**CONFIG, **config}))
    running.write_text(POD)
    made = ("--config", folder / "config.yaml", *MACHINE)
    assert mooring("plan", "-f", running, *made, "--save-state", state).code == 0
    return (*made, "--state", state, "--active", running)


def test_every_container_of_the_example_node_keeps_its_cpus() -> None:
    found = mooring("migrate", *NODE, "-o", "json")
    assert (found.code, found.document["passed"], found.document["way"]) == (0, True, "in place")
    containers = found.document["containers"]
    assert {one["outcome"] for one in containers} == {"kept"}
    assert all(one["before"] == one["after"] and one["runsOn"] == one["after"]["cpus"] for one in containers)
    assert [check["name"] for check in found.document["checks"]] == [
        "state files",
        "kubelet",
        "agent",
        "pods",
        "rollback",
    ]


def test_the_agents_file_is_one_with_which_the_agent_decides_as_the_kubelet_did(tmp_path: Path) -> None:
    given = on_node(tmp_path, cpuManagerPolicyOptions={"full-pcpus-only": "true"}, topologyManagerPolicy="restricted")
    first = mooring("migrate", *given, "-o", "json").document["steps"][0]
    [(path, text)] = first["files"].items()
    kubelet, agent = yaml.safe_load_all(text)
    assert path == "/etc/mooring/agent.yaml"
    assert kubelet["cpuManagerPolicyOptions"] == {"full-pcpus-only": "true"}
    assert (kubelet["cpuManagerPolicy"], kubelet["topologyManagerPolicy"]) == ("static", "restricted")
    assert agent == {
        "apiVersion": "mooring/v1alpha1",
        "kind": "AgentConfiguration",
        "kubeletConfig": "/var/lib/kubelet/config.yaml",
    }


def test_the_kubelet_would_not_start_on_state_files_that_are_left(tmp_path: Path) -> None:
    steps = mooring("migrate", *on_node(tmp_path), "-o", "json").document["steps"]
    [step] = [one for one in steps if one["title"] == "Disable the kubelet's own managers"]
    assert any(
        'configured policy "none" differs from state checkpoint policy "static"' in one for one in step["outcome"]
    )
    assert "rm -f /var/lib/kubelet/cpu_manager_state /var/lib/kubelet/memory_manager_state" in step["commands"]


def test_a_container_that_cannot_keep_its_cpus_is_said_to_move(tmp_path: Path) -> None:
    """It was resized meanwhile, which the kubelet's static policy does not follow."""
    given = on_node(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD.replace("cpu: 2", "cpu: 3"))
    found = mooring("migrate", *given, "-o", "json").document
    [one] = found["containers"]
    assert (one["outcome"], one["before"]["cpus"], one["after"]["cpus"]) == ("moved", "1-2", "1-3")
    assert "default/big/c moves while it runs: CPUs 1-2 before, CPUs 1-3 afterwards." in mooring("migrate", *given).out


def test_a_pod_that_the_agent_cannot_place_fails_a_check(tmp_path: Path) -> None:
    given = on_node(tmp_path)
    (tmp_path / "pod.yaml").write_text(POD.replace("cpu: 2", "cpu: 4"))
    answered = mooring("migrate", *given, "-o", "json")
    assert (answered.code, answered.document["passed"]) == (1, False)
    failed = {check["name"]: check["message"] for check in answered.document["checks"] if not check["passed"]}
    assert "the agent cannot place default/big (UnexpectedAdmissionError" in failed["pods"]
    assert mooring("migrate", *given).out.count("FAILED") == len(failed)


def test_a_corrupt_state_file_stops_the_migration(tmp_path: Path) -> None:
    given = on_node(tmp_path)
    file = tmp_path / "kubelet" / "cpu_manager_state"
    file.write_text(file.read_text().replace("1-2", "1-3"))
    answered = mooring("migrate", *given)
    assert answered.code == 1
    assert "FAILED state files" in answered.out


def test_drained_pods_are_placed_anew_and_the_way_back_needs_no_state_files(tmp_path: Path) -> None:
    found = mooring("migrate", *on_node(tmp_path), "--drain", "-o", "json").document
    assert (found["way"], found["containers"][0]["after"]["cpus"]) == ("drain", "1-2")
    assert found["steps"][1]["commands"] == ["kubectl drain NODE --ignore-daemonsets"]
    assert not [word for step in found["rollback"] for word in step["commands"] if "cpu_manager_state" in word]


def test_a_kubelet_that_manages_nothing_has_nothing_to_migrate(tmp_path: Path) -> None:
    given = on_node(tmp_path)
    (tmp_path / "config.yaml").write_text(json.dumps({"kind": "KubeletConfiguration"}))
    answered = mooring("migrate", *given[:4], "--active", tmp_path / "pod.yaml")
    assert answered.code == 2
    assert "there is nothing to migrate" in answered.complaint


def test_commands_are_whole_at_any_width(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    commands = [one for step in mooring("migrate", *NODE, "-o", "json").document["steps"] for one in step["commands"]]
    assert max(map(len, commands)) > 100
    mooring("migrate", *NODE, "--to", tmp_path / "steps.txt")
    for text in (mooring("migrate", *NODE).out, (tmp_path / "steps.txt").read_text()):
        lines = {line.strip() for line in text.splitlines()}
        assert [one for one in commands if one not in lines] == []
