"""What a runtime and a plugin exchange, in plain values without protobuf: events, answers and errors.

Names are those of the NRI's api.proto. What is not set is None (numbers) or empty (texts); a number of 0 in values that
come from the CRI (``pod_resources``, the resources of an update) means "not set" too, which is left to the reader.

:class:`Handler` is the plugin, :class:`SessionObserver` receives what metrics, logs and the repair of a lost answer
need, and every error of the package is an :class:`NRIError`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import Protocol

from mooring.engine.core.errors import MooringError

CLAIM_VARIABLE = "MOORING_CLAIM_"
"""How variables begin that show what a container has of claims (:mod:`mooring.agent.reactor.create_container`)."""


class Event(IntEnum):
    """Events of a life; the bit of an event in a subscription is ``1 << (event - 1)``.

    The last two came with NRI 0.10: a plugin may always subscribe to them, an older runtime just never sends them.
    """

    RUN_POD_SANDBOX = 1
    STOP_POD_SANDBOX = 2
    REMOVE_POD_SANDBOX = 3
    CREATE_CONTAINER = 4
    POST_CREATE_CONTAINER = 5
    START_CONTAINER = 6
    POST_START_CONTAINER = 7
    UPDATE_CONTAINER = 8
    POST_UPDATE_CONTAINER = 9
    STOP_CONTAINER = 10
    REMOVE_CONTAINER = 11
    UPDATE_POD_SANDBOX = 12
    """The pod comes with the resources that it is about to have."""
    POST_UPDATE_POD_SANDBOX = 13


class ContainerState(IntEnum):
    """State of a container as the runtime sees it."""

    UNKNOWN = 0
    CREATED = 1
    PAUSED = 2
    RUNNING = 3
    STOPPED = 4


@dataclass(frozen=True, slots=True)
class LinuxResources:
    """CPU and memory settings of a container or pod."""

    cpus: str = ""
    """Linux CPU list; empty means not set."""
    mems: str = ""
    shares: int | None = None
    quota: int | None = None
    """Microseconds per period; -1 means none, 0 means not set where the CRI filled it."""
    period: int | None = None
    memory_limit: int | None = None
    """Bytes."""


@dataclass(frozen=True, slots=True)
class PodSandbox:
    """A pod as the runtime knows it."""

    id: str
    uid: str
    """Of the pod; the sandbox's id where the client gave none."""
    name: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    cgroup_parent: str = ""
    cgroups_path: str = ""
    """Of the sandbox's own container."""
    pid: int = 0
    overhead: LinuxResources = field(default_factory=LinuxResources)
    pod_resources: LinuxResources = field(default_factory=LinuxResources)
    """The pod's sum as of the sandbox's creation; a resize does not change it (containerd 2.1.9)."""


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """A container as the runtime knows it."""

    id: str
    pod_sandbox_id: str
    name: str
    state: ContainerState = ContainerState.UNKNOWN
    pid: int = 0
    """0 until its task was made (StartContainer)."""
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    resources: LinuxResources = field(default_factory=LinuxResources)
    cgroups_path: str = ""
    claims: tuple[str, ...] = ()
    """Names of the variables in its environment that begin with :data:`CLAIM_VARIABLE`, sorted."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A bind mount that an adjustment adds."""

    destination: str
    source: str
    options: Sequence[str] = ("bind", "ro")
    type: str = "bind"


@dataclass(frozen=True, slots=True)
class ContainerAdjustment:
    """What a plugin changes in a container that is being created."""

    resources: LinuxResources = field(default_factory=LinuxResources)
    environment: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """What a plugin changes in another container, or in the one that is being updated."""

    container_id: str
    resources: LinuxResources
    ignore_failure: bool = False


