"""The simulated runtime behind a socket: it takes plugins, speaks real frames, and gives up whoever is too slow.

As containerd does: a plugin registers, is configured and told what there is, one plugin after another; from then on
each call waits for its answer, and a plugin that is silent for too long loses its connection while the runtime goes on.
A kubelet runs pods on it, and an agent is a process of its own beside it.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import DecodeError
from tests.agent.nri.runtime_side import RuntimeSide, about, container_to, pod_to, update_from
from tests.agent.process import AgentProcess
from tests.agent.simulated_runtime import KilledError, Runtime
from tests.agent.whole_agent import whole

from mooring.agent.nri.messages import (
    ConfigureRequestMessage,
    ContainerRequestMessage,
    SynchronizeRequestMessage,
    UpdateContainerRequestMessage,
)
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
        message = ConfigureRequestMessage(
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
            message = SynchronizeRequestMessage(
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
        message = UpdateContainerRequestMessage(
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
        message = ContainerRequestMessage()
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
        refused = len(self.wired.runtime.refusals)
        made = self.wired.does(lambda runtime: runtime.bring_up(sandbox, name, whole("", cpus).resources))
        self.containers += 1
        if len(self.wired.runtime.refusals) > refused:
            self.refused += 1
            if made is not None:
                self.wired.does(lambda runtime: runtime.remove(made))
            return None
        if cpus and made is not None:
            self.exclusive[made] = cpus
        return made

    def stop(self, container: str) -> None:
        """Stop and remove a container."""
        self.exclusive.pop(container, None)
        self.wired.does(lambda runtime: runtime.exit(container))
        self.wired.does(lambda runtime: runtime.remove(container))

    def end(self, sandbox: str) -> None:
        """Stop and remove a pod, as the kubelet does: containers, sandbox, and then what is left of both."""
        for container in self.wired.does(lambda runtime: runtime.end_pod(sandbox)):
            self.exclusive.pop(container, None)

    def end_all(self) -> None:
        """Take every pod away."""
        for sandbox in [*self.wired.runtime.sandboxes]:
            self.end(sandbox)


CONFIGURATION = """\
kind: KubeletConfiguration
cpuManagerPolicy: static
topologyManagerPolicy: best-effort
reservedSystemCPUs: "0"
---
kind: AgentConfiguration
stateDir: {state}
nriSocket: {folder}/nri.sock
assignedDir: {folder}/assigned
statusSocket: {folder}/status.sock
podResourcesSocket: {folder}/pods.sock
metricsAddress: 127.0.0.1:0
replyBudget: 60s
logLevel: info
"""


MACHINE = "sockets=1 numa=2 cores=16 threads=1 memory=32Gi"


@contextmanager
def running(folder: Path, machine: str = MACHINE) -> Iterator[AgentProcess]:
    """Run an agent until the end of the block; then it ends at SIGTERM with code 0, without internal errors."""
    made = AgentProcess(folder, folder / "state", machine=machine, configuration=CONFIGURATION)
    made.start()
    try:
        made.until_ready()
        yield made
    finally:
        code = made.end()
    assert code == 0, made.log[-10:]
    assert [line for line in made.log if line["level"] == "error"] == []


def resident(agent: AgentProcess) -> int:
    """Return the resident memory of an agent in bytes."""
    assert agent.process is not None
    status = Path(f"/proc/{agent.process.pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmRSS:\s*(\d+)", status)[0]) * 1024


def of_process(agent: AgentProcess, what: str) -> int:
    """Return how many threads (``task``) or open files and sockets (``fd``) an agent has."""
    assert agent.process is not None
    return sum(1 for _ in Path(f"/proc/{agent.process.pid}/{what}").iterdir())
