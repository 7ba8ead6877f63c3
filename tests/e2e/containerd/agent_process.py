"""The agent as a process of its own beside a real runtime: started, asked, killed, and what it said."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.e2e.containerd.cri import Pod
from tests.e2e.containerd.runtime import Runtime
from tests.patience import until

from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

_CONFIGURATION = """\
kind: KubeletConfiguration
apiVersion: kubelet.config.k8s.io/v1beta1
cpuManagerPolicy: static
reservedSystemCPUs: "{reserved}"
---
kind: AgentConfiguration
apiVersion: mooring/v1alpha1
stateDir: {folder}/state-of-{name}
nriSocket: {socket}
replyBudget: {budget}
assignedDir: {folder}/assigned-{name}
statusSocket: {status}
podResourcesSocket: ""
metricsAddress: "{metrics}"
logLevel: {level}
"""

PROGRAM = tuple(shlex.split(os.environ.get("MOORING_E2E_PROGRAM", ""))) or (sys.executable, "-m", "mooring")
"""The command of Mooring: this clone's, or that of the environment variable, such as a built executable."""


@dataclass(slots=True)
class AgentProcess:
    """An agent that can be started more than once, over the same folder."""

    node: Runtime
    machine: str = ""
    name: str = "agent"
    """Of its files, where a node has more than one."""
    reserved: str = "0"
    budget: str = "500ms"
    metrics: str = ""
    """Address; empty means none."""
    level: str = "debug"
    program: Sequence[str] = PROGRAM
    nri_socket: Path | None = None
    """Where the agent connects; containerd's own socket by default."""
    configuration: str = ""
    """The agent's file; empty means one of the fields above."""
    _process: subprocess.Popen[bytes] | None = None
    codes: list[int] = field(default_factory=list)
    """Exit codes of those that were told to end."""

    @property
    def socket(self) -> str:
        return str(self.node.folder / f"{self.name}.sock")

    @property
    def log(self) -> list[dict[str, Any]]:
        path = self.node.folder / f"{self.name}.log"
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("{")]

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def journal(self) -> Path:
        return self.node.folder / f"state-of-{self.name}" / "journal.json"

    def events(self, key: str) -> list[dict[str, Any]]:
        """Return the lines of the log that have a key."""
        return [line for line in self.log if key in line]

    def words(self) -> list[str]:
        """Write the configuration and return the agent's command line."""
        configuration = self.node.folder / f"{self.name}.yaml"
        configuration.write_text(
            self.configuration
            or _CONFIGURATION.format(
                folder=self.node.folder,
                name=self.name,
                status=self.socket,
                socket=self.nri_socket or self.node.nri_socket,
                reserved=self.reserved,
                budget=self.budget,
                metrics=self.metrics,
                level=self.level,
            ),
            encoding="utf-8",
        )
        words = [*self.program, "agent", "--config", str(configuration)]
        return [*words, *(["--machine", self.machine] if self.machine else [])]

    def start(self) -> None:
        """Start, and wait until the agent is ready."""
        self.launch()
        self.until_ready()

    def launch(self) -> None:
        """Start, and wait for nothing."""
        with (self.node.folder / f"{self.name}.log").open("ab") as log:
            self._process = subprocess.Popen(
                self.words(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def until_ready(self) -> None:
        until(self._is_ready_or_dead, "the agent is ready", seconds=40, pause=0.05)
        assert self._process is not None
        text = (self.node.folder / f"{self.name}.log").read_text(encoding="utf-8")
        assert self._process.poll() is None, text[-2000:]

    def status(self) -> dict[str, Any]:
        return ask_status(self.socket)

    def end(self, sign: signal.Signals = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(sign)
            self.codes.append(self._process.wait(timeout=30))
            self._process = None

    def _is_ready_or_dead(self) -> bool:
        return self._process is None or self._process.poll() is not None or self.is_ready()

    def is_ready(self) -> bool:
        with contextlib.suppress(InputError):
            return bool(self.status()["ready"])
        return False


@contextlib.contextmanager
def agent_on(node: Runtime, **settings: Any) -> Iterator[AgentProcess]:
    """Run an agent until the end of the block; then it ends at SIGTERM with code 0 and without internal errors."""
    made = AgentProcess(node, **settings)
    made.start()
    try:
        yield made
    finally:
        made.end()
    assert made.codes[-1] == 0
    assert [line for line in made.log if line["level"] == "error"] == []
    assert not Path(made.socket).exists()


def pod_on(node: Runtime, name: str) -> Pod:
    """Run a sandbox in a cgroup that looks like the kubelet's of a Guaranteed pod."""
    return node.cri.run_pod(name, f"uid-{name}", f"{node.cgroup_parent}/pod{name}")


def whole_cpus(count: int) -> dict[str, int]:
    """Return what the kubelet asks for a container with so many CPUs and 64 MiB as requests and limits."""
    return {
        "cpu_shares": 1024 * count,
        "cpu_quota": 100_000 * count,
        "cpu_period": 100_000,
        "memory_limit_in_bytes": 64 * 2**20,
    }