class Handler(Protocol):
    """What a plugin does; calls come one after another, from one thread. One that inherits lets everything pass.

    An :class:`~mooring.agent.nri.types.RefusalError` is answered as an error with its text.
    """

    def configure(self, _config: str, _runtime: str, _version: str) -> frozenset[Event]:
        """Take the plugin's configuration and return the events that it wants."""
        # Something must be asked for: none means all. This event is rare and requests no answer.
        return frozenset({Event.REMOVE_POD_SANDBOX})

    def synchronize(
        self, pods: Sequence[PodSandbox], containers: Sequence[RuntimeContainer]
    ) -> Sequence[ContainerUpdate]:
        """Learn everything that exists (all parts of a split message together)."""

    def create_container(
        self, _pod: PodSandbox, _container: RuntimeContainer
    ) -> tuple[ContainerAdjustment, Sequence[ContainerUpdate]]:
        """Adjust a container that is being created, and update others."""
        return ContainerAdjustment(), ()

    def update_container(
        self, _pod: PodSandbox, _container: RuntimeContainer, _resources: LinuxResources
    ) -> Sequence[ContainerUpdate]:
        """Answer a request to update a container; it is given in its state before."""
        return ()

    def stop_container(self, _pod: PodSandbox, _container: RuntimeContainer) -> Sequence[ContainerUpdate]:
        """Learn that a container has ended, and update others."""
        return ()

    def state_change(self, _event: Event, _pod: PodSandbox | None, _container: RuntimeContainer | None) -> None:
        """Learn everything else."""
        return


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime at the other end, as it introduced itself."""

    name: str
    version: str
    nri_version: str = ""
    """Empty before NRI 0.12."""
    request_timeout: float = 0.0
    """Seconds after which the runtime gives a plugin up; 0 when it did not say."""


class Loss(Enum):
    """Why an answer did not reach the runtime."""

    LATE = "late"
    """The budget was over, and the runtime had been answered without it."""
    CLOSED = "closed"
    """The connection was gone."""
    OVERSIZED = "oversized"
    """It was larger than a runtime takes."""


@dataclass(frozen=True, slots=True)
class LostAnswer:
    """A handler has decided, and the runtime does not know: what it got instead is in ``refused``."""

    method: str
    container_id: str
    seconds: float
    """From the arrival of the request to the handler's return."""
    loss: Loss
    refused: bool
    """Whether the runtime got an error; otherwise it got nothing, or an answer without changes."""


class SessionObserver:
    """Does nothing about anything; a subclass or a look-alike overrides what it wants.

    Calls come from the plugin's own thread, never two at once.
    """

    def connected(self, runtime: Runtime) -> None:
        """Learn that the runtime has configured the plugin."""

    def synchronized(self, pods: int, containers: int) -> None:
        """Learn that Synchronize was answered: from now on events come."""

    def begun(self, deadline: float) -> None:
        """Learn that a request goes to the handler, and when it is answered without it, by the monotonic clock."""

    def answered(self, method: str, seconds: float, *, refused: bool) -> None:
        """Learn how long a request took from its arrival to its answer."""

    def lost(self, answer: LostAnswer) -> None:
        """Learn that what a handler decided did not reach the runtime."""

    def failed(self, method: str, error: Exception) -> None:
        """Learn that a handler broke; the runtime was refused."""

    def disconnected(self, why: NRIError, retry_in: float) -> None:
        """Learn that the connection is gone or was not had, and when the next try is, in seconds."""


class NRIError(MooringError):
    """Root of every error of this package."""


class RefusalError(NRIError):
    """A handler's "no": the runtime gets the text and gives up what it was about to do.

    At CreateContainer the container is not made, at StartContainer it does not start, at UpdateContainer nothing
    changes. The text reaches the runtime's client, so the kubelet shows it in the pod's events.
    """


class ConnectionLostError(NRIError):
    """The other side is gone, or this side has closed the connection."""


class ProtocolError(ConnectionLostError):
    """The other side said something that is no NRI. The connection was closed: nothing after it can be trusted."""


class OversizedError(NRIError):
    """A message of our own is too large for the other side; it was not sent."""


class MisuseError(NRIError):
    """A call that would wait for itself, or that was made without a connection."""


class RemoteError(NRIError):
    """The other side answered a call with an error.

    Attributes:
        code: gRPC status code, for example 12 for a method that it does not know.
    """

    def __init__(self, code: int, message: str) -> None:
        self.code = code
        self.message = message
        super().__init__(message or f"status {code}")


class CallTimeoutError(NRIError):
    """The other side did not answer a call in time; its answer, should it come, is dropped."""
