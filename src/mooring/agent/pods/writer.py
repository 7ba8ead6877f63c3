"""A thread that writes to the API server what :class:`~mooring.agent.pods.cluster.ClusterReporter` receives.

Writes wait for their turn in a bounded list and are tried again while the API server is away. The taint is not a task
but a wish: whatever was wished last is tried until it is so, and checked from time to time.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import httpx2

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.pods.cluster import AgentAccount
from mooring.agent.pods.eviction import EventBook, EventWrite, evict_pod, set_taint, write_event
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


MOST_EVICTIONS = 1024
"""Evictions that are remembered."""


@dataclass(frozen=True, slots=True)
class Task:
    """A write that waits."""

    account: AgentAccount
    """That may write it."""
    failure: str
    """What it means when it fails, in words."""
    write: Callable[[httpx2.Client], object]
    """Does it; raises ClusterError."""
    uid: str = ""
    """Of a pod that is to be evicted."""
    checked_after: float | None = None
    """Seconds until what is done is checked again: the taint is no task but a wish. None for all others."""
    tries: int = 0
    """That have failed."""
    due: float = 0.0
    """When it is tried, by the writer's clock."""


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
        self.marks: Sequence[Callable[..., str]] = (set_taint,)
        """Write on the Node that its agent is, or is not, ready, and return what they changed, in words."""
        self._clock = clock
        self._now = now
        self._wait = wait
        self._changed = threading.Condition()
        self._waiting: list[Task] = []
        self._book = EventBook()
        self._evictions: OrderedDict[str, None] = OrderedDict()
        self._words: OrderedDict[str, str] = OrderedDict()
        """How the newest failure of an eviction was reported, or, under an empty uid, of the taint; the thread's alone.
        """
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
                self._add(self._event_task(write))
            self._changed.notify_all()

    def evict(self, about: EventSubject, message: str) -> None:
        """Ask for a pod's eviction; once, unless it was given up. Then the next call asks again."""

        def ask(http: httpx2.Client) -> None:
            there = evict_pod(http, about)
            if there:
                self._evicted()
            became = f"was evicted: {message}" if there else "has ended already and needs no eviction"
            self._report_finding("info", f"{about.namespace}/{about.name} {became}")

        with self._changed:
            if about.uid in self._evictions:
                return
            self._evictions[about.uid] = None
            if len(self._evictions) > MOST_EVICTIONS:
                self._evictions.popitem(last=False)
            failure = f"{about.namespace}/{about.name} is not evicted and stays held back"
            self._add(Task(AgentAccount.EVICT, failure, ask, about.uid))

    def taint(self, *, present: bool) -> None:
        """See to it that the node has, or has not, the taint, or what else marks it."""

        def set_marks(http: httpx2.Client) -> None:
            for mark in self.marks:
                if changed := mark(http, self._node, present=present):
                    self._report_finding("info", changed)

        with self._changed:
            self._waiting = [task for task in self._waiting if task.checked_after is None]
            self._check = None
            failure = f"the node's taint could not be {'set' if present else 'removed'}"
            self._add(Task(AgentAccount.TAINT, failure, set_marks, checked_after=CHECKING[present]))

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
            oldest = next(index for index, one in enumerate(self._waiting) if one.checked_after is None)
            self._evictions.pop(self._waiting.pop(oldest).uid, None)
        self._waiting.append(task)
        self._changed.notify_all()

    def _event_task(self, write: EventWrite) -> Task:
        failure = f"an event about {write.event.about.name} could not be written"
        return Task(AgentAccount.EVENTS, failure, lambda http: write_event(http, write, self._node, self._now()))

    def _run(self) -> None:
        while (task := self._next()) is not None:
            try:
                task.write(self._clusters[task.account].http)
                if task.account is not AgentAccount.EVENTS:
                    self._words.pop(task.uid, None)  # the next failure is reported again
                self._check_later(task)
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
                    self._add(self._event_task(write))
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

    def _check_later(self, task: Task) -> None:
        with self._changed:
            if task.checked_after is not None and all(one.checked_after is None for one in self._waiting):
                self._check = replace(task, tries=0, due=self._clock() + task.checked_after)

    def _failed(self, task: Task, error: ClusterError) -> None:
        if error.code in (0, 401) or error.code >= 500:
            self._disconnect()  # credentials may have been renewed, the server may be another one
        lasting = task.checked_after is not None
        with self._changed:
            if lasting and any(one.checked_after is not None for one in self._waiting):
                return  # it is overtaken
            is_last = self._stopping or not error.may_pass or not (lasting or task.tries + 1 < MOST_TRIES)
            if is_last:
                self._evictions.pop(task.uid, None)
                self._check_later(task)
            else:
                pause = max(pause_before(task.tries + 1, self._node), error.pause)
                self._add(replace(task, tries=task.tries + 1, due=self._clock() + pause))
        is_event, message = task.account is AgentAccount.EVENTS, f"{task.failure}: {error}"
        if not is_last and (task.tries or is_event):
            return
        if not is_event:
            before = self._words.get(task.uid)
            if is_last:
                self._words[task.uid] = message
                if len(self._words) > MOST_EVICTIONS:
                    self._words.popitem(last=False)
            if before == message:
                return  # it was given up before with the same words
        self._report_finding("warning", message)

    def _disconnect(self) -> None:
        for cluster in self._clusters.values():
            cluster.close()

    def _report_finding(self, severity: str, message: str) -> None:
        self._report(Finding(severity, "API server", message))
