"""The simulated runtime behind a socket: it takes plugins, speaks real frames, and gives up whoever is too slow.

As containerd does: a plugin registers, is configured and told what there is, one plugin after another; from then on
each call waits for its answer, and a plugin that is silent for too long loses its connection while the runtime goes on.
"""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from tests import patience
from tests.agent.nri.runtime_side import RuntimeSide, about, container_to, pod_to, update_from
from tests.agent.simulated_runtime import KilledError, Runtime, Stage

from mooring.agent.nri import messages
from mooring.agent.nri.methods import EVENT_METHODS, resources_from, resources_to
from mooring.agent.nri.types import (
    CallTimeoutError,
    ConnectionLostError,
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    NRIError,
    PodSandbox,
    RefusalError,
    RemoteError,
    RuntimeContainer,
)
from mooring.agent.nri.types import Runtime as Introduction
from mooring.engine.core.errors import InputError
from mooring.service.agent_status import ask_status

_METHODS = {event: method for method, event in EVENT_METHODS.items()}
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Manners:
    """How a runtime behaves."""

    introduction: Introduction
    timeout: float = 2.0
    """Seconds that it waits for an answer."""
    registration_timeout: float = 5.0
    """Seconds that a new connection may be silent; the next one waits so long."""
    split: int = 0
    """Pods and containers in a part of a Synchronize; 0 for all in one."""


NEW = Manners(Introduction("containerd", "v2.4.2", "v0.12.3"), split=3)


@dataclass(slots=True, eq=False)
class Link:
    """A plugin at the other end of a connection, as the simulated runtime calls it."""

    side: RuntimeSide
    manners: Manners
    heard: Callable[[str, str], object]
    """Is told the method and text of every refusal that the caller may ignore."""
    waits: array[float]
    """Gets the seconds for which an answer was waited."""

    def configure(self) -> None:
        """Wait for the registration and answer it with a Configure.

        Raises:
            KilledError: the plugin is gone or silent.
            RefusalError: it does not want to.
        """
        end = time.monotonic() + self.manners.registration_timeout
        while self.side.registered.empty():
            if self.side.connection.lost is not None or time.monotonic() > end:
                raise KilledError
            threading.Event().wait(0.002)
        said = self.manners.introduction
        message = messages.ConfigureRequestMessage(
            runtime_name=said.name,
            runtime_version=said.version,
            NRI_version=said.nri_version,
            request_timeout=int(self.manners.timeout * 1000),
        )
        self._call("Configure", message, "ConfigureResponse")

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        things: list[PodSandbox | RuntimeContainer] = [*pods, *containers]
        size = self.manners.split or max(len(things), 1)
        parts = [things[start : start + size] for start in range(0, len(things), size)] or [[]]
        reply: Any = None
        for number, part in enumerate(parts):
            message = messages.SynchronizeRequestMessage(
                pods=[pod_to(one) for one in part if isinstance(one, PodSandbox)],
                containers=[container_to(one) for one in part if isinstance(one, RuntimeContainer)],
                more=number + 1 < len(parts),
            )
            reply = self._call("Synchronize", message, "SynchronizeResponse")
        return [update_from(one) for one in reply.update]

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        reply = self._call("CreateContainer", about(pod, container), "CreateContainerResponse")
        adjustment = ContainerAdjustment(resources_from(reply.adjust.linux.resources))
        return adjustment, [update_from(one) for one in reply.update]

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        message = messages.UpdateContainerRequestMessage(
            pod=pod_to(pod), container=container_to(container), linux_resources=resources_to(resources)
        )
        reply = self._call("UpdateContainer", message, "UpdatesResponse")
        return [update_from(one) for one in reply.update]

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        try:
            reply = self._call("StopContainer", about(pod, container), "UpdatesResponse")
        except RefusalError as refusal:
            self.heard("StopContainer", str(refusal))
            return ()
        return [update_from(one) for one in reply.update]

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        message = messages.ContainerRequestMessage()
        if pod is not None:
            message.pod.CopyFrom(pod_to(pod))
        if container is not None:
            message.container.CopyFrom(container_to(container))
        try:
            self._call(_METHODS[event], message, "UpdatesResponse")
        except RefusalError as refusal:
            self.heard(event.name, str(refusal))
            if event is Event.START_CONTAINER:
                raise

    def close(self) -> None:
        self.side.close()

    def _call(self, method: str, message: Any, reply: str) -> Any:
        began = time.monotonic()
        try:
            return self.side.call(method, message, reply, self.manners.timeout)
        except RemoteError as error:
            raise RefusalError(error.message) from error
        except DecodeError as error:
            raise RefusalError("the answer cannot be read") from error
        except CallTimeoutError as error:
            self.side.close()
            raise KilledError from error
        except ConnectionLostError as error:
            raise KilledError from error
        finally:
            self.waits.append(time.monotonic() - began)


