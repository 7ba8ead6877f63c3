"""``mooring agent`` where it cannot begin: one line, exit code 2, nothing left behind."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.command import EXAMPLES, mooring

from mooring.engine.core.errors import InputError
from mooring.service.agent_configuration import load_agent_configuration
from mooring.service.agent_status import ask_status

MACHINE = "sockets=1 numa=1 cores=4 threads=1 memory=8Gi"
CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {folder}/nri.sock
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
podResourcesSocket: {folder}/pods.sock
metricsAddress: ""
"""

DEVICES = """\
apiVersion: mooring/v1alpha1
kind: NodeDevices
devices:
  vendor.com/gpu: [{id: gpu-0, numa: [0]}]
"""


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "agent.yaml"
    made.write_text(CONFIGURATION.format(folder=tmp_path), encoding="utf-8")
    return made


def test_without_the_packages_of_the_extra_one_line_names_the_missing_one_and_the_remedy(file: Path) -> None:
    code = (
        "import sys; sys.modules['prometheus_client'] = None; "
        "from mooring.command.main import run; sys.exit(run(sys.argv[1:]))"
    )
    words = [sys.executable, "-c", code, "agent", "--config", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "mooring: mooring agent: the package prometheus_client is missing; "
        "install its packages: pip install 'kube-mooring[agent]'\n"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        pytest.param("kind: AgentConfiguration\nnodName: a\n", "nodName: is not known", id="field"),
        pytest.param("kind: KubeletConfiguration\ncpuManagerPolicy: statik\n", "statik", id="policy"),
        pytest.param(
            "kind: KubeletConfiguration\ncpuManagerPolicy: static\n", "the engine does not start", id="engine"
        ),
        pytest.param("kind: AgentConfiguration\nkubeconfig: /not/there\n", "/not/there", id="kubeconfig"),
    ],
)
def test_a_configuration_that_cannot_be_used_is_reported_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    made = tmp_path / "agent.yaml"
    made.write_text(text, encoding="utf-8")
    answer = mooring("agent", "--config", made, "--machine", MACHINE, "--state-dir", tmp_path / "state", code=2)
    assert says in answer.complaint
    assert not (tmp_path / "state" / "journal.json").exists()


def test_the_folder_of_a_kubelet_is_refused(file: Path) -> None:
    state = file.parent / "state"
    (state / "pods").mkdir(parents=True)
    answer = mooring("agent", "--config", file, "--machine", MACHINE, code=2)
    assert "looks like the root directory of a kubelet" in answer.complaint


@pytest.mark.long
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=lambda sign: sign.name)
def test_a_signal_ends_the_agent_with_code_0_and_takes_its_sockets_away(file: Path, sign: signal.Signals) -> None:
    words = [sys.executable, "-m", "mooring", "agent", "--config", str(file), "--machine", MACHINE]
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(file.parent / "notify"))
    manager.settimeout(60)
    environment = {**os.environ, "NOTIFY_SOCKET": str(file.parent / "notify")}
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=environment) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"runtime disconnected" in line:
                break
        assert ask_status(str(file.parent / "status.sock"))["reasons"] == ["the runtime is not connected"]
        assert manager.recv(4096) == b"STATUS=not ready: the runtime is not connected"
        process.send_signal(signal.SIGHUP)
        process.send_signal(sign)
        rest = process.stderr.read().decode()
    assert process.returncode == 0
    assert "agent stopped" in rest.splitlines()[-1]
    heard = [manager.recv(4096)]
    while heard[-1] != b"STOPPING=1":
        heard.append(manager.recv(4096))
    # Which of the two signals is seen first is chance.
    assert {said.split(b"=")[0] for said in heard[:-1]} <= {b"RELOADING", b"READY"}
    manager.close()
    assert sorted(each.name for each in file.parent.iterdir()) == ["agent.yaml", "notify", "state"]
    with pytest.raises(InputError):
        ask_status(str(file.parent / "status.sock"))


def test_verbs_about_a_node_read_the_agents_file_as_the_agent_does(file: Path, tmp_path: Path) -> None:
    of_kubelet = tmp_path / "kubelet.yaml"
    of_kubelet.write_text("kind: KubeletConfiguration\nmaxPods: 7\nsystemReserved: {memory: 1Gi}\n", encoding="utf-8")
    file.write_text(f"{file.read_text(encoding='utf-8')}kubeletConfig: {of_kubelet}\n", encoding="utf-8")
    devices = tmp_path / "devices.yaml"
    devices.write_text(DEVICES, encoding="utf-8")
    own = load_agent_configuration(str(file))
    assert (own.kubelet.max_pods, own.kubelet.cpu_manager_policy) == (7, "static")
    node = ("--machine", MACHINE, "--config", file)
    shown = mooring("show", *node, "--config", devices, "-o", "resources").out.splitlines()
    rows = {words[0]: words[1:] for line in shown if len(words := line.split()) == 4}
    assert (rows["pods"], rows["cpu"]) == (["7", "7", "0"], ["4", "3", "0"])
    assert (rows["memory"], rows["vendor.com/gpu"]) == (["8Gi", "7068Mi", "0"], ["1", "1", "0"])
    assert "exclusive" in mooring("plan", "-f", EXAMPLES / "pods.yaml", *node).out
    answer = mooring("capacity", "--shape", "cpu=1,memory=1Gi", *node, code=0)
    assert "3 more pods" in answer.out


def test_an_agents_file_beside_a_static_kubelet_is_refused_with_the_kubelets_file(file: Path, tmp_path: Path) -> None:
    of_kubelet = tmp_path / "kubelet.yaml"
    of_kubelet.write_text("kind: KubeletConfiguration\ncpuManagerPolicy: static\n", encoding="utf-8")
    file.write_text(f"{file.read_text(encoding='utf-8')}kubeletConfig: {of_kubelet}\n", encoding="utf-8")
    answer = mooring("plan", "-f", "examples/pods.yaml", "--machine", MACHINE, "--config", file, code=2)
    assert answer.complaint.startswith(f"mooring: {of_kubelet}: cpuManagerPolicy: is static on this node")
