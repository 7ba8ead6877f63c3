"""A plugin's life on one connection: it registers, is configured, learns what exists, and answers what comes.

Three threads: the reader, which only queues requests; the one that watches the budget; and the caller's own, in which
every call of the handler happens, one after another.

A runtime that waits too long gives its plugin up and continues without it: a container could start anywhere. So
a request that is not answered within a budget is answered by a thread of its own, while the handler still works
(:class:`Deadlines`). Either the handler or the clock answers; a :class:`Turn` decides which.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.agent.nri import types
from mooring.agent.nri.connection import PLUGIN_CONNECTION, RUNTIME_CONNECTION, Connection
from mooring.agent.nri.messages import (
    PLUGIN_SERVICE,
    RUNTIME_SERVICE,
    RegisterPluginRequestMessage,
    Request,
    Status,
    TTRPCClient,
    TTRPCServer,
)
from mooring.agent.nri.methods import Dispatcher, PluginAnswer, Substitute, container_of, provisional, substitute


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


_QUEUE_LIMIT = 1024
"""Requests that wait for the handler; a runtime waits for each answer, so more than a few are an attack or a defect."""

_ONCE = frozenset({"Configure", "Synchronize"})
"""What a runtime requests once for each connection; without an answer it ends the plugin that it has started."""

_RUNTIME_SHARE = 0.8
"""Part of the time that the runtime waits which the budget may take at most."""


@dataclass(frozen=True, slots=True)
class PluginOptions:
    """How a plugin presents itself and how long things may take.

    Attributes:
        name: of the plugin.
        index: two digits; plugins are called in the order of their indices.
        budget: seconds in which every request is answered, whatever the handler does.
        call_timeout: seconds to wait for an answer of the runtime.
        fail_request: ask the runtime to give up what a silent plugin did not answer (fail closed); runtimes before
            NRI 0.12.5 skip it.
        nri_version: named in the registration.
    """

    name: str = "mooring"
    index: str = "50"
    budget: float = 0.5
    call_timeout: float = 5.0
    fail_request: bool = False
    nri_version: str = "v0.12.5"


_WAKE: Final = True
"""Among the requests: nothing is asked, but the caller has something to do."""


class Session:
    """One connection of a plugin to a runtime."""

    def __init__(
        self,
        trunk: socket.socket,
        handler: types.Handler | None,
        options: PluginOptions,
        observer: types.SessionObserver | None = None,
    ) -> None:
        """Take over a connected socket.

        Args:
            trunk: closed with the session.
            handler: what the plugin does; None until :meth:`attach`. Until then requests wait as long as the runtime
                does; Configure and Synchronize are then answered without any decision, and the handler gets them late.
            options: see there.
            observer: receives what happens.
        """
        self._options = options
        self._observer = observer or types.SessionObserver()
        self._jobs: queue.SimpleQueue[tuple[Request, Turn] | bool | None] = queue.SimpleQueue()
        self._deadlines = Deadlines()
        self._connection = Connection(trunk)
        self._dispatcher = (
            None if handler is None else Dispatcher(handler, self._observer, fail_request=options.fail_request)
        )
        self._attaching = threading.Lock()
        self._ahead: list[Request] = []
        """Requests that were answered before there was a handler."""
        self.registered = False
        """Whether the runtime has taken the plugin."""
        self._server = TTRPCServer(self._connection, PLUGIN_CONNECTION, self._take)
        self._client = TTRPCClient(self._connection, RUNTIME_CONNECTION)
        self._connection.when_closed(lambda _: self._jobs.put(None))
        self._deadlines.start()
        self._connection.start()

    @property
    def synchronized(self) -> bool:
        """Whether the runtime has told what exists and was answered."""
        return self._dispatcher is not None and self._dispatcher.synchronized

    def attach(self, handler: types.Handler, options: PluginOptions, observer: types.SessionObserver) -> None:
        """Give a session that was made without a handler what it needs to answer requests.

        Args:
            handler: what the plugin does.
            options: see there; name and index stay those of the registration.
            observer: receives what happens.
        """
        self._options = replace(options, name=self._options.name, index=self._options.index)
        self._observer = observer
        with self._attaching:
            self._dispatcher = Dispatcher(handler, observer, fail_request=options.fail_request)

    def register(self) -> None:
        """Introduce the plugin; Configure and Synchronize follow as requests.

        Raises:
            RemoteError: when the runtime does not want the plugin, for example because of its index.
            NRIError: when the connection does not work.
        """
        options = self._options
        request = RegisterPluginRequestMessage(
            plugin_name=options.name, plugin_idx=options.index, NRI_version=options.nri_version
        )
        self._client.call(RUNTIME_SERVICE, "RegisterPlugin", request.SerializeToString(), options.call_timeout)
        self.registered = True

    def step(self, timeout: float | None = None) -> bool:
        """Answer the next request and return True, or return False when there is none within ``timeout`` seconds.

        Raises:
            ConnectionLostError: when the connection is closed and every request before that was handled.
            MisuseError: when there is no handler yet.
        """
        if self._dispatcher is None:
            raise types.MisuseError("a session without a handler answers nothing")
        try:
            job = self._jobs.get(timeout=timeout)
        except queue.Empty:
            return False
        if isinstance(job, bool):
            return False
        if job is None or self._connection.lost is not None:
            # The runtime has disconnected. The next Synchronize repeats what the requests were about.
            self._jobs.put(None)
            raise self._connection.lost or types.ConnectionLostError("closed by this side")
        self._work(*job, self._dispatcher)
        return True

    def wake(self) -> None:
        """Let :meth:`step` return at once, from any thread."""
        self._jobs.put(_WAKE)

    def ping(self, timeout: float | None = None) -> None:
        """Wait until the runtime has read everything that was sent so far.

        Calls a method that no runtime has, and treats its refusal as the answer.

        Args:
            timeout: seconds to wait; the options' ``call_timeout`` by default.

        Raises:
            NRIError: when the connection does not work.
        """
        with suppress(types.RemoteError):
            seconds = self._options.call_timeout if timeout is None else timeout
            self._client.call(RUNTIME_SERVICE, "Ping", b"", seconds)

    def close(self) -> None:
        """Close the connection; a caller that waits in :meth:`step` or in a call gets a ConnectionLostError."""
        self._connection.close()
        self._deadlines.stop()

    def _take(self, request: Request) -> None:
        if self._jobs.qsize() >= _QUEUE_LIMIT:
            raise types.ProtocolError(f"more than {_QUEUE_LIMIT} requests at once")
        budget = self._options.budget
        if request.timeout is not None:
            most = request.timeout * _RUNTIME_SHARE
            budget = most if self._dispatcher is None and request.method in _ONCE else min(budget, most)
        self._jobs.put((request, self._deadlines.begin(budget, lambda: self._expire(request, budget))))

    def _expire(self, request: Request, budget: float) -> None:
        with suppress(types.ConnectionLostError):
            # What the runtime requests once is answered where there is no handler yet.
            with self._attaching:
                answer = provisional(request.method, request.payload) if self._dispatcher is None else None
                if answer is not None:
                    self._ahead.append(request)
                    self._server.answer(request, answer)
                    return
            match substitute(request.method, request.payload):
                case Substitute.ERROR:
                    text = f"plugin {self._options.name}: no answer to {request.method} within {budget * 1000:.0f} ms"
                    self._server.refuse(request, Status.UNKNOWN, text)
                case Substitute.EMPTY:
                    self._server.answer(request, b"")
                case Substitute.SILENCE:
                    pass

    def _work(self, request: Request, turn: Turn, dispatcher: Dispatcher) -> None:
        instead = substitute(request.method, request.payload)
        if instead is Substitute.ERROR and turn.taken:
            # Refused while it waited behind another: the handler need not decide about what will not be.
            self._observer.answered(request.method, self._deadlines.since(turn), refused=True)
            return
        if request.service != PLUGIN_SERVICE:
            answer: PluginAnswer = Status.UNIMPLEMENTED, f"service {request.service}"
        else:
            self._observer.begun(turn.deadline)
            answer = dispatcher.answer(request.method, request.payload)
        ahead = any(one is request for one in self._ahead)
        # Where nothing was said instead, a late answer is still better than none.
        in_time = self._deadlines.end(turn) or (instead is Substitute.SILENCE and not ahead)
        loss = self._send(request, answer) if in_time else types.Loss.LATE
        seconds = self._deadlines.since(turn)
        if loss is None:
            self._observer.answered(request.method, seconds, refused=not isinstance(answer, bytes))
            if isinstance(answer, bytes):
                dispatcher.delivered(request.method)
        else:
            refused = loss is types.Loss.OVERSIZED or (loss is types.Loss.LATE and instead is Substitute.ERROR)
            container = container_of(request.method, request.payload)
            if ahead and isinstance(answer, bytes):
                dispatcher.delivered(request.method)
            self._observer.lost(types.LostAnswer(request.method, container, seconds, loss, refused))

    def _send(self, request: Request, answer: PluginAnswer) -> types.Loss | None:
        try:
            if isinstance(answer, bytes):
                self._server.answer(request, answer)
            else:
                self._server.refuse(request, *answer)
        except types.ConnectionLostError:
            return types.Loss.CLOSED
        except types.OversizedError as error:
            with suppress(types.ConnectionLostError):
                self._server.refuse(request, Status.RESOURCE_EXHAUSTED, str(error))
            return types.Loss.OVERSIZED
        return None
