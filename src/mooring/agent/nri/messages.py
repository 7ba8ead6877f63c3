"""The messages of NRI 0.8 to 0.12.5, and ttRPC: a client that calls and a server that is called over one connection.

What a runtime of an older release does not know it skips, and what a runtime sends beyond these declarations is kept as
unknown fields, so one set of messages serves all of them. Enums are numbers here: a later release may have more
values (:mod:`mooring.agent.nri.types` names those that matter). Source for numbers, names and types: containerd/nri
v0.8.0 and v0.12.5, pkg/api/api.proto.

``ContainerRequestMessage`` stands for all that have at most these fields under names of their own, such as
RunPodSandboxRequest and StartContainerRequest, and ``UpdatesResponseMessage`` for the answers to UpdateContainer and
StopContainer.

Whatever breaks the protocol ends the connection: bytes that are out of step once never fall into step again. What is
merely unwelcome, such as an unknown method, is answered with a status. Source: containerd/ttrpc PROTOCOL.md, client.go
and server.go.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from google.protobuf.message import DecodeError

from mooring.agent.nri.connection import Connection, MessageType, TTRPCMessage, encode_message, message_reader
from mooring.agent.nri.types import CallTimeoutError, ConnectionLostError, ProtocolError, RemoteError
from mooring.service.messages import Int32, Int64, Map, Repeated, TypedMessage, UInt32, UInt64, at

PACKAGE: Final = "nri.pkg.api.v1alpha1"
PLUGIN_SERVICE: Final = f"{PACKAGE}.Plugin"
RUNTIME_SERVICE: Final = f"{PACKAGE}.Runtime"


class RegisterPluginRequestMessage(TypedMessage, package=PACKAGE):
    plugin_name: str = at(1)
    plugin_idx: str = at(2)
    NRI_version: str = at(3)


class OptionalInt64Message(TypedMessage, package=PACKAGE):
    value: Int64 = at(1)


class OptionalUInt64Message(TypedMessage, package=PACKAGE):
    value: UInt64 = at(1)


class LinuxMemoryMessage(TypedMessage, package=PACKAGE):
    limit: OptionalInt64Message = at(1)


class LinuxCPUMessage(TypedMessage, package=PACKAGE):
    shares: OptionalUInt64Message = at(1)
    quota: OptionalInt64Message = at(2)
    period: OptionalUInt64Message = at(3)
    cpus: str = at(6)
    mems: str = at(7)


class LinuxResourcesMessage(TypedMessage, package=PACKAGE):
    memory: LinuxMemoryMessage = at(1)
    cpu: LinuxCPUMessage = at(2)


class LinuxContainerUpdateMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(1)


class ContainerUpdateMessage(TypedMessage, package=PACKAGE):
    container_id: str = at(1)
    linux: LinuxContainerUpdateMessage = at(2)
    ignore_failure: bool = at(3)


class ConfigureRequestMessage(TypedMessage, package=PACKAGE):
    config: str = at(1)
    runtime_name: str = at(2)
    runtime_version: str = at(3)
    registration_timeout: Int64 = at(4)
    request_timeout: Int64 = at(5)
    NRI_version: str = at(6)


class FailurePolicyMessage(TypedMessage, package=PACKAGE):
    fail_request: bool = at(1)


class ConfigureResponseMessage(TypedMessage, package=PACKAGE):
    events: Int32 = at(2)
    failure_policy: FailurePolicyMessage = at(3)


class LinuxPodSandboxMessage(TypedMessage, package=PACKAGE):
    pod_overhead: LinuxResourcesMessage = at(1)
    pod_resources: LinuxResourcesMessage = at(2)
    cgroup_parent: str = at(3)
    cgroups_path: str = at(4)


class PodSandboxMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    name: str = at(2)
    uid: str = at(3)
    namespace: str = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    linux: LinuxPodSandboxMessage = at(8)
    pid: UInt32 = at(9)


class MountMessage(TypedMessage, package=PACKAGE):
    destination: str = at(1)
    type: str = at(2)
    source: str = at(3)
    options: Repeated[str] = at(4)


class LinuxContainerMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(3)
    cgroups_path: str = at(5)


class NRIContainerMessage(TypedMessage, package=PACKAGE):
    id: str = at(1)
    pod_sandbox_id: str = at(2)
    name: str = at(3)
    state: Int32 = at(4)
    labels: Map[str, str] = at(5)
    annotations: Map[str, str] = at(6)
    env: Repeated[str] = at(8)
    linux: LinuxContainerMessage = at(11)
    pid: UInt32 = at(12)


class SynchronizeRequestMessage(TypedMessage, package=PACKAGE):
    pods: Repeated[PodSandboxMessage] = at(1)
    containers: Repeated[NRIContainerMessage] = at(2)
    more: bool = at(3)


class SynchronizeResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)
    more: bool = at(2)


class KeyValueMessage(TypedMessage, package=PACKAGE):
    key: str = at(1)
    value: str = at(2)


class LinuxContainerAdjustmentMessage(TypedMessage, package=PACKAGE):
    resources: LinuxResourcesMessage = at(2)


class ContainerAdjustmentMessage(TypedMessage, package=PACKAGE):
    annotations: Map[str, str] = at(2)
    mounts: Repeated[MountMessage] = at(3)
    env: Repeated[KeyValueMessage] = at(4)
    linux: LinuxContainerAdjustmentMessage = at(6)


class CreateContainerResponseMessage(TypedMessage, package=PACKAGE):
    adjust: ContainerAdjustmentMessage = at(1)
    update: Repeated[ContainerUpdateMessage] = at(2)


class UpdateContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class UpdatesResponseMessage(TypedMessage, package=PACKAGE):
    update: Repeated[ContainerUpdateMessage] = at(1)


class UpdatePodSandboxRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    overhead_linux_resources: LinuxResourcesMessage = at(2)
    linux_resources: LinuxResourcesMessage = at(3)


class StateChangeEventMessage(TypedMessage, package=PACKAGE):
    event: Int32 = at(1)
    pod: PodSandboxMessage = at(2)
    container: NRIContainerMessage = at(3)


class ContainerRequestMessage(TypedMessage, package=PACKAGE):
    pod: PodSandboxMessage = at(1)
    container: NRIContainerMessage = at(2)


class TTRPCKeyValueMessage(TypedMessage, package="ttrpc"):
    """A header of a call (request.proto of containerd/ttrpc v1.2.7, as those below)."""

    key: str = at(1)
    value: str = at(2)


class TTRPCRequestMessage(TypedMessage, package="ttrpc"):
    """The body of a request."""

    service: str = at(1)
    method: str = at(2)
    payload: bytes = at(3)
    timeout_nano: Int64 = at(4)
    metadata: Repeated[TTRPCKeyValueMessage] = at(5)


class TTRPCStatusMessage(TypedMessage, package="ttrpc"):
    """google.rpc.Status."""

    code: Int32 = at(1)
    message: str = at(2)


class TTRPCResponseMessage(TypedMessage, package="ttrpc"):
    """The body of a response."""

    status: TTRPCStatusMessage = at(1)
    payload: bytes = at(2)


class Status(IntEnum):
    """The gRPC status codes that matter here."""

    OK = 0
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13


@dataclass(frozen=True, slots=True)
class Request:
    """A call that has come in."""

    stream: int
    service: str
    method: str
    payload: bytes
    timeout: float | None = None
    """Seconds that the caller waits, or None when it did not say."""


class TTRPCServer:
    """Takes calls on one connection; each is answered once, by any thread, in any order."""

    def __init__(self, connection: Connection, number: int, take: Callable[[Request], None]) -> None:
        """Open the connection for calls.

        Args:
            connection: not yet started.
            number: which of the multiplexed connections.
            take: gets every call, in the reader's thread: it must be quick.
        """
        self._connection = connection
        self._number = number
        self._take = take
        self._messages = message_reader()
        self._last_stream = 0
        connection.open(number, self._receive)

    def answer(self, request: Request, payload: bytes) -> None:
        """Answer a call.

        Raises:
            ConnectionLostError: when the caller is gone.
            OversizedError: when the answer is too large; nothing was sent.
        """
        self._send(request, TTRPCResponseMessage(payload=payload, status=TTRPCStatusMessage()).SerializeToString())

    def refuse(self, request: Request, code: Status, text: str) -> None:
        """Answer a call with an error.

        Raises:
            ConnectionLostError: when the caller is gone.
        """
        status = TTRPCStatusMessage(code=int(code), message=text)
        self._send(request, TTRPCResponseMessage(status=status).SerializeToString())

    def _send(self, request: Request, body: bytes) -> None:
        data = encode_message(TTRPCMessage(request.stream, MessageType.RESPONSE, body))
        self._connection.send(self._number, data)

    def _receive(self, data: bytes) -> None:
        for message in self._messages.feed(data):
            if message.type != MessageType.REQUEST:
                raise ProtocolError(f"a message of type {message.type} where a request was expected")
            # A client counts its streams upwards with odd numbers, so a repeated or belated request shows.
            if message.stream % 2 != 1 or message.stream <= self._last_stream:
                raise ProtocolError(f"a request on stream {message.stream} after one on stream {self._last_stream}")
            self._last_stream = message.stream
            try:
                request = TTRPCRequestMessage.FromString(message.body)
            except DecodeError as error:
                raise ProtocolError(f"the request on stream {message.stream} is not protobuf") from error
            timeout = request.timeout_nano / 1e9 if request.timeout_nano > 0 else None
            self._take(Request(message.stream, request.service, request.method, request.payload, timeout))


class TTRPCClient:
    """Makes calls on one connection, from any thread."""

    def __init__(self, connection: Connection, number: int) -> None:
        self._connection = connection
        self._number = number
        self._messages = message_reader()
        self._lock = threading.Lock()
        self._last_stream = -1
        # Each receives the body of its answer, or None from a connection that is closed.
        self._waiting: dict[int, queue.SimpleQueue[bytes | None]] = {}
        connection.open(number, self._receive)
        connection.when_closed(self._give_up)

    def call(self, service: str, method: str, payload: bytes, timeout: float) -> bytes:
        """Call a method and return the payload of its answer.

        Args:
            service: full name of the service.
            method: short name of the method.
            payload: the serialised request.
            timeout: seconds to wait.

        Raises:
            RemoteError: when the answer is an error.
            CallTimeoutError: when there is no answer in time.
            ConnectionLostError: when the connection is closed before the answer.
        """
        request = TTRPCRequestMessage(service=service, method=method, payload=payload, timeout_nano=int(timeout * 1e9))
        call: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        with self._lock:
            # Streams must reach the other side in order, so the number is drawn under the same lock.
            self._last_stream += 2
            stream = self._last_stream
            self._waiting[stream] = call
            body = request.SerializeToString()
            try:
                self._connection.send(self._number, encode_message(TTRPCMessage(stream, MessageType.REQUEST, body)))
            except Exception:
                del self._waiting[stream]
                raise
        try:
            answer = call.get(timeout=timeout)
        except queue.Empty:
            raise CallTimeoutError(f"no answer to {method} within {timeout:g} s") from None
        finally:
            with self._lock:
                self._waiting.pop(stream, None)
        if answer is None:
            raise self._connection.lost or ConnectionLostError("closed by this side")
        try:
            response = TTRPCResponseMessage.FromString(answer)
        except DecodeError as error:
            raise RemoteError(Status.INTERNAL, "the response is not protobuf") from error
        if response.status.code != Status.OK:
            raise RemoteError(response.status.code, response.status.message)
        return response.payload

    def _receive(self, data: bytes) -> None:
        for message in self._messages.feed(data):
            if message.type != MessageType.RESPONSE:
                raise ProtocolError(f"a message of type {message.type} where a response was expected")
            with self._lock:
                if message.stream % 2 != 1 or message.stream > self._last_stream:
                    raise ProtocolError(f"a response on stream {message.stream}, on which nothing was requested")
                call = self._waiting.pop(message.stream, None)
            if call is not None:
                call.put(message.body)

    def _give_up(self, _: ConnectionLostError) -> None:
        # Without the lock: a caller may hold it while its own writing breaks the connection.
        for call in list(self._waiting.values()):
            call.put(None)
