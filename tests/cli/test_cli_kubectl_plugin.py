"""``kubectl mooring`` is mooring: kubectl finds it, completes it, and usage lines say its name."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.command import mooring
from tests.cli.made_up_node import SECRET, kubelet_pods, make_root, write_pods

from mooring.answers.base.inputs.cluster_node import ask_cluster

SCRIPTS = Path(sys.executable).parent
KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")
needs_plugin = pytest.mark.skipif(
    not (SCRIPTS / "kubectl-mooring").exists(), reason="mooring was installed before it was a plugin: install it again"
)


def kubectl(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}", "NO_COLOR": "1"}
    return subprocess.run(
        [str(KUBECTL), *arguments], capture_output=True, text=True, check=False, env=environment, timeout=60
    )


@needs_kubectl
@needs_plugin
def test_kubectl_runs_the_verbs_and_returns_their_exit_codes() -> None:
    shown = kubectl("mooring", "topology", "--machine", "small-1s8")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout == mooring("topology", "--machine", "small-1s8", columns=80).out
    assert kubectl("mooring", "topology", "--machine", "no-such-machine").returncode == 2


@needs_kubectl
@needs_plugin
def test_usage_lines_say_how_it_was_called() -> None:
    assert kubectl("mooring", "plan", "--help").stdout.startswith("Usage: kubectl mooring plan [OPTIONS]")
    assert "see kubectl mooring plan --help" in kubectl("mooring", "plan").stderr
    assert kubectl("mooring", "--version").stdout.startswith("kubectl mooring ")


@needs_kubectl
@needs_plugin
def test_kubectl_completes_the_plugin() -> None:
    told = kubectl("__complete", "mooring", "topology", "--machine", "grace-1").stdout.splitlines()
    assert told[0].startswith("grace-1s\t")
    assert told[1] == ":4"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a kubectl on the path that answers from files: what is not there, it refuses."""
    answers = tmp_path / "answers"
    answers.mkdir()
    program = tmp_path / "bin/kubectl"
    program.parent.mkdir()
    program.write_text(
        f"""#!/bin/sh
for word in "$@"; do
  case "$word" in
    pods) file=pods.json ;;
    node) file=node.json ;;
    *configz) file=configz.json ;;
    --field-selector=*) test "$word" = --field-selector=spec.nodeName=edge-7 || exit 3 ;;
  esac
done
cat "{answers}/$file" 2>/dev/null || {{ echo "Unable to connect to {SECRET}" >&2; exit 1; }}
""",
        encoding="utf-8",
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    return answers


def test_a_cluster_tells_pods_configuration_and_version(cluster: Path, tmp_path: Path) -> None:
    (cluster / "pods.json").write_text(json.dumps(kubelet_pods()), encoding="utf-8")
    (cluster / "configz.json").write_text('{"kubeletconfig": {"cpuManagerPolicy": "none"}}', encoding="utf-8")
    (cluster / "node.json").write_text('{"status": {"nodeInfo": {"kubeletVersion": "v1.36.3"}}}', encoding="utf-8")
    answered = mooring(
        "collect", "--root", make_root(tmp_path / "root"), "--to", tmp_path / "node.tar.gz", "-o", "json"
    )
    document = answered.document
    assert (document["node"], document["kubelet"], answered.err) == ("edge-7", "v1.36.3", "")
    origins = {part["name"]: part["origin"] for part in document["parts"]}
    assert (origins["pods"], origins["configuration"]) == ("kubectl", "/configz")


def test_a_cluster_that_does_not_answer_is_a_warning_whose_words_stay_here(cluster: Path, tmp_path: Path) -> None:
    assert list(cluster.iterdir()) == []
    answered = mooring(
        "collect", "--root", make_root(tmp_path / "root"), "--to", tmp_path / "node.tar.gz", "-o", "json"
    )
    assert answered.code == 0
    assert f"warning: kubectl: Unable to connect to {SECRET}" in answered.err
    assert SECRET not in answered.out
    missing = {part["name"]: part["missing"] for part in answered.document["parts"]}
    assert missing["pods"] == "kubectl did not answer"


@pytest.mark.parametrize("name", ["", "--kubeconfig=/x", "a b", "A" * 300])
def test_what_is_no_name_of_a_node_is_not_asked_about(cluster: Path, name: str) -> None:
    (cluster / "pods.json").write_text("{}", encoding="utf-8")
    assert ask_cluster(name).pods_problem.startswith("the node's name is unknown")


def test_pods_that_were_given_are_not_asked_for(cluster: Path, tmp_path: Path) -> None:
    (cluster / "node.json").write_text('{"status": {"nodeInfo": {"kubeletVersion": "v1.37.2"}}}', encoding="utf-8")
    pods = write_pods(tmp_path / "given.json", kubelet_pods())
    answered = mooring("collect", "--root", make_root(tmp_path / "root"), "--pods", pods, "--dry-run", "-o", "json")
    assert (answered.document["kubelet"], answered.err) == ("v1.37.2", "")
    assert {part["name"]: part["origin"] for part in answered.document["parts"]}["pods"] == "--pods"


def test_the_kubelets_own_access_is_used_where_there_is_no_other(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = tmp_path / "kubelet.conf"
    access.write_text("", encoding="utf-8")
    monkeypatch.setattr("mooring.answers.base.inputs.cluster_node.KUBELET_KUBECONFIG", access)
    monkeypatch.setenv("HOME", str(tmp_path))
    (cluster.parent / "bin/kubectl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\n', encoding="utf-8")
    for own in ("/own", ""):
        monkeypatch.setenv("KUBECONFIG", own)
        ask_cluster("edge-7")
    asked = (tmp_path / "asked").read_text(encoding="utf-8").splitlines()
    assert [f"--kubeconfig={access}" in line for line in asked] == [False, True]


def test_an_answer_that_is_not_json_is_none(cluster: Path, tmp_path: Path) -> None:
    (cluster / "pods.json").write_text("nonsense", encoding="utf-8")
    answered = mooring("collect", "--root", make_root(tmp_path / "root"), "--to", tmp_path / "node.tar.gz")
    assert "warning: kubectl: the answer is not JSON" in answered.err
