"""Eviction of rejected pods, the taint that keeps new ones away, and Kubernetes events without a flood.

The reactor decides about an eviction (:func:`mooring.agent.reactor.placing.report_unplaced`, with ``onRejection:
evict``). Here are the requests, what waits to be requested, and what was given up: the wish for an eviction comes again
with every try of the kubelet, that for the taint with every check, and each failure is reported once. A pod that is
held back is tried again every few seconds, for as long as it waits; each try gives the same sentence: a repeated event
is counted up, and each object gets a bounded number.

A role for all of it: ``get``, ``list``, ``watch`` on pods; ``create`` on pods/eviction; ``create``, ``patch`` on
events of events.k8s.io; ``get``, ``patch`` on nodes. Source: Kubernetes API v1.37.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx2
import msgspec

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.agent.pods.cluster import AgentAccount
from mooring.service.apiserver import cluster_errors, refusal_of

CONTROLLER = "mooring/agent"
"""Who the events are from."""
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


FIRST_INTERVAL = 10.0
"""Seconds before the count of an event is written for the first time; the interval doubles."""
LONGEST_INTERVAL = 600.0
BURST = 20
"""Different sentences that one object may be told at once."""
REFILL = 300.0
"""Seconds after which an object may be told one more."""
MOST_REMEMBERED = 1024
"""Sentences, and objects, that are remembered."""
LONGEST_NOTE = 1024
"""Characters of a note that the API server takes."""


@dataclass(frozen=True, slots=True)
class EventWrite:
    """An event to create, or one whose count is to be written."""

    event: ClusterEvent
    number: int
    """Tells the event from others about the same object."""
    count: int
    """How often it happened; an event with more than one that is not there any more is created again."""

    @property
    def name(self) -> str:
        """Name of the event object.

        >>> EventWrite(ClusterEvent(EventSubject("Pod", "web-0", "u"), "Held", "..."), 255, 1).name
        'web-0.ff'
        """
        return f"{self.event.about.name[:200]}.{self.number:x}"


@dataclass(slots=True)
class _Series:
    number: int
    count: int
    written: int
    due: float
    interval: float


@dataclass(slots=True)
class _Allowance:
    left: float
    since: float


@dataclass(slots=True)
class EventBook:
    """What was said already. Not safe for several threads."""

    _series: OrderedDict[ClusterEvent, _Series] = field(default_factory=OrderedDict)
    _allowances: OrderedDict[EventSubject, _Allowance] = field(default_factory=OrderedDict)

    def record(self, event: ClusterEvent, now: float, number: int) -> EventWrite | None:
        """Take note of something; return what is to be written now, if anything.

        Args:
            event: what.
            now: seconds of a clock that never goes back.
            number: for the name of a new event; another one each time.
        """
        series = self._series.get(event)
        if series is None:
            if not self._allows(event.about, now):
                return None
            self._series[event] = _Series(number, 1, 1, now + FIRST_INTERVAL, FIRST_INTERVAL)
            _bound(self._series)
            return EventWrite(event, number, 1)
        self._series.move_to_end(event)
        series.count += 1
        return _written(event, series, now) if now >= series.due else None

    def due(self, now: float) -> list[EventWrite]:
        """Return the events whose count has grown since it was written, as far as it is time."""
        return [
            _written(event, series, now)
            for event, series in self._series.items()
            if series.count > series.written and now >= series.due
        ]

    def next_due(self) -> float | None:
        """Return when :meth:`due` has something next, or None."""
        return min((one.due for one in self._series.values() if one.count > one.written), default=None)

    def _allows(self, about: EventSubject, now: float) -> bool:
        allowance = self._allowances.setdefault(about, _Allowance(BURST, now))
        self._allowances.move_to_end(about)
        _bound(self._allowances)
        allowance.left = min(BURST, allowance.left + (now - allowance.since) / REFILL)
        allowance.since = now
        if allowance.left < 1:
            return False
        allowance.left -= 1
        return True


def _written(event: ClusterEvent, series: _Series, now: float) -> EventWrite:
    series.written = series.count
    series.interval = min(2 * series.interval, LONGEST_INTERVAL)
    series.due = now + series.interval
    return EventWrite(event, series.number, series.count)


def _bound(remembered: OrderedDict[ClusterEvent, _Series] | OrderedDict[EventSubject, _Allowance]) -> None:
    if len(remembered) > MOST_REMEMBERED:
        remembered.popitem(last=False)


def write_event(http: httpx2.Client, write: EventWrite, node: str, now: datetime) -> None:
    """Create an event, or write its count.

    Raises:
        ClusterError: it failed.
    """
    event, about = write.event, write.event.about
    namespace, moment = about.namespace or "default", now.strftime(_TIME)
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    series = {"series": {"count": write.count, "lastObservedTime": moment}} if write.count > 1 else {}
    if series and _answered(http, "PATCH", f"{events}/{write.name}", 404, series) is not None:
        return
    # Events live for an hour only, and the first write may have failed; 409: an earlier try has arrived after all.
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": write.name, "namespace": namespace},
        "eventTime": moment,
        "action": "Placing",
        "reason": event.reason[:128] or "Unknown",
        "note": event.note[:LONGEST_NOTE],
        "type": "Warning" if event.warning else "Normal",
        "regarding": {"apiVersion": "v1", "kind": about.kind, "name": about.name, "uid": about.uid}
        | ({"namespace": about.namespace} if about.namespace else {}),
        "reportingController": CONTROLLER,
        "reportingInstance": f"mooring-agent-{node}"[:128],
    }
    _answered(http, "POST", events, 409, body | series)


def _answered(
    http: httpx2.Client, method: str, path: str, passing: int = 0, body: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the object with which the server answers, or None where it answers with the code that passes.

    Raises:
        ClusterError: it says no, in its own words where it has any, or nothing.
    """
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    manager = {} if body is None else {"fieldManager": "mooring-agent"}
    with cluster_errors():
        content = None if body is None else msgspec.json.encode(body)
        response = http.request(method, path, params=manager, content=content, headers={"Content-Type": kind})
        if response.status_code == passing:
            return None
        if response.is_success or response.headers.get("Content-Type", "").startswith("application/json"):
            found = msgspec.json.decode(response.content, type=dict[str, Any])
            if response.is_success:
                return found
            raise refusal_of(response, str(found.get("message")))
        response.raise_for_status()
    return None


