"""A v1 Pod of a live cluster: what the engine and the scheduler read of it, and who may move it.

Source: Kubernetes API v1, Pod; ``kubectl drain`` v1.37 (filters of pods).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.fleet.scheduler.asked import PodDemand, asked_of
from mooring.inputs.decoding.fields import as_mapping, list_at, mapping_at, text_at, texts_at
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import with_allocated
from mooring.inputs.pods.pod_files import check_identity
from mooring.inputs.pods.pod_relations import pod_relations
from mooring.inputs.pods.pod_status import FINISHED
from mooring.inputs.pods.pods import DEFAULT_GATES, MIRROR, pod_from_object
from mooring.inputs.pods.scheduling_fields import scheduling_fields

_DAEMON: Final = "DaemonSet"


class Fixed(Enum):
    """Why a pod is not moved; the value is its name in documents."""

    STATIC = "static"
    DAEMON = "daemonset"
    ALONE = "no-controller"
    """No controller makes it anew."""
    BUDGET = "disruption-budget"
    """A PodDisruptionBudget allows no disruption."""
    NOT_READ = "not-simulated"
    """It has fields that the model of the scheduler does not read."""
    PRIORITY = "priority"
    """It has a higher priority than the replicas."""
    NOT_CHOSEN = "not-selected"
    LEAVING = "leaving"
    """It is being deleted."""


@dataclass(frozen=True, slots=True)
class LivePod:
    """One pod."""

    name: str
    """``namespace/name``."""
    uid: str
    """As nodes name it: of a static pod that which its kubelet gave it."""
    pod: Pod
    asked: PodDemand
    node: str
    """Where it is bound; empty for a pod that waits."""
    order: tuple[bool, str, str]
    """Sorts pods by the time of their start."""
    labels: Mapping[str, str]
    owner: str
    """Kind of its controller; empty for a pod of its own."""
    leaving: bool

    @property
    def stays(self) -> Fixed | None:
        """Why a drain leaves it alone; None for a pod that a drain evicts."""
        if MIRROR in self.pod.annotations or self.owner == "Node":
            return Fixed.STATIC
        return Fixed.DAEMON if self.owner == _DAEMON else None


def live_pod(content: Mapping[str, Any], source: str, gates: PodGates = DEFAULT_GATES) -> LivePod | None:
    """Return a pod; None for one that has finished and counts no more.

    Raises:
        InputError: it is not valid.
    """
    metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
    if text_at(status, "phase") in FINISHED:
        return None
    pod = pod_from_object(with_allocated(content), source=source, gates=gates)
    try:
        check_identity(pod)
    except InputError as error:
        raise error.at(source) from None
    started, created = text_at(status, "startTime"), text_at(metadata, "creationTimestamp")
    return LivePod(
        name=f"{pod.namespace}/{pod.name}",
        uid=pod.uid,
        pod=pod,
        asked=asked_of(pod, scheduling_fields(spec), pod_relations(content)),
        node=text_at(spec, "nodeName"),
        # Times are texts of one form, which sort as what they mean; what was not started yet comes last.
        order=(not started, started or created, f"{pod.namespace}/{pod.name}"),
        labels=texts_at(metadata, "labels") if metadata.get("labels") else {},
        owner=_controller(metadata),
        leaving=metadata.get("deletionTimestamp") is not None,
    )


def _controller(metadata: Mapping[str, Any]) -> str:
    owners = [as_mapping(one) for one in list_at(metadata, "ownerReferences")]
    return next((text_at(one, "kind") for one in owners if one.get("controller") is True), "")
