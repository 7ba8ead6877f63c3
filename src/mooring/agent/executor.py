"""What executes the effects of an event: state folder, control groups, and a thread for work without an answer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from threading import Lock
from typing import Any

from mooring.agent.cgroups.protocol import CGroups
from mooring.agent.reactor.effects import EventFor, Evict, Report, ResizeAnswered
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.storage.assigned_files import AssignedFiles
from mooring.agent.storage.store import Store


@dataclass(frozen=True, slots=True)
class Hands:
    """The state folder, control groups, and whoever is told."""

    store: Store
    cgroups: CGroups
    metrics: AgentMetrics
    afterwards: Afterwards
    log: Any
    verify: Callable[[tuple[str, ...]], object]
    """Verifies containers; called in the thread of ``afterwards``, and before a program is let run."""
    announce: Callable[[EventFor | Evict], object]
    """Tells the cluster; called in the thread of ``afterwards``."""
    files: AssignedFiles
    """Tell containers which CPUs they have."""


class Looks:
    """Containers that are to be verified."""

    def __init__(self, verify: Callable[[tuple[str, ...]], object]) -> None:
        """Have nobody to look at.

        Args:
            verify: looks at containers and puts right what differs; may ask for further looks.
        """
        self._verify = verify
        self._looking = Lock()
        """Held while somebody looks; taken before the next, never within it."""
        self._lock = Lock()
        self._asked: dict[str, int] = {}
        """By container: a number that tells the newest request from those before it."""
        self._requests = 0

    def ask(self, container_ids: Collection[str]) -> None:
        """Remember that these are to be looked at after now."""
        with self._lock:
            self._requests += 1
            self._asked.update(dict.fromkeys(container_ids, self._requests))

    def make(self, container_ids: Collection[str]) -> None:
        """Look at those of them at whom nobody has looked since they were asked for."""
        with self._looking:
            with self._lock:
                due = {one: self._asked[one] for one in container_ids if one in self._asked}
            try:
                if due:
                    self._verify(tuple(due))
            finally:
                with self._lock:
                    # Who was asked for again meanwhile may have been looked at too early.
                    self._asked = {one: asked for one, asked in self._asked.items() if due.get(one) != asked}

    def make_all(self) -> None:
        """Return once everybody asked for so far was looked at; a look that somebody else makes is waited for."""
        with self._lock:
            due = tuple(self._asked)
        if due:
            self.make(due)


MOST_WAITING = 4096
"""Pieces of work that wait at most. What is left out beyond that is made up for by the next look at everything."""


class Afterwards:
    """Does one piece of work after another in a thread of its own."""

    def __init__(self, failed: Callable[[Exception], object], size: int = MOST_WAITING) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            failed: is told what went wrong with a piece of work.
            size: how many may wait.
        """
        self._failed = failed
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-afterwards", daemon=True)
        self.dropped = 0
        """How often there was no room."""

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def put(self, work: Callable[[], object]) -> bool:
        """Have something done as soon as possible; tell whether there was room. Never waits."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def finish(self, patience: float) -> None:
        """Do what waits, and end; waits for that for a while."""
        if self._thread.is_alive():
            try:
                self._waiting.put(None, timeout=patience)
            except queue.Full:
                return
            self._thread.join(patience)

    def _run(self) -> None:
        while (work := self._waiting.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - without this thread nothing would be verified any more
                self._failed(error)


def log_report(log: Any, report: Report) -> None:
    """Log a report with what it is about."""
    said = {"pod": report.uid, "container": report.container_id, "reason": report.reason}
    log.warning(report.message, finding=report.finding.value, **{key: text for key, text in said.items() if text})


def log_resize(log: Any, answer: ResizeAnswered) -> None:
    """Log what was decided about a resize; one that is refused is a warning."""
    tell = log.info if answer.result == "accepted" else log.warning
    tell(answer.message, resize=answer.result, pod=answer.uid, container=answer.container_id)
