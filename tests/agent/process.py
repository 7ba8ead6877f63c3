"""The agent as a process of its own, on a machine of the simulation and a runtime that the test plays."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from tests.agent.nri.runtime_side import RuntimeSide
from tests.agent.whole_agent import MACHINE, Listening, pod, until, whole

from mooring.agent.nri.types import ContainerState, PodSandbox, RuntimeContainer
from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

PATIENCE = 90.0
"""Seconds after which a test gives up on a process; on a machine with nothing else to do it takes one or two."""
_CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {state}
nriSocket: {folder}/nri.sock
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
podResourcesSocket: ""
metricsAddress: ""
replyBudget: 60s
nodeName: edge-9
{more}
"""


@dataclass
class Manager:
    """The service manager's socket, and what it has heard."""

    path: Path
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        self._socket.settimeout(PATIENCE)

    def until(self, wanted: str) -> list[str]:
        """Listen until something is said, and return what was said before it."""
        before: list[str] = []
        while wanted not in (said := self._socket.recv(4096).decode()):
            before.append(said)
        self.heard += [*before, said]
        return before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@dataclass
class AgentProcess:
    """An agent that is started, killed and started again over one folder."""

    folder: Path
    state: Path
    more: str = ""
    machine: str = MACHINE
    configuration: str = _CONFIGURATION
    before: Sequence[str] = ()
    """Words before the program's: a command that runs it somewhere else."""
    program: Sequence[str] = (sys.executable, "-m", "mooring")
    environment: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.folder / "agent.yaml"

    @property
    def log(self) -> list[dict[str, Any]]:
        lines = (self.folder / "log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    @property
    def status(self) -> dict[str, Any]:
        return ask_status(str(self.folder / "status.sock"))

    @property
    def findings(self) -> list[str]:
        return [line["finding"] for line in self.log if "finding" in line]

    def configure(self, more: str | None = None) -> None:
        """Write the configuration, so that nobody sees a half of it."""
        text = self.configuration.format(folder=self.folder, state=self.state, more=self.more if more is None else more)
        beside = self.folder / "new.yaml"
        beside.write_text(text, encoding="utf-8")
        beside.replace(self.file)

    def words(self) -> list[str]:
        return [*self.before, *self.program, "agent", "--config", str(self.file), "--machine", self.machine]

    def start(self) -> None:
        self.configure()
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                self.words(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={**os.environ, **self.environment}
            )

    def end(self, sign: signal.Signals = signal.SIGTERM) -> int:
        """End the agent and return its exit code; with SIGKILL it does not know."""
        assert self.process is not None
        self.process.send_signal(sign)
        code = self.process.wait(PATIENCE)
        self.process = None
        return code

    def refused(self) -> str:
        """Start an agent that cannot begin, and return the one line that it says; its exit code is 2."""
        done = subprocess.run(self.words(), capture_output=True, text=True, check=False, timeout=PATIENCE)
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        return line

    def is_ready(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text(encoding="utf-8")[-2000:]
        with suppress(InputError):
            return bool(self.status["ready"])
        return False

    def until_ready(self) -> None:
        until(self.is_ready, "the agent is ready", seconds=PATIENCE)

    def until_found(self, finding: str) -> None:
        """Wait for a finding in the log: it is written after the state that it speaks of is seen."""
        until(lambda: finding in self.findings, f"{finding} is in the log", seconds=PATIENCE)


@contextmanager
def agent_in(folder: Path, **settings: Any) -> Iterator[tuple[AgentProcess, Listening]]:
    """Offer an agent that is not started, and its runtime; whatever runs at the end is killed."""
    listening = Listening(folder / "nri.sock", PATIENCE)
    made = AgentProcess(folder, settings.pop("state", folder / "state"), **settings)
    made.configure()
    try:
        yield made, listening
    finally:
        if made.process is not None:
            made.end(signal.SIGKILL)
        listening.close()


def kubelets(name: str) -> PodSandbox:
    """Return a Guaranteed pod's sandbox, in the cgroup that the kubelet makes for it."""
    return replace(pod(name), cgroup_parent=f"/kubepods/poduid-{name}")


@dataclass
class World:
    """What runs on the runtime, as the test plays it."""

    pods: list[PodSandbox] = field(default_factory=list)
    containers: list[RuntimeContainer] = field(default_factory=list)

    def create(self, runtime: RuntimeSide, name: str, cpus: int) -> str:
        """Create a container and return the CPUs that it was given."""
        asked = whole(name, cpus)
        given = runtime.create(kubelets(name), asked).adjust.linux.resources.cpu
        quota = given.quota.value if given.HasField("quota") else asked.resources.quota
        record = replace(asked.resources, cpus=given.cpus, quota=quota)
        self.pods.append(kubelets(name))
        self.containers.append(replace(asked, state=ContainerState.RUNNING, resources=record))
        return str(given.cpus)

    def synchronize(self, runtime: RuntimeSide) -> list[tuple[str, str]]:
        """Tell everything, and return which containers are to have other CPUs."""
        reply = runtime.synchronize(self.pods, self.containers)
        return [(one.container_id, one.linux.resources.cpu.cpus) for one in reply.update]


@dataclass(frozen=True)
class SmallDisk:
    """A file system of its own that only processes inside of a namespace see."""

    folder: Path
    holder: int

    @property
    def inside(self) -> tuple[str, ...]:
        """Words that run a command where the file system is."""
        return ("nsenter", "-t", str(self.holder), "-m")

    @property
    def seen(self) -> Path:
        """The folder as this process can reach it."""
        return Path(f"/proc/{self.holder}/root{self.folder}")

    def fill(self) -> Callable[[], None]:
        """Leave no room, and return what makes room again."""
        file = self.seen / "filler"
        with suppress(OSError), file.open("wb", buffering=0) as stream:
            while True:
                stream.write(b"x" * 512)
        return file.unlink

    def protect(self) -> Callable[[], None]:
        """Make it read-only, and return what makes it writable again."""
        self._remount("ro")
        return lambda: self._remount("rw")

    def _remount(self, how: str) -> None:
        subprocess.run([*self.inside, "mount", "-o", f"remount,{how}", str(self.folder)], check=True, timeout=PATIENCE)


def why_no_small_disk() -> str:
    """Return why no file system can be mounted here, or nothing."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return "needs unshare and nsenter"
    tried = ["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    return (
        ""
        if subprocess.run(tried, capture_output=True, check=False, timeout=PATIENCE).returncode == 0
        else "needs root"
    )


@contextmanager
def small_disk(folder: Path) -> Iterator[SmallDisk]:
    """Mount a file system of 512 KiB over a folder, for as long as the block lasts."""
    folder.mkdir()
    script = 'mount -t tmpfs -o size=512k tmpfs "$1" && echo mounted && exec cat'
    words = ["unshare", "-m", "sh", "-c", script, "sh", str(folder)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"mounted\n"
        yield SmallDisk(folder, holder.pid)
    finally:
        holder.stdin.close()
        holder.wait(PATIENCE)
        holder.stdout.close()


def begun(agent: AgentProcess, listening: Listening) -> tuple[World, RuntimeSide]:
    """Start an agent beside a runtime that has nothing yet."""
    agent.start()
    world, runtime = World(), listening.next()
    world.synchronize(runtime)
    return world, runtime
