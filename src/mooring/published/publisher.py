"""The publisher: checks its source, writes when it is time to, and counts both for Prometheus.

One thread does everything, waits for the API server and the source only, and never gives up: what cannot be read or
written is retried, and logged now and then.

It writes soon after a change, once for a burst of changes, at a heartbeat without changes, and later after failures.

A pod that the extender refused everywhere waits until the scheduler sees an event that could help it. The end of
another pod is such an event, but comes before the node has published what that pod released; then the pod waits for the
next event or five minutes. An annotation of the Node is an event too, so a node with more room writes one.

Source: kube-scheduler v1.37.1, framework/runtime (a pod refused by an extender waits for any event) and
framework/events.go (UpdateNodeAnnotation).

Publishing the engine of another program, such as the agent, in a thread of its own.

Nothing that answers the container runtime waits for the thread, and the thread waits for the API server only.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

import httpx2
from prometheus_client import generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, SummaryMetricFamily
from prometheus_client.metrics_core import Metric

from mooring.engine.core.errors import MooringError
from mooring.engine.core.machine import Finding
from mooring.engine.kubelet.kubelet import Kubelet
from mooring.inputs.decoding.fields import Report, ignore
from mooring.published.facts_document import facts_document
from mooring.published.observation import LiveSource, Observation, Observe, Room, documents_of, room_of
from mooring.published.writing import apply, create_once, node_uid, wake
from mooring.service.apiserver import Cluster, ClusterError, ClusterOnDemand
from mooring.service.following import pause_before

LOOKING: Final = 0.25
"""Seconds between two looks at the source."""
_PREFIX = "mooring_publish"


LEAST_WAKING: Final = 5.0
"""Seconds between two times at which waiting pods are tried again: each time the scheduler tries all of them."""


@dataclass(frozen=True, slots=True)
class Pace:
    """When to write: the operator's choice, in seconds, and what was written when, on a clock that only goes forward.

    >>> pace = Pace().changed(100.0)
    >>> pace.due, pace.changed(100.1).due, pace.written(100.2).changed(100.3).due
    (100.2, 100.2, 101.2)
    >>> first = Pace(waking=5.0).written(99.0, {("a", "cpu"): 4})
    >>> less = first.woken(100.0).written(101.0, {("a", "cpu"): 2})
    >>> more = less.written(102.0, {("a", "cpu"): 3})
    >>> less.wakes_at(200.0), more.wakes_at(104.0), more.wakes_at(105.0)
    (False, False, True)
    """

    gathering: float = 0.2
    """After the first change of a burst, in which the others come."""
    least: float = 1.0
    """Between two writes."""
    heartbeat: float = 300.0
    """Between two writes when nothing changes."""
    waking: float | None = None
    """Least between two times at which waiting pods are tried again; None for never."""
    first: float | None = None
    """When the oldest change came that is not written."""
    last: float | None = None
    """When the last write succeeded."""
    failures: int = 0
    barred: float = 0.0
    """Not asked again before that."""
    room: Room | None = None
    """What was available in the state that was written last; None before the first."""
    has_grown: bool = False
    """Whether there is more room than when waiting pods were tried last."""
    asleep: float = 0.0
    """They are not tried again before that."""

    @property
    def due(self) -> float | None:
        """When the next write is due; None when there is nothing to write."""
        if self.first is not None:
            wanted = self.first + self.gathering
            if self.last is not None:
                wanted = max(wanted, self.last + self.least)
        elif self.last is not None:
            wanted = self.last + self.heartbeat
        else:
            return None
        return max(wanted, self.barred)

    def changed(self, now: float) -> Pace:
        """Return the pace after a change."""
        return self if self.first is not None else replace(self, first=now)

    def written(self, now: float, room: Room | None = None) -> Pace:
        """Return the pace after a write of everything.

        Args:
            now: the time.
            room: what is available. What was there before the first state is not known: it counts as less.
        """
        grown = self.room is None or any(amount > self.room.get(what, 0) for what, amount in (room or {}).items())
        grown = self.has_grown or grown
        return replace(self, first=None, last=now, failures=0, barred=0.0, room=room, has_grown=grown)

    def failed(self, now: float, node: str, error: MooringError) -> Pace:
        """Return the pace after a write that failed.

        Args:
            now: the time.
            node: of whom; nodes differ a little in how long they wait.
            error: why; the server may want a pause.
        """
        failures, pause = self.failures + 1, error.pause if isinstance(error, ClusterError) else 0.0
        return replace(
            self,
            first=now if self.first is None else self.first,
            failures=failures,
            barred=now + max(pause_before(failures, node), pause),
        )

    def wakes_at(self, now: float) -> bool:
        """Tell whether to have waiting pods tried again now."""
        return self.waking is not None and self.has_grown and now >= self.asleep

    def woken(self, now: float, *, done: bool = True) -> Pace:
        """Return the pace after that was done, or has failed: then it is tried again later."""
        return replace(self, has_grown=not done, asleep=now + (self.waking or 0.0))

    def complaint(self, what: str, error: MooringError) -> str:
        """Return how the newest failure is reported; empty where it is not: only the first ones are, and now and then.

        Args:
            what: did not come about, in words.
            error: why.
        """
        if self.failures > 2 and self.failures % 20:
            return ""
        missing = isinstance(error, ClusterError) and error.code == httpx2.codes.NOT_FOUND
        return f"{what} (attempt {self.failures}): {error}{'; apply the definitions of deploy/crds' if missing else ''}"


class Publisher:
    """Publishes one node."""

    def __init__(
        self,
        observe: Observe,
        connect: Callable[[], Cluster],
        node: str,
        *,
        pace: Pace | None = None,
        report: Report = ignore,
        clock: Callable[[], float] = time.monotonic,
        today: Callable[[], float] = time.time,
        cpu: Callable[[], float] = time.thread_time,
    ) -> None:
        """Do nothing yet.

        Args:
            observe: looks at the node.
            connect: opens the way to the API server, again after a failure, so that renewed credentials are read.
            node: name of the node.
            pace: when to write.
            report: receives outages and recoveries.
            clock: seconds that only go forward.
            today: seconds since 1970.
            cpu: seconds that the thread has computed.
        """
        self._source, self._cluster, self._node = observe, ClusterOnDemand(connect), node
        self._report, self._clock, self._today, self._cpu = report, clock, today, cpu
        self._spent = 0.0  # on changes that are not written yet
        self._pace = pace or Pace()
        # Grows over restarts too, as long as there are fewer than a thousand changes a second.
        self._sequence = int(today() * 1000)
        self._seen: Observation | None = None
        self._owner: str | None = None
        self._known_facts = ""
        self._without_topology = False
        self._blind, self._resume_at = 0, 0.0
        # Changed by the publisher's thread alone; others may read each number, or all as a page, at any time.
        self.changes = self.wakes = self.blind_looks = 0
        self.writes = self.failures = 0
        """Complete ones, and those that were not."""
        self.written_at: float | None = None
        """When the last write was complete; None before the first."""
        self.bursts, self.burst_cpu = 0, 0.0
        """Bursts of changes that were written, and the CPU seconds that they took, from seeing to writing."""

    def run(self, stopping: threading.Event) -> None:
        """Publish until told to stop."""
        try:
            while not stopping.is_set():
                stopping.wait(self.step())
        finally:
            self.close()

    def once(self) -> None:
        """Look and write once.

        Raises:
            MooringError: one of them cannot be done.
        """
        seen = self._source()
        if seen is None:
            raise MooringError("there is nothing to publish yet")
        self._take(seen)
        self._write(seen)
        if self._pace.waking is not None:
            wake(self._cluster.http, self._node, self._sequence)

    def step(self) -> float:
        """Do what is due; return the seconds until there is more to do."""
        now = self._clock()
        if now >= self._resume_at:
            self._observe(now)
        self._wake_when_due(now)
        due = self._pace.due
        if self._seen is None or self._blind or due is None:
            return LOOKING
        if now < due:
            return min(due - now, LOOKING)
        begun = self._cpu()
        try:
            self._write(self._seen)
        except MooringError as error:
            self.close()
            self._owner, self._known_facts = None, ""
            self._pace = self._pace.failed(self._clock(), self._node, error)
            self.failures += 1
            if message := self._pace.complaint(f"{self._node} is not published", error):
                self._tell("warning", message)
        else:
            if self._pace.failures:
                self._tell("info", f"{self._node} is published again")
            if self._pace.first is not None:
                self.bursts += 1
                self.burst_cpu += self._spent + self._cpu() - begun
                self._spent = 0.0
            now = self._clock()
            self._pace = self._pace.written(now, room_of(self._seen) if self._pace.waking is not None else None)
            self.writes += 1
            self.written_at = now
        return 0.0 if self._pace.failures else LOOKING

    def close(self) -> None:
        """Close the way to the API server."""
        self._cluster.close()

    def text(self) -> bytes:
        """Return everything in the text format of Prometheus."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the counters, and the age of the last write once there was one."""
        for name, says, value in (
            ("changes", "Changes of the node, the first observation included.", self.changes),
            ("writes", "Writes of everything, heartbeats too.", self.writes),
            ("failures", "Writes that failed.", self.failures),
            ("blind_looks", "Looks at the node that failed.", self.blind_looks),
            ("wakes", "Annotations written to have the scheduler try waiting pods again.", self.wakes),
        ):
            yield CounterMetricFamily(f"{_PREFIX}_{name}", says, value=value)
        if self.written_at is not None:
            age = max(self._clock() - self.written_at, 0.0)
            says = "Time since everything was written last."
            yield GaugeMetricFamily(f"{_PREFIX}_last_write_age_seconds", says, value=age)
        says = "CPU time of the publisher's thread from seeing a burst of changes until it is written."
        yield SummaryMetricFamily(
            f"{_PREFIX}_change_cpu_seconds", says, count_value=self.bursts, sum_value=self.burst_cpu
        )

    def _tell(self, severity: str, message: str) -> None:
        self._report(Finding(severity, "publisher", message))

    def _observe(self, now: float) -> None:
        begun = self._cpu()
        try:
            seen = self._source()
        except MooringError as error:
            self._blind += 1
            self.blind_looks += 1
            self._resume_at = now + pause_before(self._blind, self._node)
            if self._blind == 2 or self._blind % 20 == 0:
                self._tell("warning", f"the node cannot be observed (attempt {self._blind}): {error}")
            return
        if self._blind >= 2:
            self._tell("info", "the node is observed again")
        self._blind = 0
        if seen is not None and seen is not self._seen:
            self._take(seen)
            self._pace = self._pace.changed(now)
            self._spent += self._cpu() - begun

    def _take(self, seen: Observation) -> None:
        if seen.problem and (self._seen is None or self._seen.problem != seen.problem):
            self._tell("warning", f"available amounts are not published: {seen.problem}")
        self._seen = seen
        self._sequence += 1
        self.changes += 1

    def _wake_when_due(self, now: float) -> None:
        """Have pods tried again that wait for room, when a state with more of it was written."""
        if not self._cluster.is_open or not self._pace.wakes_at(now):
            return
        try:
            wake(self._cluster.http, self._node, self._sequence)
        except ClusterError as error:
            self._pace = self._pace.woken(now, done=False)
            self._tell("warning", f"the annotation that has waiting pods tried again is not written: {error}")
        else:
            self._pace = self._pace.woken(now)
            self.wakes += 1

    def _write(self, seen: Observation) -> None:
        http = self._cluster.http
        is_heartbeat = self._pace.first is None
        if self._owner is None or is_heartbeat:
            self._owner = node_uid(http, self._node)
        state, topology = documents_of(seen, sequence=self._sequence, moment=self._today(), owner=self._owner)
        # Facts first, because the state names them; with the heartbeat again, in case they were removed.
        if self._known_facts != seen.state.facts or is_heartbeat:
            create_once(http, facts_document(seen.facts, self._node))
            self._known_facts = seen.state.facts
        apply(http, state)
        self._write_topology(http, topology, anew=is_heartbeat)

    def _write_topology(self, http: httpx2.Client, topology: dict[str, Any] | None, *, anew: bool) -> None:
        """Write the topology where the cluster has such objects."""
        if topology is None or (self._without_topology and not anew):
            return
        try:
            apply(http, topology)
        except ClusterError as error:
            if error.code != httpx2.codes.NOT_FOUND:
                raise
            if not self._without_topology:
                self._tell("info", "the cluster has no NodeResourceTopology v1alpha2; none is written")
            self._without_topology = True
        else:
            self._without_topology = False


class PublisherThread:
    """A publisher in a thread."""

    def __init__(
        self, kubelet: Callable[[], Kubelet], connect: Callable[[], Cluster], node: str, report: Report
    ) -> None:
        """Start.

        Args:
            kubelet: returns the present engine.
            connect: opens the way to the API server.
            node: name of the node.
            report: receives outages and recoveries.
        """
        self._stopping = threading.Event()
        self._publisher = Publisher(LiveSource(kubelet, node).observe, connect, node, report=report)
        self._thread = threading.Thread(
            target=self._publisher.run, args=(self._stopping,), name="mooring-publisher", daemon=True
        )
        self._thread.start()

    def metrics(self) -> str:
        """Return the counts in the text format of Prometheus."""
        return self._publisher.text().decode()

    def stop(self, patience: float) -> None:
        """End the thread, and wait for it for some seconds."""
        self._stopping.set()
        self._thread.join(patience)
