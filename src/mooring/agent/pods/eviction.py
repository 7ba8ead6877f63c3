"""Eviction of rejected pods, the taint that keeps new ones away, and Kubernetes events without a flood.

The reactor decides about an eviction (:func:`mooring.agent.reactor.placing.report_unplaced`, with ``onRejection:
evict``). Here are the requests. A pod that is held back is tried again every few seconds, for as long as it waits; each
try gives the same sentence: a repeated event is counted up, and each object gets a bounded number.

A role for all of it: ``get``, ``list``, ``watch`` on pods; ``create`` on pods/eviction; ``create``, ``patch`` on
events of events.k8s.io; ``get``, ``patch`` on nodes. Source: Kubernetes API v1.37.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import httpx2
import msgspec

from mooring.agent.effects import ClusterEvent, EventSubject
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
    written: int = 1
    """Which count was written last."""
    due: float = 0.0
    """When the next one may be written, by a clock that never goes back."""
    interval: float = FIRST_INTERVAL

    @property
    def name(self) -> str:
        """Name of the event object.

        >>> EventWrite(ClusterEvent(EventSubject("Pod", "web-0", "u"), "Held", "..."), 255, 1).name
        'web-0.ff'
        """
        return f"{self.event.about.name[:200]}.{self.number:x}"


class EventBook:
    """What was said already. Not safe for several threads."""

    def __init__(self) -> None:
        self._series: OrderedDict[ClusterEvent, EventWrite] = OrderedDict()
        self._allowances: OrderedDict[EventSubject, tuple[float, float]] = OrderedDict()
        """How many more sentences an object may be told, and since when."""

    def record(self, event: ClusterEvent, now: float, number: int) -> EventWrite | None:
        """Take note of something; return what is to be written now, if anything.

        Args:
            event: what.
            now: seconds of a clock that never goes back.
            number: for the name of a new event; another one each time.
        """
        series = self._series.get(event)
        if series is None:
            left, since = self._allowances.pop(event.about, (BURST, now))
            left = min(BURST, left + (now - since) / REFILL)
            self._allowances[event.about] = left - 1 if left >= 1 else left, now
            _bound(self._allowances)
            if left < 1:
                return None
            self._series[event] = EventWrite(event, number, 1, due=now + FIRST_INTERVAL)
            _bound(self._series)
            return self._series[event]
        self._series.move_to_end(event)
        self._series[event] = replace(series, count=series.count + 1)
        return self._written(event, now) if now >= series.due else None

    def due(self, now: float) -> list[EventWrite]:
        """Return the events whose count has grown since it was written, as far as it is time."""
        grown = [one.event for one in self._series.values() if one.count > one.written and now >= one.due]
        return [self._written(event, now) for event in grown]

    def next_due(self) -> float | None:
        """Return when :meth:`due` has something next, or None."""
        return min((one.due for one in self._series.values() if one.count > one.written), default=None)

    def _written(self, event: ClusterEvent, now: float) -> EventWrite:
        """Note that the count of an event is written now."""
        before = self._series[event]
        interval = min(2 * before.interval, LONGEST_INTERVAL)
        self._series[event] = replace(before, written=before.count, interval=interval, due=now + interval)
        return self._series[event]


def _bound(remembered: OrderedDict[ClusterEvent, EventWrite] | OrderedDict[EventSubject, tuple[float, float]]) -> None:
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
    kind = f"application/{_PATCHES[path.endswith('/status')]}+json" if method == "PATCH" else "application/json"
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


CONDITION = "mooring.dev/AgentReady"
"""Type of the node's condition, for rules of the node readiness controller."""
_PATCHES = ("merge-patch", "strategic-merge-patch")
"""Of conditions others write the rest, which only the second keeps."""
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


def set_taint(http: httpx2.Client, node: str, *, present: bool) -> str:
    """See to it that the node has, or has not, the taint; return what had to be changed, in words.

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
        return ""
    version = found.get("metadata", {}).get("resourceVersion")
    _answered(http, "PATCH", path, body={"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}})
    return f"the node {'has' if present else 'has lost'} the taint of an agent that is not ready"


def set_condition(http: httpx2.Client, node: str, *, present: bool) -> str:
    """See to it that the node has the condition, False where the taint would be present; as :func:`set_taint`."""
    path, status = f"/api/v1/nodes/{node}", str(not present)
    found = (_answered(http, "GET", path) or {}).get("status", {}).get("conditions") or []
    if any(one.get("type") == CONDITION and one.get("status") == status for one in found):
        return ""
    condition = {
        "type": CONDITION,
        "status": status,
        "reason": "AgentNotReady" if present else "AgentReady",
        "message": f"Mooring's agent {'does not pin' if present else 'pins'} the containers of this node",
        "lastTransitionTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
    }
    _answered(http, "PATCH", f"{path}/status", body={"status": {"conditions": [condition]}})
    return f"the node's condition {CONDITION} is {status}"
