"""What the objects of a cluster say of pods besides what they request: their node, phase and recorded rejection.

Source: v1 Pod, ``spec.nodeName`` and ``status``; kubelet v1.37.1, pkg/kubelet/kubelet.go (rejectPod); spec: metrics.md
section 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from mooring.engine.core.decision import Rejection, is_admission_reason
from mooring.engine.core.errors import InputError
from mooring.engine.core.machine import Finding
from mooring.engine.core.pod import Pod
from mooring.inputs.decoding.fields import Document, mapping_at, part_at
from mooring.inputs.pods.pods import identity_of
from mooring.inputs.pods.workloads import PodObject, pod_objects
from mooring.lazy import dataclass

OTHER_PODS: Final = "MOOR-513"
LEFT_OUT: Final = "MOOR-502"
REJECTED: Final = "Pod was rejected: "
"""Before the message of a rejection in the status of a pod."""
FINISHED: Final = ("Succeeded", "Failed")
"""Phases in which a pod holds nothing any more."""
_PREFIXES: Final = (REJECTED, "Pod ")
"""Before the message: of older releases it is shorter."""
_MOST_NAMED: Final = 3


class Standing(Enum):
    """How far a pod has come; the value is the words for pods that are left out."""

    NEW = "new"
    """Nothing is known of it, as of a pod that is not created yet."""
    RUNNING = "running"
    ARRIVING = "pending"
    """Bound to a node whose kubelet has not admitted it yet."""
    UNBOUND = "waiting"
    """Bound to no node."""
    REJECTED = "rejected by the kubelet"
    ENDED = "ended"


HOLDS_NOTHING: Final = frozenset({Standing.ENDED, Standing.REJECTED})


def standing_of(content: Mapping[str, Any]) -> Standing:
    """Return how far a v1 Pod has come; the kubelet sets ``startTime`` when it admits or rejects a pod."""
    status = part_at(content, "status")
    phase, reason = status.get("phase"), status.get("reason")
    if phase in FINISHED:
        rejected = phase == "Failed" and isinstance(reason, str) and is_admission_reason(reason)
        return Standing.REJECTED if rejected else Standing.ENDED
    if phase == "Pending" and not status.get("startTime"):
        return Standing.ARRIVING if node_of(content) else Standing.UNBOUND
    return Standing.RUNNING if phase else Standing.NEW


def recorded_failure(content: Mapping[str, Any]) -> Rejection | None:
    """Return the reason and message of the status of a pod that has failed, as the kubelet's check gave them.

    >>> recorded_failure({"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Too much"}})
    Rejection(reason='OutOfcpu', message='Too much', shortage=None)
    """
    status = part_at(content, "status")
    if status.get("phase") != "Failed":
        return None
    reason, message = (value if isinstance(value := status.get(name), str) else "" for name in ("reason", "message"))
    prefix = next((one for one in _PREFIXES if message.startswith(one)), "") if is_admission_reason(reason) else ""
    return Rejection(reason, message.removeprefix(prefix)) if reason else None


def node_of(content: Mapping[str, Any]) -> str:
    """Return the name of the node that a pod is bound to; empty for none."""
    name = part_at(content, "spec").get("nodeName")
    return name if isinstance(name, str) else ""


def bound_nodes(documents: Iterable[Document]) -> frozenset[str]:
    """Return the names of the nodes that pods are bound to."""
    names = {node_of(found.content) for document in documents for found in _pod_objects(document)}
    return frozenset(names - {""})


@dataclass(frozen=True, slots=True)
class DescribedPod:
    """A pod as a list names it, before it is read."""

    pod: Pod
    """Without containers."""
    node: str
    standing: Standing
    failure: Rejection | None
    """What its status records, where it has failed."""

    @property
    def ended(self) -> bool:
        """Tell whether it holds nothing any more."""
        return self.standing in HOLDS_NOTHING


def listed_pods(documents: Iterable[Document]) -> list[DescribedPod]:
    """Return the pods of documents, without those of workloads."""
    found = []
    for one in (one for document in documents for one in _pod_objects(document) if one.replicas is None):
        # What is wrong with a pod is reported where it is read.
        with suppress(InputError):
            name, namespace, uid, _ = identity_of(mapping_at(one.content, "metadata"))
            pod, content = Pod(uid, name, namespace), one.content
            found.append(DescribedPod(pod, node_of(content), standing_of(content), recorded_failure(content)))
    return found


def uids_that_run(documents: Iterable[Document]) -> frozenset[str]:
    """Return the uids of the pods of documents of which the cluster says that they run."""
    return frozenset(one.pod.uid for one in listed_pods(documents) if one.standing is Standing.RUNNING)


def _pod_objects(document: Document) -> list[PodObject]:
    found: list[PodObject] = []
    # What is wrong with the document is reported where its pods are read.
    with suppress(InputError):
        found.extend(one for one in pod_objects(document.content) if isinstance(one, PodObject))
    return found


def standing_finding(node: str, elsewhere: int, asked: int = 0) -> Finding:
    """Return what is said of pods that do not run on the node.

    Args:
        node: name of the node; empty for any.
        elsewhere: how many pods are bound to others.
        asked: how many of the pods that are given as running are pending.
    """
    left_out = ((elsewhere, "bound to other nodes and left out"), (asked, "pending and not counted as running"))
    parts = [f"{count} {'pod is' if count == 1 else 'pods are'} {why}" for count, why in left_out if count]
    return Finding("warning", f"node {node}" if node else "active pods", "; ".join(parts), OTHER_PODS)


def left_out_finding(pods: Sequence[tuple[Pod, Mapping[str, Any]]], kinds: Collection[Standing]) -> Finding | None:
    """Return what is said of pods that hold nothing any more; None where there are none.

    Args:
        pods: each with its object.
        kinds: how the pods stand that are left out.
    """
    if not pods:
        return None
    parts = []
    for standing in (one for one in Standing if one in kinds):
        found = [(pod, content) for pod, content in pods if standing_of(content) is standing]
        if found:
            named = [
                f"{pod.namespace}/{pod.name}{f': {failure.reason}' if (failure := recorded_failure(content)) else ''}"
                for pod, content in found[:_MOST_NAMED]
            ]
            more = ", ..." if len(found) > len(named) else ""
            parts.append(f"{len(found)} {standing.value} ({', '.join(named)}{more})")
    what = "1 pod is" if len(pods) == 1 else f"{len(pods)} pods are"
    return Finding(
        "info", "pods", f"{what} left out: {', '.join(parts)}; mooring explain NAMESPACE/POD asks about one", LEFT_OUT
    )
