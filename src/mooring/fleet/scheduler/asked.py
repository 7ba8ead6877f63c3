"""A pod as the scheduler sees it: its requests, and what else of it decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.engine.core.pod import Container, Pod
from mooring.engine.core.quantity import Quantity
from mooring.engine.kubelet.shapes import PodShape, is_plain, shape_of
from mooring.engine.node.resources import pod_requests
from mooring.inputs.pods.pod_relations import NO_RELATIONS, PodRelations
from mooring.inputs.pods.scheduling_fields import NO_FIELDS, SchedulingFields

UNSET: Final[Mapping[str, Quantity]] = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("200Mi")}
"""What the plugin NodeResourcesFit counts for a container without a request while it scores."""


@dataclass(frozen=True, slots=True)
class PodDemand:
    """What pods of one kind ask of the scheduler and of a node; shared by replicas."""

    shape: PodShape
    fields: SchedulingFields = NO_FIELDS
    priority: int = 0
    relations: PodRelations = NO_RELATIONS
    preempts: bool = True
    """Whether pods of lower priority may be evicted for it."""
    scored: Mapping[str, int] = field(default_factory=dict, compare=False)
    """Requests of cpu and memory as they count in scores."""
    plain: bool = field(default=False, compare=False)
    """Whether no manager of a node gives it anything."""

    @property
    def requests(self) -> Mapping[str, int]:
        """Requests as they count in filters; cpu in millicores."""
        return self.shape.requests

    @property
    def key(self) -> tuple[bytes, SchedulingFields, int, PodRelations, bool]:
        """What equal pods share."""
        return self.shape.key, self.fields, self.priority, self.relations, self.preempts


def asked_of(
    pod: Pod, fields: SchedulingFields = NO_FIELDS, relations: PodRelations = NO_RELATIONS, *, preempts: bool = True
) -> PodDemand:
    """Return what a pod asks.

    Args:
        pod: the pod.
        fields: which nodes it may run on.
        relations: what it asks of other pods.
        preempts: whether pods of lower priority may be evicted for it.

    >>> asked_of(Pod("1", "web")).requests
    {}
    """
    return PodDemand(shape_of(pod), fields, pod.priority, relations, preempts, _scored(pod), is_plain(pod))


def _scored(pod: Pod) -> dict[str, int]:
    filled = tuple(_with_unset(one) for one in pod.containers)
    amounts = pod_requests(
        Pod(pod.uid, pod.name, pod.namespace, filled, resources=pod.resources, overhead=pod.overhead)
    )
    return {name: amounts.get(name, 0) for name in UNSET}


def _with_unset(container: Container) -> Container:
    missing = {name: amount for name, amount in UNSET.items() if name not in container.requests}
    return replace(container, requests={**missing, **container.requests}) if missing else container
