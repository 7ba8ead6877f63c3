"""What each method of the plugin's service asks and answers, from NRI messages to plain values and back.

A :class:`Dispatcher` calls the handler's method for a request, and turns its errors into answers.

What :mod:`mooring.agent.nri.types` does not name is dropped on the way.

Source: containerd/nri v0.8.0 and v0.12.5: pkg/api/api.proto (services), pkg/stub (what plugins in Go answer) and
pkg/adaptation (what a runtime makes of it).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import TypeAlias, TypeVar

from google.protobuf.message import DecodeError, Message

from mooring.agent.nri import messages, types

EVENT_METHODS: Mapping[str, types.Event] = {
    "RunPodSandbox": types.Event.RUN_POD_SANDBOX,
    "StopPodSandbox": types.Event.STOP_POD_SANDBOX,
    "RemovePodSandbox": types.Event.REMOVE_POD_SANDBOX,
    "PostCreateContainer": types.Event.POST_CREATE_CONTAINER,
    "StartContainer": types.Event.START_CONTAINER,
    "PostStartContainer": types.Event.POST_START_CONTAINER,
    "PostUpdateContainer": types.Event.POST_UPDATE_CONTAINER,
    "RemoveContainer": types.Event.REMOVE_CONTAINER,
    "UpdatePodSandbox": types.Event.UPDATE_POD_SANDBOX,
    "PostUpdatePodSandbox": types.Event.POST_UPDATE_POD_SANDBOX,
}
"""Methods of NRI 0.10 and 0.12 for what NRI 0.8 tells through StateChange."""

_FIRST_WITH_POD_UPDATES = {"containerd": (2, 2), "cri-o": (1, 34)}
"""Releases of runtimes that came with NRI 0.10, for those that do not name their NRI's version."""
_NEVER = (10**6, 0)

_POD_UPDATES = frozenset({types.Event.UPDATE_POD_SANDBOX, types.Event.POST_UPDATE_POD_SANDBOX})
_NOTHING = types.LinuxResources()


class Substitute(Enum):
    """What a runtime is answered when the handler does not answer in time."""

    ERROR = "error"
    """It gives up what it was about to do, which is the safe side."""
    EMPTY = "empty"
    """Nothing can be prevented any more."""
    SILENCE = "silence"
    """An error would cost the connection; the runtime's own timeout may be longer."""


_SUBSTITUTES = {
    "Configure": Substitute.SILENCE,
    "Synchronize": Substitute.SILENCE,
    "CreateContainer": Substitute.ERROR,
    "StartContainer": Substitute.ERROR,
    "UpdateContainer": Substitute.ERROR,
    "UpdatePodSandbox": Substitute.ERROR,
}


class UnreadableError(types.NRIError):
    """The payload of a call is no message of its type."""


_Parsed = TypeVar("_Parsed", bound=Message)


def parse(kind: type[_Parsed], payload: bytes) -> _Parsed:
    """Return a message.

    Raises:
        UnreadableError: when the bytes are none.
    """
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise UnreadableError(f"the payload is no {kind.DESCRIPTOR.name}") from error


def substitute(method: str, payload: bytes) -> Substitute:
    """Return what to tell the runtime when time is over; a StateChange counts as the event that it carries."""
    if method != "StateChange":
        return _SUBSTITUTES.get(method, Substitute.EMPTY)
    with suppress(UnreadableError):
        if parse(messages.StateChangeEventMessage, payload).event == types.Event.START_CONTAINER:
            return Substitute.ERROR
    return Substitute.EMPTY


