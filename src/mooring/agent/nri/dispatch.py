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
from typing import TypeAlias

from mooring.agent.nri import messages, methods, types
from mooring.agent.nri.messages import Status

_REQUESTED = (types.Event.CREATE_CONTAINER, types.Event.UPDATE_CONTAINER, types.Event.STOP_CONTAINER)
"""Events that come as requests of their own in every release; StateChange has nothing to tell of them."""
_SYNCHRONIZE_LIMIT = 100_000
"""Pods and containers of a split Synchronize that are collected at most."""


PluginAnswer: TypeAlias = bytes | tuple[Status, str]
"""A reply: a payload, or a refusal with its status and text."""


def provisional(method: str, payload: bytes) -> bytes | None:
    """Return an answer that keeps a plugin connected before it can decide; None where there is none.

    Configure gets every event, Synchronize no update. The runtime calls neither a second time.
    """
    try:
        if method == "Configure":
            events = methods.subscription(
                frozenset(types.Event), methods.runtime_of(methods.parse(messages.ConfigureRequestMessage, payload))
            )
            return messages.ConfigureResponseMessage(events=events).SerializeToString()
        if method == "Synchronize":
            more = methods.parse(messages.SynchronizeRequestMessage, payload).more
            return messages.SynchronizeResponseMessage(more=more).SerializeToString()
    except methods.UnreadableError:
        return None
    return None


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
        if call is None and method not in methods.EVENT_METHODS:
            # The code by which a runtime knows to fall back to StateChange.
            return Status.UNIMPLEMENTED, f"method {method}"
        try:
            return call(payload) if call is not None else self._event(method, payload)
        except types.RefusalError as refusal:
            return Status.UNKNOWN, str(refusal)
        except methods.UnreadableError as error:
            return Status.INVALID_ARGUMENT, str(error)
        except Exception as error:  # noqa: BLE001 - a defect of the handler must refuse, not let a container pass
            self._observer.failed(method, error)
            return Status.UNKNOWN, f"internal error: {type(error).__name__}"

    def delivered(self, method: str) -> None:
        """Learn that an answer was sent, and tell what that means."""
        if method == "Configure" and self._runtime is not None:
            self._observer.connected(self._runtime)
        elif method == "Synchronize" and self._complete:
            self.synchronized = True
            self._observer.synchronized(len(self._pods), len(self._containers))
            self._pods, self._containers, self._complete = [], [], False

    def _configure(self, payload: bytes) -> bytes:
        message = methods.parse(messages.ConfigureRequestMessage, payload)
        runtime = methods.runtime_of(message)
        events = self._handler.configure(message.config, runtime.name, runtime.version)
        mask = methods.subscription(events, runtime)
        if not mask:
            raise types.MisuseError("a plugin without events: a runtime would treat that as all of them")
        self._runtime = runtime
        reply = messages.ConfigureResponseMessage(events=mask)
        if self._fail_request:
            reply.failure_policy.fail_request = True
        return reply.SerializeToString()

    def _synchronize(self, payload: bytes) -> bytes:
        message = methods.parse(messages.SynchronizeRequestMessage, payload)
        if self._complete:
            # The handler's answer to the last one was an error, or it was not delivered.
            self._pods, self._containers, self._complete = [], [], False
        self._pods += map(methods.pod_from, message.pods)
        self._containers += map(methods.container_from, message.containers)
        if len(self._pods) + len(self._containers) > _SYNCHRONIZE_LIMIT:
            self._pods, self._containers = [], []
            raise types.RefusalError(f"more than {_SYNCHRONIZE_LIMIT} pods and containers")
        if message.more:
            # A part is answered without updates and with the same mark, else the runtime hangs up.
            return messages.SynchronizeResponseMessage(more=True).SerializeToString()
        self._complete = True
        updates = self._handler.synchronize(self._pods, self._containers)
        return messages.SynchronizeResponseMessage(update=map(methods.update_to, updates)).SerializeToString()

    def _create_container(self, payload: bytes) -> bytes:
        message = methods.parse(messages.ContainerRequestMessage, payload)
        adjustment, updates = self._handler.create_container(
            methods.pod_from(message.pod), methods.container_from(message.container)
        )
        reply = messages.CreateContainerResponseMessage(
            adjust=methods.adjustment_to(adjustment), update=map(methods.update_to, updates)
        )
        return reply.SerializeToString()

    def _update_container(self, payload: bytes) -> bytes:
        message = methods.parse(messages.UpdateContainerRequestMessage, payload)
        pod, container = methods.pod_from(message.pod), methods.container_from(message.container)
        updates = self._handler.update_container(pod, container, methods.resources_from(message.linux_resources))
        return messages.UpdatesResponseMessage(update=map(methods.update_to, updates)).SerializeToString()

    def _stop_container(self, payload: bytes) -> bytes:
        message = methods.parse(messages.ContainerRequestMessage, payload)
        updates = self._handler.stop_container(methods.pod_from(message.pod), methods.container_from(message.container))
        return messages.UpdatesResponseMessage(update=map(methods.update_to, updates)).SerializeToString()

    def _event(self, method: str, payload: bytes) -> bytes:
        event, pod, container = methods.event_of(method, payload)
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
