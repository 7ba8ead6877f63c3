"""A thread that writes to the API server what :class:`~mooring.agent.pods.cluster.ClusterReporter` receives.

Writes wait for their turn in a bounded list and are tried again while the API server is away. The taint is not a task
but a wish: whatever was wished last is tried until it is so, and checked from time to time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.eviction import (
    MOST_EVICTIONS,
    EventBook,
    EventWrite,
    EvictionWrite,
    ReportedFailures,
    TaintWrite,
    Task,
    evict_pod,
    set_taint,
    write_event,
)
from mooring.agent.pods.cluster import AgentAccount
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.inputs.decoding.fields import Report, ignore
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand
from mooring.service.following import pause_before

MOST_WAITING = 256
"""Writes that may wait; the oldest is given up for the newest."""
MOST_TRIES = 8
"""Tries of a write, spread over about a minute."""
CHECKING = {True: 60.0, False: 600.0}
"""Seconds between two checks that the node still has the taint, or still has not: a Node object that is created anew
has none, or that of the kubelet's flag. The first lets pods come, the second only keeps them away."""


class ClusterWriter:
    """The :class:`~mooring.agent.pods.cluster.ClusterReporter` of a node that has an API server."""

    def __init__(
        self,
        connect: Callable[[], Cluster],
        node: str,
        *,
        own: Mapping[AgentAccount, Callable[[], Cluster]] | None = None,
        report: Report = ignore,
        evicted: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        wait: Callable[[threading.Condition, float | None], object] = threading.Condition.wait,
    ) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            connect: opens the way to the API server, again after every failure.
            node: name of the node.
            own: the same for writes that have an account of their own.
            report: receives what was done and what was given up; called by the thread.
            evicted: is called for every eviction that the API server has accepted, by the thread too.
            clock: seconds that never go back.
            now: the time of day, for events.
            wait: waits for a condition, for some seconds of the clock or for ever.
        """
        shared = ClusterOnDemand(connect)
        self._clusters = {one: ClusterOnDemand(own[one]) if own and one in own else shared for one in AgentAccount}
        self._node = node
        self._report = report
        self._evicted = evicted
        self._clock = clock
        self._now = now
        self._wait = wait
        self._changed = threading.Condition()
        self._waiting: list[Task] = []
        self._book = EventBook()
        self._evictions: OrderedDict[str, None] = OrderedDict()
        self._failures = ReportedFailures()
        self._stopping = False
        self._busy = False
        self._check: Task | None = None
        """The wish that was fulfilled, or refused for a lasting reason, until it is checked again."""
        self._number = int(now().timestamp() * 1e6)
        self._thread = threading.Thread(target=self._run, name="mooring-outward", daemon=True)

    @property
    def waiting(self) -> int:
        """How many writes wait."""
        return len(self._waiting)

    @property
    def evicting(self) -> int:
        """How many evictions are requested and not yet done or given up."""
        return len(self._evictions)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def event(self, event: ClusterEvent) -> None:
        """Write an event; the same one again is counted up."""
        with self._changed:
            self._number += 1
            write = self._book.record(event, self._clock(), self._number)
            if write is not None:
                self._add(Task(write))
            self._changed.notify_all()

    def evict(self, about: EventSubject, message: str) -> None:
        """Ask for a pod's eviction; once, unless it was given up. Then the next call asks again."""
        with self._changed:
            if about.uid in self._evictions:
                return
            self._evictions[about.uid] = None
            if len(self._evictions) > MOST_EVICTIONS:
                self._evictions.popitem(last=False)
            self._add(Task(EvictionWrite(about, message)))

    def taint(self, *, present: bool) -> None:
        """See to it that the node has, or has not, the taint."""
        with self._changed:
            self._waiting = [task for task in self._waiting if not isinstance(task.what, TaintWrite)]
            self._check = None
            self._add(Task(TaintWrite(present)))

    def wait_until_tried(self, patience: float) -> bool:
        """Wait until everything that waits was tried; tell whether nothing is left to be tried."""
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._busy and all(task.tries for task in self._waiting), patience
            )

    def stop(self, patience: float) -> None:
        """Try once more what waits, within ``patience`` seconds, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            self._thread.join(patience)

    def _add(self, task: Task) -> None:
        if len(self._waiting) >= MOST_WAITING:
            # The taint decides where pods go, so it stays.
            oldest = next(index for index, one in enumerate(self._waiting) if not isinstance(one.what, TaintWrite))
            self._forget(self._waiting.pop(oldest))
        self._waiting.append(task)
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            task = self._next()
            if task is None:
                break
            try:
                self._do(task)
            except ClusterError as error:
                self._failed(task, error)
            except InputError as error:  # credentials that are being renewed, most likely
                self._failed(task, ClusterError(str(error)))
            except Exception as error:  # noqa: BLE001 - one write that cannot be made must not end all others
                self._failed(task, ClusterError(f"{type(error).__name__}: {error}", code=400))
            with self._changed:
                self._busy = False
                self._changed.notify_all()
        self._disconnect()

    def _next(self) -> Task | None:
        """Wait for a task whose time has come; None when it is time to end."""
        with self._changed:
            while True:
                now = self._clock()
                for write in self._book.due(now):
                    self._add(Task(write))
                if self._check is not None and self._check.due <= now:
                    self._add(self._check)
                    self._check = None
                for index, task in enumerate(self._waiting):
                    if self._stopping or task.due <= now:
                        self._busy = True
                        return self._waiting.pop(index)
                if self._stopping:
                    return None
                times = [task.due for task in self._waiting]
                times += [] if self._check is None else [self._check.due]
                counted = self._book.next_due()
                times += [] if counted is None else [counted]
                self._wait(self._changed, max(min(times) - now, 0.0) if times else None)

    def _check_later(self, what: TaintWrite) -> None:
        with self._changed:
            if not any(isinstance(one.what, TaintWrite) for one in self._waiting):
                self._check = Task(what, due=self._clock() + CHECKING[what.present])

    def _do(self, task: Task) -> None:
        what = task.what
        http = self._clusters[task.account].http
        if isinstance(what, EventWrite):
            write_event(http, what, self._node, self._now())
        elif isinstance(what, EvictionWrite):
            there = evict_pod(http, what.about)
            self._failures.done(task)
            if there:
                self._evicted()
            became = f"was evicted: {what.message}" if there else "has ended already and needs no eviction"
            self._report_finding("info", f"{what.about.namespace}/{what.about.name} {became}")
        else:
            if set_taint(http, self._node, present=what.present):
                self._report_finding(
                    "info", f"the node {'has' if what.present else 'has lost'} the taint of an agent that is not ready"
                )
            self._failures.done(task)
            self._check_later(what)

    def _failed(self, task: Task, error: ClusterError) -> None:
        if error.code in (0, 401) or error.code >= 500:
            self._disconnect()  # credentials may have been renewed, the server may be another one
        lasting = isinstance(task.what, TaintWrite)
        with self._changed:
            overtaken = lasting and any(isinstance(one.what, TaintWrite) for one in self._waiting)
            if overtaken:
                return
            if not self._stopping and error.may_pass and (lasting or task.tries + 1 < MOST_TRIES):
                pause = max(pause_before(task.tries + 1, self._node), error.pause)
                self._add(replace(task, tries=task.tries + 1, due=self._clock() + pause))
                is_reported = task.tries == 0 and not isinstance(task.what, EventWrite)
                is_last = False
            else:
                is_reported = is_last = True
                self._forget(task)
                if isinstance(task.what, TaintWrite):
                    self._check_later(task.what)
        message = f"{task.failure}: {error}"
        if is_reported and not self._failures.was_reported(task, message, is_last=is_last):
            self._report_finding("warning", message)

    def _forget(self, task: Task) -> None:
        if isinstance(task.what, EvictionWrite):
            self._evictions.pop(task.what.about.uid, None)

    def _disconnect(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()

    def _report_finding(self, severity: str, message: str) -> None:
        self._report(Finding(severity, "API server", message))
