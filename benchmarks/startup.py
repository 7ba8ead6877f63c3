"""Print what starting costs: CPU time of short commands, and of an agent until it is registered and synchronized.

Every figure is also a ratio to a Python that does nothing, measured in the same run, because machines differ. The CPU
time is what the kernel has counted for all threads of the process (``/proc/PID/task/*/schedstat``).

    .venv/bin/python benchmarks/startup.py [PYTHON]
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from statistics import median

from mooring.agent.nri import messages
from mooring.agent.nri.connection import PLUGIN_CONNECTION, RUNTIME_CONNECTION, Connection
from mooring.agent.nri.messages import PLUGIN_SERVICE, Request, TTRPCClient, TTRPCServer

ROUNDS = 5
SETTLING = 5.0
"""Seconds after Synchronize until an agent is idle."""
IDLE = 20.0
"""Seconds for which an idle agent is watched."""
MACHINE = "sockets=2 numa=1 cores=32 threads=2 memory=64Gi"
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
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
metricsAddress: 127.0.0.1:0
"""


@dataclass
class Watched:
    """A process as the kernel counts it."""

    pid: int

    def cpu(self) -> float:
        """Return the CPU seconds of its threads."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def resident(self) -> float:
        """Return its resident megabytes."""
        lines = Path(f"/proc/{self.pid}/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1024


@dataclass
class Runtime:
    """A container runtime without containers, for one plugin."""

    path: Path
    registered: threading.Event = field(default_factory=threading.Event)
    """Set when the plugin has introduced itself."""
    at_registration: float = 0.0
    watched: Watched | None = None

    def __post_init__(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()

    def accept(self) -> None:
        """Take the plugin's connection."""
        self.talk(self._listener.accept()[0])

    def talk(self, trunk: socket.socket) -> None:
        """Talk to the plugin at the other end."""
        connection = Connection(trunk)
        self._server = TTRPCServer(connection, RUNTIME_CONNECTION, self._take)
        self.client = TTRPCClient(connection, PLUGIN_CONNECTION)
        connection.start()

    def call(self, method: str, **fields: object) -> None:
        """Call the plugin and wait for its answer."""
        payload = getattr(messages, f"{method}RequestMessage")(**fields).SerializeToString()
        self.client.call(PLUGIN_SERVICE, method, payload, 120.0)

    def _take(self, request: Request) -> None:
        assert self.watched is not None
        self.at_registration = self.watched.cpu()
        self._server.answer(request, b"")
        self.registered.set()


def environment() -> dict[str, str]:
    """Return an environment in which compiled modules are kept, as in every installation."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | {
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "mooring-startup-bytecode")
    }


def command(words: Sequence[str], rounds: int = ROUNDS) -> tuple[float, float]:
    """Run a command several times and return its CPU and wall seconds, the best of each."""
    found = []
    for _ in range(rounds):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(words, check=False, stdout=subprocess.DEVNULL, env=environment())
        assert done.returncode in (0, 1), words
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        found.append((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall))
    return min(cpu for cpu, _ in found), min(wall for _, wall in found)


def agent(python: str, *, idle: bool = False, given: bool = False) -> dict[str, float]:
    """Run an agent and return its figures.

    Args:
        python: runs it.
        idle: whether it is watched while nothing happens.
        given: whether the runtime starts it, and gives it a connection.
    """
    with tempfile.TemporaryDirectory(prefix="mooring-") as name:
        folder = Path(name)
        runtime = Runtime(folder / "nri.sock")
        (folder / "agent.yaml").write_text(CONFIGURATION.format(folder=folder), encoding="utf-8")
        words = [python, "-m", "mooring", "agent", "--config", str(folder / "agent.yaml"), "--machine", MACHINE]
        variables, ours, theirs = environment(), *socket.socketpair()
        if given:
            variables |= {"NRI_PLUGIN_SOCKET": str(theirs.fileno()), "NRI_PLUGIN_IDX": "50"}
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, env=variables, pass_fds=[theirs.fileno()])
        theirs.close()
        runtime.watched = Watched(process.pid)
        try:
            if given:
                runtime.talk(ours)
            else:
                runtime.accept()
            runtime.registered.wait(60)
            runtime.call("Configure", runtime_name="containerd", runtime_version="v2.4.2", request_timeout=2000)
            runtime.call("Synchronize")
            found = {"registered": runtime.at_registration, "synchronized": runtime.watched.cpu()}
            if idle:
                found |= watched(runtime.watched, folder)
        finally:
            process.terminate()
            process.wait()
    return found


def watched(process: Watched, folder: Path) -> dict[str, float]:
    """Return the figures of an agent that does nothing, after everything that it serves was asked for once."""
    log, port = folder / "log", 0
    time.sleep(SETTLING)
    for inode in Path(f"/proc/{process.pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        words = inode.split()
        if words[3] == "0A" and any(_is_socket(one, words[9]) for one in Path(f"/proc/{process.pid}/fd").iterdir()):
            port = int(words[1].split(":")[1], 16)
    assert port, log.read_text(encoding="utf-8")
    before = process.resident()
    for path in ("/healthz", "/readyz", "/metrics"):
        with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
            connection.request("GET", path)
            assert connection.getresponse().read()
    with closing(HTTPConnection("agent", timeout=60)) as connection:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(folder / "status.sock"))
        connection.request("GET", "/status")
        assert connection.getresponse().read()
    time.sleep(SETTLING)
    settled = process.cpu()
    time.sleep(IDLE)
    return {"idle": (process.cpu() - settled) / IDLE, "untouched": before, "resident": process.resident()}


def _is_socket(descriptor: Path, inode: str) -> bool:
    try:
        return str(descriptor.readlink()) == f"socket:[{inode}]"
    except OSError:
        return False


def main(python: str) -> None:
    """Measure and print."""
    nothing, _ = command([python, "-c", "pass"])
    say = sys.stdout.write
    say(f"{'':34}{'CPU ms':>8}{'ratio':>7}{'wall ms':>9}\n")
    plan = ["plan", "-f", f"{EXAMPLES}/pods.yaml", "--machine", "epyc-7763-2s-nps4", "--config"]
    plan.append(f"{EXAMPLES}/kubelet.yaml")
    for name, words in {"python -c pass": ["-c", "pass"], "mooring --version": ["-m", "mooring", "--version"]}.items():
        cpu, wall = command([python, *words])
        say(f"{name:34}{cpu * 1e3:8.0f}{cpu / nothing:7.1f}{wall * 1e3:9.0f}\n")
    cpu, wall = command([python, "-m", "mooring", *plan])
    say(f"{'mooring plan (README)':34}{cpu * 1e3:8.0f}{cpu / nothing:7.1f}{wall * 1e3:9.0f}\n")
    for given, kind in ((False, "agent"), (True, "agent started by runtime")):
        runs = [agent(python, given=given) for _ in range(ROUNDS)]
        for name in ("registered", "synchronized"):
            cpu = median(run[name] for run in runs)
            say(f"{f'{kind}: {name}':34}{cpu * 1e3:8.0f}{cpu / nothing:7.1f}\n")
    found = agent(python, idle=True)
    say(f"agent: resident {found['untouched']:.1f} MB, {found['resident']:.1f} MB after clients of all pages; ")
    say(f"idle {found['idle'] * 100:.3f} % of a core\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else sys.executable)
