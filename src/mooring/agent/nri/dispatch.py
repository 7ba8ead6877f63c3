"""From a request to its answer, in time: the handler's method, its errors, and what happens when it is late.

A runtime that waits too long gives its plugin up and continues without it: a container could start anywhere. So
a request that is not answered within a budget is answered by a thread of its own, while the handler still works
(:class:`Deadlines`). Either the handler or the clock answers; a :class:`Turn` decides which.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mooring.agent.nri.messages import (
    ConfigureRequestMessage,
    ConfigureResponseMessage,
    ContainerRequestMessage,
    CreateContainerResponseMessage,
    SynchronizeRequestMessage,
    SynchronizeResponseMessage,
    UpdateContainerRequestMessage,
    UpdatesResponseMessage,
)
from mooring.agent.nri.methods import (
    EVENT_METHODS,
    UnreadableError,
    adjustment_to,
    container_from,
    event_of,
    parse,
    pod_from,
    resources_from,
    runtime_of,
    subscription,
    update_to,
)
from mooring.agent.nri.ttrpc import Status
from mooring.agent.nri.types import (
    Event,
    Handler,
    MisuseError,
    PodSandbox,
    RefusalError,
    Runtime,
    RuntimeContainer,
    SessionObserver,
)

_REQUESTED = (Event.CREATE_CONTAINER, Event.UPDATE_CONTAINER, Event.STOP_CONTAINER)
"""Events that come as requests of their own in every release; StateChange has nothing to tell of them."""
_SYNCHRONIZE_LIMIT = 100_000
"""Pods and containers of a split Synchronize that are collected at most."""


@dataclass(frozen=True, slots=True)
class PluginAnswer:
    """A reply: a payload or a refusal with its status and text."""

    payload: bytes = b""
    refusal: tuple[Status, str] | None = None


def provisional(method: str, payload: bytes) -> bytes | None:
    """Return an answer that keeps a plugin connected before it can decide; None where there is none.

    Configure gets every event, Synchronize no update. The runtime calls neither a second time.
    """
    try:
        if method == "Configure":
            events = subscription(frozenset(Event), runtime_of(parse(ConfigureRequestMessage, payload)))
            return ConfigureResponseMessage(events=events).SerializeToString()
        if method == "Synchronize":
            more = parse(SynchronizeRequestMessage, payload).more
            return SynchronizeResponseMessage(more=more).SerializeToString()
    except UnreadableError:
        return None
    return None


class Dispatcher:
    """Calls a handler; keeps what belongs to one connection: the parts of a split Synchronize."""

    def __init__(self, handler: Handler, observer: SessionObserver, *, fail_request: bool = False) -> None:
        self._handler = handler
        self._observer = observer
        self._fail_request = fail_request
        self._pods: list[PodSandbox] = []
        self._containers: list[RuntimeContainer] = []
        self._complete = False
        self._runtime: Runtime | None = None
        self.synchronized = False
        """Whether the answer to a whole Synchronize was delivered."""
        self._methods: dict[str, Callable[[bytes], bytes]] = {
            "Configure": self._configure,
            "Synchronize": self._synchronize,
            "CreateContainer": self._create_container,
            "UpdateContainer": self._update_container,
            "StopContainer": self._stop_container,
            "StateChange": lambda payload: self._event("StateChange", payload),
            "Shutdown": lambda _: b"",
            # Not subscribed to. A runtime that asks nevertheless gets consent.
            "ValidateContainerAdjustment": lambda _: b"",
        }

    def answer(self, method: str, payload: bytes) -> PluginAnswer:
        """Return the answer to a request; whatever the handler raises becomes a refusal."""
        call = self._methods.get(method)
        if call is None and method not in EVENT_METHODS:
            # The code by which a runtime knows to fall back to StateChange.
            return PluginAnswer(refusal=(Status.UNIMPLEMENTED, f"method {method}"))
        try:
            return PluginAnswer(call(payload) if call is not None else self._event(method, payload))
        except RefusalError as refusal:
            return PluginAnswer(refusal=(Status.UNKNOWN, str(refusal)))
        except UnreadableError as error:
            return PluginAnswer(refusal=(Status.INVALID_ARGUMENT, str(error)))
        except Exception as error:  # noqa: BLE001 - a defect of the handler must refuse, not let a container pass
            self._observer.failed(method, error)
            return PluginAnswer(refusal=(Status.UNKNOWN, f"internal error: {type(error).__name__}"))

    def delivered(self, method: str) -> None:
        """Learn that an answer was sent, and tell what that means."""
        if method == "Configure" and self._runtime is not None:
            self._observer.connected(self._runtime)
        elif method == "Synchronize" and self._complete:
            self.synchronized = True
            self._observer.synchronized(len(self._pods), len(self._containers))
            self._pods, self._containers, self._complete = [], [], False

    def _configure(self, payload: bytes) -> bytes:
        message = parse(ConfigureRequestMessage, payload)
        runtime = runtime_of(message)
        events = self._handler.configure(message.config, runtime.name, runtime.version)
        mask = subscription(events, runtime)
        if not mask:
            raise MisuseError("a plugin without events: a runtime would treat that as all of them")
        self._runtime = runtime
        reply = ConfigureResponseMessage(events=mask)
        if self._fail_request:
            reply.failure_policy.fail_request = True
        return reply.SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        message = parse(SynchronizeRequestMessage, payload)
        if self._complete:
            # The handler's answer to the last one was an error, or it was not delivered.
            self._pods, self._containers, self._complete = [], [], False
        self._pods += map(pod_from, message.pods)
        self._containers += map(container_from, message.containers)
        if len(self._pods) + len(self._containers) > _SYNCHRONIZE_LIMIT:
            self._pods, self._containers = [], []
            raise RefusalError(f"more than {_SYNCHRONIZE_LIMIT} pods and containers")
        if message.more:
            # A part is answered without updates and with the same mark, else the runtime hangs up.
            return SynchronizeResponseMessage(more=True).SerializeToString()
        self._complete = True
        updates = self._handler.synchronize(self._pods, self._containers)
        return SynchronizeResponseMessage(update=map(update_to, updates)).SerializeToString()

    def _create_container(self, payload: bytes) -> bytes:
        message = parse(ContainerRequestMessage, payload)
        adjustment, updates = self._handler.create_container(pod_from(message.pod), container_from(message.container))
        reply = CreateContainerResponseMessage(adjust=adjustment_to(adjustment), update=map(update_to, updates))
        return reply.SerializeToString()

    def _update_container(self, payload: bytes) -> bytes:
        message = parse(UpdateContainerRequestMessage, payload)
        pod, container = pod_from(message.pod), container_from(message.container)
        updates = self._handler.update_container(pod, container, resources_from(message.linux_resources))
        return UpdatesResponseMessage(update=map(update_to, updates)).SerializeToString()

    def _stop_container(self, payload: bytes) -> bytes:
        message = parse(ContainerRequestMessage, payload)
        updates = self._handler.stop_container(pod_from(message.pod), container_from(message.container))
        return UpdatesResponseMessage(update=map(update_to, updates)).SerializeToString()

    def _event(self, method: str, payload: bytes) -> bytes:
        event, pod, container = event_of(method, payload)
        if event is not None and not (method == "StateChange" and event in _REQUESTED):
            self._handler.state_change(event, pod, container)
        return b""


@dataclass(slots=True, eq=False)
class Turn:
    """The right to answer one request; only one can have it."""

    arrived: float
    deadline: float
    expire: Callable[[], None]
    """Answers instead of the handler."""
    _taken: threading.Lock = field(default_factory=threading.Lock)

    @property
    def taken(self) -> bool:
        """Whether it was taken."""
        return self._taken.locked()

    def take(self) -> bool:
        """Return whether the caller is the one that answers."""
        return self._taken.acquire(blocking=False)


class Deadlines:
    """Runs what is due, in a thread of its own, until it is stopped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._turns: set[Turn] = set()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="nri-deadlines", daemon=True)

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; what is not due yet never comes due."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def begin(self, budget: float, expire: Callable[[], None]) -> Turn:
        """Return a turn that expires after ``budget`` seconds unless it is taken before."""
        now = self._clock()
        turn = Turn(now, now + budget, expire)
        with self._changed:
            self._turns.add(turn)
            self._changed.notify()
        return turn

    def end(self, turn: Turn) -> bool:
        """Take a turn and return whether it was still free."""
        with self._changed:
            self._turns.discard(turn)
        return turn.take()

    def since(self, turn: Turn) -> float:
        """Return the seconds since a request arrived."""
        return self._clock() - turn.arrived

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._stopped:
                    return
                now = self._clock()
                due = [turn for turn in self._turns if turn.deadline <= now]
                self._turns.difference_update(due)
                if not due:
                    nearest = min((turn.deadline for turn in self._turns), default=None)
                    self._changed.wait(None if nearest is None else nearest - now)
            for turn in due:
                if turn.take():
                    turn.expire()