@dataclass
class WiredRuntime:
    """A runtime with a socket. Everything that it does happens under :attr:`lock`, one thing after another."""

    path: Path
    manners: Manners
    runtime: Runtime = field(default_factory=Runtime)
    lock: threading.RLock = field(default_factory=threading.RLock)
    synchronized: int = 0
    """How many plugins were told everything."""
    heard: list[tuple[str, str]] = field(default_factory=list)
    """Refusals that a runtime only writes into its log."""
    waits: array[float] = field(default_factory=lambda: array("d"))
    """Seconds for which each answer was waited."""

    def __post_init__(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self._listener.listen()
        self._link: Link | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="wired-runtime", daemon=True)
        self._thread.start()

    def does(self, work: Callable[[Runtime], _Result]) -> _Result:
        """Do something as the runtime; what waits behind it are new plugins."""
        with self.lock:
            return work(self.runtime)

    def close(self) -> None:
        """Hang up on everybody."""
        self._closed = True
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._link is not None:
            self._link.close()

    def _accept(self) -> None:
        while not self._closed:
            try:
                trunk, _ = self._listener.accept()
            except OSError:
                return
            self._take(Link(RuntimeSide(trunk), self.manners, self._hear, self.waits))

    def _hear(self, method: str, text: str) -> None:
        self.heard.append((method, text))

    def _take(self, link: Link) -> None:
        try:
            link.configure()
            with self.lock:
                # It is the same plugin: of the connection before, nobody hears any more.
                if self._link is not None:
                    self._link.close()
                self._link = link
                self.runtime.connect(link)
                if self.runtime.plugin is link:
                    self.synchronized += 1
        except (KilledError, NRIError):
            if self.runtime.plugin is link:
                self.runtime.plugin = None
            link.close()


# Lives of pods on a runtime with a socket, as a kubelet makes them live.


SHARED = LinuxResources(shares=2)


def whole(cpus: int) -> LinuxResources:
    """Return what the kubelet asks for a container with so many CPUs as requests and limits; 0 is best-effort."""
    if not cpus:
        return SHARED
    return LinuxResources(shares=1024 * cpus, quota=100_000 * cpus, period=100_000, memory_limit=2**28)


@dataclass
class Kubelet:
    """Runs pods and takes them away again."""

    wired: WiredRuntime
    containers: int = 0
    """How many were made."""
    refused: int = 0
    exclusive: dict[str, int] = field(default_factory=dict)
    """How many CPUs a container asked for, by its id, while it lives."""

    def run(self, uid: str, *cpus: int) -> str:
        """Run a pod with a container for each number of CPUs; return its sandbox."""
        sandbox = self.wired.does(lambda runtime: runtime.run_sandbox(uid, f"name-{uid}", {}))
        for number, count in enumerate(cpus):
            self.start(sandbox, f"c{number}", count)
        return sandbox

    def start(self, sandbox: str, name: str, cpus: int) -> str | None:
        """Create and start a container; return its id, or None when it was refused."""
        made = self.wired.does(lambda runtime: runtime.create(sandbox, name, whole(cpus)))
        self.containers += 1
        if made is None:
            self.refused += 1
            return None
        self.wired.does(lambda runtime: runtime.store(made))
        if not self.wired.does(lambda runtime: runtime.make_task(made)):
            self.refused += 1
            self.wired.does(lambda runtime: runtime.remove(made))
            return None
        self.wired.does(lambda runtime: runtime.started(made))
        if cpus:
            self.exclusive[made] = cpus
        return made

    def stop(self, container: str) -> None:
        """Stop and remove a container."""
        self.exclusive.pop(container, None)
        self.wired.does(lambda runtime: runtime.exit(container))
        self.wired.does(lambda runtime: runtime.remove(container))

    def end(self, sandbox: str) -> None:
        """Stop and remove a pod, as the kubelet does: containers, sandbox, and then what is left of both."""
        mine = [made for made in self.wired.runtime.processes.values() if made.sandbox == sandbox]
        for made in mine:
            self.exclusive.pop(made.id, None)
            if made.stage is not Stage.EXITED:
                self.wired.does(lambda runtime, made=made: runtime.exit(made.id))  # type: ignore[misc]
        self.wired.does(lambda runtime: runtime.stop_sandbox(sandbox))
        for made in mine:
            self.wired.does(lambda runtime, made=made: runtime.remove(made.id))  # type: ignore[misc]
        self.wired.does(lambda runtime: runtime.remove_sandbox(sandbox))

    def end_all(self) -> None:
        """Take every pod away."""
        for sandbox in [*self.wired.runtime.sandboxes]:
            self.end(sandbox)


# The agent as a process of its own on a runtime with a socket, with its memory as the kernel counts it.


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