@dataclass(frozen=True, slots=True)
class EvictionWrite:
    """A pod is to be evicted."""

    about: EventSubject
    message: str
    """Why."""


@dataclass(frozen=True, slots=True)
class TaintWrite:
    """The node is to have the agent's taint, or not to have it."""

    present: bool


@dataclass(frozen=True, slots=True)
class Task:
    """A write that waits."""

    what: EventWrite | EvictionWrite | TaintWrite
    tries: int = 0
    """That have failed."""
    due: float = 0.0
    """When it is tried, by the writer's clock."""

    @property
    def account(self) -> AgentAccount:
        """The account that may write it."""
        if isinstance(self.what, EventWrite):
            return AgentAccount.EVENTS
        return AgentAccount.EVICT if isinstance(self.what, EvictionWrite) else AgentAccount.TAINT

    @property
    def failure(self) -> str:
        """What it means when it fails, in words."""
        what = self.what
        if isinstance(what, EventWrite):
            return f"an event about {what.event.about.name} could not be written"
        if isinstance(what, EvictionWrite):
            return f"{what.about.namespace}/{what.about.name} is not evicted and stays held back"
        return f"the node's taint could not be {'set' if what.present else 'removed'}"


TAINT = "mooring/agent-not-ready"
"""Key of the taint that keeps pods away from a node whose agent is not there."""
EFFECT = "NoSchedule"


def evict_pod(http: httpx2.Client, about: EventSubject) -> bool:
    """Ask for the eviction of a pod; tell whether it was still there, and not another one of that name.

    The uid is in the request too, but a server that finds another one there tries for ten seconds before it
    says so (measured).

    Raises:
        ClusterError: it was refused, for example with 429 because of a disruption budget.
    """
    pod = f"/api/v1/namespaces/{about.namespace}/pods/{about.name}"
    found = _answered(http, "GET", pod, 404)
    if found is None or found["metadata"].get("uid") != about.uid:
        return False
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": about.name, "namespace": about.namespace},
        "deleteOptions": {"preconditions": {"uid": about.uid}},
    }
    return _answered(http, "POST", f"{pod}/eviction", 404, eviction) is not None


def set_taint(http: httpx2.Client, node: str, *, present: bool) -> bool:
    """See to it that the node has, or has not, the taint; tell whether anything had to be changed.

    The list of taints can only be written whole, so the write carries the version that was read and fails with 409 when
    another client was faster.

    Raises:
        ClusterError: it failed.
    """
    path = f"/api/v1/nodes/{node}"
    found = _answered(http, "GET", path) or {}
    taints: list[dict[str, Any]] = found.get("spec", {}).get("taints") or []
    kept = [one for one in taints if not (one.get("key") == TAINT and one.get("effect") == EFFECT)]
    wanted = [*kept, {"key": TAINT, "effect": EFFECT}] if present else kept
    if len(wanted) == len(taints):
        return False
    version = found.get("metadata", {}).get("resourceVersion")
    _answered(http, "PATCH", path, body={"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}})
    return True


MOST_EVICTIONS = 1024
"""Evictions that are remembered."""
_NODE = ""
"""Stands for the node among the uids of pods."""


class ReportedFailures:
    """Evictions and the taint, with the words in which the newest failure was reported; one thread's alone."""

    def __init__(self) -> None:
        self._words: OrderedDict[str, str] = OrderedDict()

    def was_reported(self, task: Task, message: str, *, is_last: bool) -> bool:
        """Tell whether the same eviction, or the taint, was given up before with the same words.

        Args:
            task: that has failed; an event is never the same.
            message: that is about to be reported.
            is_last: whether it is given up now.
        """
        if isinstance(task.what, EventWrite):
            return False
        uid = _uid(task)
        before = self._words.get(uid)
        if is_last:
            self._words[uid] = message
            if len(self._words) > MOST_EVICTIONS:
                self._words.popitem(last=False)
        return before == message

    def done(self, task: Task) -> None:
        """Learn that a write was made: the next failure is reported again."""
        self._words.pop(_uid(task), None)


def _uid(task: Task) -> str:
    return task.what.about.uid if isinstance(task.what, EvictionWrite) else _NODE
