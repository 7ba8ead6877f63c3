"""What the agent writes to the API server: events, evictions, and the node's taint.

A role for all of it: ``get``, ``list``, ``watch`` on pods; ``create`` on pods/eviction; ``create``, ``patch`` on
events of events.k8s.io; ``get``, ``patch`` on nodes. Source: Kubernetes API v1.37.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from lightkube.models.core_v1 import ObjectReference
from lightkube.models.events_v1 import EventSeries
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Node, Pod, PodEviction
from lightkube.resources.events_v1 import Event
from lightkube.types import PatchType

from mooring.agent.pods.events import LONGEST_NOTE, EventSubject, EventWrite
from mooring.service.cluster.apiserver import Cluster, ClusterError, cluster_errors

CONTROLLER = "mooring/agent"
"""Who the events are from."""
TAINT = "mooring/agent-not-ready"
"""Key of the taint that keeps pods away from a node whose agent is not there."""
EFFECT = "NoSchedule"
_TIME = "%Y-%m-%dT%H:%M:%S.%fZ"


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


def evict_pod(cluster: Cluster, about: EventSubject) -> bool:
    """Ask for the eviction of a pod; tell whether it was still there, and not another one of that name.

    The uid is in the request too, but a server that finds another one there tries for ten seconds before it
    says so (measured).

    Raises:
        ClusterError: it was refused, for example with 429 because of a disruption budget.
    """
    eviction = PodEviction(
        metadata=ObjectMeta(name=about.name, namespace=about.namespace),
        deleteOptions=DeleteOptions(preconditions=Preconditions(uid=about.uid)),
    )
    try:
        with cluster_errors():
            found = cluster.typed.get(Pod, about.name, namespace=about.namespace).metadata
            if found is None or found.uid != about.uid:
                return False
            cluster.typed.create(eviction, about.name, namespace=about.namespace)
    except ClusterError as error:
        if error.code != 404:
            raise
        return False
    return True


def set_taint(cluster: Cluster, node: str, *, present: bool) -> bool:
    """See to it that the node has, or has not, the taint; tell whether anything had to be changed.

    The list of taints can only be written whole, so the write carries the version that was read and fails with 409 when
    another client was faster.

    Raises:
        ClusterError: it failed.
    """
    with cluster_errors():
        found = cluster.typed.get(Node, node)
        spec = found.spec
        taints = [one.to_dict() for one in (spec.taints if spec is not None else None) or []]
        kept = [one for one in taints if not (one.get("key") == TAINT and one.get("effect") == EFFECT)]
        wanted: list[dict[str, Any]] = [*kept, {"key": TAINT, "effect": EFFECT}] if present else kept
        if len(wanted) == len(taints):
            return False
        version = found.metadata.resourceVersion if found.metadata is not None else None
        patch = {"metadata": {"resourceVersion": version}, "spec": {"taints": wanted}}
        cluster.typed.patch(Node, node, patch, patch_type=PatchType.MERGE)
        return True


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
