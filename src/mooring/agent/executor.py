"""Executing the effects of an event: those that the reply waits for at once, the others in a thread of their own."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Collection
from functools import partial
from threading import Lock

from mooring.agent.cgroups.files import CGroupTrouble
from mooring.agent.cgroups.protocol import CGroups, CPUSetWritten
from mooring.agent.pods.events import ClusterEvent
from mooring.agent.reactor.effects import (
    AgentReport,
    DropAssigned,
    Effect,
    Evict,
    LiftQuota,
    ResizeAnswered,
    ReturnCPUs,
    SweepAssigned,
    Verify,
    WriteAssigned,
    WriteCPUSet,
)
from mooring.agent.status.metrics import AgentMetrics
from mooring.agent.storage.assigned_files import AssignedFiles
from mooring.service.logs import Log

MOST_WAITING = 4096
"""Pieces of work that wait at most. What is dropped beyond that, the next check of all containers makes up for."""
_MOST_COMPLAINTS = 1000


class Executor:
    """Executes effects; calls come from one thread at a time, except to :meth:`complain`."""

    def __init__(
        self,
        cgroups: CGroups,
        metrics: AgentMetrics,
        work: WorkQueue,
        log: Log,
        verify: Callable[[tuple[str, ...]], object],
        announce: Callable[[ClusterEvent | Evict], object],
        files: AssignedFiles,
    ) -> None:
        """Execute nothing yet.

        Args:
            cgroups: of the node.
            metrics: count effects.
            work: the thread for what no reply waits for.
            log: of the agent.
            verify: verifies containers; called in that thread, and before a container starts.
            announce: reports to the cluster; called in that thread.
            files: tell containers their CPUs.
        """
        self.cgroups, self.metrics, self.work, self.log, self.announce = cgroups, metrics, work, log, announce
        self.checks = PendingChecks(verify)
        self.lifted = -math.inf
        """When a quota was last lifted, by the clock that only goes forward."""
        self._files = files
        self._complained: set[tuple[str, str]] = set()

    def execute(self, effect: Effect) -> CPUSetWritten | None:
        """Execute an effect, or queue it; return what came of writing a cpuset.

        :class:`~mooring.agent.reactor.effects.Persist` is not executed here: a state that cannot be written changes the
        outcome.
        """
        self.metrics.count(effect)
        match effect:
            case WriteCPUSet() if effect.cpus or effect.mems:
                return self.cgroups.write_cpuset(effect)
            case ReturnCPUs():
                if problem := self.cgroups.return_cpus(effect):
                    self.complain("groups above containers", f"a CPU that came online cannot be added: {problem}")
            case LiftQuota():
                self._lift(effect)
            case WriteAssigned() | DropAssigned() | SweepAssigned():
                if problem := self._files.do(effect):
                    self.complain("files of assigned CPUs", problem)
            case ResizeAnswered():
                self.work.put(partial(_log_resize, self.log, effect))
            case Verify():
                self.checks.add(effect.container_ids)
                self.work.put(partial(self.checks.run, effect.container_ids))
            case AgentReport():
                self.work.put(partial(_log_report, self.log, effect))
            case ClusterEvent() | Evict():
                self.work.put(partial(self.announce, effect))
        return None

    def complain(self, about: str, problem: str) -> None:
        """Log a problem, once for each thing that it is about."""
        if (about, problem) not in self._complained:
            if len(self._complained) > _MOST_COMPLAINTS:
                self._complained.clear()
            self._complained.add((about, problem))
            self.work.put(partial(self.log.warning, problem, about=about))

    def _lift(self, effect: LiftQuota) -> None:
        self.lifted = time.monotonic()
        if (lifted := self.cgroups.lift_quota(effect)).trouble not in (None, CGroupTrouble.GONE):
            self.complain(effect.container_id or effect.uid, f"a quota is not lifted: {lifted.problem}")


class PendingChecks:
    """Containers that must be verified. Each is verified once, by the first thread that comes to it."""

    def __init__(self, verify: Callable[[tuple[str, ...]], object]) -> None:
        """Have no container to verify.

        Args:
            verify: verifies containers and corrects what differs; may add further containers.
        """
        self._verify = verify
        self._running = Lock()
        """Held during a check; taken before the other lock, never within it."""
        self._lock = Lock()
        self._due: dict[str, int] = {}
        """By container: a number that tells the newest request from those before it."""
        self._requests = 0

    def add(self, container_ids: Collection[str]) -> None:
        """Note that these containers must be verified after now."""
        with self._lock:
            self._requests += 1
            self._due.update(dict.fromkeys(container_ids, self._requests))

    def run(self, container_ids: Collection[str]) -> None:
        """Verify those of the containers that were not verified since they were added."""
        with self._running:
            with self._lock:
                due = {one: self._due[one] for one in container_ids if one in self._due}
            try:
                if due:
                    self._verify(tuple(due))
            finally:
                with self._lock:
                    # A container that was added again meanwhile may have been verified too early.
                    self._due = {one: number for one, number in self._due.items() if due.get(one) != number}

    def run_all(self) -> None:
        """Return once every container added so far is verified; waits for a check in another thread."""
        with self._lock:
            due = tuple(self._due)
        if due:
            self.run(due)


class WorkQueue:
    """Does one piece of work after another in a thread of its own."""

    def __init__(self, failed: Callable[[Exception], object], size: int = MOST_WAITING) -> None:
        """Do nothing yet; :meth:`start` does.

        Args:
            failed: receives the error of a piece of work.
            size: how many pieces may wait.
        """
        self._failed = failed
        self._waiting: queue.Queue[Callable[[], object] | None] = queue.Queue(size)
        self._thread = threading.Thread(target=self._run, name="mooring-work", daemon=True)
        self.dropped = 0
        """How often there was no room."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, work: Callable[[], object]) -> bool:
        """Queue a piece of work; return whether there was room. Never waits."""
        try:
            self._waiting.put_nowait(work)
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def finish(self, patience: float) -> None:
        """Do what waits, and end; waits for that for some seconds."""
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
            except Exception as error:  # noqa: BLE001 - without this thread no container would be verified any more
                self._failed(error)


def _log_report(log: Log, report: AgentReport) -> None:
    """Log a report with what it is about."""
    fields = {"pod": report.uid, "container": report.container_id, "reason": report.reason, "code": report.code}
    log.warning(report.message, finding=report.finding.value, **{key: text for key, text in fields.items() if text})


def _log_resize(log: Log, answer: ResizeAnswered) -> None:
    """Log what was decided about a resize; one that is refused is a warning."""
    write = log.info if answer.result == "accepted" else log.warning
    write(answer.message, resize=answer.result, pod=answer.uid, container=answer.container_id)
