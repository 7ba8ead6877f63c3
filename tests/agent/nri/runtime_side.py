"""The other side of a plugin: what a runtime says and hears, over a pair of sockets and with real frames."""

from __future__ import annotations

import queue
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mooring.agent.nri.connection import PLUGIN_CONNECTION, RUNTIME_CONNECTION, Connection
from mooring.agent.nri.messages import (
    PLUGIN_SERVICE,
    ConfigureRequestMessage,
    ConfigureResponseMessage,
    ContainerRequestMessage,
    CreateContainerResponseMessage,
    NRIContainerMessage,
    PodSandboxMessage,
    RegisterPluginRequestMessage,
    Request,
    StateChangeEventMessage,
    Status,
    SynchronizeRequestMessage,
    SynchronizeResponseMessage,
    TTRPCClient,
    TTRPCServer,
    UpdateContainerRequestMessage,
    UpdatesResponseMessage,
)
from mooring.agent.nri.methods import resources_from, resources_to
from mooring.agent.nri.session import PluginOptions, Session
from mooring.agent.nri.types import (
    ContainerAdjustment,
    ContainerUpdate,
    Event,
    LinuxResources,
    LostAnswer,
    NRIError,
    PodSandbox,
    Runtime,
    RuntimeContainer,
    SessionObserver,
)

TIMEOUT = 60.0
"""Seconds after which a test gives up; nothing waits that long."""

REPLIES: dict[str, Any] = {
    "ConfigureResponse": ConfigureResponseMessage,
    "CreateContainerResponse": CreateContainerResponseMessage,
    "SynchronizeResponse": SynchronizeResponseMessage,
    "UpdatesResponse": UpdatesResponseMessage,
}
"""What a plugin answers."""

POD = PodSandbox("pod-1", "uid-1", "web", "default", cgroup_parent="/kubepods/poduid-1")
CONTAINER = RuntimeContainer(
    "container-1", "pod-1", "app", resources=LinuxResources(shares=1024, quota=100000, period=100000)
)


class RuntimeSide:
    """A runtime that calls when it is told to."""

    def __init__(self, trunk: socket.socket, *, refuse_registration: str = "", silent: bool = False) -> None:
        self.connection = Connection(trunk)
        self._refuse = refuse_registration
        self._silent = silent
        self.registered: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._server = TTRPCServer(self.connection, RUNTIME_CONNECTION, self._take)
        self._client = TTRPCClient(self.connection, PLUGIN_CONNECTION)
        self.connection.start()

    def call(self, method: str, message: Any, reply: str = "UpdatesResponse", timeout: float = TIMEOUT) -> Any:
        payload = message if isinstance(message, bytes) else message.SerializeToString()
        return REPLIES[reply].FromString(self._client.call(PLUGIN_SERVICE, method, payload, timeout))

    def configure(self, runtime: Runtime = Runtime("containerd", "v2.4.2", "v0.12.3"), config: str = "") -> Any:  # noqa: B008 - a frozen value
        request = ConfigureRequestMessage(
            config=config,
            runtime_name=runtime.name,
            runtime_version=runtime.version,
            NRI_version=runtime.nri_version,
            request_timeout=2000,
        )
        return self.call("Configure", request, "ConfigureResponse")

    def synchronize(
        self, pods: Sequence[PodSandbox] = (), containers: Sequence[RuntimeContainer] = (), *, more: bool = False
    ) -> Any:
        request = SynchronizeRequestMessage(pods=map(pod_to, pods), containers=map(container_to, containers), more=more)
        return self.call("Synchronize", request, "SynchronizeResponse")

    def create(self, pod: PodSandbox = POD, container: RuntimeContainer = CONTAINER, timeout: float = TIMEOUT) -> Any:
        return self.call("CreateContainer", about(pod, container), "CreateContainerResponse", timeout)

    def update(self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources) -> Any:
        request = UpdateContainerRequestMessage(
            pod=pod_to(pod), container=container_to(container), linux_resources=resources_to(resources)
        )
        return self.call("UpdateContainer", request)

    def stop(self, pod: PodSandbox = POD, container: RuntimeContainer = CONTAINER) -> Any:
        return self.call("StopContainer", about(pod, container))

    def state_change(self, event: int, pod: PodSandbox | None = POD, container: RuntimeContainer | None = None) -> None:
        request = StateChangeEventMessage(event=event)
        if pod is not None:
            request.pod.CopyFrom(pod_to(pod))
        if container is not None:
            request.container.CopyFrom(container_to(container))
        self.call("StateChange", request)

    def close(self) -> None:
        self.connection.close()

    def _take(self, request: Request) -> None:
        if self._silent:
            return
        if request.method == "RegisterPlugin":
            message = RegisterPluginRequestMessage.FromString(request.payload)
            if self._refuse:
                self._server.refuse(request, Status.UNKNOWN, self._refuse)
            else:
                self._server.answer(request, b"")
            self.registered.put((message.plugin_idx, message.plugin_name))
        else:
            self._server.refuse(request, Status.UNIMPLEMENTED, f"method {request.method}")