def event_of(
    method: str, payload: bytes
) -> tuple[types.Event | None, types.PodSandbox | None, types.RuntimeContainer | None]:
    """Return an event with its pod and container; the event is None when it is of a later release.

    Raises:
        UnreadableError: when the payload is no such message.
    """
    if method == "UpdatePodSandbox":
        update = parse(messages.UpdatePodSandboxRequestMessage, payload)
        pod = replace(
            pod_from(update.pod),
            overhead=resources_from(update.overhead_linux_resources),
            pod_resources=resources_from(update.linux_resources),
        )
        return types.Event.UPDATE_POD_SANDBOX, pod, None
    message: messages.StateChangeEventMessage | messages.ContainerRequestMessage
    event: types.Event | None
    if method == "StateChange":
        message = parse(messages.StateChangeEventMessage, payload)
        event = types.Event(message.event) if message.event in types.Event.__members__.values() else None
    else:
        message = parse(messages.ContainerRequestMessage, payload)
        event = EVENT_METHODS[method]
    return (
        event,
        pod_from(message.pod) if message.HasField("pod") else None,
        container_from(message.container) if message.HasField("container") else None,
    )


def container_of(method: str, payload: bytes) -> str:
    """Return the id of the container that a request is about, empty where it names none."""
    if method in ("Configure", "Synchronize", "Shutdown"):
        return ""
    kind: type[messages.StateChangeEventMessage | messages.ContainerRequestMessage]
    kind = messages.StateChangeEventMessage if method == "StateChange" else messages.ContainerRequestMessage
    with suppress(UnreadableError):
        return parse(kind, payload).container.id
    return ""


def runtime_of(message: messages.ConfigureRequestMessage) -> types.Runtime:
    """Return how the runtime introduces itself in Configure."""
    return types.Runtime(
        message.runtime_name, message.runtime_version, message.NRI_version, max(message.request_timeout, 0) / 1000
    )


def subscription(events: Iterable[types.Event], runtime: types.Runtime) -> int:
    """Return the mask of events, without those that the runtime would refuse because it does not know them.

    >>> hex(subscription(types.Event, types.Runtime("containerd", "v2.1.9")))
    '0x7ff'
    >>> hex(subscription(types.Event, types.Runtime("containerd", "v2.4.2", "v0.12.3")))
    '0x1fff'
    """
    release, first = _numbers(runtime.nri_version), (0, 10)
    if release is None:
        release, first = _numbers(runtime.version), _FIRST_WITH_POD_UPDATES.get(runtime.name, _NEVER)
    wanted = set(events) if release is not None and release >= first else set(events) - _POD_UPDATES
    return sum(1 << (event - 1) for event in wanted)


def _numbers(version: str) -> tuple[int, int] | None:
    found = re.match(r"v?(\d{1,6})\.(\d{1,6})", version)
    return (int(found[1]), int(found[2])) if found else None


def resources_from(message: messages.LinuxResourcesMessage) -> types.LinuxResources:
    """Return CPU and memory settings; a wrapped 0 stays 0, an absent wrapper becomes None."""
    cpu, memory = message.cpu, message.memory
    return types.LinuxResources(
        cpus=cpu.cpus,
        mems=cpu.mems,
        shares=cpu.shares.value if cpu.HasField("shares") else None,
        quota=cpu.quota.value if cpu.HasField("quota") else None,
        period=cpu.period.value if cpu.HasField("period") else None,
        memory_limit=memory.limit.value if memory.HasField("limit") else None,
    )


def pod_from(message: messages.PodSandboxMessage) -> types.PodSandbox:
    """Return a pod.

    Clients of the CRI other than a kubelet may give it no uid; then it has its sandbox's id, so that no two are one.
    """
    return types.PodSandbox(
        id=message.id,
        uid=message.uid or message.id,
        name=message.name,
        namespace=message.namespace,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        cgroup_parent=message.linux.cgroup_parent,
        cgroups_path=message.linux.cgroups_path,
        pid=message.pid,
        overhead=resources_from(message.linux.pod_overhead),
        pod_resources=resources_from(message.linux.pod_resources),
    )


def container_from(message: messages.NRIContainerMessage) -> types.RuntimeContainer:
    """Return a container; a state that this release does not know is UNKNOWN."""
    known = message.state in types.ContainerState.__members__.values()
    return types.RuntimeContainer(
        id=message.id,
        pod_sandbox_id=message.pod_sandbox_id,
        name=message.name,
        state=types.ContainerState(message.state) if known else types.ContainerState.UNKNOWN,
        pid=message.pid,
        labels=dict(message.labels),
        annotations=dict(message.annotations),
        resources=resources_from(message.linux.resources),
        cgroups_path=message.linux.cgroups_path,
        claims=tuple(sorted({one.partition("=")[0] for one in message.env if one.startswith(types.CLAIM_VARIABLE)})),
    )


