"""What a kubelet has done, as seen from outside: its state, and what became of every pod that is bound to its node.

Source: kubelet v1.37.1, pkg/kubelet/kubelet.go (rejectPod); spec: metrics.md section 3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from mooring.engine.core.pod import Pod
from mooring.engine.devicemanager.state import Holdings
from mooring.inputs.decoding.fields import as_mapping, mapping_at, text_at, texts_at
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_status import REJECTED
from mooring.inputs.pods.pods import MIRROR, pod_from_object
from mooring.published.objects import NodeFacts, NodeState

UNRECOVERED: Final = re.compile(
    r"Unexpected error while attempting to recover from admission failure: preemption: .*\(res: (?P<resource>[^,]+),"
)
"""Message about a critical pod for which there is no room, and for which ending other pods would not make enough.

Source: kubelet v1.37.1, pkg/kubelet/preemption/preemption.go (HandleAdmissionFailure).
"""
_CRITICAL: Final = 2_000_000_000
_SOURCE = "kubernetes.io/config.source"


@dataclass(frozen=True, slots=True)
class ObservedPod:
    """A pod that is bound to the node, as the API server has it."""

    pod: Pod
    content: Mapping[str, Any]
    """The object."""
    ran: bool = False
    """Whether its status names containers that were made, so that it was admitted."""
    reason: str = ""
    """Of the refusal; empty where it was not refused."""
    message: str = ""
    """Of the refusal, without the words that the kubelet puts before it."""
    leaving: bool = False
    """Whether it is deleted or has ended: the kubelet releases what it holds now or soon."""
    deleted: bool = False
    """Whether it is deleted: the kubelet ends it, though it was refused."""

    @property
    def is_of_amounts(self) -> bool:
        """Whether it was refused because of the sums of what active pods request; no manager decides that."""
        return self.reason.startswith("OutOf") or UNRECOVERED.match(self.message) is not None

    @property
    def created(self) -> str:
        """When it was created, in a form that sorts; a kubelet that starts admits its pods in this order.

        Empty for a static pod: the time is that of its mirror, and its manifest has none, which comes first. Source:
        kubelet v1.37.1, pkg/kubelet/kubelet.go (HandlePodAdditions).
        """
        metadata = mapping_at(self.content, "metadata")
        return "" if MIRROR in texts_at(metadata, "annotations") else text_at(metadata, "creationTimestamp")


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A kubelet and its pods at one moment."""

    facts: NodeFacts
    state: NodeState
    starts: int
    """How often the kubelet has started while it was observed."""
    pods: Mapping[str, ObservedPod]
    """By uid; those included that are gone and that the state still names."""
    holding: frozenset[str] = frozenset()
    """Uids of the pods that hold all exclusive CPUs, memory and devices that their containers are to have."""
    at: float = 0.0
    """When it was seen first, in seconds since 1970."""
    left: Holdings = field(default_factory=dict)
    """Devices that the kubelet's record says pods have that are gone."""

    @property
    def listed(self) -> frozenset[str]:
        """Uids of the pods that the kubelet lists: those that it is deciding about, too."""
        return frozenset(key.uid for key in self.state.pods if key.uid)

    @property
    def held(self) -> frozenset[str]:
        """Uids of the pods that it lists and that were not refused, as far as is known."""
        return frozenset(uid for uid in self.listed if uid not in self.pods or not self.pods[uid].reason)

    @property
    def waiting(self) -> frozenset[str]:
        """Uids of the pods that it lists and has not decided about, as far as is known."""
        return frozenset(uid for uid in self.listed if uid in self.pods and not self.is_decided(uid))

    def runs(self, uid: str) -> bool:
        """Tell whether a pod was admitted and runs; a kubelet that starts later can refuse it still."""
        return uid in self.pods and self.pods[uid].ran and not self.pods[uid].reason

    def is_decided(self, uid: str) -> bool:
        """Tell whether what became of a pod is known: it was refused, it holds all, or a container was made."""
        seen = self.pods[uid]
        return bool(seen.reason) or seen.ran or uid in self.holding


def observed_pod(content: Mapping[str, Any], gates: PodGates) -> ObservedPod:
    """Return a pod of the API server with what its status says of its admission.

    Args:
        content: the object.
        gates: of the node.

    Raises:
        InputError: it is no pod.

    >>> refused = {
    ...     "metadata": {"name": "big", "uid": "1"},
    ...     "spec": {"containers": [{"name": "main"}]},
    ...     "status": {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected: Node didn't have enough"},
    ... }
    >>> seen = observed_pod(refused, PodGates())
    >>> seen.reason, seen.message, seen.leaving
    ('OutOfcpu', "Node didn't have enough", True)
    """
    status = mapping_at(content, "status")
    # What the kubelet has written there since is no part of what it was asked for.
    asked = {**content, "status": {name: status[name] for name in ("qosClass",) if name in status}}
    pod = pod_from_object(asked, source="the API server", gates=gates)
    phase, reason, message = (text_at(status, name) for name in ("phase", "reason", "message"))
    is_refused = phase == "Failed" and message.startswith(REJECTED)
    is_deleted = "deletionTimestamp" in mapping_at(content, "metadata")
    ran = phase in {"Running", "Succeeded"} or any(_was_made(one) for one in status.get("containerStatuses") or ())
    return ObservedPod(
        pod,
        content,
        ran=ran,
        reason=reason if is_refused else "",
        message=message.removeprefix(REJECTED) if is_refused else "",
        leaving=phase in {"Failed", "Succeeded"} or is_deleted,
        deleted=is_deleted,
    )


def is_critical(pod: Pod) -> bool:
    """Tell whether a kubelet ends other pods where there is no room for this one: a static pod, or one of the system's.

    Source: kubelet v1.37.1, pkg/kubelet/types/pod_update.go (IsCriticalPod).
    """
    is_static = MIRROR in pod.annotations or pod.annotations.get(_SOURCE, "api") != "api"
    return is_static or pod.priority >= _CRITICAL


def _was_made(status: object) -> bool:
    return bool(as_mapping(status).get("containerID"))
