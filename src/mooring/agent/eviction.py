"""Eviction of rejected pods, and the taint that keeps new ones away, as the API server is asked for them.

The reactor decides about an eviction (:func:`mooring.agent.reactor.placing.report_unplaced`, with ``onRejection:
evict``). Here are the requests, what waits to be requested, and what was given up: the wish for an eviction comes again
with every try of the kubelet, that for the taint with every check, and each failure is reported once.

A role for all of it: ``get``, ``list``, ``watch`` on pods; ``create`` on pods/eviction; ``create``, ``patch`` on
events of events.k8s.io; ``get``, ``patch`` on nodes. Source: Kubernetes API v1.37.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Node, Pod, PodEviction
from lightkube.types import PatchType

from mooring.agent.effects import EventSubject
from mooring.agent.pods.cluster import AgentAccount
from mooring.agent.pods.events import EventWrite
from mooring.service.cluster.apiserver import Cluster, ClusterError, cluster_errors


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
