"""Kubernetes events without a flood: a repeated event is counted up, and each object gets a bounded number.

A pod that is held back is tried again every few seconds, for as long as it waits; each try gives the same sentence.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime

from lightkube.models.core_v1 import ObjectReference
from lightkube.models.events_v1 import EventSeries
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.events_v1 import Event
from lightkube.types import PatchType

from mooring.agent.effects import ClusterEvent, EventSubject
from mooring.service.cluster.apiserver import Cluster, ClusterError, cluster_errors

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


def write_event(cluster: Cluster, write: EventWrite, node: str, now: datetime) -> None:
    """Create an event, or write its count.

    Raises:
        ClusterError: it failed.
    """
    namespace = write.event.about.namespace or "default"
    with cluster_errors():
        if write.count > 1:
            series = {"series": {"count": write.count, "lastObservedTime": now.strftime(_TIME)}}
            try:
                with cluster_errors():
                    cluster.typed.patch(Event, write.name, series, namespace=namespace, patch_type=PatchType.MERGE)
            except ClusterError as error:
                if error.code != 404:
                    raise
            else:
                return
            # Events live for an hour only, and the first write may have failed.
        try:
            with cluster_errors():
                cluster.typed.create(_event(write, namespace, node, now))
        except ClusterError as error:
            if error.code != 409:  # an earlier try has arrived after all
                raise


def _event(write: EventWrite, namespace: str, node: str, now: datetime) -> Event:
    event = write.event
    about = event.about
    return Event(
        metadata=ObjectMeta(name=write.name, namespace=namespace),
        eventTime=now,
        action="Placing",
        reason=event.reason[:128] or "Unknown",
        note=event.note[:LONGEST_NOTE],
        type="Warning" if event.warning else "Normal",
        regarding=ObjectReference(
            apiVersion="v1", kind=about.kind, name=about.name, namespace=about.namespace or None, uid=about.uid
        ),
        reportingController=CONTROLLER,
        reportingInstance=f"mooring-agent-{node}"[:128],
        series=EventSeries(count=write.count, lastObservedTime=now) if write.count > 1 else None,
    )
