"""Objects at the API server: server-side apply in the name of ``mooring``, and removing facts that no state names.

Source: Kubernetes API concepts, "Server-Side Apply". JSON is YAML, and so a valid apply patch.

When a publisher writes, and when it has the scheduler try waiting pods again.

It writes soon after a change, once for a burst of changes, at a heartbeat without changes, and later after failures.

A pod that the extender refused everywhere waits until the scheduler sees an event that could help it. The end of
another pod is such an event, but comes before the node has published what that pod released; then the pod waits for the
next event or five minutes. An annotation of the Node is an event too, so a node with more room writes one.

Source: kube-scheduler v1.37.1, framework/runtime (a pod refused by an extender waits for any event) and
framework/events.go (UpdateNodeAnnotation).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

import httpx2
import msgspec

from mooring.engine.core.errors import MooringError
from mooring.published import observation
from mooring.published.objects import FACTS, GROUP, NODE_LABEL, PATHS, STATE, encoded
from mooring.published.observation import Observation, exclusive_cpus_of, zones_of
from mooring.service.apiserver import ClusterError, asked, cluster_errors
from mooring.service.following import objects_at, pause_before

MANAGER: Final = "mooring"
_APPLY: Final = {"Content-Type": "application/apply-patch+yaml"}
_JSON: Final = {"Content-Type": "application/json"}
_PATHS: Final[Mapping[str, str]] = {
    **PATHS,
    observation.KIND: f"apis/{observation.API_VERSION}/{observation.PLURAL}",
}


def apply(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object as the document says, whatever set its fields before.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path = f"{_PATHS[document['kind']]}/{document['metadata']['name']}"
    query = {"fieldManager": MANAGER, "force": "true"}
    asked(http, "PATCH", path, params=query, content=encoded(document), headers=_APPLY)


def create_once(http: httpx2.Client, document: Mapping[str, Any]) -> None:
    """Make an object whose content follows from its name; one that is there already is the same.

    Raises:
        ClusterError: the server says no, or nothing.
        InputError: the object is larger than a cluster takes.
    """
    path, query = _PATHS[document["kind"]], {"fieldManager": MANAGER}
    asked(http, "POST", path, (httpx2.codes.CONFLICT,), params=query, content=encoded(document), headers=_JSON)


def node_uid(http: httpx2.Client, name: str) -> str:
    """Return the uid of a Node object; empty when there is none, or it may not be read.

    Raises:
        ClusterError: the server cannot tell at the moment.
    """
    return _text_of(_node(http, name), "metadata", "uid")


def node_kubelet_version(http: httpx2.Client, name: str) -> str:
    """Return the version that a node's kubelet reported when it registered; empty where it cannot be read.

    Source: Kubernetes API v1, Node, ``status.nodeInfo.kubeletVersion``.

    Raises:
        ClusterError: the server cannot tell at the moment.
    """
    return _text_of(_node(http, name), "status", "nodeInfo", "kubeletVersion")


def _node(http: httpx2.Client, name: str) -> object:
    """Return a Node object; None when there is none, or it may not be read."""
    response = asked(http, "GET", f"api/v1/nodes/{name}", (httpx2.codes.FORBIDDEN, httpx2.codes.NOT_FOUND))
    with cluster_errors():
        return msgspec.json.decode(response.content) if response.is_success else None


def _text_of(found: object, *path: str) -> str:
    for name in path:
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


_YOUNGEST: Final = 3600.0
"""Seconds for which facts stay in any case: a publisher makes them just before the state that names them."""
_MOST_YOUNG: Final = 8
"""Facts of one node that stay for that reason: a publisher makes new ones when a configuration changes."""


def prune(http: httpx2.Client, now: float) -> list[str]:
    """Delete facts that no state names, and return their names.

    Args:
        http: with base URL and credentials.
        now: seconds since 1970.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    facts = objects_at(http, _PATHS[FACTS])
    # Read afterwards: whatever names facts that were there before is seen.
    named = {(state.get("spec") or {}).get("facts") for state in objects_at(http, _PATHS[STATE])}
    gone, young = [], Counter[str]()
    for metadata in sorted((one.get("metadata") or {} for one in facts), key=_made, reverse=True):
        name, node = str(metadata.get("name", "")), str((metadata.get("labels") or {}).get(NODE_LABEL, ""))
        if name in named:
            continue
        if now - _made(metadata) < _YOUNGEST and (not node or young[node] < _MOST_YOUNG):
            young[node] += 1
            continue
        # Unless it is another by now
        conditions = {"uid": metadata.get("uid"), "resourceVersion": metadata.get("resourceVersion")}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
        passing = (httpx2.codes.NOT_FOUND, httpx2.codes.CONFLICT)
        if asked(http, "DELETE", f"{_PATHS[FACTS]}/{name}", passing, json=body).is_success:
            gone.append(name)
    return gone


