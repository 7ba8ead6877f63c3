"""A v1 Pod of a live cluster: what the engine and the scheduler read of it, and who may move it.

Source: Kubernetes API v1, Pod; ``kubectl drain`` v1.37 (filters of pods).

Which pods and nodes are meant: selectors of options, and the budgets that keep pods from being evicted.

Source: Kubernetes API v1.37, policy/v1 PodDisruptionBudget; ``kubectl get --selector``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from mooring.engine.core.errors import InputError
from mooring.engine.core.pod import Pod
from mooring.fleet.work import PodDemand, asked_of
from mooring.inputs.decoding.fields import as_mapping, count_at, list_at, mapping_at, text_at, texts_at, within
from mooring.inputs.pods.defaults import PodGates
from mooring.inputs.pods.pod_fields import with_allocated
from mooring.inputs.pods.pod_files import check_identity
from mooring.inputs.pods.pod_relations import PodSelector, label_requirements, pod_relations
from mooring.inputs.pods.pod_status import FINISHED
from mooring.inputs.pods.pods import DEFAULT_GATES, MIRROR, pod_from_object
from mooring.inputs.pods.scheduling_fields import Operator, Requirement, scheduling_fields

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
    # An upgrade may lead to a release that reads statuses.
    gates = replace(gates, reads_statuses=True)
    pod = pod_from_object(with_allocated(content), source=source, gates=gates)
    with within(source=source):
        check_identity(pod)
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


EVERYTHING: Final = PodSelector(None, ())


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """A PodDisruptionBudget."""

    selector: PodSelector
    allowed: int
    """Pods that may be evicted now."""

    def blocks(self, pod: LivePod) -> bool:
        """Tell whether it keeps a pod from being evicted now."""
        return self.allowed < 1 and self.selector.matches(pod.pod.namespace, pod.labels)


def requirements_of_text(text: str, option: str = "") -> tuple[Requirement, ...]:
    """Return the selector of an option, in kubectl's form with equality and existence.

    Args:
        text: of the selector.
        option: its name, for messages.

    Raises:
        InputError: a part of it is not understood.

    >>> all(one.meets({"app": "web"}) for one in requirements_of_text("app=web,tier!=db,!old"))
    True
    """
    return tuple(_requirement_of_text(part.strip(), text, option) for part in text.split(","))


def _requirement_of_text(part: str, text: str, option: str) -> Requirement:
    key, equals, value = part.replace("==", "=").partition("=")
    if equals and key.endswith("!"):
        found = Requirement(key[:-1], Operator.NOT_IN, (value,))
    elif equals:
        found = Requirement(key, Operator.IN, (value,))
    elif part.startswith("!"):
        found = Requirement(part[1:], Operator.DOES_NOT_EXIST)
    else:
        found = Requirement(part, Operator.EXISTS)
    if not found.key or " " in found.key:
        raise InputError(f"{text!r:.80} is not a selector", source=option, remedy="write app=web,tier!=db")
    return found


def disruption_budgets(contents: Iterable[Mapping[str, Any]], source: str) -> tuple[DisruptionBudget, ...]:
    """Return the budgets among objects.

    Raises:
        InputError: one is not valid.
    """
    found = []
    for content in contents:
        with within(source=f"{source}: PodDisruptionBudget"):
            metadata, spec, status = (mapping_at(content, part) for part in ("metadata", "spec", "status"))
            wanted = label_requirements(mapping_at(spec, "selector")) if spec.get("selector") is not None else None
            selector = PodSelector((text_at(metadata, "namespace", "default"),), wanted)
            found.append(DisruptionBudget(selector, count_at(status, "disruptionsAllowed", 0)))
    return tuple(found)
