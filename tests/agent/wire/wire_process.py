"""The agent as a process of its own on a runtime with a socket, with its memory as the kernel counts it."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests import patience

from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

MACHINE = "sockets=1 numa=2 cores=16 threads=1 memory=32Gi"
PATIENCE = 60.0
"""Seconds after which a test gives up."""
until = partial(patience.until, seconds=PATIENCE)
_CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {folder}/state
nriSocket: {socket}
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
podResourcesSocket: {folder}/pods.sock
metricsAddress: 127.0.0.1:0
replyBudget: 60s
logLevel: info
"""


@dataclass(slots=True)
class WireProcess:
    """An agent that runs."""

    folder: Path
    process: subprocess.Popen[bytes]

    def status(self) -> dict[str, Any]:
        return ask_status(str(self.folder / "status.sock"))

    def is_ready(self) -> bool:
        """Tell whether the agent says so; raises AssertionError when it has ended."""
        assert self.process.poll() is None, self.log()[-3000:]
        with contextlib.suppress(InputError):
            return bool(self.status()["ready"])
        return False

    def resident(self) -> int:
        """Return the resident memory in bytes."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the process has no memory any more")

    def threads(self) -> int:
        """Return how many threads it has."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/task").iterdir())

    def descriptors(self) -> int:
        """Return how many files and sockets it has open."""
        return sum(1 for _ in Path(f"/proc/{self.process.pid}/fd").iterdir())

    def log(self) -> str:
        return (self.folder / "agent.log").read_text(encoding="utf-8")

    def errors(self) -> list[dict[str, Any]]:
        """Return what the log has of the agent's own defects."""
        lines = [json.loads(line) for line in self.log().splitlines() if line.startswith("{")]
        return [line for line in lines if line["level"] == "error"]


@contextlib.contextmanager
def agent_process(folder: Path, socket: Path, machine: str = MACHINE) -> Iterator[WireProcess]:
    """Run an agent until the end of the block; then it ends at SIGTERM with code 0, without internal errors."""
    configuration = folder / "agent.yaml"
    configuration.write_text(_CONFIGURATION.format(folder=folder, socket=socket), encoding="utf-8")
    with (folder / "agent.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mooring", "agent", "--config", str(configuration), "--machine", machine],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    made = WireProcess(folder, process)
    try:
        until(made.is_ready, "the agent is ready")
        yield made
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0, made.log()[-3000:]
    assert made.errors() == []