def _made(metadata: dict[str, Any]) -> float:
    """Return when an object was made; infinitely late when that cannot be read."""
    try:
        return (
            datetime.strptime(str(metadata.get("creationTimestamp")), "%Y-%m-%dT%H:%M:%SZ")
            .replace(tzinfo=UTC)
            .timestamp()
        )
    except ValueError:
        return float("inf")


LEAST_WAKING: Final = 5.0
"""Seconds between two times at which waiting pods are tried again: each time the scheduler tries all of them."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """The operator's choice, in seconds."""

    gathering: float = 0.2
    """After the first change of a burst, in which the others come."""
    least: float = 1.0
    """Between two writes."""
    heartbeat: float = 300.0
    """Between two writes when nothing changes."""
    waking: float | None = None
    """Least between two times at which waiting pods are tried again; None for never."""


Room = Mapping[tuple[str, str], int]
"""Zone and resource -> what is available; an empty name stands for the whole node."""


@dataclass(frozen=True, slots=True)
class Pace:
    """What was written when, and whether pods that wait are to be tried again, on a clock that only goes forward.

    >>> pace = Pace(Rhythm()).changed(100.0)
    >>> pace.due, pace.changed(100.1).due, pace.written(100.2).changed(100.3).due
    (100.2, 100.2, 101.2)
    >>> first = Pace(Rhythm(waking=5.0)).written(99.0, {("a", "cpu"): 4})
    >>> less = first.woken(100.0).written(101.0, {("a", "cpu"): 2})
    >>> more = less.written(102.0, {("a", "cpu"): 3})
    >>> less.wakes_at(200.0), more.wakes_at(104.0), more.wakes_at(105.0)
    (False, False, True)
    """

    rhythm: Rhythm
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
            wanted = self.first + self.rhythm.gathering
            if self.last is not None:
                wanted = max(wanted, self.last + self.rhythm.least)
        elif self.last is not None:
            wanted = self.last + self.rhythm.heartbeat
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
        return Pace(self.rhythm, None, now, room=room, has_grown=self.has_grown or grown, asleep=self.asleep)

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
        return self.rhythm.waking is not None and self.has_grown and now >= self.asleep

    def woken(self, now: float, *, done: bool = True) -> Pace:
        """Return the pace after that was done, or has failed: then it is tried again later."""
        return replace(self, has_grown=not done, asleep=now + (self.rhythm.waking or 0.0))

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


ANNOTATION: Final = f"{GROUP}/room"
"""Its value is the sequence of the state that has more room."""


def room_of(seen: Observation) -> Room:
    """Return what the next pod can get of a node; nothing when its kubelet would not start."""
    if seen.node is None:
        return {}
    found = {("", "cpu"): exclusive_cpus_of(seen.node)[1]}
    for zone in zones_of(seen.facts.machine, seen.node):
        found.update({(zone["name"], amount["name"]): int(amount["available"]) for amount in zone["resources"]})
    return found


def wake(http: httpx2.Client, node: str, sequence: int) -> None:
    """Write the annotation.

    Args:
        http: with base URL and credentials.
        node: name of the Node.
        sequence: of the state that has more room.

    Raises:
        ClusterError: the server says no, or nothing.
    """
    content = {"metadata": {"annotations": {ANNOTATION: str(sequence)}}}
    headers = {"Content-Type": "application/merge-patch+json"}
    asked(http, "PATCH", f"api/v1/nodes/{node}", params={"fieldManager": MANAGER}, json=content, headers=headers)