def resources_to(resources: types.LinuxResources) -> messages.LinuxResourcesMessage:
    """Return settings as a message; what is not set is absent, so that the runtime keeps what it has."""
    message = messages.LinuxResourcesMessage()
    if resources.cpus:
        message.cpu.cpus = resources.cpus
    if resources.mems:
        message.cpu.mems = resources.mems
    wrapped: tuple[tuple[int | None, messages.OptionalInt64Message | messages.OptionalUInt64Message], ...] = (
        (resources.shares, message.cpu.shares),
        (resources.quota, message.cpu.quota),
        (resources.period, message.cpu.period),
        (resources.memory_limit, message.memory.limit),
    )
    for value, wrapper in wrapped:
        if value is not None:
            # Setting even a wrapped 0 makes its wrapper present.
            wrapper.SetInParent()
            wrapper.value = value
    return message


def update_to(update: types.ContainerUpdate) -> messages.ContainerUpdateMessage:
    """Return an update of a container as a message."""
    return messages.ContainerUpdateMessage(
        container_id=update.container_id,
        linux=messages.LinuxContainerUpdateMessage(resources=resources_to(update.resources)),
        ignore_failure=update.ignore_failure,
    )


def adjustment_to(adjustment: types.ContainerAdjustment) -> messages.ContainerAdjustmentMessage:
    """Return an adjustment as a message."""
    message = messages.ContainerAdjustmentMessage(annotations=adjustment.annotations)
    if adjustment.resources != _NOTHING:
        message.linux.resources.CopyFrom(resources_to(adjustment.resources))
    for key, value in adjustment.environment.items():
        message.env.add(key=key, value=value)
    for mount in adjustment.mounts:
        message.mounts.add(
            destination=mount.destination, source=mount.source, type=mount.type, options=list(mount.options)
        )
    return message


_REQUESTED = (types.Event.CREATE_CONTAINER, types.Event.UPDATE_CONTAINER, types.Event.STOP_CONTAINER)
"""Events that come as requests of their own in every release; StateChange has nothing to tell of them."""
_SYNCHRONIZE_LIMIT = 100_000
"""Pods and containers of a split Synchronize that are collected at most."""


PluginAnswer: TypeAlias = bytes | tuple[messages.Status, str]
"""A reply: a payload, or a refusal with its status and text."""


def provisional(method: str, payload: bytes) -> bytes | None:
    """Return an answer that keeps a plugin connected before it can decide; None where there is none.

    Configure gets every event, Synchronize no update. The runtime calls neither a second time.
    """
    with suppress(UnreadableError):
        if method == "Configure":
            events = subscription(frozenset(types.Event), runtime_of(parse(messages.ConfigureRequestMessage, payload)))
            return messages.ConfigureResponseMessage(events=events).SerializeToString()
        if method == "Synchronize":
            more = parse(messages.SynchronizeRequestMessage, payload).more
            return messages.SynchronizeResponseMessage(more=more).SerializeToString()
    return None


_METHODS = frozenset(
    {
        "Configure",
        "Synchronize",
        "CreateContainer",
        "UpdateContainer",
        "StopContainer",
        "StateChange",
        "Shutdown",
        "ValidateContainerAdjustment",
    }
)