def about(pod: PodSandbox, container: RuntimeContainer) -> Any:
    return ContainerRequestMessage(pod=pod_to(pod), container=container_to(container))


@dataclass(slots=True)
class Pinning:
    """A handler that pins every container to CPU 1, updates what it is told to, and remembers everything."""

    updates: Sequence[ContainerUpdate] = ()
    events: frozenset[Event] = frozenset(Event)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    raises: Exception | None = None
    hold: threading.Event | None = None
    """Until it is set, requests about containers are not answered."""

    def configure(self, config: str, runtime: str, version: str) -> frozenset[Event]:
        self.calls.append(("configure", config, runtime, version))
        return self.events

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        self.calls.append(("synchronize", list(pods), list(containers)))
        return self._answer()

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        self.calls.append(("create", pod, container))
        return ContainerAdjustment(LinuxResources(cpus="1", mems="0")), self._answer()

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        self.calls.append(("update", pod, container, resources))
        return self._answer()

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        self.calls.append(("stop", pod, container))
        return self._answer()

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        self.calls.append(("event", event, pod, container))
        self._answer()

    def _answer(self) -> Sequence[ContainerUpdate]:
        if self.hold is not None:
            assert self.hold.wait(TIMEOUT)
        if self.raises is not None:
            raise self.raises
        return self.updates


@dataclass(slots=True)
class Listening(SessionObserver):
    """Remembers what it is told."""

    told: list[tuple[Any, ...]] = field(default_factory=list)
    lost_answers: queue.SimpleQueue[LostAnswer] = field(default_factory=queue.SimpleQueue)

    def connected(self, runtime: Runtime) -> None:
        self.told.append(("connected", runtime))

    def synchronized(self, pods: int, containers: int) -> None:
        self.told.append(("synchronized", pods, containers))

    def answered(self, method: str, seconds: float, *, refused: bool) -> None:
        assert seconds >= 0
        self.told.append(("answered", method, refused))

    def lost(self, answer: LostAnswer) -> None:
        self.told.append(("lost", answer.method, answer.loss, answer.refused))
        self.lost_answers.put(answer)

    def failed(self, method: str, error: Exception) -> None:
        self.told.append(("failed", method, error))

    def disconnected(self, why: NRIError, retry_in: float) -> None:
        self.told.append(("disconnected", why, retry_in))


@dataclass(slots=True)
class Pair:
    """A plugin's session, worked by a thread, and its runtime."""

    session: Session
    runtime: RuntimeSide
    handler: Pinning
    observer: Listening
    ended: queue.SimpleQueue[NRIError]
    thread: threading.Thread

    def introduce(self) -> None:
        self.runtime.registered.get(timeout=TIMEOUT)
        self.runtime.configure()
        self.runtime.synchronize()

    def release(self) -> LostAnswer:
        """Let a handler that waits go on, and return the first answer that was lost."""
        assert self.handler.hold is not None
        self.handler.hold.set()
        return self.observer.lost_answers.get(timeout=TIMEOUT)

    def close(self) -> None:
        self.session.close()
        self.runtime.close()
        self.thread.join(TIMEOUT)
        assert not self.thread.is_alive()


def worked(session: Session) -> tuple[threading.Thread, queue.SimpleQueue[NRIError]]:
    """Let a thread register and answer until the connection ends; return it, and where it says why."""
    ended: queue.SimpleQueue[NRIError] = queue.SimpleQueue()

    def work() -> None:
        try:
            session.register()
            while True:
                session.step()
        except NRIError as why:
            ended.put(why)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, ended


def make_pair(handler: Pinning | None = None, options: PluginOptions | None = None, **settings: Any) -> Pair:
    """Return a session whose thread registers and answers until the connection ends; ``ended`` says why it did."""
    ours, theirs = socket.socketpair()
    handler, observer = handler or Pinning(), Listening()
    session = Session(ours, handler, options or PluginOptions(budget=TIMEOUT, call_timeout=TIMEOUT), observer)
    runtime = RuntimeSide(theirs, **settings)
    thread, ended = worked(session)
    return Pair(session, runtime, handler, observer, ended, thread)


# Recordings of what went over the socket between this package and a real runtime, byte for byte.
#
# A line is a piece as it was read or written: ``<`` from the runtime or ``>`` from the plugin, a space, and the bytes
# in hexadecimal.


FOLDER = Path(__file__).parent / "recorded"


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes in one direction; neighbours of the same direction are one piece."""

    from_runtime: bool
    data: bytes


def read_recording(path: Path) -> list[Piece]:
    pieces: list[Piece] = []
    for line in path.read_text(encoding="ascii").splitlines():
        mark, data = line.split(" ", 1)
        pieces.append(Piece(mark == "<", bytes.fromhex(data)))
    return pieces


@dataclass(slots=True)
class Scripted:
    """The plugin of the recordings: CPU 1 for the first container, CPU 0 for the second, and the first one follows."""

    seen: list[str] = field(default_factory=list)
    first: str = ""

    def configure(self, config: str, runtime: str, version: str) -> frozenset[Event]:
        self.seen.append(f"Configure {config!r} {runtime} {version}")
        return frozenset(Event)

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        names = [f"{found.name}={found.resources.cpus}" for found in containers]
        self.seen.append(" ".join(["Synchronize", *[pod.name for pod in pods], *names]))
        return [ContainerUpdate(found.id, LinuxResources(cpus="0", mems="0")) for found in containers]

    def create_container(
        self, pod: PodSandbox, container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        self.seen.append(f"Create {pod.name}/{container.name} shares={container.resources.shares}")
        if not self.first:
            self.first = container.id
            return ContainerAdjustment(LinuxResources(cpus="1", mems="0")), ()
        resources = LinuxResources(cpus="0", mems="0")
        return ContainerAdjustment(resources), [ContainerUpdate(self.first, LinuxResources(cpus="0", mems="0"))]

    def update_container(
        self, pod: PodSandbox, container: RuntimeContainer, resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        self.seen.append(f"Update {pod.name}/{container.name} shares={resources.shares}")
        return [ContainerUpdate(container.id, LinuxResources(cpus="1", mems="0"))]

    def stop_container(self, pod: PodSandbox, container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        self.seen.append(f"Stop {pod.name}/{container.name}")
        return [ContainerUpdate(self.first, LinuxResources(cpus="0-1"))] if container.id != self.first else []

    def state_change(self, event: Event, pod: PodSandbox | None, container: RuntimeContainer | None) -> None:
        about = "/".join(found.name for found in (pod, container) if found is not None)
        self.seen.append(f"{event.name} {about}")


# The messages of a runtime: the pods and containers that it sends, and the updates that it receives.


def pod_to(pod: PodSandbox) -> Any:
    """Return a pod as a message."""
    message = PodSandboxMessage(
        id=pod.id,
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        labels=dict(pod.labels),
        annotations=dict(pod.annotations),
        pid=pod.pid,
    )
    message.linux.cgroup_parent = pod.cgroup_parent
    message.linux.cgroups_path = pod.cgroups_path
    message.linux.pod_overhead.CopyFrom(resources_to(pod.overhead))
    message.linux.pod_resources.CopyFrom(resources_to(pod.pod_resources))
    return message


def container_to(container: RuntimeContainer) -> Any:
    """Return a container as a message."""
    message = NRIContainerMessage(
        id=container.id,
        pod_sandbox_id=container.pod_sandbox_id,
        name=container.name,
        state=int(container.state),
        pid=container.pid,
        labels=dict(container.labels),
        annotations=dict(container.annotations),
        env=[f"{variable}=" for variable in container.claims],
    )
    message.linux.cgroups_path = container.cgroups_path
    message.linux.resources.CopyFrom(resources_to(container.resources))
    return message


def update_from(message: Any) -> ContainerUpdate:
    """Return an update, as runtimes send back those that failed."""
    return ContainerUpdate(message.container_id, resources_from(message.linux.resources), message.ignore_failure)