class Dispatcher:
    """Calls a handler; keeps what belongs to one connection: the parts of a split Synchronize."""

    def __init__(self, handler: types.Handler, observer: types.SessionObserver, *, fail_request: bool = False) -> None:
        self._handler = handler
        self._observer = observer
        self._fail_request = fail_request
        self._pods: list[types.PodSandbox] = []
        self._containers: list[types.RuntimeContainer] = []
        self._complete = False
        self._runtime: types.Runtime | None = None
        self.synchronized = False
        """Whether the answer to a whole Synchronize was delivered."""

    def answer(self, method: str, payload: bytes) -> PluginAnswer:
        """Return the answer to a request; whatever the handler raises becomes a refusal."""
        if method not in _METHODS and method not in EVENT_METHODS:
            # The code by which a runtime knows to fall back to StateChange.
            return messages.Status.UNIMPLEMENTED, f"method {method}"
        try:
            return self._reply(method, payload)
        except types.RefusalError as refusal:
            return messages.Status.UNKNOWN, str(refusal)
        except UnreadableError as error:
            return messages.Status.INVALID_ARGUMENT, str(error)
        except Exception as error:  # noqa: BLE001 - a defect of the handler must refuse, not let a container pass
            self._observer.failed(method, error)
            return messages.Status.UNKNOWN, f"internal error: {type(error).__name__}"

    def delivered(self, method: str) -> None:
        """Learn that an answer was sent, and tell what that means."""
        if method == "Configure" and self._runtime is not None:
            self._observer.connected(self._runtime)
        elif method == "Synchronize" and self._complete:
            self.synchronized = True
            self._observer.synchronized(len(self._pods), len(self._containers))
            self._pods, self._containers, self._complete = [], [], False

    def _reply(self, method: str, payload: bytes) -> bytes:
        match method:
            case "Configure":
                return self._configure(payload)
            case "Synchronize":
                return self._synchronize(payload)
            case "CreateContainer":
                asked = parse(messages.ContainerRequestMessage, payload)
                adjustment, updates = self._handler.create_container(
                    pod_from(asked.pod), container_from(asked.container)
                )
                created = messages.CreateContainerResponseMessage(adjust=adjustment_to(adjustment))
                created.update.extend(map(update_to, updates))
                return created.SerializeToString()
            case "UpdateContainer":
                wanted = parse(messages.UpdateContainerRequestMessage, payload)
                pod, container = pod_from(wanted.pod), container_from(wanted.container)
                updates = self._handler.update_container(pod, container, resources_from(wanted.linux_resources))
                return messages.UpdatesResponseMessage(update=map(update_to, updates)).SerializeToString()
            case "StopContainer":
                asked = parse(messages.ContainerRequestMessage, payload)
                updates = self._handler.stop_container(pod_from(asked.pod), container_from(asked.container))
                return messages.UpdatesResponseMessage(update=map(update_to, updates)).SerializeToString()
            case "Shutdown" | "ValidateContainerAdjustment":
                # Of these the second is not subscribed to: a runtime that asks nevertheless gets consent.
                return b""
        event, changed_pod, changed = event_of(method, payload)
        if event is not None and not (method == "StateChange" and event in _REQUESTED):
            self._handler.state_change(event, changed_pod, changed)
        return b""

    def _configure(self, payload: bytes) -> bytes:
        message = parse(messages.ConfigureRequestMessage, payload)
        runtime = runtime_of(message)
        events = self._handler.configure(message.config, runtime.name, runtime.version)
        mask = subscription(events, runtime)
        if not mask:
            raise types.MisuseError("a plugin without events: a runtime would treat that as all of them")
        self._runtime = runtime
        reply = messages.ConfigureResponseMessage(events=mask)
        if self._fail_request:
            reply.failure_policy.fail_request = True
        return reply.SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        message = parse(messages.SynchronizeRequestMessage, payload)
        if self._complete:
            # The handler's answer to the last one was an error, or it was not delivered.
            self._pods, self._containers, self._complete = [], [], False
        self._pods += map(pod_from, message.pods)
        self._containers += map(container_from, message.containers)
        if len(self._pods) + len(self._containers) > _SYNCHRONIZE_LIMIT:
            self._pods, self._containers = [], []
            raise types.RefusalError(f"more than {_SYNCHRONIZE_LIMIT} pods and containers")
        if message.more:
            # A part is answered without updates and with the same mark, else the runtime hangs up.
            return messages.SynchronizeResponseMessage(more=True).SerializeToString()
        self._complete = True
        updates = self._handler.synchronize(self._pods, self._containers)
        return messages.SynchronizeResponseMessage(update=map(update_to, updates)).SerializeToString()
